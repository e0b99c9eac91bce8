"""What a step costs and how long it takes, as data and as tables. Knows no TensorFlow."""

import dataclasses
from collections.abc import Iterable

from tpu_preflight.display import MISSING, Table
from tpu_preflight.text import plain_number, size

BOUNDS = "The least time is a bound, not a prediction. Nothing here was run on a TPU."

ESTIMATE = (
    "The estimate is the compiler's, for the device alone. Where your host or your input is slow, "
    "a step takes longer."
)

TABLES = ("operations", "layers", "lines")


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What one step costs on one target, by its compiler; bounds, not predictions."""

    target: str  # such as ``v5e-8``
    replicas: int  # TensorFlow devices
    # Rows of the batch on each replica; None where the batch has no common first size.
    rows: int | None
    flops: float  # floating-point operations of a step on one replica
    # What all kernels of a step read and write in the memory of one replica, in bytes.
    bytes: float
    peak_bytes: int  # memory that the program needs on one replica
    available_bytes: int  # memory of a replica that programs may use
    compute_ms: float  # ``flops`` at the chip's peak, in milliseconds
    # Variables, batch and results, once through the memory at its peak, in milliseconds.
    memory_ms: float
    link_ms: float = 0.0  # what a chip sends, over all its links to others; 0 with one replica
    # Gradients that each replica sends around per step; None with one replica or where it is not
    # known.
    all_reduce_bytes: int | None = None
    # Most rows per replica that fit; None where it was not looked for.
    largest_rows: int | None = None

    @property
    def is_for_one(self) -> bool:
        """Whether it is for one of several devices: the program's arguments have no sharding."""
        return self.replicas > 1 and self.all_reduce_bytes is None

    @property
    def bound_ms(self) -> float:
        """The least time of a step, in milliseconds: the longest of the three."""
        return max(self.compute_ms, self.memory_ms, self.link_ms)

    @property
    def limited_by(self) -> str:
        """Which of them it is: ``compute``, ``memory`` or ``interconnect``."""
        sides = {"compute": self.compute_ms, "memory": self.memory_ms, "interconnect": self.link_ms}
        return max(sides, key=sides.get)


@dataclasses.dataclass(frozen=True)
class Row:
    """A part of a step."""

    name: str  # the operation, layer or line
    ms: float  # milliseconds of a step
    share: float  # of the step, 0 to 1
    # What most of that time waits for: ``compute`` (the matrix units at their peak), ``HBM`` (the
    # device's memory at its bandwidth) or ``vector`` (neither: the vector unit, or memory on the
    # chip); empty for several parts together, and where no kernel runs.
    bound: str
    help: str = ""  # what would help, where the compiled program shows it


@dataclasses.dataclass(frozen=True)
class Exchange:
    """What the devices send each other in a step, of one kind."""

    kind: str  # ``all-reduce`` (gradients, mostly), ``all-gather``, ``reduce-scatter`` and so on
    bytes: float  # of the whole tensors
    parts: int  # places in the program where that happens
    waits: int  # of them, those for which the program waits; during the others it computes
    low_ms: float  # milliseconds where all links of a chip are busy
    high_ms: float  # milliseconds where the chips are one ring
    quoted: bool = False  # whether the links' bandwidth is quoted from a paper (`Chip.ici_quoted`)

    @property
    def summary(self) -> str:
        """One line: how much, how long, and whether the program computes meanwhile."""
        overlapped = self.parts - self.waits
        if overlapped:
            overlap = (
                f"during {overlapped} of them the program computes, so part of it may be hidden"
            )
        else:
            overlap = "the compiled program waits for each"
        low = plain_number(self.low_ms, 2)
        high = plain_number(self.high_ms, 2)
        text = (
            f"{self.kind}: {size(self.bytes)} at {self.parts} places in the step, "
            f"{low} to {high} ms over the interconnect; {overlap}"
        )
        if self.quoted:
            text += "; its bandwidth is from a paper, as Google's pages don't give it"
        return text


@dataclasses.dataclass(frozen=True)
class Timing:
    """What a step takes on each device of a target."""

    target: str  # such as ``v5e-8``
    # Milliseconds: the kernels, by the compiler's estimate and by those that were measured, and
    # what the program waits for.
    ms: float
    low_ms: float  # the same, as published runs make it: for a fast run; never less than the bound
    high_ms: float  # for a slow one; never less than the estimate and what the program waits for
    factor: str  # where the range comes from, in a sentence
    busy: float  # share of them in which the matrix units would be busy at their peak rate
    # Kernels that the compiler has no estimate for, and loops of which it doesn't know the rounds;
    # they are missing from ``ms``, or count once.
    missing: int
    operations: tuple[Row, ...]  # the parts by kind of operation, the longest first, at most nine
    layers: tuple[Row, ...]  # the same by layer, gradients included
    lines: tuple[Row, ...]  # the same by the learner's line, gradients included
    exchanges: tuple[Exchange, ...] = ()  # what the devices send each other, by kind

    @property
    def notes(self) -> list[str]:
        """Lines below its summary: where the range comes from, and what the devices exchange."""
        notes = [self.factor]
        for exchange in self.exchanges:
            notes.append(exchange.summary)
        return notes


def parts(timing: Timing, title: str) -> Table:
    """Write the ``operations``, ``layers`` or ``lines`` of a step as a table."""
    table = Table()
    # The title is also the name of the field.
    for part in getattr(timing, title):
        row = {
            title: part.name,
            "ms": plain_number(part.ms),
            "share": f"{part.share:.1%}",
            "bound by": part.bound or "–",
            "help": part.help,
        }
        table.append(row)
    return table


def flop(number: float) -> str:
    """Write a number of operations with three digits and a prefix: ``2.77 TFLOP``."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        # A little less than the factor is written as it: 1.00 GFLOP, not 1000 MFLOP.
        if number >= factor * 0.9995:
            return f"{plain_number(number / factor)} {prefix}FLOP"
    return f"{number:.0f} FLOP"


def count(number: int | None) -> str:
    """Write a number for a cell of a table; a dash for None."""
    if number is None:
        return MISSING
    return f"{number:,}"


def costs(estimates: Iterable[Estimate]) -> list[dict[str, str]]:
    """Write the estimates as rows of a table, by the names of its columns."""
    rows = []
    for estimate in estimates:
        all_reduce = MISSING
        if estimate.all_reduce_bytes is not None:
            all_reduce = size(estimate.all_reduce_bytes)
        # A smaller bound has no digits that mean anything.
        if estimate.bound_ms >= 0.01:
            least_time = f"{plain_number(estimate.bound_ms)} ms"
        else:
            least_time = "< 0.01 ms"
        devices = str(estimate.replicas)
        if estimate.is_for_one:
            devices = f"1 of {devices}, no sharding"
        row = {
            "target": estimate.target,
            "replicas": devices,
            "rows each": count(estimate.rows),
            "compute": flop(estimate.flops),
            "traffic": size(estimate.bytes),
            "peak memory": size(estimate.peak_bytes),
            "of": size(estimate.available_bytes),
            "least time": least_time,
            "limited by": estimate.limited_by,
            "all-reduce": all_reduce,
            "most rows": count(estimate.largest_rows),
        }
        rows.append(row)
    return rows
