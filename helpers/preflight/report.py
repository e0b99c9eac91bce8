"""What a preflight found: as a page, as a table in a terminal, as JSON. Knows no TensorFlow."""

import dataclasses
import json
import pathlib
import tomllib
from collections.abc import Iterable

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from helpers.base import files, html
from helpers.base.errors import CourseError
from helpers.xla.tpu_compiler import size

PASS, WARN, FAIL, OPEN = "pass", "warn", "fail", "not checked"
STATES = (FAIL, WARN, OPEN, PASS)
READY, NOT_READY, CANT_TELL = "ready", "not ready", "can't tell"

# Said with a sign, too, so that no reader needs colours.
SIGNS = {PASS: "✓", WARN: "!", FAIL: "✗", OPEN: "?"}
COLOURS = {PASS: "green", WARN: "yellow", FAIL: "red", OPEN: "cyan"}

CHECKS = {
    1: "XLA's three rules",
    2: "Shapes and compilations",
    3: "Data that the TPU can take",
    4: "Eager against compiled",
    5: "What must change on the way to a TPU",
    6: "Memory",
    7: "Cost",
}

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
class Item:
    """One thing that was looked at, under the check with this number in ``CHECKS``.

    Attributes:
        check: Number of the check.
        name: What was looked at, in a few words.
        state: ``pass``, ``warn``, ``fail`` or ``not checked``.
        finding: What was seen, or why nothing was.
        fix: What to do; empty where nothing is to be done.
        where: The learner's source line, where there is one: ``model.py:12  y = tf.unique(x)``.
        decisive: Whether the report can't say "ready" while this is not checked.
    """

    check: int
    name: str
    state: str
    finding: str
    fix: str = ""
    where: str = ""
    decisive: bool = False

    def __repr__(self) -> str:
        text = f"{SIGNS[self.state]} {self.check} {self.name}: {self.finding}"
        text += f"\n    at {self.where}" if self.where else ""
        return text + (f"\n    fix: {self.fix}" if self.fix else "")


_FINDINGS = tomllib.loads(pathlib.Path(__file__).with_name("findings.toml").read_text("utf-8"))


def finding(
    check: int, key: str, *, state: str = "", where: object = None, **words: object
) -> Item:
    """Fill in what ``findings.toml`` says; ``words`` stand for the names in braces there.

    The state is given where the file leaves it open, and ``where``, the learner's source line,
    where there is one.
    """
    row = _FINDINGS[str(check)][key]
    said = {part: row.get(part, "").format(**words) for part in ("name", "finding", "fix")}
    state, decisive = state or row["state"], row.get("decisive", False)
    return Item(check, state=state, **said, where=str(where or ""), decisive=decisive)


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


@dataclasses.dataclass(frozen=True)
class Report:
    """The whole checklist, gone through for one model and some targets, item by item."""

    subject: str
    targets: tuple[str, ...]
    items: tuple[Item, ...]
    estimates: tuple[Estimate, ...] = ()
    timings: tuple[Timing, ...] = ()

    @property
    def status(self) -> str:
        """``not ready`` where an item fails, ``can't tell`` where a decisive one is open."""
        if any(item.state == FAIL for item in self.items):
            return NOT_READY
        if any(item.state == OPEN and item.decisive for item in self.items):
            return CANT_TELL
        return READY

    @property
    def exit_status(self) -> int:
        """For a shell: 0 ready, 1 not ready, 2 can't tell."""
        return {READY: 0, NOT_READY: 1, CANT_TELL: 2}[self.status]

    @property
    def summary(self) -> str:
        """One line: the status, and how many items stand in each state."""
        counts = [
            f"{number} {state}"
            for state in STATES
            if (number := sum(item.state == state for item in self.items))
        ]
        return f"{self.subject} for {', '.join(self.targets)}: {self.status} ({', '.join(counts)})"

    def find(self, state: str) -> tuple[Item, ...]:
        """Choose the items of one state, in the order of the checks."""
        return tuple(item for item in self.items if item.state == state)

    def json(self) -> str:
        """Write the report as JSON; ``from_json`` reads it."""
        plain = dataclasses.asdict(self) | {"status": self.status}
        return json.dumps(plain, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Read what ``json`` wrote.

        Raises:
            CourseError: The text is something else.
        """
        try:
            plain = json.loads(text)
            items = tuple(Item(**item) for item in plain["items"])
            estimates = tuple(Estimate(**estimate) for estimate in plain["estimates"])
            timings = tuple(map(Timing.from_plain, plain["timings"]))
            return cls(plain["subject"], tuple(plain["targets"]), items, estimates, timings)
        except (ValueError, KeyError, TypeError) as error:
            raise CourseError(
                "This text is no report of a preflight.",
                f"{type(error).__name__}: {error}.",
                "Make a new one: tpu-course preflight module:name --json",
            ) from error

    def save_html(self, path: str | pathlib.Path) -> None:
        """Write the report as one page that opens anywhere, without network.

        Raises:
            CantWrite: The disk is full, or the place is not writable.
        """
        files.write(pathlib.Path(path), self._render("preflight_page.html"))

    def __repr__(self) -> str:
        lines = [f"Preflight of {self.summary}", *map(repr, self.items)]
        if self.estimates:
            lines += [*_aligned(_costs(self.estimates)), BOUNDS]
        for timing in self.timings:
            lines.append(timing.summary)
            for title in TABLES:
                lines += _aligned(_parts(timing, title))
        if self.timings:
            lines.append(ESTIMATE)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return self._render("preflight.html")

    def _render(self, template: str) -> str:
        words = {"CHECKS": CHECKS, "SIGNS": SIGNS, "BOUNDS": BOUNDS, "ESTIMATE": ESTIMATE}
        words["timings"] = [
            (t.summary, [_parts(t, title) for title in TABLES]) for t in self.timings
        ]
        return html.render(template, report=self, costs=_costs(self.estimates), **words)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(f"Preflight of {self.summary}", style="bold")
        table = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 2, 0, 0))
        last = None
        for item in self.items:
            if item.check != last:
                table.add_row(Text(f"{item.check}"), Text(CHECKS[item.check]), style="bold")
                last = item.check
            said = Text(f"{item.name}: {item.finding}")
            if item.where:
                said.append(f"\nat {item.where}", style="dim")
            if item.fix:
                said.append(f"\nfix: {item.fix}", style="italic")
            state = Text(f"{SIGNS[item.state]} {item.state}", style=COLOURS[item.state])
            table.add_row(state, said)
        yield table
        if self.estimates:
            # A column for each target: what is told of one would not fit beside each other.
            costs = Table("", box=box.SIMPLE, pad_edge=False)
            told = _costs(self.estimates)
            for column in told:
                costs.add_column(column["target"], justify="right")
            for name in list(told[0])[1:]:
                costs.add_row(name, *(column[name] for column in told))
            yield costs
            yield Text(BOUNDS, style="dim")
        for timing in self.timings:
            yield Text(timing.summary, style="bold")
            for title in TABLES:
                parts = _parts(timing, title)
                name, *numbers = (Text(column) for column in parts[0])
                table = Table(Column(name, overflow="fold"), box=box.SIMPLE, pad_edge=False)
                for column in numbers:
                    table.add_column(column, no_wrap=True)
                for row in parts:
                    table.add_row(*map(Text, row.values()))
                yield table
        if self.timings:
            yield Text(ESTIMATE, style="dim")


def _parts(timing: Timing, title: str) -> list[dict[str, str]]:
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


def _aligned(table: list[dict[str, str]]) -> list[str]:
    """Write the rows of a table as lines, under its columns' names."""
    rows = [[*table[0]], *([*row.values()] for row in table)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def flop(number: float) -> str:
    """Write a number of operations with three digits and a prefix: ``2.77 TFLOP``."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor * 0.9995:
            return f"{_three(number / factor)} {prefix}FLOP"
    return f"{number:.0f} FLOP"


def _three(number: float) -> str:
    return f"{number:.3g}" if number < 999.5 else f"{number:,.0f}"


def _costs(estimates: Iterable[Estimate]) -> list[dict[str, str]]:
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
