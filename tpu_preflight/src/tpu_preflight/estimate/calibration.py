"""What the compiler's estimate of a step is worth: runs that were published, beside it.

``published.tsv`` holds training runs whose time per step somebody published, each with its source.
``python -m benchmarks published`` builds each again in TensorFlow, compiles it as `timing` does,
and writes the estimate into the table, beside what the run took.

The factor is how many times longer than the estimate the runs of one generation took: what the
estimate leaves out (the gradients' way between devices, the input, the host, checkpoints), what
their code did otherwise than ours, and what the compiler of their year made of it. It is no
promise. The runs are few, most are of 2018 to 2021, and six were sent in to benchmarks of speed. Of
a step with a smaller estimate than any of the table (`least_ms`) the host's dispatch and input are
a larger part, and no run tells how large: its range ends where that of the smallest run does, and
it has no price.

MaxText's runs on v5e and v5p (`Run.excluded`) are shown, foretold by the others, and count for no
factor. Of a model that TensorFlow's libraries have, no other run was found there, or on v6e.
Imports no TensorFlow.
"""

import csv
import dataclasses
import functools
import pathlib
import statistics
from collections.abc import Iterable, Iterator
from typing import Any

from tpu_preflight.display import Displayable, Link, Table
from tpu_preflight.estimate.step import Estimate, Timing
from tpu_preflight.text import translated

TABLE = pathlib.Path(__file__).with_name("published.tsv")
NEAR = 0.3  # of what the other runs foretell: the calibration's aim


@dataclasses.dataclass(frozen=True)
class Run:
    """A published training run, and what the compiler says of the same step."""

    run: str  # whose it was, and of what model
    # What is compiled for, such as ``v3-8``. A run on a larger slice is compiled for the smallest
    # one: what a device computes is the same.
    target: str
    devices: int  # of the run: on v2 and v3 cores, on others chips
    rows: int  # of the batch, on each device
    model: str  # how `benchmarks.published` builds it
    size: int  # tokens of a row, or pixels of an image's side
    precision: str  # ``float32`` (the TPU multiplies bfloat16 there, too) or ``bfloat16``
    month: str  # of the publication
    published_ms: float  # milliseconds of a step
    computed: str  # how they follow from what was published
    source: str  # address
    checked: str  # month in which it was read there
    remark: str  # what else is known of the difference; may be empty
    excluded: str  # why it counts for no factor; empty for a run that does
    estimate_ms: float  # the compiler's estimate for one device, in milliseconds
    roofline_ms: float  # the bound (`compiler.roofline`), in milliseconds

    @property
    def generation(self) -> str:
        """Such as ``v3``."""
        return self.target.partition("-")[0]

    @property
    def ratio(self) -> float:
        """How many times longer the step took than the estimate."""
        return self.published_ms / self.estimate_ms

    @property
    def program(self) -> tuple[object, ...]:
        """What is compiled: runs with the same have the same estimate."""
        return self.target, self.model, self.rows, self.size, self.precision


@dataclasses.dataclass(frozen=True)
class Factor:
    """How many times longer than the compiler's estimate a step takes."""

    generation: str  # such as ``v3``
    low: float  # of the fastest run
    middle: float  # the runs' geometric mean
    high: float  # of the slowest
    runs: int  # how many runs it comes from
    basis: str  # of this generation; where it has too few, of all of the table, and why
    # How far off the runs were on average when foretold without themselves: 0.2 is a fifth.
    error: float

    def range_ms(self, estimate: float) -> tuple[float, float]:
        """Give the ends of the range of a step with such an estimate, in milliseconds."""
        return estimate * self.low, max(estimate, least_ms()) * self.high

    def __repr__(self) -> str:
        return translated(
            f"{self.generation}: {self.runs} published runs (of {self.basis}) took {self.low:.2f} "
            f"to {self.high:.2f} times the estimate, {self.middle:.2f} as their geometric mean; "
            f"foretold without themselves they were {self.error:.0%} off on average"
        )


class Runs(Displayable, tuple[Run, ...]):
    """The published runs, shown as a table; each is a `Run`."""

    def blocks(self) -> Iterator[Any]:
        """Give the table, how many of them are foretold, and what is known of the others."""
        each = [(run, off(run, self)) for run in self]
        yield Table(
            {
                "run": Link(f"{run.run} ({run.month})", run.source),
                "devices": f"{run.devices} of {run.generation}",
                "rows × size": f"{run.rows} × {run.size}",
                "precision": run.precision,
                "roofline": f"{run.roofline_ms:g} ms",
                "estimate": f"{run.estimate_ms:g} ms",
                "published": f"{run.published_ms:g} ms",
                "ratio": f"{run.ratio:.2f}",
                "foretold from others": f"{float(f'{run.published_ms / (1 + longer):.3g}'):g} ms",
                "off": f"{longer:+.0%}",
            }
            for run, longer in each
        )
        away = [
            f"{run.run} ({x:+.0%}): {run.remark or 'not known'}" for run, x in each if abs(x) > NEAR
        ]
        yield (
            f"{len(self) - len(away)} of {len(self)} steps lie within {NEAR:.0%} of what the other "
            "runs foretell. Why the rest may not:"
        )
        yield from away


@functools.cache
def published() -> Runs:
    """Read the table of published runs, in its order."""
    with TABLE.open(encoding="utf-8") as file:
        kinds = {field.name: field.type for field in dataclasses.fields(Run)}
        return Runs(
            Run(**{name: kinds[name](value) for name, value in row.items()})
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        )


def row(timing: Timing, estimates: Iterable[Estimate], measured_ms: float) -> str:
    """Write what a step took on a TPU as a row of the table; whoever measured fills in each ``?``.

    The estimates, of which one has the timing's target, know devices, rows and the least time.
    """
    (estimate,) = (found for found in estimates if found.target == timing.target)
    known = {
        "target": timing.target,
        "devices": str(estimate.replicas),
        "rows": str(estimate.rows or "?"),
        "published_ms": f"{measured_ms:g}",
        "remark": "",
        "excluded": "",
        "estimate_ms": f"{timing.ms:.4g}",
        "roofline_ms": f"{estimate.bound_ms:.4g}",
    }
    return "\t".join(known.get(field.name, "?") for field in dataclasses.fields(Run))


def least_ms() -> float:
    """Give the smallest estimate among the published runs, in milliseconds."""
    return min(run.estimate_ms for run in published() if not run.excluded)


def _speaking_for(generation: str, runs: Iterable[Run]) -> list[Run]:
    """Choose the runs of a generation; all if they are of one program. None is a run apart."""
    runs = [run for run in runs if not run.excluded]
    own = [run for run in runs if run.generation == generation]
    return own if len({run.program for run in own}) > 1 else runs


def off(run: Run, runs: Iterable[Run]) -> float:
    """Say how much longer a step took than the others foretell, as a share: 0.2 is a fifth longer.

    Runs of the same program are no others.
    """
    others = (x for x in runs if x.program != run.program)
    ratios = (other.ratio for other in _speaking_for(run.generation, others))
    return run.ratio / statistics.geometric_mean(ratios) - 1


def factor(generation: str) -> Factor:
    """Say how many times longer than the estimate a step takes, from published runs.

    A generation (such as ``v3``) with runs of fewer than two programs takes those of all.
    """
    every = [run for run in published() if not run.excluded]
    runs = _speaking_for(generation, every)
    own = all(run.generation == generation for run in runs)
    error = statistics.fmean(
        abs(off(run, (o for o in every if own or o.generation != run.generation))) for run in runs
    )
    ratios = [run.ratio for run in runs]
    return Factor(
        generation,
        min(ratios),
        statistics.geometric_mean(ratios),  # twice too long is as far from it as half of it
        max(ratios),
        len(runs),
        generation
        if own
        else "all kinds, as this one has too few"
        if generation in {run.generation for run in every}
        else "other kinds, as this one has too few",
        error,
    )
