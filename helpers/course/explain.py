"""From an error, or a pasted log, to its cause and what to do about it.

The symptoms are data: symptoms.toml, beside this file.
"""

import os
import pathlib
import re
import sys
import tomllib
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.base.errors import CourseError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

LONGEST_EVIDENCE = 160
MOST_MATCHES = 3
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Symptom:
    """What an error looks like, why it happens, and what to do: a row of symptoms.toml.

    Attributes:
        name: In a few words.
        pattern: Regular expressions, one of which the error's text matches.
        why: Why it happens.
        fix: What to do now.
        source: The public thread where people met it (owner/repository#number), or the notebook
            of the course that produces it.
        checked: Month in which the source was read, such as ``2026-11``.
        lesson: Number of the notebook that teaches it.
    """

    name: str
    pattern: list[str]
    why: str
    fix: str
    source: str
    checked: str
    lesson: str


def read(text: str) -> tuple[Symptom, ...]:
    """Read symptoms from TOML, the most telling first.

    Raises:
        TypeError: A row lacks one of the attributes of a symptom, or has another.
    """
    return tuple(Symptom(**row) for row in tomllib.loads(text)["symptom"])


SYMPTOMS = read(pathlib.Path(__file__).with_name("symptoms.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Match:
    """A known symptom in a text.

    Attributes:
        symptom: Which one.
        evidence: The line of the text that shows it, shortened.
    """

    symptom: Symptom
    evidence: str


@dataclass(frozen=True)
class Explanation:
    """What is known about an error.

    Attributes:
        matches: The symptoms found in it, the most telling first; at most three.
        course: The error's own what, why and fix, when the course raised it.
    """

    matches: tuple[Match, ...]
    course: CourseError | None = None

    def __bool__(self) -> bool:
        return bool(self.matches or self.course)

    def _blocks(self) -> list[tuple[str, list[tuple[str, str]]]]:
        if self.course is not None:
            error = self.course
            return [(error.what, [("Why", error.why), ("Fix", error.fix)])]
        blocks = []
        for match in self.matches:
            symptom = match.symptom
            more = f"notebook {symptom.lesson}; {symptom.source}"
            texts = (match.evidence, symptom.why, symptom.fix, more)
            lines = zip(("Seen", "Why", "Fix", "More"), texts, strict=True)
            blocks.append((symptom.name, list(lines)))
        return blocks

    def __repr__(self) -> str:
        if not self:
            return NOTHING
        return "\n\n".join(
            "\n".join([title, *(f"  {name}: {text}" for name, text in lines)])
            for title, lines in self._blocks()
        )

    def _repr_html_(self) -> str:
        from helpers.base import html

        return html.render("explanation.html", blocks=self._blocks(), nothing=NOTHING)


NOTHING = (
    "No known symptom is in this text. Give it the whole traceback, from the first line on; "
    "`python -m helpers doctor` checks this machine."
)


def _text(error: BaseException) -> str:
    """Say an exception and what led to it: names, messages, files, but no source lines.

    A source line may quote another error's message, as tests and lessons do.
    """
    lines, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        frames = traceback.extract_tb(error.__traceback__)
        lines += [f"{os.path.basename(frame.filename)}, {frame.name}" for frame in frames]  # noqa: PTH119
        lines.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(lines)


def explain(error: BaseException | str) -> Explanation:
    """Look for known symptoms in an error.

    Args:
        error: An exception, with its traceback if it has one, or a pasted log. Colours are
            ignored.

    Returns:
        The symptoms found, the most telling first; empty (and false) when there is none.
    """
    if isinstance(error, CourseError):
        return Explanation((), error)
    text = COLOURS.sub("", error if isinstance(error, str) else _text(error))
    matches = []
    for symptom in SYMPTOMS:
        if found := re.search("|".join(symptom.pattern), text):
            line = text[: found.end()].rpartition("\n")[2] + text[found.end() :].partition("\n")[0]
            line = " ".join(line.split())
            cut = len(line) > LONGEST_EVIDENCE
            matches.append(Match(symptom, line[: LONGEST_EVIDENCE - 1] + "…" if cut else line))
    return Explanation(tuple(matches[:MOST_MATCHES]))


def page() -> str:
    """Write all symptoms as one page in Markdown, ordered by notebook."""
    from helpers.base import html

    return html.render("symptoms.md", symptoms=SYMPTOMS, plain=_plain, link=_link)


def _plain(text: str) -> str:
    """Keep Markdown from reading underscores and stars of names as its own."""
    parts = text.replace("|", "&#124;").split("`")
    parts[::2] = [re.sub(r"([_*<])", r"\\\1", part) for part in parts[::2]]  # the rest is code
    return "`".join(parts)


def _link(source: str) -> str:
    repository, _, number = source.partition("#")
    return f"[{source}](https://github.com/{repository}/issues/{number})" if number else source


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Add ``%explain``, which explains the error of the cell that failed last."""

    def explain_last(line: str) -> Explanation | None:
        """Explain the error of the cell that failed last."""
        last = getattr(sys, "last_value", None)
        if last is None:
            print("No cell has failed yet.")  # noqa: T201
            return None
        return explain(last)

    shell.register_magic_function(explain_last, "line", "explain")
