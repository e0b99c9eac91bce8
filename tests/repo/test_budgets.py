"""The house stays small: its totals in lines, statements, files and rooms may fall, not rise."""

import ast
import re

import pytest
from conventions import ROOT

TARGETS = re.compile(r"^([a-z]+):.*## ", re.MULTILINE)
TEXTS = ("toml", "js", "css", "html", "svg")


def sources(folder: str) -> list[str]:
    return [path.read_text("utf-8") for path in sorted((ROOT / folder).rglob("*.py"))]


def lines(folder: str) -> int:
    return sum(len(text.splitlines()) for text in sources(folder))


def statements(folder: str) -> int:
    return sum(
        isinstance(x, ast.stmt) for text in sources(folder) for x in ast.walk(ast.parse(text))
    )


def texts() -> int:
    paths = (
        p for f in ("helpers", "tests") for kind in TEXTS for p in (ROOT / f).rglob(f"*.{kind}")
    )
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def rooms() -> int:
    return len([*(ROOT / "helpers").glob("*/__init__.py")])


@pytest.mark.parametrize(
    ("counted", "most"),
    [
        pytest.param(lambda: lines("helpers"), 8_000, id="helpers, lines"),
        pytest.param(lambda: statements("helpers"), 4_700, id="helpers, statements"),
        pytest.param(lambda: len(sources("helpers")), 90, id="helpers, files"),
        pytest.param(rooms, 8, id="helpers, rooms"),
        pytest.param(lambda: lines("tests"), 6_500, id="tests, lines"),
        pytest.param(lambda: lines("benchmarks"), 900, id="benchmarks, lines"),
        pytest.param(texts, 5_000, id="data and templates, lines"),
    ],
)
def test_a_total_is_within_its_budget(counted, most):
    assert counted() <= most


def test_the_makefile_has_few_targets_and_each_stands_in_the_readme():
    targets = TARGETS.findall((ROOT / "Makefile").read_text("utf-8"))
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(targets) <= 14
    assert [target for target in targets if f"make {target}" not in readme] == []


def test_the_preflight_stays_within_its_totals():
    assert lines("tpu_preflight/src") <= 7_000 and statements("tpu_preflight/src") <= 4_000
    assert lines("tpu_preflight/tests") <= 3_000
