"""From an error, or a pasted log, to its cause and what to do about it.

The symptoms are data: symptoms.toml, beside this file, with one regular expression for each. What
comes between two parts of a message, or between it and the words near it, is bounded, so a search
takes time in proportion to the length of the text.
"""

import bisect
import codecs
import functools
import html
import pathlib
import re
import sys
import tomllib
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from helpers.base.errors import CourseError
from helpers.base.language import translated
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
TRY = "Give it the whole traceback; if this is all of it, search the Web for the line."


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
    sure: str = "certain"  # how sure the cause is: ``certain``, ``likely`` or ``note``

    @property
    def link(self) -> str:
        """Address of the thread; nothing for a notebook."""
        repository, _, number = self.source.partition("#")
        return f"https://github.com/{repository}/issues/{number}" if number else ""

    @property
    def says(self) -> tuple[str, ...]:
        """The messages for people: each as far as it is plain text."""
        plain = re.compile(r"(?:\\[^\w\s]|[^\\()\[\]{}*+?|](?![?{*+]))*")
        return tuple(re.sub(r"\\(.)", r"\1", plain.match(x)[0]).strip(" …") for x in self.seen)

    def evidence(self, text: str, small: str) -> str:
        """Give the line of a text that shows the symptom; ``small`` is the text in small letters.

        Empty where there is none.
        """
        seen = _places("|".join(self.seen), small)
        near, unless = (_places(x, small) if seen else [] for x in (self.near, self.unless))
        for start, end in seen:
            if (not self.near or _beside(near, start, end)) and not _beside(unless, start, end):
                return _line(text, start, end)
        return ""


def _places(written: str, small: str) -> list[tuple[int, int]]:
    return [found.span() for found in lowered(written).finditer(small)] if written else []


def _beside(places: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    at = bisect.bisect(places, (start - REACH,))
    return at < len(places) and places[at][1] <= end + REACH


@functools.cache
def lowered(written: str) -> re.Pattern[str]:
    """Compile an expression of symptoms.toml for small letters, which are found five times faster.

    The letter after a backslash is no letter of the text.
    """
    written = written.replace("…", ".{0,200}?")
    return re.compile(re.sub(r"\\.|[A-Z]", lambda x: x[0] if x[0][1:] else x[0].lower(), written))


def _line(text: str, start: int, end: int) -> str:
    """Give the line, or lines, around a place; of a long one what is next to it."""
    first, last = text.rfind("\n", 0, start) + 1, f"{text}\n".index("\n", end)
    if last - first > LONGEST_EVIDENCE:
        first = max(first, start - 20, end - LONGEST_EVIDENCE // 2)
    return " ".join(text[first : min(last, first + LONGEST_EVIDENCE)].split())


_ROWS = tomllib.loads(pathlib.Path(__file__).with_name("symptoms.toml").read_text("utf-8"))
SYMPTOMS = tuple(Symptom(**row) for row in _ROWS["symptom"])


@dataclass(frozen=True)
class Match:
    """A known symptom in a text."""

    symptom: Symptom  # which one
    evidence: str  # the line of the text that shows it, shortened


@dataclass(frozen=True)
class Explanation:
    """What is known about an error: false where that is nothing."""

    matches: tuple[Match, ...]  # the symptoms found in it, the most telling first; at most three
    unknown: str = ""  # where nothing is known, the last error's line; may be empty

    def __bool__(self) -> bool:
        return bool(self.matches)

    def __repr__(self) -> str:
        """Give titles with labelled lines below them, in the language of messages."""
        blocks = []
        for symptom, seen in ((match.symptom, match.evidence) for match in self.matches):
            lines = {"Seen": seen, "Why": symptom.why, "Fix": symptom.fix}
            lines |= {"Lesson": symptom.lesson and f"notebook {symptom.lesson}"}
            sure = "" if symptom.sure == "certain" else f" ({translated(symptom.sure)})"
            blocks.append((translated(symptom.name) + sure, lines | {"Thread": symptom.link}))
        said = []
        for title, lines in blocks or [(translated(NOTHING), {"Line": self.unknown, "Try": TRY})]:
            told = {translated(name): translated(text) for name, text in lines.items() if text}
            told = [f"{name}: {text}" for name, text in told.items()]
            said.append("\n  ".join([title, *told]))
        return "\n\n".join(said)


def explain(error: BaseException | str) -> Explanation:
    """Look for known symptoms in an error.

    Takes an exception, with its traceback if it has one, or a pasted log; colours, times and line
    breaks are ignored. Gives the symptoms found, the most telling first; empty (and false) when
    there is none, with the last error's line. A note is given only where there is nothing else.
    """
    if isinstance(error, (CourseError, PreflightError)):
        own = Symptom(error.what, (), error.why, error.fix, source="", lesson="")
        return Explanation((Match(own, ""),))
    lines = clean(error if isinstance(error, str) else _text(error))
    # A message may be broken between words or, by a terminal's edge, within one.
    texts = dict.fromkeys(["\n".join(lines), "".join(lines)])
    # In small letters, in one line: as many characters as before, whatever they are.
    both = [(t, t.encode("ascii", "replace").decode().lower().replace("\n", " ")) for t in texts]
    found = [
        Match(symptom, evidence)
        for symptom in SYMPTOMS
        if (evidence := next(filter(None, (symptom.evidence(*x) for x in both)), ""))
    ]
    matches = [match for match in found if match.symptom.sure != "note"]
    raised = ["", *filter(RAISED.match, lines)]
    if not matches and not raised[1:]:
        matches = found
    return Explanation(tuple(matches[:MOST_MATCHES]), unknown="" if matches else raised[-1])


def _text(error: BaseException) -> str:
    """Say an exception and what led to it: names, messages, files, but no source lines.

    A source line may quote another error's message, as tests and lessons do.
    """
    lines, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame in traceback.extract_tb(error.__traceback__):
            cell = "ipykernel_" in frame.filename or frame.filename.startswith("<ipython-input")
            file = "a cell of the notebook" if cell else pathlib.Path(frame.filename).name
            lines.append(f"{file}, {frame.name}")
        lines.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(lines)


def read(log: BinaryIO) -> tuple[bytes, int]:
    """Read a log; of a long one what it begins and ends with.

    Gives that, at most twice ``MOST_BYTES``, and the number of bytes that were left out.
    """
    first, last, left_out = log.read(MOST_BYTES), b"", 0
    while left_out < ENDLESS and (piece := log.read(MOST_BYTES)):
        last += piece
        left_out += max(0, len(last) - MOST_BYTES)
        last = last[-MOST_BYTES:]
    return first + last, left_out


def decode(data: bytes) -> str:
    """Make text of the bytes of a log: UTF-8, or UTF-16 as PowerShell writes it; never fails."""
    marked = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if marked else "utf-8-sig", "replace").replace("\0", "")


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
    r"|std(?:err|out):\s|\[?rank ?\d{1,5}\]?:\s|\[\d{1,5}\]\s|[|>]\s(?!>))+"
)


def clean(text: str) -> list[str]:
    """Split a pasted text into its lines, without colours, times and quotation marks of mail."""
    text = html.unescape(ESCAPES.sub("", text)).translate(_TYPOGRAPHIC)
    text = QUOTED.sub(lambda found: found[1] or "\n", text)
    lines = (BEFORE.sub("", " ".join(line.split()), count=1) for line in text.splitlines())
    return [line for line in lines if line]


RAISED = re.compile(r"(?:\w{1,60}\.){0,9}\w{0,60}(?:Error|Exception|Interrupt|Exit)\b(?=:|\(|$)")


def explain_last(line: str = "") -> Explanation | None:
    """Explain the error of the cell that failed last: the magic ``%explain``.

    course/install.sh gives it to each kernel of .venv, so that it is there before any cell ran.
    """
    if (last := getattr(sys, "last_value", None)) is not None:
        return explain(last)
    print(translated(NO_CELL))  # noqa: T201
    return None


def load_ipython_extension(shell: Any) -> None:  # an IPython.InteractiveShell
    """Add ``%explain``, which explains the error of the cell that failed last."""
    shell.register_magic_function(explain_last, "line", "explain")
