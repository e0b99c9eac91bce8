"""The language of messages: English, or another that ``notebooks/locale`` translates.

A message is looked up as a whole. One with ``{words}`` in braces is a pattern, and what a message
has in their places is looked up, too. Babel is imported only for another language than English.
"""

import functools
import os
import pathlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from helpers.base.settings import ROOT

if TYPE_CHECKING:
    from babel.messages import Catalog

ENGLISH = "en"
NOTEBOOKS, WORK = ROOT / "notebooks", ROOT / "work"
LOCALE = NOTEBOOKS / "locale"
BLANK = re.compile(r"\{[^{}\n]+\}")
FIRST = r"((?:(?![;(]|, ).)*)"
ENOUGH = 3  # words of a pattern, from which on its blanks may hold several words
# In gettext's order (gnu.org/software/gettext/manual, "Locale Environment Variables", 2026-11).
VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


def file(language: str) -> pathlib.Path:
    """Give the place of a language's translation, such as ``notebooks/locale/ko.po``."""
    return LOCALE / f"{language}.po"


def translations() -> list[str]:
    """List the languages into which the course is translated, by their codes."""
    return sorted(path.stem for path in LOCALE.glob("*.po"))


def language(
    environment: Mapping[str, str] = os.environ, folder: pathlib.Path | None = None
) -> str:
    """Say which language messages have: a code such as ``ko``, or ``en``.

    In a folder of notebooks it is the notebooks' own, elsewhere what the environment asks for, as
    far as it is translated.
    """
    folder = folder or pathlib.Path.cwd()
    if folder in (NOTEBOOKS, WORK):
        return ENGLISH
    if folder.parent in (NOTEBOOKS, WORK) and file(folder.name).is_file():
        return folder.name
    wanted = next((environment[name] for name in VARIABLES if environment.get(name)), ENGLISH)
    code = re.split(r"[_.@]", wanted, maxsplit=1)[0]
    return code if re.fullmatch("[a-z]{2,3}", code) and file(code).is_file() else ENGLISH


def read(path: pathlib.Path) -> "Catalog":
    """Read a translation.

    Raises:
        babel.messages.pofile.PoFileError: It isn't in gettext's PO form.
    """
    from babel.messages import pofile

    with path.open("rb") as stream:
        return pofile.read_po(stream, abort_invalid=True)


@functools.cache
def _messages(code: str) -> tuple[dict[str, str], list[tuple[re.Pattern[str], str, list[str]]]]:
    """Give what is translated: whole messages, and patterns, the longest first."""
    told = {m.id: m.string for m in read(file(code)) if m.id and m.string and not m.fuzzy}
    longest = sorted(filter(BLANK.search, told), key=lambda english: -len(BLANK.sub("", english)))
    patterns = [(_pattern(english), told[english], _blanks(english)) for english in longest]
    return told, patterns


def _blanks(english: str) -> list[str]:
    return list(dict.fromkeys(BLANK.findall(english)))


def _pattern(english: str) -> re.Pattern[str]:
    """Make a regular expression of a message with blanks: a group for each that is new."""
    # With few words of its own a pattern would fit what it isn't meant for.
    words = re.findall("[A-Za-z]{2,}", BLANK.sub(" ", english))
    blank = "(.*?)" if len(words) >= ENOUGH else r"(\S+?)"
    parts, seen, pattern = BLANK.split(english), [], ""
    for part, name in zip(parts, [*BLANK.findall(english), ""], strict=True):
        pattern += re.escape(part)
        if name in seen:
            pattern += rf"(?:\{seen.index(name) + 1})"
        elif name:
            # Of two side by side the second begins with a sign: "; the slowest is …".
            pattern += FIRST if f"{name}{{" in english else blank
            seen.append(name)
    return re.compile(pattern, re.DOTALL)


def translated(text: str, code: str | None = None) -> str:
    """Give a message in a language, by default `language`'s; as it is where nobody translated it.

    What fills the blanks of a pattern is translated in the same way.
    """
    code = code or language()
    if code == ENGLISH or not text.strip():
        return text
    whole, patterns = _messages(code)
    if text in whole:
        return whole[text]
    if ";\n" in text:  # a list of messages
        said = (translated(part, code) for part in text.removesuffix(".").split(";\n"))
        return ";\n".join(said) + "." * text.endswith(".")
    for pattern, string, blanks in patterns:
        found = pattern.fullmatch(text)
        # A sentence before brackets may have its own.
        if found and any(")" in said.partition("(")[0] for said in found.groups()):
            found = re.fullmatch(pattern.pattern.replace("(.*?)", "(.*)"), text, re.DOTALL)
        if found:
            words = dict(zip(blanks, found.groups(), strict=True))
            return BLANK.sub(
                lambda blank, words=words: translated(words.get(blank[0], blank[0]), code), string
            )
    return text
