"""The Korean edition is in step with the English, and says the same."""

import re
import warnings

from conventions import ROOT

from helpers.base import language
from helpers.course import map as course
from helpers.course import translation

CATALOG = translation.read("ko")
FOLDER = course.NOTEBOOKS / "ko"
CODE = r"(?s)```.*?```|``.+?``|`[^`]+`"
KINDS = {"code": CODE, "links": r"\]\(([^)]*)\)", "headings": "(?m)^#+ "}
KINDS["rows"] = r"(?m)^\s*(?:- |\d+\. |\|)"
# Where a remark of `differences` was looked at and found harmless: the grammar asks for it.
MOST = 25


def differences(english: str, korean: str) -> dict[str, list]:
    """What code, links and blanks of two texts aren't the same."""
    pairs = {x: [sorted(re.findall(y, z)) for z in (english, korean)] for x, y in KINDS.items()}
    texts = (re.sub(CODE, "", text) for text in (english, korean))
    pairs["blanks"] = [{*language.BLANK.findall(text)} for text in texts]
    return {kind: pair for kind, pair in pairs.items() if pair[0] != pair[1]}


def test_it_is_in_step():
    texts = {*translation.texts()}
    there = {(message.context, message.id) for message in CATALOG if message.id}
    behind = len(texts - there) + len(translation.to_do(CATALOG))
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
