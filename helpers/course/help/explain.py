"""From an error, or a pasted log, to its cause and what to do about it.

The symptoms are data: symptoms.toml, beside this file. logs.py searches the text.
"""

import json
import os
import pathlib
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.base.errors import CourseError
from helpers.base.language import translated
from helpers.course.help.logs import Log, Words, search_address
from tpu_preflight.errors import PreflightError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from rich.console import Group

MOST_MATCHES = 3

# How sure a symptom is, in words.
SURE = {
    "certain": "certain: this message has this cause",
    "likely": "likely: the usual cause of this message",
    "note": "a note: this line alone ends no program",
}


@dataclass(frozen=True)
class Symptom:
    """What an error looks like, why it happens, and what to do: a row of symptoms.toml."""

    name: str  # in a few words
    seen: tuple[Words, ...]  # what its message says; one of these is enough
    sure: str  # how sure the cause is: ``certain``, ``likely`` or ``note``
    why: str  # why it happens
    fix: str  # what to do now
    # The public thread where people met it (owner/repository#number), or the notebook of the course
    # that produces it.
    source: str
    checked: str  # month in which the source was read, such as ``2026-11``
    lesson: str  # number of the notebook that teaches it

    @property
    def link(self) -> str:
        """Address of the thread; nothing for a notebook."""
        repository, _, number = self.source.partition("#")
        return f"https://github.com/{repository}/issues/{number}" if number else ""


def _words(row: str | dict) -> Words:
    if isinstance(row, str):
        return Words(row)
    return Words(**{key: tuple(x) if isinstance(x, list) else x for key, x in row.items()})


def read(text: str) -> tuple[Symptom, ...]:
    """Read symptoms from TOML, the most telling first.

    Raises:
        TypeError: A row lacks one of the attributes of a symptom, or has another.
    """
    rows = tomllib.loads(text)["symptom"]
    return tuple(Symptom(**row | {"seen": tuple(map(_words, row.get("seen", ())))}) for row in rows)


SYMPTOMS = read(pathlib.Path(__file__).with_name("symptoms.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Match:
    """A known symptom in a text."""

    symptom: Symptom  # which one
    evidence: str  # the line of the text that shows it, shortened


@dataclass(frozen=True)
class Explanation:
    """What is known about an error.

    Attributes:
        matches: The symptoms found in it, the most telling first; at most three.
        course: The error's own what, why and fix, when the course raised it.
        unknown: Where nothing is known, the line that matters most; empty where there is none.
    """

    matches: tuple[Match, ...]
    course: CourseError | None = None
    unknown: str = ""

    def __bool__(self) -> bool:
        return bool(self.matches or self.course)

    def _blocks(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Give `_english` in the language of messages."""
        return [
            (translated(title), [(translated(name), translated(text)) for name, text in lines])
            for title, lines in self._english()
        ]

    def _english(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Titles and what stands below them: a label and a text, which may be an address."""
        if self.course is not None:
            error = self.course
            return [(error.what, [("Why", error.why), ("Fix", error.fix)])]
        blocks = []
        for match in self.matches:
            symptom = match.symptom
            texts = (match.evidence, SURE[symptom.sure], symptom.why, symptom.fix)
            lines = list(zip(("Seen", "Sure", "Why", "Fix"), texts, strict=True))
            lines += [("Lesson", f"notebook {symptom.lesson}")]
            lines += [("Thread", symptom.link)] if symptom.link else []
            blocks.append((symptom.name, lines))
        if not blocks and self.unknown:
            lines = [("Line", self.unknown), ("Search", search_address(self.unknown))]
            blocks.append((NOTHING, [*lines, ("Try", TRY)]))
        return blocks or [(f"{NOTHING} {TRY}", [])]

    def json(self) -> str:
        """Write it as JSON: what is known by the names of its lines, and the line that matters."""
        blocks = self._english() if self else []
        known = [{"name": name} | {k.lower(): v for k, v in lines} for name, lines in blocks]
        return json.dumps({"known": known, "line": self.unknown}, indent=1, ensure_ascii=False)

    def __repr__(self) -> str:
        return "\n\n".join(
            "\n".join([title, *(f"  {name}: {text}" for name, text in lines)])
            for title, lines in self._blocks()
        )

    def __rich__(self) -> "Group":
        """Show it on a terminal: bold titles, addresses as links."""
        from rich.console import Group
        from rich.padding import Padding
        from rich.text import Text

        parts = []
        for title, lines in self._blocks():
            parts += [Text(), Text(title, style="bold")]
            for name, text in lines:
                link = text if text.startswith("https://") else ""
                shown = name in (translated("Seen"), translated("Line"))
                style = f"link {link}" if link else "yellow" if shown else ""
                line = Text.assemble((f"{name}: ", "cyan"), (text, style), overflow="fold")
                parts.append(Padding(line, (0, 0, 0, 2)))
        return Group(*parts[1:])

    def _repr_html_(self) -> str:
        from helpers.base import html

        return html.render("explanation.html", blocks=self._blocks())


NOTHING = "No known symptom is in this text."
TRY = (
    "Give it the whole traceback, from the first line on; `tpu-course doctor` checks this machine."
)


def _text(error: BaseException) -> str:
    """Say an exception and what led to it: names, messages, files, but no source lines.

    A source line may quote another error's message, as tests and lessons do.
    """
    lines, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame in traceback.extract_tb(error.__traceback__):
            cell = "ipykernel_" in frame.filename or frame.filename.startswith("<ipython-input")
            file = "a cell of the notebook" if cell else os.path.basename(frame.filename)  # noqa: PTH119
            lines.append(f"{file}, {frame.name}")
        lines.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(lines)


def explain(error: BaseException | str) -> Explanation:
    """Look for known symptoms in an error, in time proportional to its length.

    Takes an exception, with its traceback if it has one, or a pasted log; colours, times and line
    breaks are ignored. Gives the symptoms found, the most telling first; empty (and false) when
    there is none, with the line that matters. A note is given only where there is nothing else.
    """
    if isinstance(error, PreflightError):
        return Explanation((), error)
    log = Log(error if isinstance(error, str) else _text(error))
    matches, notes = [], []
    for symptom in SYMPTOMS:
        for words in symptom.seen:
            if evidence := log.find(words):
                kind = notes if symptom.sure == "note" else matches
                kind.append(Match(symptom, evidence))
                break
    if not matches and not log.raised:
        matches = notes
    return Explanation(tuple(matches[:MOST_MATCHES]), unknown="" if matches else log.last_error())


def page(
    symptoms: Sequence[Symptom] = SYMPTOMS, say: Callable[[str], str] = lambda text: text
) -> str:
    """Write symptoms as one page in Markdown, ordered by notebook; ``say`` translates the rest."""
    from helpers.base import html

    return html.render("symptoms.md", symptoms=symptoms, say=say, plain=_plain, code=_code)


def _plain(text: str) -> str:
    """Keep Markdown from reading underscores and stars of names as its own."""
    parts = text.replace("|", "&#124;").split("`")
    parts[::2] = [re.sub(r"([_*<])", r"\\\1", part) for part in parts[::2]]  # the rest is code
    return "`".join(parts)


def _code(text: str) -> str:
    """Write a message as code, also one that quotes code itself."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def explain_last(line: str = "") -> Explanation | None:
    """Explain the error of the cell that failed last: the magic ``%explain``.

    helpers/install.sh gives it to each kernel of .venv, so that it is there before any cell ran.
    """
    last = getattr(sys, "last_value", None)
    if last is None:
        print(  # noqa: T201
            translated(
                "No cell has failed since this kernel started. After a restart run the cell again, "
                "then %explain."
            )
        )
        return None
    return explain(last)


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Add ``%explain``, which explains the error of the cell that failed last."""
    shell.register_magic_function(explain_last, "line", "explain")
