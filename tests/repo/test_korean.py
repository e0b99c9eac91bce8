"""The Korean edition is in step with the English, and says the same."""

import ast
import html
import json
import re
import warnings

from conventions import source, tags

from course import catalog, translation
from helpers.base import language

CATALOG = language.read("ko")
FOLDER = catalog.NOTEBOOKS / "ko"
# Wrong terms that can be searched for: notebooks/locale/ko.md has the right ones.
WRONG = r"(?<![가-힣])(글(?![자씨쓴])|칸|루프(?!라인)|물결|파동|색인|순방향|스코프|지표)"
WRONG += r"|\d %|-\d\d에\s+읽"
CODE = r"(?s)```.*?```|``.+?``|`[^`]+`"


def test_it_is_in_step():
    there = {(message.context, message.id) for message in CATALOG}
    if behind := [*({*translation.collect_texts()} - there), *translation.to_do(CATALOG)]:
        warnings.warn(f"Korean: {len(behind)} messages to do: tpu-course translate", stacklevel=1)
    made = translation.generate("ko", CATALOG)
    changed = [p for p, text in made.items() if not p.is_file() or p.read_text("utf-8") != text]
    assert changed == [], "tpu-course translate"
    assert {*FOLDER.iterdir()} == {path for path in made if path.parent == FOLDER}


def cells(path) -> list[dict]:
    return [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]


def program(path) -> str:
    """A notebook's code, without comments and docstrings."""
    tree = ast.parse(re.sub("(?m)^( *)[%!].*", r"\1pass", "\n".join(map(source, cells(path)))))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            del node.body[0]
    return ast.unparse(tree)


def test_its_programs_are_the_english_ones_but_for_the_language_of_setup_and_texts():
    for path in (notebook.path for notebook in catalog.notebooks()):
        wanted = program(path).replace("runtime.setup()", "runtime.setup(language='ko')")
        wanted = wanted.replace("LANGUAGE = 'en'", "LANGUAGE = 'ko'")
        assert program(FOLDER / path.name) == wanted, path.name


def printed(cell) -> str:
    shown = [o.get("data", {"text/plain": o.get("text", "")}) for o in cell["outputs"]]
    texts = ("".join(x.get(f"text/{kind}", "")) for x in shown for kind in ("plain", "html"))
    return html.unescape("\n".join(texts))


def english(cell) -> list[str]:
    """What a cell printed in English that isn't in its program and has a translation."""
    pieces = re.split(r"(?m)<[^>]*>|\n|: |^\W*\d ", printed(cell))
    long = [x.strip() for x in pieces if len(re.findall("[A-Za-z]{2,}", x)) > 3]
    return [x for x in long if x not in source(cell) and language.translated(x, "ko") != x]


def test_its_stored_outputs_are_those_of_the_program_in_the_language():
    found = 0
    for path in (notebook.path for notebook in catalog.notebooks()):
        for pair in zip(cells(path), cells(FOLDER / path.name), strict=True):
            where, said = (path.name, pair[0]["id"]), [english(cell) for cell in pair]
            found += len(said[0])
            assert said[1] == [], where
            if path.name[:2] != "10" and "nbval-ignore-output" not in tags(pair[0]):
                number = r"(?<![\d.,])\d+(?:[.,]\d+)*(?![\d월])"  # English has months in letters
                one, other = (sorted(re.findall(number, printed(x))) for x in pair)
                assert one == other, where
    assert found > 200  # a run in English would show


def test_it_has_the_links_and_the_blanks_of_the_english():
    switch = "[한국어](README.ko.md)"  # each edition's README leads to the other
    for message in CATALOG:
        if message.id not in ("", switch) and message.string and not message.fuzzy:
            texts = message.id, message.string
            links = [sorted(re.findall(r"\]\(([^)]*)\)", text)) for text in texts]
            blanks = [{*language.BLANK.findall(re.sub(CODE, "", text))} for text in texts]
            assert (links[0], blanks[0]) == (links[1], blanks[1]), message.context


def test_its_terms_are_the_ones_that_were_chosen():
    found = [(m.context, re.search(WRONG, m.string)) for m in CATALOG if m.id and m.string]
    assert [(where, wrong[0]) for where, wrong in found if wrong] == []
