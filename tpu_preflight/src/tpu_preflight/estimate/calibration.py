"""What the compiler's estimate of a step is worth, compared with published runs.

``published.tsv`` holds training runs whose time per step was published, each with its source.
``python -m benchmarks published`` builds each again in TensorFlow, compiles it as `timing` does,
and writes the estimate into the table, next to what the run took.

The factor is how many times longer than the estimate the runs of one generation took: what the
estimate leaves out (the gradients' way between devices, the input, the host, checkpoints), what
their code did differently from ours, and what the compiler of their year made of it. It is no
promise. The runs are few, most are of 2018 to 2021, and six were sent in to benchmarks of speed. Of
a step with a smaller estimate than any of the table (`least_ms`) the host's dispatch and input are
a larger part, and no run tells how large: the report has no range and no price for it.

MaxText's on v5e and v5p (`Run.excluded`), whose pages say which rate they expect, a single
product on v6e, and one model on TPU7x, twice, are shown, predicted from the others, and count for
no factor. Of a model that TensorFlow's libraries have, no other run was found there, or on v6e.
The runs on v6e are small steps of JAX. They count for v6e alone (`Run.general`): an estimate of
theirs has Pallas' kernels and what the program waits for in it, and their smallest is smaller.
Imports no TensorFlow.
"""

import csv
import dataclasses
import functools
import pathlib
import statistics
from collections.abc import Iterable, Iterator
from typing import Any

from tpu_preflight.chips import hardware
from tpu_preflight.display import Displayable, Link, Table
from tpu_preflight.estimate.step import Estimate, Timing
from tpu_preflight.text import plain_number, translated

TABLE = pathlib.Path(__file__).with_name("published.tsv")
NEAR = 0.3  # share of the prediction from the other runs: the calibration's aim


@dataclasses.dataclass(frozen=True)
class Run:
    """A published training run, and what the compiler says of the same step."""

    run: str  # whose it was, and of what model
    # What is compiled for, such as ``v3-8``. A run on a larger slice is compiled for the smallest
    # one: what a device computes is the same.
    target: str
    devices: int  # of the run: on v2, v3 and TPU7x cores, on others chips
    rows: int  # of the batch, on each device
    model: str  # how `benchmarks.published` builds it
    size: int  # tokens of a row, or pixels of an image's side
    precision: str  # ``float32`` (the TPU multiplies bfloat16 even then) or ``bfloat16``
    month: str  # of the publication; empty where the source isn't named yet
    published_ms: float  # milliseconds of a step
    computed: str  # how they follow from what was published
    source: str  # address, or when it will be named
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
    def general(self) -> bool:
        """Whether it counts for other generations as well, where they have too few runs."""
        return not self.model.startswith("blind ")

    @property
    def expected(self) -> bool:
        """Whether its authors published what they expect, and don't say that they measured it."""
        return "expected performance" in self.computed

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
    # Where they come from: the generation, or, where that has too few, which others.
    basis: str
    # Leave-one-out error: how far off the runs were, on average, when each was predicted from the
    # others. 0.2 is a fifth.
    error: float

    def range_ms(self, estimate: float) -> tuple[float, float]:
        """Give the ends of the range of a step with such an estimate, in milliseconds."""
        return estimate * self.low, max(estimate, least_ms(self.generation)) * self.high

    def __repr__(self) -> str:
        return translated(
            f"{self.generation}: {self.runs} published runs (from {self.basis}) took "
            f"{self.low:.2f} to {self.high:.2f} times the estimate, {self.middle:.2f} as their "
            f"geometric mean; each predicted from the others alone was {self.error:.0%} off, "
            "on average"
        )


class Runs(Displayable, tuple[Run, ...]):
    """The published runs, shown as a table; each is a `Run`."""

    def blocks(self) -> Iterator[Any]:
        """Give the table, how many runs the others predict, and what is known of the rest."""
        rows = []
        outliers = []
        for run in self:
            error = prediction_error(run, self)
            rows.append(_table_row(run, error))
            if abs(error) > NEAR:
                outliers.append(f"{run.run} ({error:+.0%}): {run.remark or 'not known'}")
        yield Table(rows)
        yield (
            f"{len(self) - len(outliers)} of {len(self)} steps are within {NEAR:.0%} of what the "
            "other runs predict. Why the rest may not be:"
        )
        yield from outliers


def _table_row(run: Run, error: float) -> dict[str, str]:
    """Write a run as a row of the table that is shown, by the names of its columns."""
    predicted_ms = float(f"{run.published_ms / (1 + error):.3g}")
    title = f"{run.run} ({run.month or run.source})"
    if run.expected:
        title = f"{run.run} ({run.month}, expected)"
    return {
        "run": Link(title, run.source) if run.source.startswith("https://") else title,
        "devices": f"{run.devices} of {run.generation}",
        "rows × size": f"{run.rows} × {run.size}",
        "precision": run.precision,
        "roofline": f"{run.roofline_ms:g} ms",
        "estimate": f"{run.estimate_ms:g} ms",
        "published": f"{run.published_ms:g} ms",
        "ratio": f"{run.ratio:.2f}",
        "predicted from others": f"{predicted_ms:g} ms",
        "off": f"{error:+.0%}",
    }


@functools.cache
def published() -> Runs:
    """Read the table of published runs, in its order."""
    types = {field.name: field.type for field in dataclasses.fields(Run)}
    runs = []
    with TABLE.open(encoding="utf-8") as file:
        for record in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            values = {name: types[name](text) for name, text in record.items()}
            runs.append(Run(**values))
    return Runs(runs)


def row(timing: Timing, estimates: Iterable[Estimate], measured_ms: float) -> str:
    """Write what a step took on a TPU as a row of the table; whoever measured fills in each ``?``.

    The estimates, of which one has the timing's target, know devices, rows and the least time.
    """
    by_target = {estimate.target: estimate for estimate in estimates}
    estimate = by_target[timing.target]
    values = {}
    for field in dataclasses.fields(Run):
        values[field.name] = "?"
    # What is known here; a remark and a reason for excluding it are optional.
    values["target"] = timing.target
    values["devices"] = str(estimate.replicas)
    values["rows"] = str(estimate.rows or "?")
    values["published_ms"] = f"{measured_ms:g}"
    values["remark"] = ""
    values["excluded"] = ""
    values["estimate_ms"] = f"{timing.ms:.4g}"
    values["roofline_ms"] = f"{estimate.bound_ms:.4g}"
    return "\t".join(values.values())


def shortest_run(generation: str) -> Run:
    """Find the published run with the smallest estimate.

    Those that count for their own generation alone are left out for others.
    """
    runs = []
    for run in _counted(published()):
        if run.general or run.generation == generation:
            runs.append(run)
    return min(runs, key=lambda run: run.estimate_ms)


def least_ms(generation: str) -> float:
    """Give the smallest estimate among the published runs, in milliseconds."""
    return shortest_run(generation).estimate_ms


def is_short(target: str, estimate_ms: float) -> bool:
    """Whether a step's estimate is smaller than that of every published run."""
    return estimate_ms < least_ms(hardware.slice_of(target, jax=True).chip.name)


def why_no_range(generation: str) -> str:
    """Say why a shorter step than all published ones has neither a range nor a price."""
    run = shortest_run(generation)
    runs = factor(generation)
    return (
        f"No published step is as short. The shortest, {run.run} on {run.generation}, took "
        f"{run.published_ms:g} ms, with an estimate of {run.estimate_ms:g} ms; {runs.runs} "
        f"published runs (from {runs.basis}) took {runs.low:.2f} to {runs.high:.2f} times the "
        "estimate. In a shorter step the host's dispatch and input weigh more, and no published "
        "figure says how much: there is no range, and there is no price. Try a larger batch, or "
        "several steps in one program."
    )


def summary(timing: Timing) -> str:
    """Say in a line how long a step takes, and how busy the matrix units are."""
    busy = f"the matrix units busy {timing.busy:.0%} of it"
    estimate = plain_number(timing.ms)
    if is_short(timing.target, timing.ms):
        text = (
            f"{timing.target}: {estimate} ms a step on the device, by the compiler's "
            f"estimate, {busy}; what the host adds is unknown"
        )
    else:
        low = plain_number(timing.low_ms)
        high = plain_number(timing.high_ms)
        text = f"{timing.target}: {low} to {high} ms a step; the estimate is {estimate} ms, {busy}"
    if timing.missing:
        text = f"{text}; not counted in full: {timing.missing} kernels"
    return text


def _counted(runs: Iterable[Run]) -> list[Run]:
    """Choose the runs that count for a factor."""
    return [run for run in runs if not run.excluded]


def _comparable(generation: str, runs: Iterable[Run]) -> list[Run]:
    """Choose the runs of a generation; where they are of one program only, those of all.

    Runs that count for no factor are left out; of all, also those that count for their own alone.
    """
    counted = _counted(runs)
    same_generation = []
    programs = set()
    for run in counted:
        if run.generation == generation:
            same_generation.append(run)
            programs.add(run.program)
    if len(programs) > 1:
        return same_generation
    return [run for run in counted if run.general]


def prediction_error(run: Run, runs: Iterable[Run]) -> float:
    """Compute how much longer a step took than the other runs predict, as a share.

    0.2 is a fifth longer. Runs of the same program have the same estimate, so they are left out.
    """
    independent = [other for other in runs if other.program != run.program]
    ratios = [other.ratio for other in _comparable(run.generation, independent)]
    return run.ratio / statistics.geometric_mean(ratios) - 1


def factor(generation: str) -> Factor:
    """Compute how many times longer than the estimate a step takes, from published runs.

    A generation (such as ``v3``) with runs of fewer than two programs takes those of all.

    Example:
        >>> low_ms, high_ms = factor("v3").range_ms(estimate=200.0)
    """
    counted = _counted(published())
    runs = _comparable(generation, counted)
    generations = {run.generation for run in runs}

    # A prediction for this generation uses its own runs, or those of other generations. The error
    # is that of the same kind of prediction, made for runs whose time is known.
    ratios = []
    errors = []
    for run in runs:
        ratios.append(run.ratio)
        predictors = counted
        if generations != {generation}:
            predictors = [other for other in counted if other.generation != run.generation]
        errors.append(abs(prediction_error(run, predictors)))

    if generations == {generation}:
        basis = generation
    elif generation in generations:
        basis = "all TPU generations: too few for this one"
    else:
        basis = "other TPU generations: too few for this one"
    return Factor(
        generation=generation,
        low=min(ratios),
        # The geometric mean: twice too long is as far from it as half of it.
        middle=statistics.geometric_mean(ratios),
        high=max(ratios),
        runs=len(runs),
        basis=basis,
        error=statistics.fmean(errors),
    )
