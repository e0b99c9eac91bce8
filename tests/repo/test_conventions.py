"""The course keeps its conventions, and each convention can fail."""

import json
import re
import subprocess
import sys
import tomllib

import nbformat
import pytest
from conventions import (
    NOTEBOOKS,
    ROOT,
    badges,
    is_appendix,
    problems,
    release,
    repository,
    source,
    tagged,
)
from nbformat.v4 import new_output
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from course.tidy import METADATA
from helpers.base.settings import ANY_VERSION, BOOTSTRAP, COMPILER, locked_versions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
README = (ROOT / "README.md").read_text("utf-8")
LOCK = (ROOT / "requirements.txt").read_text("utf-8")


def requirements() -> list[Requirement]:
    """The packages of pyproject.toml, but for the preflight: it is installed from its folder."""
    lines = list(PROJECT["dependencies"])
    for extra in PROJECT["optional-dependencies"].values():
        lines += extra
    return [Requirement(line) for line in lines if not line.startswith("tpu-preflight")]


def load(path) -> dict:
    return json.loads(path.read_text("utf-8"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_keeps_the_conventions(path):
    notebook = load(path)
    assert problems(notebook, path.name) == []
    setup = setup_cell(notebook)
    assert setup == setup_cell(load(NOTEBOOKS[0]))
    assert f"git clone --depth=1 --branch={release()} {repository()}\n" in setup
    for link in (f"notebooks/{path.name}", *badges(path.name).values()):
        assert f"]({link})" in README


def setup_cell(notebook: dict) -> str:
    return source(notebook["cells"][tagged(notebook, "setup")[0]])


def undefined(cells: list[dict]) -> str:
    """Names that a notebook of these cells uses and doesn't define."""
    words = "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise"
    command = [sys.executable, *words, "--stdin-filename", "core.ipynb", "-"]
    notebook = nbformat.writes(nbformat.v4.new_notebook(cells=cells))
    return subprocess.run(command, input=notebook, capture_output=True, text=True).stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_core_uses_no_name_that_a_skipped_cell_defines(path):
    notebook = nbformat.read(path, 4)
    skipped = tagged(notebook, "beyond-core")
    # Each notebook has something that 90 minutes leave out; a class leaves out an appendix whole.
    assert skipped or is_appendix(notebook.cells)
    core = [cell for index, cell in enumerate(notebook.cells) if index not in skipped]
    assert undefined(core) == "All checks passed!\n"
    assert "core.ipynb" in undefined([*core, nbformat.v4.new_code_cell("of_a_skipped_cell")])


TIME = re.compile(r"# (.+)\n(?s:.*)\*\*Time\*\* about (\d+) minutes [^;]*?(?:, in (\d) sittings)?;")


def sources(path) -> list[str]:
    return [source(cell) for cell in load(path)["cells"]]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_readme_has_a_notebook_s_title_minutes_and_sittings(path):
    title, minutes, sittings = TIME.match(sources(path)[0]).groups()
    row = f"[{path.name[:2]}](notebooks/{path.name}) | {title} | {minutes} min"
    if sittings:
        row += f", {sittings} sittings"
    assert f"| {row} |" in README


def test_each_notebook_leads_to_the_next():
    links = []
    for path in NOTEBOOKS:
        links += re.findall(r"^Next: .*\((\d\d_\w+\.ipynb)\)$", sources(path)[-1], re.MULTILINE)
    assert links == [path.name for path in NOTEBOOKS[1:]]


def test_the_map_in_notebook_00_is_in_order():
    (course_map,) = (text for text in sources(NOTEBOOKS[0]) if text.startswith("## The course"))
    links = re.findall(r"\d\d_\w+\.ipynb", course_map)
    assert links == sorted(links)


def test_the_teacher_s_plans_name_sections_that_exist():
    headings = set()
    for path in NOTEBOOKS:
        headings.update(re.findall("^## (.+)", "\n".join(sources(path)), re.MULTILINE))
    plans = (ROOT / "notebooks/TEACHING.md").read_text("utf-8")
    rows = re.findall(r"^\| \d+ \| \[.* \| (?!Exercise)(.+) \| .*\|$", plans, re.MULTILINE)
    for sections in rows:
        assert headings.issuperset(sections.split("; ")), sections


SITTINGS = ["first", "second", "third", "fourth"]


def test_the_teacher_s_sittings_are_the_notebooks_with_their_exercises():
    rows = []
    for path in NOTEBOOKS:
        if is_appendix(load(path)["cells"]):
            continue
        exercises: list[list[str]] = [[]]  # of each sitting
        for text in sources(path):
            if text.startswith("## Sitting "):
                exercises.append([])
            exercises[-1] += re.findall(r"^\*\*(\d\d-\d) · ", text)
        for number, names in enumerate(exercises):
            name = f"[{path.name[:2]}]({path.name})" if number == 0 else path.name[:2]
            if len(exercises) > 1:
                name += f", {SITTINGS[number]}"
            rows.append((name, ", ".join(names)))
    plans = (ROOT / "notebooks/TEACHING.md").read_text("utf-8")
    table = plans.partition("| sitting | exercises |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| (\[?\d\d.*?) \| (.*?) ?\| \S", table, re.MULTILINE) == rows


def edit(old: str, new: str):
    """Replace words in the first cell that has them."""

    def change(notebook: dict) -> None:
        cell = next(cell for cell in notebook["cells"] if old in source(cell))
        cell["source"] = [source(cell).replace(old, new)]

    return change


def every(**values):
    """Give all cells of code something else."""

    def change(notebook: dict) -> None:
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell.update(values)

    return change


def stored(output: dict):
    return every(outputs=[output])


def question(nb: dict) -> dict:
    return nb["cells"][tagged(nb, "question")[0]]


def folded(nb: dict) -> dict:
    return nb["cells"][tagged(nb, "hide-input")[0]]


BROKEN = [
    (edit("# ", ""), "title"),
    (edit("**You will be able to**", ""), "objectives"),
    (lambda nb: folded(nb)["metadata"].update(tags=["hide-input"]), "setup cell"),
    (every(execution_count=1), "one run"),
    (every(source=""), "a cell is empty"),
    (stored(new_output("error", ename="E", evalue="")), "an error"),
    (stored(new_output("stream", name="stderr", text="W")), "stderr"),
    (stored(new_output("display_data", data={"image/png": "iVBORw0KGgo="})), "no alt text"),
    (edit("![", '<img src="tree.png">!['), "picture"),
    (edit("print(", 'open("/home/me/x")\nprint('), "absolute path"),
    (edit("print(", "x = 1\n" * 26), "at most 25"),
    (every(source="x = 1\n" * 9), "median"),
    (every(metadata={"tags": ["nbval-ignore-output"]}), "a quarter"),
    (edit("- [ ]", "-"), "recap"),
    (edit('check("00-1"', 'check("00-2"'), "no exercise"),
    (every(metadata={}), "mark for slides"),
    (edit("## ", "Text.\n\n### "), "in the middle of a cell"),
    (lambda nb: question(nb).update(source='check("00-z", answer)'), "aren't those"),
    (edit("(a)", "a:"), "doesn't name its answers"),
    (lambda nb: question(nb)["outputs"].clear(), "stored answered"),
    (lambda nb: folded(nb)["metadata"].pop("cellView"), "by half"),
    (lambda nb: nb.update(metadata=METADATA | {"kernelspec": {"name": "mine"}}), "metadata"),
]


@pytest.mark.parametrize(("change", "words"), BROKEN, ids=[words for _, words in BROKEN])
def test_each_rule_is_seen_when_broken(change, words):
    notebook = load(NOTEBOOKS[0])
    change(notebook)
    messages = problems(notebook, NOTEBOOKS[0].name)
    assert any(words in message for message in messages), messages


@pytest.mark.parametrize("requirement", requirements(), ids=lambda r: r.name)
def test_the_lock_satisfies_the_list_of_dependencies(requirement):
    pins = re.findall(rf"^{requirement.name}==([^\s;\\]+)", LOCK, re.MULTILINE)
    assert pins, "missing in requirements.txt: make lock"
    assert all(requirement.specifier.contains(pin) for pin in pins), "stale lock: make lock"


def test_conda_and_the_bootstrap_install_what_is_locked():
    conda = (ROOT / "environment.yml").read_text("utf-8")
    assert re.findall(r"^ {6}- (.*)$", conda, re.MULTILINE) == ["-r requirements.txt"]
    python = re.search(r"- python=([\d.]+)$", conda, re.MULTILINE)[1]
    assert SpecifierSet(PROJECT["requires-python"]).contains(python)
    assert {*BOOTSTRAP, *ANY_VERSION} <= {Requirement(x).name for x in PROJECT["dependencies"]}
    assert {*BOOTSTRAP, *COMPILER} <= {*locked_versions()}


def test_each_target_of_the_makefile_is_in_the_readme():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE)
    assert len(targets) > 10
    assert [target for target in targets if f"make {target}" not in README] == []
