"""The language of messages: English, or another that ``notebooks/locale`` translates.

A message is looked up as a whole. One with ``{words}`` in braces is a pattern, and what a message
has in their places is looked up as well. Babel is imported only for another language than English.
"""

import contextlib
import dataclasses
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
    with contextlib.suppress(FileNotFoundError):  # the current folder was deleted
        folder = folder or pathlib.Path.cwd()
    folder = folder or ROOT
    codes = translations()
    if environment.get(CHOSEN) in codes:
        return environment[CHOSEN]
    if folder in (NOTEBOOKS, WORK):
        return ENGLISH
    if folder.parent in (NOTEBOOKS, WORK) and folder.name in codes:
        return folder.name
    for name in VARIABLES:
        locale = environment.get(name)
        if locale:
            code = re.split(r"[_.@]", locale, maxsplit=1)[0]
            return code if code in codes else ENGLISH
    return ENGLISH


def read(code: str) -> Any:
    """Read a language's translation, a catalog of Babel; an empty one where there is none yet.

    Raises `CourseError`: It can't be read, as after a merge of git, or has a message twice.
    """
    from babel.messages import Catalog, pofile

    class UniqueMessages(Catalog):
        def __setitem__(self, english: str, message: object) -> None:
            if self.get(english, message.context):  # Babel would drop one of the translations
                raise ValueError(f"{english[:60]!r} is there twice, again on {message.lineno - 1}")
            super().__setitem__(english, message)

    catalog = UniqueMessages(locale=code, fuzzy=False)
    path = file(code)
    try:
        if path.is_file():
            with path.open(encoding="utf-8-sig") as lines:  # Windows may begin it with a mark
                pofile.PoFileParser(catalog, abort_invalid=True).parse(lines)
    except Exception as error:  # Babel's own, and what it meets in a file that isn't whole
        raise CourseError(
            f"{path.name} can't be read.",
            f"{cause(error)} (lines from 0).",
            "Repair it: save it in UTF-8.",
        ) from error
    return catalog


@dataclasses.dataclass(frozen=True)
class _Pattern:
    """A message with blanks, and its translation."""

    english: re.Pattern[str]  # a group for each blank that is new
    names: tuple[str, ...]  # of the groups
    translation: str

    def translate(self, text: str, code: str) -> str | None:
        """Translate a text that fits, with what fills its blanks; None where it doesn't fit."""
        match = self.english.fullmatch(text)
        if match is None:
            return None
        # What fills a blank is often a message itself, such as the name of a kernel's place.
        words = {}
        for name, group in zip(self.names, match.groups(), strict=True):
            words[name] = translated(group, code)

        def fill(blank: re.Match[str]) -> str:
            return words.get(blank[1], blank[0])

        return BLANK.sub(fill, self.translation)


def _letters(english: str) -> int:
    return len(BLANK.sub("", english))


@functools.cache
def _messages(code: str) -> tuple[dict[str, str], list[_Pattern]]:
    """Give what is translated: whole messages, and patterns, the longest first."""
    try:
        catalog = read(code)
    except CourseError as error:
        sys.stderr.write(f"{error.what} {error.why} Messages are in English.\n")
        catalog = ()
    translations = {}
    for message in catalog:
        if message.id and message.string and not message.fuzzy:
            translations[message.id] = message.string
    patterns = []
    # What has more letters fits fewer texts: a short pattern must not take them first.
    for english in sorted(filter(BLANK.search, translations), key=_letters, reverse=True):
        names = tuple(dict.fromkeys(BLANK.findall(english)))
        patterns.append(_Pattern(_expression(english), names, translations[english]))
    return translations, patterns


def _expression(english: str) -> re.Pattern[str]:
    """Make a regular expression of a message with blanks: a group for each that is new."""
    words = re.findall("[A-Za-z]{2,}", BLANK.sub(" ", english))
    if len(words) < 3:  # a pattern of few words would fit what it isn't meant for
        usual_blank = r"(\S+?)"
    else:  # brackets close where they opened
        usual_blank = r"((?:[(\[][^()]*\)|[^()])*?)"
    expression = ""
    groups: list[str] = []
    for position, part in enumerate(BLANK.split(english)):
        if position % 2 == 0:
            expression += re.escape(part)
            continue
        if part in groups:
            expression += rf"(?:\{groups.index(part) + 1})"
            continue
        groups.append(part)
        if part == "code":
            expression += "(.*)"
        elif f"{{{part}}}{{" in english:
            # Of two side by side the second begins with a sign: "; the slowest is …"
            expression += r"((?:(?![;(]|, ).)*)"
        else:
            expression += usual_blank
    return re.compile(expression, re.DOTALL)


def translated(text: str, code: str | None = None) -> str:
    """Give a message in a language, by default `language`'s; as it is where it isn't translated.

    What fills the blanks of a pattern is translated in the same way.
    """
    code = code or language()
    if code == ENGLISH or not text.strip():
        return text
    # A whole message first: a pattern that fits it, too, would translate its parts.
    messages, patterns = _messages(code)
    if text in messages:
        return messages[text]
    if ";\n" in text:  # a list of messages
        parts = text.removesuffix(".").split(";\n")
        full_stop = "." if text.endswith(".") else ""
        return ";\n".join(translated(part, code) for part in parts) + full_stop
    for pattern in patterns:
        translation = pattern.translate(text, code)
        if translation is not None:
            return translation
    return text
