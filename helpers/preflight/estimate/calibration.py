"""What the compiler's estimate of a step is worth: runs that were published, beside it.

``published.tsv`` holds training runs whose time per step somebody published, each with its source.
The benchmark ``published`` rebuilds each in TensorFlow, compiles it as `timing` does, and writes
the estimate beside what the run took. Their ratio says what the estimate leaves out: the gradients'
way between devices, the input, the host, and what the compiler of that year made of the model.

The factor is what that ratio was, for the runs of one generation. It turns an estimate into a range
in which those runs lay. It is no promise: the runs are few, their code was not ours, and each was
one of somebody's who cared for its speed. Where your input or your host is slow, a step takes
longer than the range says. Imports no TensorFlow.
"""

import csv
import dataclasses
import functools
import math
import pathlib
from collections.abc import Sequence

ENOUGH = 2  # runs of a generation, so that each can be foretold from others


@dataclasses.dataclass(frozen=True)
class Run:
    """A published training run, and what the compiler says of the same step.

    Attributes:
        run: Whose it was, and of what model.
        target: What is compiled for, such as ``v3-8``. A run on a larger slice is compiled for
            the smallest one: what a device computes is the same.
        devices: Of the run. On v2 and v3 cores, on v4 half chips (as libtpu compiles), on others
            chips.
        rows: Of the batch, on each device.
        model: How `benchmarks.published` builds it.
        size: Tokens of a row, or pixels of an image's side.
        precision: ``float32`` (the TPU multiplies bfloat16 there, too) or ``bfloat16``.
        month: Of the publication.
        published_ms: Milliseconds of a step.
        computed: How they follow from what was published.
        source: Address.
        checked: Month in which it was read there.
        estimate_ms: The compiler's estimate for one device, in milliseconds.
        roofline_ms: The bound (`tpu_compiler.roofline`), in milliseconds.
    """

    run: str
    target: str
    devices: int
    rows: int
    model: str
    size: int
    precision: str
    month: str
    published_ms: float
    computed: str
    source: str
    checked: str
    estimate_ms: float
    roofline_ms: float

    @property
    def generation(self) -> str:
        """Such as ``v3``."""
        return self.target.partition("-")[0]

    @property
    def ratio(self) -> float:
        """How many times longer the step took than the estimate."""
        return self.published_ms / self.estimate_ms


@dataclasses.dataclass(frozen=True)
class Factor:
    """How many times longer than the compiler's estimate a step takes.

    Attributes:
        generation: Such as ``v3``.
        low: For a fast run.
        middle: The runs' geometric mean.
        high: For a slow one.
        runs: How many runs it comes from.
        own: Whether they are of this generation; if not, there are too few, and they are all runs
            of the table.
        error: How far a run lay from the factor of the *other* runs, on average: 0.2 is a fifth.
    """

    generation: str
    low: float
    middle: float
    high: float
    runs: int
    own: bool
    error: float

    def __repr__(self) -> str:
        whose = self.generation if self.own else f"other kinds (too few on {self.generation})"
        return (
            f"{self.generation}: published steps took {self.low:.2f} to {self.high:.2f} times the "
            f"estimate, {self.middle:.2f} in the middle ({self.runs} runs on {whose}; one run from "
            f"the others: {self.error:.0%} off on average)"
        )


@functools.cache
def published() -> tuple[Run, ...]:
    """Read the table of published runs, in its order."""
    with pathlib.Path(__file__).with_name("published.tsv").open(encoding="utf-8") as file:
        kinds = {field.name: field.type for field in dataclasses.fields(Run)}
        return tuple(
            Run(**{name: kinds[name](value) for name, value in row.items()})
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        )


def middle(ratios: Sequence[float]) -> float:
    """Give the geometric mean: twice too long and half of it are equally far from it."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def left_out(ratios: Sequence[float]) -> list[float]:
    """Give each ratio over the middle of the others: what a factor without it gets wrong."""
    return [ratio / middle([*ratios[:at], *ratios[at + 1 :]]) for at, ratio in enumerate(ratios)]


def factor(generation: str) -> Factor:
    """Say how many times longer than the estimate a step takes, from published runs.

    Args:
        generation: Such as ``v3``; one without two runs takes those of all generations.
    """
    own = [run.ratio for run in published() if run.generation == generation]
    ratios = own if len(own) >= ENOUGH else [run.ratio for run in published()]
    errors = left_out(ratios)
    return Factor(
        generation,
        min(ratios),
        middle(ratios),
        max(ratios),
        len(ratios),
        len(own) >= ENOUGH,
        sum(abs(error - 1) for error in errors) / len(errors),
    )
