"""The rooms of the helpers, as their map and the layers of imports describe them."""

import ast
import re
import tomllib

import pytest
from conventions import ROOT

HELPERS = ROOT / "helpers"
ROOMS = sorted(path.parent.name for path in HELPERS.glob("*/__init__.py"))
MAP = (HELPERS / "README.md").read_text("utf-8")
LONGEST_FILE = 500
LONGEST_BODY = 60
MOST_FILES = 10  # of a folder, with its `__init__`; the exercises have one for each notebook


def knows(room: str) -> str:
    """The first paragraph of a room's docstring."""
    text = ast.get_docstring(ast.parse((HELPERS / room / "__init__.py").read_text("utf-8")))
    return " ".join(text.split("\n\n")[0].replace("``", "`").split())


def test_the_map_has_every_room_in_the_order_of_the_layers_with_its_own_words():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = [name for layer in tool["contracts"][0]["layers"] for name in layer.split(" | ")]
    rows = re.findall(r"^\| \[(\w+)\]\(\1\) \| (.+) \|$", MAP, re.MULTILINE)
    wanted = [(room, knows(room)) for room in layers if room in ROOMS]
    assert rows == wanted, "write the rows of helpers/README.md from the rooms' docstrings"
    assert len(rows) == len(ROOMS) and len(MAP.splitlines()) <= 40


def test_the_house_stays_small_and_the_tests_mirror_it():
    files = [path.name for path in HELPERS.iterdir() if path.is_file()]
    assert len(ROOMS) <= 10 and len(files) <= 5, files
    folders = {path.parent for path in HELPERS.rglob("*.py")} - {HELPERS / "exercises"}
    assert [f.name for f in folders if len([*f.glob("*.py")]) > MOST_FILES] == []
    tested = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py"))}
    assert tested == {*ROOMS, "browser", "notebooks", "repo"}


def test_a_room_re_exports_nothing():
    for room in set(ROOMS) - {"exercises"}:  # `check` and `hint` are defined there
        tree = ast.parse((HELPERS / room / "__init__.py").read_text("utf-8"))
        assert [type(node).__name__ for node in tree.body] == ["Expr"], room


def body(function: ast.FunctionDef) -> int:
    """Lines of a function's body, without its docstring."""
    first = function.body[bool(ast.get_docstring(function) and len(function.body) > 1)]
    return function.end_lineno - first.lineno + 1


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_no_file_and_no_function_is_a_giant(room):
    paths = sorted((HELPERS / room).rglob("*.py") if room else HELPERS.glob("*.py"))
    for path in paths:
        text = path.read_text("utf-8")
        assert len(text.splitlines()) <= LONGEST_FILE, path.name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert body(node) <= LONGEST_BODY, f"{path.name}: {node.name}"


def test_every_file_of_tests_has_a_name_of_its_own():
    """Otherwise pytest takes the second for the first."""
    paths = [path for path in (ROOT / "tests").rglob("test_*.py") if "browser" not in path.parts]
    names = [path.name for path in paths]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def size(folder) -> tuple[int, int]:
    """Lines and statements of the Python in a folder."""
    texts = [path.read_text("utf-8") for path in folder.rglob("*.py")]
    nodes = (node for text in texts for node in ast.walk(ast.parse(text)))
    return sum(len(x.splitlines()) for x in texts), sum(isinstance(n, ast.stmt) for n in nodes)


def test_the_preflight_stays_within_its_totals():
    """Something goes when something comes."""
    lines, statements = size(ROOT / "tpu_preflight/src")
    assert lines <= 7_000 and statements <= 4_000
    assert size(ROOT / "tpu_preflight/tests")[0] <= 3_000
