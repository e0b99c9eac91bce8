"""From an error, or a pasted log, to its cause and what to do about it.

The symptoms are data: symptoms.toml, next to this file, with one regular expression for each. What
comes between two parts of a message, or between it and the words near it, is bounded, so a search
takes time in proportion to the length of the text. Where a text shows no symptom, families.toml has
what the class of its last error and a few words of it say, which is less sure.
"""

import bisect
import codecs
import dataclasses
import functools
import html
import operator
import pathlib
import re
import sys
import tomllib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from helpers.base.errors import CourseError
from helpers.base.language import translated
from helpers.display.failure import (
    MOST_CAUSES,
    REPORTED,
    UNTELLING,
    Failure,
    earlier_failures,
    error_span,
    failure_of,
    last_failure,
    overcome_lines,
    was_overcome,
)
from tpu_preflight.errors import PreflightError

MOST_MATCHES = 3
REACH = 1500  # characters from a message to the words that must, or may not, stand near it
LONGEST_EVIDENCE = 160
MOST_BYTES = 2**19  # of a log, from its beginning and again from its end: searched in two seconds
ENDLESS = 2**30  # bytes after which a log isn't read on

NOTHING = "No known symptom is in this text."
NO_CELL = (
    "No cell has failed since this kernel started. After a restart run the cell again, then "
    "%explain."
)
TRY = (
    "Give it the whole traceback, from its first line. If this is all of it: look at your own "
    "line, then search the issues of the package that raised for the words of Search, and compare "
    "versions with pip show."
)
BY_CLASS = "by its class"  # how sure a family is
# What a text says of its own error, in this order.
LABELS = ("Seen", "Line", "Here", "It advises", "Raised in", "Your line", "Search", "Try")


class Text:
    """A text to search, with its lines put together by a separator."""

    def __init__(self, lines: Sequence[str], separator: str) -> None:
        self.whole = separator.join(lines)
        # In small letters, in one line: as many characters as before, whatever they are.
        ascii_text = self.whole.encode("ascii", "replace").decode()
        self.small = ascii_text.lower().replace("\n", " ")
        self._starts = []
        start = 0
        for line in lines:
            self._starts.append(start)
            start += len(line) + len(separator)

    def line_number(self, position: int) -> int:
        """Give the number of the line, from 0, in which a character stands."""
        return bisect.bisect(self._starts, position) - 1

    def line(self, start: int, end: int) -> str:
        """Give the line, or lines, around a place; of a long one what is next to it."""
        line_start = self.whole.rfind("\n", 0, start) + 1
        line_end = f"{self.whole}\n".index("\n", end)
        if line_end - line_start > LONGEST_EVIDENCE:
            line_start = max(line_start, start - 20, end - LONGEST_EVIDENCE // 2)
        excerpt = self.whole[line_start : min(line_end, line_start + LONGEST_EVIDENCE)]
        return " ".join(excerpt.split())

    def places(self, expression: str) -> list[tuple[int, int]]:
        """List where an expression of symptoms.toml is found; nowhere if it is empty."""
        if not expression:
            return []
        return [match.span() for match in lowered(expression).finditer(self.small)]


@functools.cache
def lowered(expression: str) -> re.Pattern[str]:
    """Compile an expression of symptoms.toml for small letters, which are found five times faster.

    The letter after a backslash is no letter of the text.
    """

    def lower(match: re.Match[str]) -> str:
        text = match[0]
        return text if text.startswith("\\") else text.lower()

    # In symptoms.toml … is what a message has between its words: names, numbers, shapes.
    expression = expression.replace("…", ".{0,200}?")
    return re.compile(re.sub(r"\\.|[A-Z]", lower, expression))


def _is_near(places: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    # The places are in order, so the first one that isn't too early decides.
    index = bisect.bisect(places, (start - REACH,))
    return index < len(places) and places[index][1] <= end + REACH


def _is_within(places: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    # They don't overlap, so only the last that begins before the message can hold it.
    index = bisect.bisect(places, start, key=operator.itemgetter(0)) - 1
    return index >= 0 and end <= places[index][1]


@dataclass(frozen=True)
class Symptom:
    """What an error looks like, why it happens, and what to do: a row of symptoms.toml."""

    name: str  # in a few words
    seen: tuple[str, ...]  # what its message says: alternatives of one regular expression
    why: str  # why it happens
    fix: str  # what to do now
    source: str  # the thread where people met it (owner/repository#number), or the notebook
    lesson: str  # number of the notebook that teaches it
    near: str = ""  # a regular expression for what must stand near it
    unless: str = ""  # a regular expression for what may not stand near it
    not_in: str = ""  # a regular expression for what it may not be a part of
    sure: str = "certain"  # how sure the cause is: ``certain``, ``likely`` or ``note``

    @property
    def link(self) -> str:
        """Address of the thread; nothing for a notebook."""
        repository, _, number = self.source.partition("#")
        if not number:
            return ""
        return f"https://github.com/{repository}/issues/{number}"

    @property
    def says(self) -> tuple[str, ...]:
        """The messages for people: each as far as it is plain text."""
        plain = re.compile(r"(?:\\[^\w\s]|[^\\()\[\]{}*+?|](?![?{*+]))*")
        messages = []
        for expression in self.seen:
            beginning = plain.match(expression)[0]
            messages.append(re.sub(r"\\(.)", r"\1", beginning).strip(" …"))
        return tuple(messages)

    def places(self, text: Text) -> list[tuple[int, int]]:
        """List where a text shows the symptom."""
        messages = text.places("|".join(self.seen))
        if not messages:  # most texts show few symptoms: the other searches can be spared
            return []
        required = text.places(self.near)
        excluded = text.places(self.unless)
        quotations = text.places(self.not_in)
        places = []
        for start, end in messages:
            if _is_within(quotations, start, end):
                continue
            has_context = not self.near or _is_near(required, start, end)
            if has_context and not _is_near(excluded, start, end):
                places.append((start, end))
        return places


_ROWS = tomllib.loads(pathlib.Path(__file__).with_name("symptoms.toml").read_text("utf-8"))
SYMPTOMS = tuple(Symptom(**row) for row in _ROWS["symptom"])


@dataclass(frozen=True)
class Family:
    """What errors of one class or kind have in common: a row of families.toml."""

    name: str  # in a few words
    words: tuple[str, ...]  # what the page shows of its messages
    seen: tuple[str, ...]  # regular expressions, of which the first that fits counts
    why: str  # why such errors happen
    fix: str  # what to do first
    unless: str = ""  # a regular expression for what may not be in the error
    reports: bool = False  # whether such errors only pass on another one

    def match(self, failure: Failure, line: str) -> "Match | None":
        """Give what the family says about an error that is one of it."""
        # As many characters as before, whatever they are.
        ascii_text = failure.whole.encode("ascii", "replace").decode()
        if self.unless and _compiled(self.unless).search(ascii_text):
            return None
        for expression in self.seen:
            match = _compiled(expression).search(ascii_text)
            if match is not None:
                details = []
                for group in range(1, match.re.groups + 1):
                    start, end = match.span(group)
                    if start < end:
                        details.append(failure.whole[start:end])
                facts = {"Here": " · ".join(details), **_whereabouts(failure)}
                symptom = Symptom(self.name, (), self.why, self.fix, "", "", sure=BY_CLASS)
                return Match(symptom, line[:LONGEST_EVIDENCE], facts=facts)
        return None


@functools.cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.IGNORECASE | re.ASCII)


def _whereabouts(failure: Failure) -> dict[str, str]:
    return {
        "It advises": failure.advice,
        "Raised in": failure.raised_at,
        "Your line": failure.own_line,
    }


_FAMILY_ROWS = tomllib.loads(pathlib.Path(__file__).with_name("families.toml").read_text("utf-8"))
FAMILIES = tuple(Family(**row) for row in _FAMILY_ROWS["family"])

# Where the evidence stands: with the error that ended the program, with an earlier one (which led
# to it, or was overcome), before any, in the log, or in a line after which the program went on.
AT_LAST_ERROR, AT_EARLIER_ERROR, BEFORE_ERRORS, OVERCOME = range(4)


@dataclass(frozen=True)
class Match:
    """A known symptom in a text."""

    symptom: Symptom  # which one
    evidence: str  # the line of the text that shows it, shortened
    place: int = AT_LAST_ERROR  # or ``AT_EARLIER_ERROR``, ``BEFORE_ERRORS``, ``OVERCOME``
    facts: Mapping[str, str] = field(default_factory=dict)  # what else the text says, by label

    @property
    def sure(self) -> str:
        """How sure the cause is: an earlier error need not be what ended the program."""
        if self.place >= BEFORE_ERRORS:
            return "note"
        if self.symptom.sure == "certain" and self.place != AT_LAST_ERROR:
            return "likely"
        return self.symptom.sure


@dataclass(frozen=True)
class Explanation:
    """What is known about an error: false where that is nothing."""

    # The symptoms found in it, the most telling first, at most three; or its last error's family.
    matches: tuple[Match, ...]
    unknown: str = ""  # where nothing is known, the last error's line; may be empty
    facts: Mapping[str, str] = field(default_factory=dict)  # and what else the text says, by label

    def __bool__(self) -> bool:
        return bool(self.matches)

    def __repr__(self) -> str:
        """Give titles with labelled lines below them, in the language of messages."""
        if not self.matches:
            return _block(translated(NOTHING), {"Line": self.unknown, **self.facts, "Try": TRY})
        blocks = []
        for match in self.matches:
            symptom = match.symptom
            title = translated(symptom.name)
            if match.sure != "certain":
                title += f" ({translated(match.sure)})"
            lines = {"Seen": match.evidence, **match.facts}
            lines["Why"] = symptom.why
            lines["Fix"] = symptom.fix
            if symptom.lesson:
                lines["Lesson"] = f"notebook {symptom.lesson}"
            lines["Thread"] = symptom.link
            blocks.append(_block(title, lines))
        return "\n\n".join(blocks)


def _block(title: str, lines: dict[str, str]) -> str:
    """Write a title, and below it lines with labels, those that aren't empty."""
    block = [title]
    for label, text in lines.items():
        if text:
            block.append(f"{translated(label)}: {translated(text)}")
    return "\n  ".join(block)


@dataclass(frozen=True)
class _Errors:
    """The lines of a text in which errors begin and end, by number; both None without any."""

    begin: int | None
    end: int | None
    overcome: set[int]  # the lines after which the program went on

    def place(self, first_line: int, line_number: int) -> int:
        """Rank what begins in one line and ends in another."""
        if first_line in self.overcome:
            return OVERCOME
        if self.end is None or line_number >= self.end:
            return AT_LAST_ERROR
        if line_number >= self.begin:
            return AT_EARLIER_ERROR
        return BEFORE_ERRORS


def _match(symptom: Symptom, texts: Sequence[Text], errors: _Errors) -> Match | None:
    """Find a symptom in a text where it is most telling."""
    best = None
    for text in texts:
        for start, end in symptom.places(text):
            place = errors.place(text.line_number(start), text.line_number(end - 1))
            if best is None or place < best.place:
                best = Match(symptom, text.line(start, end), place)
            if place == AT_LAST_ERROR:
                return best
        # Lines that were joined may show what was never written: only where they show nothing.
        if best is not None:
            return best
    return None


def _last_error_line(lines: Sequence[str]) -> str:
    """Choose the line to search the Web for; empty if none reports an error."""
    end = error_span(lines)[1]
    if end is None:  # no Python: the last that any program reported
        for line in reversed(lines):
            if REPORTED.search(line):
                return line
        return ""
    if lines[end].endswith(UNTELLING):
        for line in lines[end:]:
            if REPORTED.search(line):
                return line
    return lines[end]


def explain(error: BaseException | str) -> Explanation:
    """Look for known symptoms in an error.

    Takes an exception, with its traceback if it has one, or a pasted log; colours, times and line
    breaks are ignored. Gives the symptoms found: first those of the error that came last, and among
    them the most telling first. Empty (and false) when there is none, with the last error's line.
    A note, what stands before every error, and what the program overcame, is given as a note, and
    only where there is no error, or where the program logged it and went on. Where there is no
    symptom, the family of the last error, if it is known.
    """
    if isinstance(error, (CourseError, PreflightError)):
        # It explains itself.
        symptom = Symptom(error.what, (), error.why, error.fix, source="", lesson="")
        return Explanation((Match(symptom, evidence=""),))
    failure = None
    led_to_it = None
    if isinstance(error, BaseException):
        failure = failure_of(error, clean(str(error)))
        led_to_it = _causes_of(error)
        error = _text(error)
    lines = clean(error)
    overcome = set()
    if failure is None:
        overcome = overcome_lines(lines)
    errors = _Errors(*error_span(lines), overcome)
    # A message may be broken between words or, by a terminal's edge, within one.
    texts = [Text(lines, "\n")]
    if len(lines) > 1:
        texts.append(Text(lines, ""))
    # What was overcome, or said before anything failed, must not hide what ended the program.
    causes = []
    notes = []
    for symptom in SYMPTOMS:
        match = _match(symptom, texts, errors)
        if match is None:
            continue
        if symptom.sure == "note" or match.place >= BEFORE_ERRORS:
            notes.append(match)
        else:
            causes.append(match)
    if failure is None and was_overcome(lines):
        return Explanation(tuple(notes[:MOST_MATCHES]))
    causes.sort(key=operator.attrgetter("place"))  # of one place the table's order stays
    if not causes and errors.end is None:
        causes = notes
    if not causes:
        return _by_class(failure or last_failure(lines), lines, led_to_it)
    return Explanation(tuple(causes[:MOST_MATCHES]))


def _by_class(
    failure: Failure | None, lines: Sequence[str], led_to_it: list[Failure] | None
) -> Explanation:
    """Say what is known of an error without a symptom: by its family, or where it comes from.

    Where it has no family, or only reports another error, that of what led to it.
    """
    line = _last_error_line(lines)
    if failure is None:
        return Explanation((), unknown=line)
    line = failure.line or line
    family, match = _family(failure, line)
    if family is None or family.reports:
        causes, others = earlier_failures(lines)
        if led_to_it is not None:
            causes = led_to_it
        if family is not None:
            causes += others
        for cause in causes:
            cause_family, cause_match = _family(cause, cause.line)
            if cause_family is not None and not cause_family.reports:
                match = cause_match
                break
    if match is not None:
        return Explanation((match,))
    facts = {**_whereabouts(failure), "Search": failure.search_words}
    return Explanation((), unknown=line, facts=facts)


def _family(failure: Failure, line: str) -> tuple[Family | None, Match | None]:
    """Find the family of an error, and what it says about it."""
    for family in FAMILIES:
        match = family.match(failure, line)
        if match is not None:
            return family, match
    return None, None


def _causes_of(error: BaseException) -> list[Failure]:
    """Take apart what led to an exception, in the order of earlier_failures."""
    raised_from = []
    handled = []
    seen = [error]
    while True:
        cause = error.__cause__ or error.__context__
        if cause is None or cause in seen or len(seen) > MOST_CAUSES:
            return raised_from + handled
        seen.append(cause)
        failure = failure_of(cause, clean(str(cause)))
        failure = dataclasses.replace(failure, line=f"{type(cause).__name__}: {cause}")
        if error.__cause__ is not None and not handled:
            raised_from.insert(0, failure)
        else:
            handled.append(failure)
        error = cause


def _text(error: BaseException) -> str:
    """Say an exception after what led to it: names, messages, files, but no source lines.

    A source line may quote another error's message, as tests and lessons do.
    """
    # As Python prints them: the error that came last stands last, and is ranked first.
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    lines = []
    for link in reversed(chain):
        lines.append("Traceback (most recent call last)")
        for frame in traceback.extract_tb(link.__traceback__):
            file = pathlib.Path(frame.filename).name
            if "ipykernel_" in frame.filename or frame.filename.startswith("<ipython-input"):
                file = "a cell of the notebook"
            lines.append(f"{file}, {frame.name}")
        lines.append(f"{type(link).__name__}: {link}")
    return "\n".join(lines)


def read(log: BinaryIO) -> tuple[bytes, int]:
    """Read a log; of a long one what it begins and ends with.

    Gives that, at most twice ``MOST_BYTES``, and the number of bytes that were left out.
    """
    beginning = log.read(MOST_BYTES)
    end = b""
    left_out = 0
    while left_out < ENDLESS:
        piece = log.read(MOST_BYTES)
        if not piece:
            break
        # How long the log is shows only when it ends: until then this is its end.
        end += piece
        left_out += max(0, len(end) - MOST_BYTES)
        end = end[-MOST_BYTES:]
    return beginning + end, left_out


def decode(data: bytes) -> str:
    """Make text of the bytes of a log: UTF-8, or UTF-16 as PowerShell writes it; never fails."""
    encoding = "utf-8-sig"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    return data.decode(encoding, "replace").replace("\0", "")


# Colours and links of a terminal, also where the invisible first character was lost on the way.
ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,32}[ -/]{0,4}[@-~]|\x1b\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)"
    r"|(?:\^\[|\\x1b|\\033|\\u001b)?\[\d{1,3}(?:;\d{1,3}){0,4}m"
)
_TYPOGRAPHIC = str.maketrans("‘’“”\u00a0\r\b", "''\"\" \n\n")
# A message that another one quotes: \" and \n, as JSON and Python write them.
QUOTED = re.compile(r"\\{1,4}(?:([\"'])|n(?=[\s\"'{}\[\](]))")
# What programs and people write before each line: times, processes, quotation marks of mail.
BEFORE = re.compile(
    r"\A(?:(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?:?\s+"
    r"|\((?:[\w.-]{1,40}[, ]{1,2}){0,2}pid=\d{1,9}[^)]{0,40}\)\s"
    r"|std(?:err|out):\s|\[?rank ?\d{1,5}\]?:\s|\[\d{1,5}\]\s|[|>]\s(?!>)"
    r"|(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]{1,80}\]\s"
    r"|(?:E\s|`)(?=(?:\w{1,60}\.){0,9}\w{0,60}(?:Error|Exception)\b))+"
)


def _unquoted(match: re.Match[str]) -> str:
    return match[1] or "\n"


def clean(text: str) -> list[str]:
    """Split a pasted text into its lines, without colours, times and quotation marks of mail."""
    text = html.unescape(ESCAPES.sub("", text)).translate(_TYPOGRAPHIC)
    text = QUOTED.sub(_unquoted, text)
    lines = []
    for line in text.splitlines():
        line = BEFORE.sub("", " ".join(line.split()), count=1)
        if line:
            lines.append(line)
    return lines


def explain_last(line: str = "") -> Explanation | None:
    """Explain the error of the cell that failed last: the magic ``%explain``.

    course/install.sh gives it to each kernel of .venv, so that it is there before any cell ran.
    """
    last_error = getattr(sys, "last_value", None)
    if last_error is not None:
        return explain(last_error)
    print(translated(NO_CELL))  # noqa: T201
    return None


def load_ipython_extension(shell: Any) -> None:  # an IPython.InteractiveShell
    """Add ``%explain``, which explains the error of the cell that failed last."""
    shell.register_magic_function(explain_last, "line", "explain")
