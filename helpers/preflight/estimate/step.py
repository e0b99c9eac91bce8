"""What a step costs and how long it takes, as data and as tables. Knows no TensorFlow."""

import dataclasses
from collections.abc import Iterable

from helpers.xla.tpu_compiler import size

BOUNDS = (
    "The least time is a bound, not a prediction: operations at the chip's peak rate, or "
    "variables, batch and results once through its memory. Traffic is what all kernels read and "
    "write; some of it stays on the chip. BERTurk's published run on a v3-8 (batch 128, 512 "
    "positions) took 302 ms a step, 4.0 times its bound of 75 ms. Nothing here was run on a "
    "TPU."
)

ESTIMATE = (
    "The times are the compiler's own estimate for one device that computes and nothing else: "
    "neither the gradients' way between devices nor the input or the host is in them. It was 0.75 "
    "of what BERTurk's steps took on a v3 (2020), and 0.82 for ResNet-50 on a v2 (2018)."
)

TABLES = ("operations", "layers", "lines")


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What one step costs on one target, by its compiler; bounds, not predictions.

    Attributes:
        target: Such as ``v5e-8``.
        replicas: TensorFlow devices.
        rows: Rows of the batch on each replica; None where the batch has no common first size.
        flops: Floating-point operations of a step on one replica.
        bytes: What all kernels of a step read and write on one replica, in bytes.
        peak_bytes: Memory that the program needs on one replica.
        available_bytes: Memory of a replica that programs may use.
        compute_ms: ``flops`` at the chip's peak, in milliseconds.
        memory_ms: Variables, batch and results, once through the memory at its peak, in
            milliseconds.
        all_reduce_bytes: Gradients that each replica sends around per step; None with one replica
            or where it is not known.
        largest_rows: Most rows per replica that fit; None where it was not looked for.
    """

    target: str
    replicas: int
    rows: int | None
    flops: float
    bytes: float
    peak_bytes: int
    available_bytes: int
    compute_ms: float
    memory_ms: float
    all_reduce_bytes: int | None = None
    largest_rows: int | None = None

    @property
    def bound_ms(self) -> float:
        """The least time of a step, in milliseconds: the longer of compute and memory."""
        return max(self.compute_ms, self.memory_ms)

    @property
    def limited_by(self) -> str:
        """Which of the two it is: ``compute`` or ``memory``."""
        return "compute" if self.compute_ms >= self.memory_ms else "memory"


@dataclasses.dataclass(frozen=True)
class Row:
    """A part of a step.

    Attributes:
        name: The operation, layer or line.
        ms: Milliseconds of a step.
        share: Of the step, 0 to 1.
        bound: What most of that time waits for: ``compute`` (the matrix units at their peak),
            ``HBM`` (the device's memory at its bandwidth) or ``vector`` (neither: the vector unit,
            or memory on the chip); empty for several parts together.
    """

    name: str
    ms: float
    share: float
    bound: str


@dataclasses.dataclass(frozen=True)
class Timing:
    """What a step takes on each device of a target.

    Attributes:
        target: Such as ``v5e-8``.
        ms: Milliseconds, by the compiler's estimate; without the all-reduce.
        busy: Share of them in which the matrix units would be busy at their peak rate.
        missing: Kernels that the compiler has no estimate for, and loops of which it doesn't know
            the rounds; they are missing from ``ms``, or count once.
        operations: The parts by kind of operation, the longest first, at most nine.
        layers: The same by layer, gradients included.
        lines: The same by the learner's line, gradients included.
    """

    target: str
    ms: float
    busy: float
    missing: int
    operations: tuple[Row, ...]
    layers: tuple[Row, ...]
    lines: tuple[Row, ...]

    @classmethod
    def from_plain(cls, plain: dict) -> "Timing":
        """Read what ``dataclasses.asdict`` wrote."""
        tables = {title: tuple(Row(**row) for row in plain[title]) for title in TABLES}
        return cls(**plain | tables)

    @property
    def summary(self) -> str:
        """One line: the time, and how busy the matrix units are."""
        text = (
            f"{self.target}: {self.ms:.3g} ms a step, the matrix units busy {self.busy:.0%} of it"
        )
        return f"{text}; not counted in full: {self.missing} kernels" if self.missing else text


def parts(timing: Timing, title: str) -> list[dict[str, str]]:
    """Write a table of a step's parts as rows, by the names of its columns."""
    return [
        {
            title: row.name,
            "ms": f"{row.ms:.3g}",
            "share": f"{row.share:.1%}",
            "bound by": row.bound or "–",
        }
        for row in getattr(timing, title)
    ]


def flop(number: float) -> str:
    """Write a number of operations with three digits and a prefix: ``2.77 TFLOP``."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor * 0.9995:
            return f"{_three(number / factor)} {prefix}FLOP"
    return f"{number:.0f} FLOP"


def _three(number: float) -> str:
    return f"{number:.3g}" if number < 999.5 else f"{number:,.0f}"


def costs(estimates: Iterable[Estimate]) -> list[dict[str, str]]:
    """Write the estimates as rows of a table, by the names of its columns."""
    return [
        {
            "target": e.target,
            "replicas": str(e.replicas),
            "rows each": "–" if e.rows is None else f"{e.rows:,}",
            "compute": flop(e.flops),
            "traffic": size(e.bytes),
            "peak memory": size(e.peak_bytes),
            "of": size(e.available_bytes),
            "least time": f"{_three(e.bound_ms)} ms" if e.bound_ms >= 0.01 else "< 0.01 ms",
            "limited by": e.limited_by,
            "all-reduce": "–" if e.all_reduce_bytes is None else size(e.all_reduce_bytes),
            "most rows": "–" if e.largest_rows is None else f"{e.largest_rows:,}",
        }
        for e in estimates
    ]
