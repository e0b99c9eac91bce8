"""What a preflight found: as text, as HTML, as JSON. Imports neither TensorFlow nor JAX."""

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

from tpu_preflight.display import PAGE, Displayable, Heading, Table, escaped
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate import price
from tpu_preflight.estimate.price import Price
from tpu_preflight.estimate.step import BOUNDS, ESTIMATE, TABLES, Estimate, Timing, costs, parts
from tpu_preflight.text import translated

SCHEMA = 3  # of the JSON: it changes when a field changes its name or its meaning

PASS, WARN, FAIL, OPEN, NOTHING = "pass", "warn", "fail", "not checked", "does not apply"
STATES = (FAIL, WARN, OPEN, PASS, NOTHING)
READY, NOT_READY, CANT_TELL = "ready", "not ready", "can't tell"

# Said with a sign, too, so that no reader needs colours; these are Okabe and Ito's.
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
        text = f"{SIGNS[self.state]} {self.check} "
        text += f"{translated(self.name)}: {translated(self.finding)}"
        text += f"\n    {translated('at')} {translated(self.where)}" if self.where else ""
        return text + (f"\n    {translated('fix')}: {translated(self.fix)}" if self.fix else "")

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


@dataclasses.dataclass(frozen=True, repr=False)
class Report(Displayable):
    """The whole checklist, gone through for one model and some targets, item by item.

    ``report.schema.json``, beside this file, describes its JSON.
    """

    subject: str
    targets: tuple[str, ...]
    items: tuple[Item, ...]
    estimates: tuple[Estimate, ...] = ()
    timings: tuple[Timing, ...] = ()
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
        counts = Counter(item.state for item in self.items)
        words = {state: state.replace("does", "do", counts[state] > 1) for state in STATES}
        told = (translated(f"{counts[state]} {words[state]}") for state in STATES if counts[state])
        words = ", ".join(self.targets), translated(self.status), ", ".join(told)
        return translated("{} for {}: {} ({})").format(self.subject, *words)

    def find(self, state: str) -> tuple[Item, ...]:
        """Choose the items of one state, in the order of the checks."""
        return tuple(item for item in self.items if item.state == state)

    def json(self) -> str:
        """Write the report as JSON; ``from_json`` reads it."""
        plain = {"schema": SCHEMA, "status": self.status} | dataclasses.asdict(self)
        return dumps(plain, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Read what ``json`` wrote.

        Raises:
            PreflightError: The text is something else, or of another version's form.
        """
        try:
            plain = loads(text)
            if not isinstance(plain, dict) or plain.pop("schema", None) != SCHEMA:
                raise ValueError(f"it is not of form {SCHEMA}, which this version writes")
            del plain["status"]
            return _made(cls, plain)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PreflightError(
                "This text is no report of a preflight.",
                f"{type(error).__name__}: {str(error).rstrip('.')[:200]}.",
                "Make a new one: tpu-preflight module:name --json",
            ) from error

    def html(self) -> str:
        """Write the report as one page that opens anywhere, without network."""
        return PAGE.format(title=html.escape(self.summary), body=self._repr_html_())

    def blocks(self) -> Iterator[Any]:
        """Give its parts in order; see `Displayable`."""
        yield Heading(translated("Preflight of {}").format(self.summary))
        yield from self.items
        if self.estimates:
            yield Table.by_target(costs(self.estimates))
            yield BOUNDS
        for timing in self.timings:
            yield Heading(timing.summary)
            yield from timing.notes
            yield from (parts(timing, title) for title in TABLES)
        if self.timings:
            yield ESTIMATE
        if self.prices:
            yield Table.by_target(price.table(self.prices))
            yield Heading(price.verdict(self.prices))
            # Compiled for one device of several: a function of JAX without shardings.
            for e in self.estimates:
                if e.replicas > 1 and e.all_reduce_bytes is None:
                    yield (
                        f"All chips of {e.target} are charged, as if each device ran this program "
                        "on rows of its own; what they would send each other isn't counted."
                    )
        yield from map(repr, self.changes)


def _made(kind: Any, plain: Any) -> Any:
    """Make again what ``dataclasses.asdict`` and JSON made plain, by the fields' types."""
    if dataclasses.is_dataclass(kind):
        kinds = typing.get_type_hints(kind)
        return kind(**{name: _made(kinds[name], value) for name, value in plain.items()})
    inner = typing.get_args(kind)
    if plain is None and types.NoneType in inner:
        return None
    # Of ``int | None`` the first.
    of = list if typing.get_origin(kind) is tuple else (*inner, kind)[0]
    if type(plain) not in ((int, float) if of is float else (of,)):
        raise TypeError(f"{plain!r} stands where a {of.__name__} belongs")
    if of in (int, float) and not abs(plain) < 1e100:
        raise ValueError(f"{plain} is no number")
    return tuple(_made(inner[0], value) for value in plain) if of is list else plain
