"""A report of notebook 13: what was predicted, what a report may say, and reading one.

``report.schema.json`` describes its form. `read` also refuses what no run can give, such as a step
that is faster than the chip.
"""

import csv
import dataclasses
import functools
import json
import math
import pathlib
import statistics
from collections.abc import Iterable
from typing import Any

from helpers.base.errors import CourseError
from helpers.base.settings import ROOT
from helpers.confirm.programs import PROGRAMS
from tpu_preflight.chips.hardware import ALL_CHIPS

DATA = ROOT / "notebooks" / "data"
PREDICTIONS = DATA / "on_a_tpu.tsv"
UNCONFIRMED = DATA / "unconfirmed.tsv"
SCHEMA = pathlib.Path(__file__).with_name("report.schema.json")
VERSION = 1  # of the schema
LONGEST_FILE = 400_000  # bytes; a report has some thousand

CONFIRMED = "confirmed"
REFUTED = "refuted"
NOT_APPLICABLE = "not applicable"

_AGAIN = (
    "Run notebook 13 from its first cell to its last, and paste what the last one prints, whole."
)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a program should take on one device of a target."""

    program: str
    target: str  # such as ``v5e-1``
    ms: float  # of a step
    least_ms: float  # no step is faster
    argument_bytes: int
    peak_bytes: int

    @property
    def chip(self) -> str:
        """The kind of TPU, such as ``v5e``."""
        return self.target.partition("-")[0]


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence of the course that says it was not confirmed on a TPU."""

    id: str
    check: str  # the function of `checks` that tries it
    where: str  # the file that it is in
    claim: str  # what is tried: with "confirmed" this is so, with "refuted" it isn't
    sentence: str  # its words, on one line


@dataclasses.dataclass(frozen=True)
class Time:
    """A program's ten measurements."""

    program: str
    steps_ms: tuple[float, ...]
    predicted_ms: float
    peak_bytes: int | None
    predicted_bytes: int
    counter: str  # who counted the memory: ``device``, ``fake`` or ``none``

    @property
    def median_ms(self) -> float:
        """Milliseconds of a step."""
        return statistics.median(self.steps_ms)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a check found of a sentence."""

    id: str
    verdict: str
    evidence: str


@dataclasses.dataclass(frozen=True)
class Report:
    """What somebody measured, where and with what."""

    date: str
    rehearsed: bool
    place: str
    chip: str
    devices: int
    framework: str
    versions: dict[str, str]
    times: tuple[Time, ...]
    verdicts: tuple[Verdict, ...]


def _rows(path: pathlib.Path) -> list[dict[str, str]]:
    lines = path.read_text("utf-8").splitlines()
    # The first lines say how the table was made.
    lines = [line for line in lines if not line.startswith("# ")]
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


@functools.cache
def predictions() -> tuple[Prediction, ...]:
    """Read what each program should take on each kind of TPU."""
    types = {field.name: field.type for field in dataclasses.fields(Prediction)}
    rows = []
    for row in _rows(PREDICTIONS):
        rows.append(Prediction(**{name: types[name](text) for name, text in row.items()}))
    return tuple(rows)


@functools.cache
def predictions_of(chip: str) -> dict[str, Prediction]:
    """Choose the predictions for a kind of TPU, by program; none where it isn't in the table."""
    return {row.program: row for row in predictions() if row.chip == chip}


@functools.cache
def unconfirmed() -> tuple[Sentence, ...]:
    """Read the sentences that only a TPU can confirm, in the course's order."""
    return tuple(Sentence(**row) for row in _rows(UNCONFIRMED))


def to_json(report: Report) -> str:
    """Write a report as the text to paste into an issue."""
    times = []
    for time in report.times:
        row = dataclasses.asdict(time)
        # Four digits: more than the clock of a host is worth.
        row["steps_ms"] = [float(f"{ms:.4g}") for ms in time.steps_ms]
        times.append(row)
    content = {
        "schema": VERSION,
        "date": report.date,
        "rehearsed": report.rehearsed,
        "place": {"kind": report.place, "chip": report.chip, "devices": report.devices},
        "framework": {"name": report.framework, "versions": report.versions},
        "times": times,
        "sentences": [dataclasses.asdict(verdict) for verdict in report.verdicts],
    }
    return json.dumps(content, ensure_ascii=False)


def read(text: str) -> Report:
    """Read a report and check it, first its form, then whether a run can have given it.

    Raises `CourseError`: It is no report, or one that can't be true; says which part.
    """
    content = _parse(text)
    _check_form(content)
    report = _from_content(content)
    # The kind of TPU first: the others look its numbers up.
    for check in (_check_chip, _check_memory_counters, _check_times, _check_sentences):
        problem = check(report)
        if problem:
            raise _refusal(problem)
    return report


def _refusal(why: str, fix: str = _AGAIN) -> CourseError:
    return CourseError("This is no report that can be used.", why, fix)


def _parse(text: str) -> Any:
    # An issue's page puts a fence around what is pasted.
    text = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    if len(text) > LONGEST_FILE:
        raise _refusal(f"It has more than {LONGEST_FILE:,} characters; a report has some thousand.")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _refusal(f"It is no JSON: {error}.") from None


def _refuse_constant(name: str) -> None:
    # Python reads NaN and Infinity, which JSON does not have.
    raise ValueError(f"{name} is no number of JSON")


def _check_form(content: Any) -> None:
    """Compare a report with the schema; the message names the first part that differs."""
    if isinstance(content, dict) and content.get("schema", VERSION) != VERSION:
        raise _refusal(
            f"Its schema is {content['schema']!r:.20}, and this course reads {VERSION}.",
            "Take the course of the same month as the report (`git pull`), or run its notebook 13.",
        )
    import jsonschema  # half a second

    schema = json.loads(SCHEMA.read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    error = jsonschema.exceptions.best_match(validator.iter_errors(content))
    if error is not None:
        place = error.json_path.removeprefix("$").removeprefix(".")
        message = error.message
        if len(message) > 200:
            message = f"{message[:100]} … {message[-90:]}"
        raise _refusal(f"{place or 'The report'}: {message}.")


def _from_content(content: dict) -> Report:
    times = []
    for row in content["times"]:
        times.append(Time(**{**row, "steps_ms": tuple(row["steps_ms"])}))
    return Report(
        date=content["date"],
        rehearsed=content["rehearsed"],
        place=content["place"]["kind"],
        chip=content["place"]["chip"],
        devices=content["place"]["devices"],
        framework=content["framework"]["name"],
        versions=content["framework"]["versions"],
        times=tuple(times),
        verdicts=tuple(Verdict(**row) for row in content["sentences"]),
    )


def _check_chip(report: Report) -> str:
    """Say what is wrong with the kind of TPU; empty if nothing is."""
    if not predictions_of(report.chip):
        chips = dict.fromkeys(row.chip for row in predictions())
        return f"place.chip is {report.chip!r:.30}; there are predictions for {', '.join(chips)}."
    return ""


def _check_memory_counters(report: Report) -> str:
    for time in report.times:
        # A rehearsal has a fake counter; among measured rows it would pass for memory of a TPU.
        if time.counter == "fake" and not report.rehearsed:
            return f"{time.program} has a fake memory counter, and the report isn't rehearsed."
        if (time.peak_bytes is None) != (time.counter == "none"):
            return (
                f"{time.program} has a memory of {time.peak_bytes} by the counter {time.counter}."
            )
        # Of the whole chip: a counter may include what the runtime keeps for itself.
        memory = ALL_CHIPS[report.chip].hbm_gib * 2**30
        if time.peak_bytes is not None and time.peak_bytes > memory:
            return f"{time.program} took {time.peak_bytes:,} bytes; a {report.chip} has {memory:,}."
    return ""


def _check_times(report: Report) -> str:
    names = [time.program for time in report.times]
    problem = _differences("program", names, [program.name for program in PROGRAMS])
    if problem:
        return problem
    predicted = predictions_of(report.chip)
    for time in report.times:
        prediction = predicted[time.program]
        # What was predicted before is what makes the comparison worth something.
        if not math.isclose(time.predicted_ms, prediction.ms):
            return (
                f"{time.program} was predicted with {prediction.ms:g} ms on a {report.chip}, and "
                f"the report says {time.predicted_ms:g}: predictions are not changed afterwards."
            )
        if time.predicted_bytes != prediction.peak_bytes:
            return (
                f"{time.program} was predicted with {prediction.peak_bytes:,} bytes, and the "
                f"report says {time.predicted_bytes:,}: predictions are not changed afterwards."
            )
        # A tenth for a clock that is higher than the published peak suggests.
        if not report.rehearsed and time.median_ms < 0.9 * prediction.least_ms:
            return (
                f"{time.program} took {time.median_ms:g} ms, and a {report.chip} can't do it in "
                f"less than {prediction.least_ms:g}: the clock stopped before the step had ended."
            )
    return ""


def _check_sentences(report: Report) -> str:
    names = [verdict.id for verdict in report.verdicts]
    problem = _differences("sentence", names, [sentence.id for sentence in unconfirmed()])
    if problem:
        return problem
    for verdict in report.verdicts:
        # Whoever reads the verdict must see what it rests on.
        if verdict.verdict != NOT_APPLICABLE and not verdict.evidence.strip():
            return f"{verdict.id} is {verdict.verdict}, without evidence."
    return ""


def _differences(kind: str, names: Iterable[str], expected: Iterable[str]) -> str:
    """Say which names are there twice, missing or unknown; empty if none is."""
    seen = list(names)
    known = list(expected)
    for name in seen:
        if name not in known:
            return f"There is no {kind} {name!r:.60}."
        if seen.count(name) > 1:
            return f"The {kind} {name} is there more than once."
    # A report that leaves out what failed would count only what went well.
    for name in known:
        if name not in seen:
            return f"The {kind} {name} is missing."
    return ""
