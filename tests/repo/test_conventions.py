"""The course keeps its conventions, and each convention can fail."""

import copy
import json
import re
import tomllib

import pytest
from conventions import (
    FOLDED,
    METADATA,
    NOTEBOOKS,
    ROOT,
    badges,
    problems,
    repository,
    source,
    tagged,
)
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from helpers import exercises
from helpers.base.settings import ANY_VERSION, BOOTSTRAP, COMPILER, locked_versions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REQUIREMENTS = [
    Requirement(line)
    for line in sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])
    if not line.startswith("tpu-preflight")  # installed from its folder
]
README = (ROOT / "README.md").read_text("utf-8")
LOCK = (ROOT / "requirements.txt").read_text("utf-8")


def marked(slide: str) -> dict:
    return {"slideshow": {"slide_type": slide}}


def code(text: str, count: int, *outputs: dict, tags: tuple = ()) -> dict:
    metadata = marked("-") | {"tags": [*tags]}
    return new_code_cell(
        text, execution_count=count, outputs=list(outputs), metadata=metadata, id=f"cell-{count}"
    )


def markdown(text: str) -> dict:
    return new_markdown_cell(text, metadata=marked("slide" if text[0] == "#" else "-"))


def stream(name: str, text: str) -> dict:
    return new_output("stream", name=name, text=text)


def image(alt: str) -> dict:
    data = {"image/png": "iVBORw0KGgo=", "text/plain": "<Image object>"}
    return new_output("execute_result", data=data, metadata={"image/png": {"alt": alt}})


ASKED = 'answer = None  # "a" or "b"\ncheck("99-a", answer)'


def good_notebook() -> dict:
    links = badges("99_example.ipynb").items()
    opening = (
        "# What is two and two?\n\n"
        + "\n".join(f"[![Open in {x}](https://x.invalid/badge.svg)]({link})" for x, link in links)
        + "\n\n"
        "**You will be able to**\n\n- add\n- subtract\n\n"
        "**Time** about 5 minutes to read; 1 to run · **Needs** a CPU\n"
    )
    cells = [
        markdown(opening),
        code("setup = 1", 1, tags=("setup",)),
        code("SIZE = 2", 2, tags=("parameters",)),
        code("SIZE + 2", 3, stream("stdout", "4")),
        code("plot", 4, image("Two bars, the second twice as high")),
        markdown("![A tree of two nodes](tree.png)"),
        *(code(f'check("99-{at}", 4)', at + 4) for at in (1, 2, 3)),
        markdown("## Recap\n\n- [ ] Two and two is four."),
        markdown("**Before you run it.** What is it? (a) 3 (b) 4"),
        code(ASKED, 8, stream("stdout", "Question 99-a: not yet."), tags=("question",)),
        code("# @title Optional: an audit\n1", 9, tags=("hide-input",)),
        code('def two():\n    raise NotImplementedError("99-1")', 10, tags=("exercise",)),
        code('check("99-1", two)', 11),
    ]
    cells[12]["metadata"] |= FOLDED
    return {"cells": cells, "metadata": copy.deepcopy(METADATA)}


@pytest.fixture(autouse=True)
def question(monkeypatch):
    """The example has a question; the course's own stay."""
    course, own = exercises.questions, {"99-a": exercises.Question("b", "", {"a": ""})}
    monkeypatch.setattr(exercises, "questions", lambda n: own if n == "99" else course(n))


def into(text: str, *places: int):
    return lambda nb: [nb["cells"][at].update(source=text) for at in places]


def replace(at: int, old: str, new: str):
    def change(nb: dict) -> None:
        assert old in nb["cells"][at]["source"]
        nb["cells"][at]["source"] = nb["cells"][at]["source"].replace(old, new)

    return change


def stored(at: int, *outputs: dict):
    return lambda nb: nb["cells"][at]["outputs"].extend(outputs)


def meta(*places: int, **metadata):
    return lambda nb: [nb["cells"][at]["metadata"].update(metadata) for at in places]


def counted(at: int, count: int | None):
    return lambda nb: nb["cells"][at].update(execution_count=count)


BROKEN = {
    "title": (replace(0, "# What", "What"), "title"),
    "badge": (replace(0, "main/notebooks/99_example", "main/notebooks/08_other"), "badge"),
    "objectives": (replace(0, "- add\n- subtract", ""), "objectives"),
    "time": (replace(0, "**Time**", "Time"), "Time"),
    "setup": (meta(1, tags=[]), "setup cell"),
    "parameters": (meta(2, tags=[]), "parameters cell"),
    "not run": (counted(3, None), "one run"),
    "error": (stored(3, new_output("error", ename="E", evalue="")), "an error"),
    "stderr": (stored(3, stream("stderr", "W")), "stderr"),
    "figure": (stored(4, image(" ")), "no alt text"),
    "picture": (into('<img src="tree.png">', 5), "picture"),
    "path": (into('open("/home/me/x")', 3), "absolute path"),
    "path in output": (stored(3, stream("stdout", "at /tmp/abc/x.py")), "absolute path"),
    "long cell": (into("x = 1\n" * 26, 3), "26 lines"),
    "long cells": (into("x = 1\n" * 9, 1, 2, 3, 4, 6, 7), "median"),
    "one long cell in ten": (into("x = 1\n" * 13, 3), "a tenth of the cells"),
    "much ignored": (meta(3, 4, 6, tags=["nbval-ignore-output"]), "a quarter"),
    "recap": (replace(9, "- [ ]", "-"), "recap"),
    "exercises": (replace(8, "99-3", "99-2"), "exercises"),
    "no mark": (lambda nb: nb["cells"][3]["metadata"].pop("slideshow"), "mark for slides"),
    "section": (meta(9, **marked("-")), "mark for slides"),
    "heading inside": (into("Text.\n\n### More", 5), "in the middle of a cell"),
    "stub": (replace(13, "99-1", "your code"), "the stub of 99-1"),
    "question's name": (replace(11, "99-a", "99-b"), "aren't those"),
    "question without a choice": (replace(10, "(a)", "a:"), "doesn't name its answers"),
    "question answered": (lambda nb: nb["cells"][11]["outputs"].clear(), "stored answered"),
    "folded by half": (lambda nb: nb["cells"][12]["metadata"].pop("cellView"), "by half"),
    "timing": (meta(3, execution={}), "metadata"),
    "kernel": (lambda nb: nb["metadata"]["kernelspec"].update(name="mine"), "metadata"),
}


def test_a_notebook_that_keeps_all_rules_has_no_problem():
    assert problems(good_notebook(), "99_example.ipynb") == []


@pytest.mark.parametrize(("change", "words"), BROKEN.values(), ids=BROKEN)
def test_each_rule_is_seen_when_broken(change, words):
    notebook = good_notebook()
    change(notebook)
    found = problems(notebook, "99_example.ipynb")
    assert [p for p in found if words in p], found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_keeps_the_conventions(path):
    assert problems(json.loads(path.read_text("utf-8")), path.name) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_setup_cell_is_the_same_everywhere_and_the_readme_links_the_notebook(path):
    first, own = (json.loads(p.read_text("utf-8")) for p in (NOTEBOOKS[0], path))
    cell = source(own["cells"][tagged(own, "setup")[0]])
    assert cell == source(first["cells"][tagged(first, "setup")[0]])
    assert f'REPOSITORY = "{repository()}"' in cell
    for link in (f"notebooks/{path.name}", *badges(path.name).values()):
        assert f"]({link})" in README


# --- the list of dependencies, its lock, and those who install it --------------------------------


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda r: r.name)
def test_the_lock_satisfies_the_list_of_dependencies(requirement):
    pins = re.findall(rf"^{requirement.name}==([^\s;\\]+)", LOCK, re.MULTILINE)
    assert pins, "missing in requirements.txt: make lock"
    assert all(requirement.specifier.contains(pin) for pin in pins), "stale lock: make lock"


def test_every_locked_package_has_hashes_and_no_index_is_named():
    entries = re.split(r"^(?=[a-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) > 100
    assert [e.split()[0] for e in entries if "--hash=sha256:" not in e] == []
    assert not re.search(r"https?://|--index|--find-links", LOCK)
    assert len(re.findall(r"^numpy==", LOCK, re.MULTILINE)) == 1  # the same for every Python


def test_environment_yml_installs_the_lock():
    text = (ROOT / "environment.yml").read_text("utf-8")
    assert re.findall(r"^ {6}- (.*)$", text, re.MULTILINE) == ["-r requirements.txt"]
    python = re.search(r"- python=([\d.]+)$", text, re.MULTILINE)[1]
    assert SpecifierSet(PROJECT["requires-python"]).contains(python)


def test_the_bootstrap_installs_locked_direct_dependencies():
    direct = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert {*BOOTSTRAP, *ANY_VERSION} <= direct
    preflight = tomllib.loads((ROOT / "tpu_preflight/pyproject.toml").read_text("utf-8"))["project"]
    extra = {Requirement(line).name for line in preflight["optional-dependencies"]["jax"]}
    assert set(COMPILER) == extra
    assert {*BOOTSTRAP, *COMPILER} <= set(locked_versions())


def test_ci_runs_the_same_two_commands_on_every_supported_python():
    workflow = (ROOT / ".github/workflows/test.yml").read_text("utf-8")
    script = (ROOT / ".ci/run").read_text("utf-8")
    for command in ("make test", "make lint"):
        assert re.search(rf"^ *- run: {command}$", workflow, re.MULTILINE)
        assert re.search(rf"^{command}$", script, re.MULTILINE)
    versions = re.findall(r'"(3\.\d+)"', workflow)
    supported = SpecifierSet(PROJECT["requires-python"])
    assert versions == [f"3.{n}" for n in range(20) if supported.contains(f"3.{n}")]
