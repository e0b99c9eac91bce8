"""The language of messages: English, or another that ``notebooks/locale`` translates.

A message is looked up as a whole. One with ``{words}`` in braces is a pattern, and what a message
has in their places is looked up, too. Babel is imported only for another language than English.
"""

import contextlib
import functools
import os
import pathlib
import re
import sys
from collections.abc import Mapping
from typing import Any

from helpers.base.errors import CourseError, cause
from helpers.base.settings import ROOT

ENGLISH = "en"
NOTEBOOKS, WORK = ROOT / "notebooks", ROOT / "work"
LOCALE = NOTEBOOKS / "locale"
BLANK = re.compile(r"\{([^{}\n]+)\}")
CHOSEN = "COURSE_LANGUAGE"  # set by the setup cell of a translated notebook
# In gettext's order (gnu.org/software/gettext/manual, "Locale Environment Variables", 2026-11).
VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


def file(language: str) -> pathlib.Path:
    """Give the place of a language's translation, such as ``notebooks/locale/ko.po``."""
    return LOCALE / f"{language}.po"


def translations() -> list[str]:
    """List the languages of the translations by their codes; ``ko.backup.po`` is none."""
    code = re.compile(r"[a-z]{2,3}(_[A-Z0-9]\w+)?")
    return sorted(path.stem for path in LOCALE.glob("*.po") if code.fullmatch(path.stem))


def language(
    environment: Mapping[str, str] = os.environ, folder: pathlib.Path | None = None
) -> str:
    """Say which language messages have: a code such as ``ko``, or ``en``.

    It is what the setup cell chose; else in a folder of notebooks the notebooks' own, elsewhere
    what the environment asks for, as far as it is translated.
    """
    with contextlib.suppress(FileNotFoundError):  # somebody deleted it
        folder = folder or pathlib.Path.cwd()
    folder = folder or ROOT
    if environment.get(CHOSEN) in translations():
        return environment[CHOSEN]
    if folder in (NOTEBOOKS, WORK):
        return ENGLISH
    if folder.parent in (NOTEBOOKS, WORK) and folder.name in translations():
        return folder.name
    wanted = next((environment[name] for name in VARIABLES if environment.get(name)), ENGLISH)
    code = re.split(r"[_.@]", wanted, maxsplit=1)[0]
    return code if code in translations() else ENGLISH


def read(code: str) -> Any:
    """Read a language's translation, a catalog of Babel; an empty one where there is none yet.

    Raises `CourseError`: It can't be read, as after a merge of git, or has a message twice.
    """
    from babel.messages import Catalog, pofile

    class Once(Catalog):
        def __setitem__(self, english: str, message: object) -> None:
            if self.get(english, message.context):  # Babel would drop one of the translations
                raise ValueError(f"{english[:60]!r} is there twice, again on {message.lineno - 1}")
            super().__setitem__(english, message)

    catalog = Once(locale=code, fuzzy=False)
    try:
        if (path := file(code)).is_file():
            with path.open(encoding="utf-8-sig") as lines:  # Windows may begin it with a mark
                pofile.PoFileParser(catalog, abort_invalid=True).parse(lines)
    except Exception as error:  # Babel's own, and what it meets in a file that isn't whole
        what, why = f"{path.name} can't be read.", f"{cause(error)} (lines from 0)."
        raise CourseError(what, why, "Repair it: save it in UTF-8.") from error
    return catalog


@functools.cache
def _messages(code: str) -> tuple[dict[str, str], list[tuple[re.Pattern[str], str, list[str]]]]:
    """Give what is translated: whole messages, and patterns, the longest first."""
    try:
        messages = read(code)
    except CourseError as error:
        sys.stderr.write(f"{error.what} {error.why} Messages are in English.\n")
        messages = ()
    told = {m.id: m.string for m in messages if m.id and m.string and not m.fuzzy}
    longest = sorted(filter(BLANK.search, told), key=lambda english: -len(BLANK.sub("", english)))
    patterns = [(_pattern(x), told[x], [*dict.fromkeys(BLANK.findall(x))]) for x in longest]
    return told, patterns


def _pattern(english: str) -> re.Pattern[str]:
    """Make a regular expression of a message with blanks: a group for each that is new."""
    words = re.findall("[A-Za-z]{2,}", BLANK.sub(" ", english))
    # A pattern of few words would fit what it isn't meant for. Brackets close where they opened.
    blank = r"(\S+?)" if len(words) < 3 else r"((?:[(\[][^()]*\)|[^()])*?)"
    pattern, seen = "", []
    for at, part in enumerate(BLANK.split(english)):
        if at % 2 == 0:
            pattern += re.escape(part)
        elif part in seen:
            pattern += rf"(?:\{seen.index(part) + 1})"
        else:  # of two side by side the second begins with a sign: "; the slowest is …"
            beside = r"((?:(?![;(]|, ).)*)" if f"{{{part}}}{{" in english else blank
            pattern += "(.*)" if part == "code" else beside
            seen.append(part)
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
    for pattern, string, names in patterns:
        if found := pattern.fullmatch(text):
            words = dict(zip(names, (translated(x, code) for x in found.groups()), strict=True))
            return BLANK.sub(lambda blank, words=words: words.get(blank[1], blank[0]), string)
    return text
