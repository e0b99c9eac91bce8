"""The Korean edition is in step with the English, and says the same."""

import re
import warnings
from collections import Counter

from conventions import ROOT

from helpers.base import language
from helpers.course import map as course
from helpers.course import translation

CATALOG = translation.read("ko")
FOLDER = course.NOTEBOOKS / "ko"
CODE = re.compile(r"```.*?```|``.+?``|`[^`]+`", re.DOTALL)
LINK = re.compile(r"\]\(([^)]*)\)")
# Where a remark of `differences` was looked at and found harmless: the grammar asks for it.
MOST = 25


def differences(english: str, korean: str) -> dict[str, str]:
    """What code, links and blanks two texts don't have in common."""
    found = {}
    for kind, pattern in (("code", CODE), ("links", LINK)):
        one, other = Counter(pattern.findall(english)), Counter(pattern.findall(korean))
        if one != other:
            found[kind] = f"missing {[*(one - other)]}, added {[*(other - one)]}"
    blanks = [{*language.BLANK.findall(CODE.sub("", text))} for text in (english, korean)]
    if blanks[0] != blanks[1]:
        found["blanks"] = f"{blanks[0] ^ blanks[1]}"
    for kind, pattern in (("headings", r"^#+ "), ("rows", r"^\s*(?:- |\d+\. |\|)")):
        one, other = (len(re.findall(pattern, text, re.MULTILINE)) for text in (english, korean))
        if one != other:
            found[kind] = f"{one} and {other}"
    return found


def test_it_is_in_step():
    texts = {*translation.texts()}
    there = {(message.context, message.id) for message in CATALOG if message.id}
    count = translation.count(CATALOG)
    behind = len(texts - there) + len(count.fuzzy) + len(count.missing)
    if behind:
        warnings.warn(f"Korean: {behind} messages to do: tpu-course translate", stacklevel=1)
    made = translation.generated("ko", CATALOG)
    changed = [
        str(path.relative_to(ROOT))
        for path, text in made.items()
        if not path.is_file() or path.read_text("utf-8") != text
    ]
    assert changed == [], "tpu-course translate"
    assert {*FOLDER.iterdir()} == {path for path in made if path.parent == FOLDER}


def test_it_has_the_code_and_the_links_of_the_english():
    switch = "[한국어](README.ko.md)"  # each edition's README leads to the other
    messages = [m for m in CATALOG if m.id not in ("", switch) and m.string and not m.fuzzy]
    found = {m.context: said for m in messages if (said := differences(m.id, m.string))}
    assert len(found) <= MOST, found
    assert not {where: said for where, said in found.items() if {"links", "blanks"} & {*said}}
    assert differences("`a` [b](c) {d}", "`b` [b](d)").keys() == {"code", "links", "blanks"}
