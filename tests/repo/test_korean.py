"""The Korean edition says what the English says, once it is made.

Who changes the English needn't make it: a workflow does after the merge. Until then, what is behind
is a warning, and the notebooks that are behind aren't compared.
"""

import ast
import html
import json
import re
import warnings

import pytest
from conventions import source, tags

from course import catalog, translation
from helpers.base import language

CATALOG = language.read("ko")
FOLDER = catalog.NOTEBOOKS / "ko"
NAMES = [notebook.path.name for notebook in catalog.notebooks()]
# Wrong terms that can be searched for: notebooks/locale/ko.md has the right ones.
WRONG_TERMS = r"(?<![가-힣])(글(?![자씨쓴])|칸|(?<!학습 )루프(?!라인)|물결|파동)"
WRONG_TERMS += r"|(?<![가-힣])(색인|순방향|스코프|지표)"
WRONG_TERMS += r"|\d %|-\d\d에\s+읽"
CODE = r"(?s)```.*?```|``.+?``|`[^`]+`"
LEAST_TRANSLATED_LINES = 200  # of all outputs; a run in English would show


@pytest.fixture(scope="module")
def outdated() -> set[str]:
    """The names of the files that are to be made again, or are there no more."""
    edition = translation.generate("ko", CATALOG)
    names = set()
    for path, text in edition.items():
        if not path.is_file() or path.read_text("utf-8") != text:
            names.add(path.name)
    names.update(path.name for path in FOLDER.iterdir() if path not in edition)
    return names


def test_it_is_in_step(outdated):
    translated = {(message.context, message.id) for message in CATALOG}
    missing = set(translation.collect_texts()) - translated
    count = len(missing) + len(translation.to_do(CATALOG))
    if count:
        warnings.warn(f"Korean messages to do: {count} (tpu-course translate)", stacklevel=1)
    if outdated:
        names = ", ".join(sorted(outdated))
        warnings.warn(f"Outdated Korean: {names} (tpu-course translate)", stacklevel=1)


@pytest.fixture(params=NAMES)
def name(request, outdated) -> str:
    """A notebook that is in step."""
    if request.param in outdated:
        pytest.skip("the English is newer")
    return request.param


def cells(path) -> list[dict]:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def program(path) -> str:
    """A notebook's code, without comments and docstrings."""
    code = "\n".join(source(cell) for cell in cells(path))
    tree = ast.parse(re.sub("(?m)^( *)[%!].*", r"\1pass", code))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            del node.body[0]
    return ast.unparse(tree)


def test_its_programs_are_the_english_ones_but_for_the_language_of_setup_and_texts(name):
    english = program(catalog.NOTEBOOKS / name)
    expected = english.replace("runtime.setup()", "runtime.setup(language='ko')")
    expected = expected.replace("LANGUAGE = 'en'", "LANGUAGE = 'ko'")
    assert program(FOLDER / name) == expected


def printed(cell) -> str:
    texts = []
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        texts += ["".join(data.get("text/plain", "")), "".join(data.get("text/html", ""))]
    return html.unescape("\n".join(texts))


def english_lines(cell) -> list[str]:
    """What a cell printed in English that isn't in its program and has a translation."""
    lines = []
    for piece in re.split(r"(?m)<[^>]*>|\n|: |^\W*\d ", printed(cell)):
        line = piece.strip()
        is_sentence = len(re.findall("[A-Za-z]{2,}", line)) > 3
        if is_sentence and line not in source(cell) and language.translated(line, "ko") != line:
            lines.append(line)
    return lines


def numbers(cell) -> list[str]:
    """The numbers that a cell printed, but for dates: English has months in letters."""
    return sorted(re.findall(r"(?<![\d.,])\d+(?:[.,]\d+)*(?![\d월])", printed(cell)))


def test_its_stored_outputs_are_those_of_the_program_in_the_language(name):
    pairs = zip(cells(catalog.NOTEBOOKS / name), cells(FOLDER / name), strict=True)
    for english, korean in pairs:
        assert english_lines(korean) == [], english["id"]
        # Notebook 10 trains on Korean texts there.
        if not name.startswith("10") and "nbval-ignore-output" not in tags(english):
            assert numbers(english) == numbers(korean), english["id"]


def test_a_run_in_english_would_be_seen():
    count = 0
    for name in NAMES:
        for cell in cells(catalog.NOTEBOOKS / name):
            count += len(english_lines(cell))
    assert count > LEAST_TRANSLATED_LINES


def test_it_has_the_links_and_the_blanks_of_the_english():
    switch = "[한국어](README.ko.md)"  # each edition's README leads to the other
    for message in CATALOG:
        if message.id in ("", switch) or not message.string or message.fuzzy:
            continue
        assert links(message.id) == links(message.string), message.context
        assert blanks(message.id) == blanks(message.string), message.context


def links(text: str) -> list[str]:
    return sorted(re.findall(r"\]\(([^)]*)\)", text))


def blanks(text: str) -> set[str]:
    return set(language.BLANK.findall(re.sub(CODE, "", text)))


def test_its_terms_are_the_ones_that_were_chosen():
    matches = []
    for message in CATALOG:
        match = re.search(WRONG_TERMS, message.string) if message.id else None
        if match:
            matches.append((message.context, match[0]))
    assert matches == []
