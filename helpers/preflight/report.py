"""What a preflight found: as a page, as a table in a terminal, as JSON. Knows no TensorFlow."""

import dataclasses
import html
import json
import pathlib
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from helpers.base import files
from helpers.base.errors import CourseError

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
    "Compute, memory traffic and time are lower bounds from the compiled program and the chip's "
    "peak rates, not predictions: BERTurk's published run on a v3-8 (batch 128, 512 places) took "
    "302 ms a step, 2.1 times its bound of 146 ms. Nothing here was run on a TPU."
)


class DamagedReport(CourseError):
    """A text is no report of a preflight."""


@dataclasses.dataclass(frozen=True)
class Item:
    """One thing that was looked at.

    Attributes:
        check: Number of the check it belongs to, a key of ``CHECKS``.
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


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What one step costs on one target, by its compiler; bounds, not predictions.

    Attributes:
        target: Such as ``v5e-8``.
        replicas: TensorFlow devices.
        rows: Rows of the batch on each replica; None where the batch has no common first size.
        flops: Floating-point operations of a step on one replica.
        bytes: Memory traffic of a step on one replica, in bytes.
        peak_bytes: Memory that the program needs on one replica.
        available_bytes: Memory of a replica that programs may use.
        compute_ms: ``flops`` at the chip's peak, in milliseconds.
        memory_ms: ``bytes`` at the chip's peak, in milliseconds.
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
class Report:
    """The whole checklist, gone through for one model and some targets.

    Attributes:
        subject: Name of the function or model.
        targets: Such as ``("v5e-8",)``.
        items: Everything that was looked at, in the order of the checks.
        estimates: One for each target whose compiler accepted the program.
    """

    subject: str
    targets: tuple[str, ...]
    items: tuple[Item, ...]
    estimates: tuple[Estimate, ...] = ()

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
        """Choose the items of one state.

        Args:
            state: ``pass``, ``warn``, ``fail`` or ``not checked``.

        Returns:
            The items, in the order of the checks.
        """
        return tuple(item for item in self.items if item.state == state)

    def json(self) -> str:
        """Write the report as JSON; ``from_json`` reads it."""
        plain = dataclasses.asdict(self) | {"status": self.status}
        return json.dumps(plain, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Read what ``json`` wrote.

        Args:
            text: JSON.

        Returns:
            An equal report.

        Raises:
            DamagedReport: The text is something else.
        """
        try:
            plain = json.loads(text)
            return cls(
                plain["subject"],
                tuple(plain["targets"]),
                tuple(Item(**item) for item in plain["items"]),
                tuple(Estimate(**estimate) for estimate in plain["estimates"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedReport(
                "This text is no report of a preflight.",
                f"{type(error).__name__}: {error}.",
                "Make a new one: python -m helpers preflight module:name --json",
            ) from error

    def save_html(self, path: str | pathlib.Path) -> None:
        """Write the report as one page that opens anywhere, without network.

        Args:
            path: The file.

        Raises:
            CantWrite: The disk is full, or the place is not writable.
        """
        title = html.escape(f"Preflight: {self.summary}")
        page = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{title}</title><style>body{{font:16px/1.45 system-ui,sans-serif;"
            "max-width:70rem;margin:2rem auto;padding:0 1rem;background:Canvas;color:CanvasText}"
            "</style></head><body><main>"
            f"{self._repr_html_()}</main></body></html>\n"
        )
        files.write(pathlib.Path(path), page)

    def __repr__(self) -> str:
        lines = [f"Preflight of {self.summary}", *map(repr, self.items)]
        if self.estimates:
            head, *rows = _estimate_rows(self.estimates)
            widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
            for row in (head, *rows):
                lines.append("  ".join(map(str.ljust, row, widths)).rstrip())
            lines.append(BOUNDS)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return _page(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(f"Preflight of {self.summary}", style="bold")
        table = Table(show_lines=False, pad_edge=False, expand=False)
        for column in ("", "check", "what was seen, and what to do"):
            table.add_column(column, overflow="fold")
        last = None
        for item in self.items:
            if item.check != last:
                table.add_row("", Text(f"{item.check}", style="bold"), Text(CHECKS[item.check]))
                last = item.check
            said = Text(item.finding)
            if item.where:
                said.append(f"\nat {item.where}", style="dim")
            if item.fix:
                said.append(f"\nfix: {item.fix}", style="italic")
            state = Text(f"{SIGNS[item.state]} {item.state}", style=COLOURS[item.state])
            table.add_row(state, item.name, said)
        yield table
        if self.estimates:
            head, *rows = _estimate_rows(self.estimates)
            costs = Table(*head, pad_edge=False)
            for row in rows:
                costs.add_row(*row)
            yield costs
            yield Text(BOUNDS, style="dim")


def big(number: float, unit: str) -> str:
    """Write a number with three digits and a prefix, such as ``2.77 TFLOP`` or ``15.8 GB``.

    Args:
        number: Not negative.
        unit: ``FLOP`` or ``B``.

    Returns:
        The text; prefixes are powers of 1000.
    """
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor * 0.9995:
            return f"{_three(number / factor)} {prefix}{unit}"
    return f"{number:.0f} {unit}"


def _three(number: float) -> str:
    return f"{number:.3g}" if number < 999.5 else f"{number:,.0f}"


def _estimate_rows(estimates: Iterable[Estimate]) -> list[tuple[str, ...]]:
    rows = [
        (
            "target",
            "replicas",
            "rows each",
            "compute",
            "traffic",
            "peak memory",
            "of",
            "least time",
            "limited by",
            "all-reduce",
            "most rows",
        )
    ]
    for e in estimates:
        rows.append(
            (
                e.target,
                str(e.replicas),
                "–" if e.rows is None else f"{e.rows:,}",
                big(e.flops, "FLOP"),
                big(e.bytes, "B"),
                big(e.peak_bytes, "B"),
                big(e.available_bytes, "B"),
                f"{_three(e.bound_ms)} ms" if e.bound_ms >= 0.01 else "< 0.01 ms",
                e.limited_by,
                "–" if e.all_reduce_bytes is None else big(e.all_reduce_bytes, "B"),
                "–" if e.largest_rows is None else f"{e.largest_rows:,}",
            )
        )
    return rows


def _page(report: Report) -> str:
    """Build the page. Colours come from the reader's own theme; states are words and signs."""
    cell = 'style="text-align:left;vertical-align:top;padding:.35em .7em"'
    rows, last = [], None
    for item in report.items:
        if item.check != last:
            title = f"{item.check}. {html.escape(CHECKS[item.check])}"
            rows.append(f'<tr><th colspan="3" {cell}>{title}</th></tr>')
            last = item.check
        said = html.escape(item.finding)
        if item.where:
            said += f'<br><code style="white-space:pre-wrap">{html.escape(item.where)}</code>'
        if item.fix:
            said += f"<br><em>Fix:</em> {html.escape(item.fix)}"
        state = f"{SIGNS[item.state]} {item.state}"
        if item.state in (FAIL, OPEN):
            state = f"<strong>{state}</strong>"
        rows.append(
            f'<tr><td {cell}><span style="white-space:nowrap">{state}</span></td>'
            f"<td {cell}>{html.escape(item.name)}</td><td {cell}>{said}</td></tr>"
        )
    head = "".join(f"<th {cell}>{title}</th>" for title in ("state", "check", "what was seen"))
    page = (
        f"<p><strong>Preflight of {html.escape(report.summary)}</strong></p>"
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
    if report.estimates:
        names, *values = _estimate_rows(report.estimates)
        head = "".join(f"<th {cell}>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td {cell}>{html.escape(v)}</td>" for v in row) + "</tr>"
            for row in values
        )
        page += (
            f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table><p><small>{html.escape(BOUNDS)}</small></p>"
        )
    return page
