"""What a preflight found: as a page, as a table in a terminal, as JSON. Knows no TensorFlow."""

import dataclasses
import json
import pathlib
import re
import tomllib
import types
import typing
from collections import Counter
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from helpers.base import files, html
from helpers.base.errors import unreadable
from helpers.base.language import translated
from helpers.base.messages import aligned
from helpers.preflight.estimate import price
from helpers.preflight.estimate.input import Rate
from helpers.preflight.estimate.price import Price
from helpers.preflight.estimate.step import BOUNDS, ESTIMATE, TABLES, Estimate, Timing, costs, parts
from helpers.xla.numerics.results import Training

PASS, WARN, FAIL, OPEN, NOTHING = "pass", "warn", "fail", "not checked", "does not apply"
STATES = (FAIL, WARN, OPEN, PASS, NOTHING)
READY, NOT_READY, CANT_TELL = "ready", "not ready", "can't tell"

# Said with a sign, too, so that no reader needs colours.
SIGNS = {PASS: "✓", WARN: "!", FAIL: "✗", OPEN: "?", NOTHING: "–"}
COLOURS = {PASS: "green", WARN: "yellow", FAIL: "red", OPEN: "cyan", NOTHING: "dim"}
# Of chip.html; what does not apply has no chip.
KINDS = {PASS: "good", WARN: "wait", FAIL: "bad", OPEN: "wait"}

CHECKS = {
    1: "XLA's three rules",
    2: "Shapes and compilations",
    3: "Data that the TPU can take",
    4: "Eager against compiled",
    5: "What must change on the way to a TPU",
    6: "Memory",
    7: "Cost",
    8: "The numbers of a TPU",
    9: "Does the input keep up?",
}


@dataclasses.dataclass(frozen=True)
class Item:
    """One thing that was looked at, under the check with this number in ``CHECKS``."""

    check: int  # number of the check
    name: str  # what was looked at, in a few words
    state: str  # ``pass``, ``warn``, ``fail``, ``not checked`` or ``does not apply``
    finding: str  # what was seen, or why nothing was
    fix: str = ""  # what to do; empty where nothing is to be done
    # The learner's source line, where there is one: ``model.py:12  y = tf.unique(x)``.
    where: str = ""
    decisive: bool = False  # whether the report can't say "ready" while this is not checked

    def told(self) -> "Item":
        """Give it in the language of messages."""
        said = {part: translated(getattr(self, part)) for part in ("name", "finding", "fix")}
        return dataclasses.replace(self, **said)

    def __repr__(self) -> str:
        item = self.told()
        text = f"{SIGNS[item.state]} {item.check} {item.name}: {item.finding}"
        text += f"\n    at {item.where}" if item.where else ""
        return text + (f"\n    {translated('fix')}: {item.fix}" if item.fix else "")

    def _repr_html_(self) -> str:
        item = self.told()
        fix = item.fix and f"{translated('Fix')}: {item.fix}"
        said = [item.finding, item.where and f"`{item.where}`", fix]
        return html.render(
            "card.html",
            kind=KINDS.get(item.state, "hint"),
            title=f"{item.check} · {item.name}",
            words=f"{SIGNS[item.state]} {translated(item.state)}",
            text="\n".join(filter(None, said)),
            code="",
        )


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
class Change:
    """What is no longer as in the baseline."""

    what: str  # an item's name, ``compilations``, or a time or size and its target
    before: str  # state or number in the baseline
    now: str  # the same in this report
    worse: bool  # whether that is worse, or only different

    def __repr__(self) -> str:
        what, before, now = map(translated, (self.what, self.before, self.now))
        said = translated("worse" if self.worse else "better")
        return f"{said}: {what}: {before}, {translated('now')} {now}"


@dataclasses.dataclass(frozen=True)
class Report:
    """The whole checklist, gone through for one model and some targets, item by item.

    ``report.schema.json``, beside this file, describes its JSON.
    """

    subject: str
    targets: tuple[str, ...]
    items: tuple[Item, ...]
    estimates: tuple[Estimate, ...] = ()
    timings: tuple[Timing, ...] = ()
    training: Training | None = None
    rate: Rate | None = None
    prices: tuple[Price, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def compilations(self) -> int | None:
        """Sets of shapes that the dataset gave, each a compilation; None without a dataset."""
        said = [re.match(r"(\d+) sets? of shapes", i.finding) for i in self.items if i.check == 2]
        return next((int(found[1]) for found in said if found), None)

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
        """For a shell: 0 ready, 1 not ready, 2 can't tell, 3 ready, but worse than the baseline."""
        if self.status == READY and any(change.worse for change in self.changes):
            return 3
        return {READY: 0, NOT_READY: 1, CANT_TELL: 2}[self.status]

    @property
    def summary(self) -> str:
        """One line: the status, and how many items stand in each state."""
        return f"{self.subject} for {', '.join(self.targets)}: {self.status} ({self._counts()})"

    def _counts(self) -> str:
        counts = Counter(item.state for item in self.items)
        words = {state: state.replace("does", "do", counts[state] > 1) for state in STATES}
        told = (translated(f"{counts[state]} {words[state]}") for state in STATES if counts[state])
        return ", ".join(told)

    @property
    def title(self) -> str:
        """The summary as a heading, in the language of messages."""
        return translated(f"Preflight of {self.summary}")

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
        fix = "Make a new one: tpu-course preflight module:name --json"
        with unreadable("This text is no report of a preflight.", fix):
            plain = json.loads(text)
            del plain["status"]
            return _made(cls, plain)

    def save_html(self, path: str | pathlib.Path) -> None:
        """Write the report as one page that opens anywhere, without network.

        Raises:
            CantWrite: The disk is full, or the place is not writable.
        """
        from helpers.preflight.estimate.pictures import bars, roofline_plot  # they take a second

        drawn = {
            t.target: [roofline_plot(t), *(bars(t, title) for title in TABLES)]
            for t in self.timings
        }
        page = self._render("preflight_page.html", pictures=drawn)
        files.write(pathlib.Path(path), page)

    def __repr__(self) -> str:
        lines = [self.title, *map(repr, self.items)]
        if self.estimates:
            lines += [*_aligned(costs(self.estimates)), translated(BOUNDS)]
        for timing in self.timings:
            lines += [translated(timing.summary), *map(translated, timing.notes)]
            for title in TABLES:
                lines += _aligned(parts(timing, title))
        if self.timings:
            lines.append(translated(ESTIMATE))
        lines += [repr(more) for more in (self.rate, self.training) if more is not None]
        if self.prices:
            lines += [*_aligned(price.table(self.prices)), translated(price.verdict(self.prices))]
        lines += map(repr, self.changes)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return self._render("preflight.html")

    def _render(self, template: str, **words: object) -> str:
        words = (
            {"pictures": {}}
            | words
            | {"CHECKS": CHECKS, "KINDS": KINDS, "SIGNS": SIGNS}
            | {"BOUNDS": BOUNDS, "ESTIMATE": ESTIMATE}
        )
        words["timings"] = [(t, [parts(t, title) for title in TABLES]) for t in self.timings]
        words["prices"] = price.table(self.prices)
        words["verdict"] = self.prices and price.verdict(self.prices)
        words["curves"] = self.training and self.training.figure()
        return html.render(template, report=self, costs=costs(self.estimates), **words)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.title, style="bold")
        table = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 2, 0, 0))
        last = None
        for item in (item.told() for item in self.items):
            if item.check != last:
                title = translated(CHECKS[item.check])
                table.add_row(Text(f"{item.check}"), Text(title), style="bold")
                last = item.check
            said = Text(f"{item.name}: {item.finding}")
            if item.where:
                said.append(f"\nat {item.where}", style="dim")
            if item.fix:
                said.append(f"\n{translated('fix')}: {item.fix}", style="italic")
            state = Text(f"{SIGNS[item.state]} {translated(item.state)}", style=COLOURS[item.state])
            table.add_row(state, said)
        yield table
        if self.estimates:
            yield _columns(costs(self.estimates))
            yield Text(translated(BOUNDS), style="dim")
        for timing in self.timings:
            yield Text(translated(timing.summary), style="bold")
            yield Text("\n".join(map(translated, timing.notes)))
            yield from (_rows(parts(timing, title)) for title in TABLES)
        if self.timings:
            yield Text(translated(ESTIMATE), style="dim")
        if self.prices:
            yield _columns(price.table(self.prices))
            yield Text(translated(price.verdict(self.prices)), style="bold")
        for more in (self.rate, self.training):
            if more is not None:
                yield Text(repr(more))
        for change in self.changes:
            yield Text(repr(change), style="bold" if change.worse else "")


def _made(kind: Any, plain: Any) -> Any:
    """Make again what ``dataclasses.asdict`` and JSON made plain, by the fields' types."""
    if plain is None:
        return None
    if dataclasses.is_dataclass(kind):
        kinds = typing.get_type_hints(kind)
        return kind(**{name: _made(kinds[name], value) for name, value in plain.items()})
    inner = [each for each in typing.get_args(kind) if each is not types.NoneType]
    if typing.get_origin(kind) is tuple:
        return tuple(_made(inner[0], value) for value in plain)
    return _made(inner[0], plain) if inner else plain


def _columns(told: list[dict[str, str]]) -> Table:
    """Give each target a column: what is told of one would not fit beside each other."""
    table = Table("", box=box.SIMPLE, pad_edge=False)
    for column in told:
        table.add_column(column["target"], justify="right")
    for name in list(told[0])[1:]:
        table.add_row(translated(name), *(translated(column[name]) for column in told))
    return table


def _rows(told: list[dict[str, str]]) -> Table:
    """Write the parts of a step, with what would help below the name."""
    name, *numbers = (column for column in told[0] if column != "help")
    table = Table(Column(Text(translated(name)), overflow="fold"), box=box.SIMPLE, pad_edge=False)
    for column in numbers:
        table.add_column(Text(translated(column)), no_wrap=True)
    for row in told:
        text = Text(translated(row[name]))
        if row["help"]:
            text.append(f"\n{translated('help')}: {translated(row['help'])}", style="italic")
        table.add_row(text, *(Text(translated(row[column])) for column in numbers))
    return table


def _aligned(table: list[dict[str, str]]) -> list[str]:
    """Write the rows of a table as lines, under its columns' names; what would help goes below."""
    names = [name for name in table[0] if name != "help"]
    rows = [[translated(x) for x in names]]
    rows += [[translated(row[name]) for name in names] for row in table]
    first, *lines = aligned(rows)
    helped = [first]
    for line, row in zip(lines, table, strict=True):
        help_ = f"    {translated('help')}: {translated(row.get('help', ''))}"
        helped += [line, help_] if row.get("help") else [line]
    return helped
