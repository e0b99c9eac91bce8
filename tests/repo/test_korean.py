"""The Korean edition is in step with the English, and says the same."""

import ast
import json
import re
import warnings

from conventions import ROOT, source

from helpers.base import language
from helpers.course import map as course
from helpers.course import translation
from helpers.display import dials, figures

CATALOG = translation.read("ko")
FOLDER = course.NOTEBOOKS / "ko"
# Wrong terms that can be searched for: notebooks/locale/ko.md has the right ones.
WRONG = (
    r"(?<![가-힣])(글(?![자씨쓴])|칸|루프(?!라인)|물결|파동|색인|순방향|스코프|지표)|\d %|-\d\d에\s+읽"
)
CODE = r"(?s)```.*?```|``.+?``|`[^`]+`"


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


def programs(path) -> list[str]:
    """A notebook's cells of code, without comments and docstrings."""
    cells = [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    trees = [ast.parse(re.sub("(?m)^( *)[%!].*", r"\1pass", source(cell))) for cell in cells]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            del node.body[0]
    return [ast.dump(tree) for tree in trees]


def test_its_programs_are_the_english_ones_but_for_the_language_of_the_setup():
    setup = ast.dump(ast.parse('runtime.setup(language="ko")').body[0])
    for notebook in course.notebooks():
        first, *korean = programs(FOLDER / notebook.path.name)
        same = first.replace(setup, ast.dump(ast.parse("runtime.setup()").body[0]))
        assert first != same and [same, *korean] == programs(notebook.path), notebook.name


def test_stored_captions_are_those_of_a_run_in_the_language(monkeypatch):
    told, words = [], "8.0% of the cells busy, from the first tick to the last."
    for code in ("en", "ko"):
        monkeypatch.setattr(language, "language", lambda code=code: code)
        dial = dials.Dial("rows of x", lambda _: (figures.subplots()[0], words), (1, 2))
        told.append([{"html": dial._repr_html_(), "text": repr(dial)}])
    assert translation._captioned("ko", told[0]) == {"outputs": told[1]} != {"outputs": told[0]}
    for text in (path.read_text("utf-8") for path in FOLDER.glob("*.ipynb")):
        found = re.findall('"alt": ".*"|<(?:figcaption><em|legend)>[^<]+', text)
        assert [words for words in found if not re.search("[가-힣]", words)] == []


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
