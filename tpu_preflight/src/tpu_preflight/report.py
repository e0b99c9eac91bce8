"""A preflight's report: as text, as HTML, as JSON. Imports neither TensorFlow nor JAX."""

import dataclasses
import html
import pathlib
import re
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Iterator
from json import dumps, loads
from typing import Any

from tpu_preflight.display import (
    PAGE,
    Displayable,
    Folded,
    Heading,
    Table,
    as_html,
    as_text,
    escaped,
)
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate import calibration, price
from tpu_preflight.estimate.price import Price
from tpu_preflight.estimate.step import BOUNDS, ESTIMATE, TABLES, Estimate, Timing, costs, parts
from tpu_preflight.text import translated

SCHEMA = 3  # of the JSON: it changes when a field changes its name or its meaning

PASS = "pass"
WARN = "warn"
FAIL = "fail"
OPEN = "not checked"
NOTHING = "does not apply"
STATES = (FAIL, WARN, OPEN, PASS, NOTHING)

READY = "ready"
NOT_READY = "not ready"
CANT_TELL = "can't tell"

# Each state also has a sign, so that no reader needs colours; these are Okabe and Ito's.
SIGNS = {PASS: "✓", WARN: "!", FAIL: "✗", OPEN: "?", NOTHING: "–"}
COLOURS = {PASS: "#009E73", WARN: "#E69F00", FAIL: "#D55E00", OPEN: "#56B4E9", NOTHING: "#999999"}

CHECKS = {
    1: "XLA's three rules",
    2: "Shapes and compilations",
    3: "Data that the TPU can take",
    4: "Eager against compiled",
    5: "What must change on the way to a TPU",
    6: "Memory",
    7: "Cost",
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

    def __repr__(self) -> str:
        sign = SIGNS[self.state]
        text = f"{sign} {self.check} {translated(self.name)}: {translated(self.finding)}"
        if self.where:
            text += f"\n    {translated('at')} {translated(self.where)}"
        if self.fix:
            text += f"\n    {translated('fix')}: {translated(self.fix)}"
        return text

    def _repr_html_(self) -> str:
        style = f"border-left:5px solid {COLOURS[self.state]};padding-left:.7em;margin:.5em 0"
        text = f"<strong>{SIGNS[self.state]} {escaped(self.state)}</strong> · "
        text += f"{self.check} {escaped(self.name)}: {escaped(self.finding)}"
        if self.where:
            text += f'<br><code style="white-space:pre-wrap">{escaped(self.where)}</code>'
        if self.fix:
            fix = escaped(self.fix).replace("\n", "<br>")
            text += f"<br><em>{escaped('Fix')}:</em> {fix}"
        return f'<p style="{style}">{text}</p>'


_FINDINGS = tomllib.loads(pathlib.Path(__file__).with_name("findings.toml").read_text("utf-8"))


def finding(
    check: int, key: str, *, state: str = "", where: object = None, **words: object
) -> Item:
    """Make an item of a text in ``findings.toml``.

    Args:
        check: The check's number, as in ``CHECKS``.
        key: The text's name in the file, under that number.
        state: The item's state, where the file leaves it open.
        where: The learner's source line, where there is one.
        **words: What stands for the names in braces in the file.
    """
    row = _FINDINGS[str(check)][key]
    texts = {}
    for part in ("name", "finding", "fix"):
        texts[part] = row.get(part, "").format(**words)
    return Item(
        check=check,
        state=state or row["state"],
        where=str(where or ""),
        decisive=row.get("decisive", False),
        **texts,
    )


@dataclasses.dataclass(frozen=True)
class Change:
    """What is no longer as in the baseline."""

    what: str  # an item's name, ``compilations``, or a time or size and its target
    before: str  # state or number in the baseline
    now: str  # the same in this report
    worse: bool  # whether that is worse, or only different

    def __repr__(self) -> str:
        verdict = translated("worse" if self.worse else "better")
        change = f"{translated(self.before)}, {translated('now')} {translated(self.now)}"
        return f"{verdict}: {translated(self.what)}: {change}"


@dataclasses.dataclass(frozen=True, repr=False)
class Report(Displayable):
    """The whole checklist, gone through for one model and some targets, item by item.

    ``report.schema.json``, next to this file, describes its JSON.

    Example:
        >>> report = Report("m:build", ("v5e-8",), (Item(1, "step", FAIL, "it fails"),))
        >>> report.status, report.exit_status
        ('not ready', 1)
        >>> report.find(FAIL)[0].finding
        'it fails'
        >>> Report.from_json(report.json()) == report
        True
    """

    subject: str
    targets: tuple[str, ...]
    items: tuple[Item, ...]
    estimates: tuple[Estimate, ...] = ()
    timings: tuple[Timing, ...] = ()
    prices: tuple[Price, ...] = ()
    changes: tuple[Change, ...] = ()
    versions: tuple[str, ...] = ()  # of what answered, such as ``JAX 0.10.2``

    @property
    def compilations(self) -> int | None:
        """Sets of shapes that the dataset gave, each a compilation; None without a dataset."""
        # The number has no field: it is only in the finding's words.
        for item in self.items:
            match = re.match(r"(\d+) sets? of shapes", item.finding)
            if item.check == 2 and match is not None:
                return int(match[1])
        return None

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
        if self.status == NOT_READY:
            return 1
        if self.status == CANT_TELL:
            return 2
        if any(change.worse for change in self.changes):
            return 3
        return 0

    @property
    def summary(self) -> str:
        """One line: the status, and how many items are in each state."""
        # Only states that occur, the worst first: "2 fail, 1 warn, 3 do not apply".
        counts = Counter(item.state for item in self.items)
        parts = []
        for state in STATES:
            count = counts[state]
            words = state.replace("does", "do") if count > 1 else state
            if count:
                parts.append(translated(f"{count} {words}"))
        targets = ", ".join(self.targets)
        status = translated(self.status)
        return translated("{} for {}: {} ({})").format(
            self.subject, targets, status, ", ".join(parts)
        )

    def find(self, state: str) -> tuple[Item, ...]:
        """Choose the items of one state, in the order of the checks."""
        return tuple(item for item in self.items if item.state == state)

    def json(self) -> str:
        """Write the report as JSON; ``from_json`` reads it."""
        content = {"schema": SCHEMA, "status": self.status, **dataclasses.asdict(self)}
        return dumps(content, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Read what ``json`` wrote.

        Raises:
            PreflightError: The text is something else, or of another version's form.
        """
        try:
            content = loads(text)
            if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
                raise ValueError(f"it is not of form {SCHEMA}, which this version writes")
            del content["status"]  # follows from the items
            return _rebuilt(cls, content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PreflightError(
                "This text is not the report of a preflight.",
                f"{type(error).__name__}: {str(error).rstrip('.')[:200]}.",
                "Make a new one: tpu-preflight module:name --json",
            ) from error

    def text(self, verbose: bool = False) -> str:
        """Write the report as the command prints it: with the versions that answered.

        With ``verbose`` it lists the checks that pass as well.
        """
        return as_text(self._blocks("-v lists them", versions=True, verbose=verbose))

    def html(self) -> str:
        """Write the report as one page that opens anywhere, without network."""
        body = as_html(self._blocks(versions=True))
        return PAGE.format(title=html.escape(self.summary), body=body)

    def blocks(self) -> Iterator[Any]:
        """Give its parts in order; see `Displayable`."""
        # Without versions: a notebook's output is stored and compared, while a file of the command
        # lives on without the environment that it was made in.
        return self._blocks("text(verbose=True) lists them")

    def _blocks(
        self, hint: str = "", *, versions: bool = False, verbose: bool = False
    ) -> Iterator[Any]:
        yield Heading(translated("Preflight of {}").format(self.summary))
        if versions and self.versions:
            yield translated("Answered by {}.").format(", ".join(self.versions))
        yield from self._findings(hint, verbose)
        yield from self._numbers()

    def _findings(self, hint: str, verbose: bool) -> Iterator[Any]:
        """Give what needs a reader: failures, warnings, what is open; the rest is folded.

        The ``hint`` says how a text's reader sees the rest.
        """
        for state in (FAIL, WARN, OPEN):
            yield from self.find(state)
        passed = self.find(PASS)
        others = self.find(NOTHING)
        if verbose:
            yield from (*passed, *others)
        elif passed or others:
            yield Folded(_folded_summary(len(passed), len(others)), hint, (*passed, *others))

    def _numbers(self) -> Iterator[Any]:
        """Give the numbers behind the findings, for each target."""
        if self.estimates:
            yield Table.by_target(costs(self.estimates))
            yield BOUNDS
        # With a profile: where the time goes.
        for timing in self.timings:
            yield Heading(calibration.summary(timing))
            yield from timing.notes
            for title in TABLES:
                yield parts(timing, title)
        if self.timings:
            yield ESTIMATE
        # With a number of steps: hours, and a price where one was given.
        if self.prices:
            yield Table.by_target(price.table(self.prices))
            yield Heading(price.verdict(self.prices))
            yield from self._unsharded_notes()
        # With a baseline.
        for change in self.changes:
            yield repr(change)

    def _unsharded_notes(self) -> Iterator[str]:
        """Say which prices are of programs for one device of several: JAX without shardings."""
        for estimate in self.estimates:
            if estimate.is_for_one:
                yield (
                    f"All chips of {estimate.target} are charged, as if each device ran this "
                    "program on rows of its own; what they would send each other isn't counted."
                )


def _folded_summary(passed: int, others: int) -> str:
    """Say how many checks pass, and how many don't apply: ``17 checks passed, 3 do not apply``."""
    parts = []
    if passed:
        noun = "check" if passed == 1 else "checks"
        parts.append(translated(f"{passed} {noun} passed"))
    if others:
        verb = "does" if others == 1 else "do"
        parts.append(translated(f"{others} {verb} not apply"))
    return ", ".join(parts)


def _rebuilt(kind: Any, content: Any) -> Any:
    """Rebuild what ``dataclasses.asdict`` and JSON made plain, by the fields' types."""
    # A report, or a part of it. Names that it lacks or doesn't know are a TypeError or KeyError.
    if dataclasses.is_dataclass(kind):
        kinds = typing.get_type_hints(kind)
        fields = {name: _rebuilt(kinds[name], value) for name, value in content.items()}
        return kind(**fields)
    arguments = typing.get_args(kind)  # of tuple[Item, ...] or int | None; empty for int
    if content is None and types.NoneType in arguments:
        return None
    if typing.get_origin(kind) is tuple:
        _check_type(content, list)
        return tuple(_rebuilt(arguments[0], value) for value in content)
    # Of ``int | None`` the first.
    expected = arguments[0] if arguments else kind
    _check_type(content, expected)
    # JSON has NaN and infinity in Python, and 1e999 is one.
    if expected in (int, float) and not abs(content) < 1e100:
        raise ValueError(f"{content} is no number")
    return content


def _check_type(content: Any, expected: type) -> None:
    # By the very type: for isinstance, True is a number.
    accepted = (int, float) if expected is float else (expected,)
    if type(content) not in accepted:
        raise TypeError(f"{content!r} is where a {expected.__name__} belongs")
