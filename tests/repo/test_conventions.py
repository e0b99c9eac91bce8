"""The course keeps its conventions, and each convention can fail."""

import json
import re
import subprocess
import sys
import tomllib

import nbformat
import pytest
from conventions import METADATA, NOTEBOOKS, ROOT, badges, problems, repository, source, tagged
from nbformat.v4 import new_output
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from helpers.base.settings import ANY_VERSION, BOOTSTRAP, COMPILER, locked_versions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REQUIREMENTS = [
    Requirement(line)
    for line in sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])
    if not line.startswith("tpu-preflight")  # installed from its folder
]
README = (ROOT / "README.md").read_text("utf-8")
LOCK = (ROOT / "requirements.txt").read_text("utf-8")


def load(path) -> dict:
    return json.loads(path.read_text("utf-8"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_keeps_the_conventions(path):
    notebook, first = load(path), load(NOTEBOOKS[0])
    assert problems(notebook, path.name) == []
    setup = source(notebook["cells"][tagged(notebook, "setup")[0]])
    assert setup == source(first["cells"][tagged(first, "setup")[0]])
    assert f"git clone --depth=1 {repository()}\n" in setup
    for link in (f"notebooks/{path.name}", *badges(path.name).values()):
        assert f"]({link})" in README


def undefined(cells: list[dict]) -> str:
    """Names that a notebook of these cells uses and doesn't define."""
    words = "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise"
    command = [sys.executable, *words, "--stdin-filename", "core.ipynb", "-"]
    given = nbformat.writes(nbformat.v4.new_notebook(cells=cells))
    return subprocess.run(command, input=given, capture_output=True, text=True).stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_core_uses_no_name_that_a_skipped_cell_defines(path):
    notebook = nbformat.read(path, 4)
    skipped = {*tagged(notebook, "beyond-core")}
    core = [cell for at, cell in enumerate(notebook.cells) if at not in skipped]
    assert undefined(core) == "All checks passed!\n"
    assert "core.ipynb" in undefined([*core, nbformat.v4.new_code_cell("of_a_skipped_cell")])


def test_numbers_next_links_map_times_and_plans_agree():
    texts = [[source(cell) for cell in load(path)["cells"]] for path in NOTEBOOKS]
    names = [path.name for path in NOTEBOOKS]
    after = [re.findall(r"^Next: .*\((\d\d_\w+\.ipynb)\)$", text[-1], re.M) for text in texts]
    assert after == [[name] for name in names[1:]] + [[]]
    (course,) = (text for text in texts[0] if text.startswith("## The course"))
    assert (linked := re.findall(r"\d\d_\w+\.ipynb", course)) == sorted(linked)
    time = r"# (.+)\n(?s:.*)\*\*Time\*\* about (\d+) minutes [^;]*?(?:, in (\d) sittings)?;"
    for name, text in zip(names, texts, strict=True):
        title, minutes, sittings = re.match(time, text[0]).groups()
        row = f"[{name[:2]}](notebooks/{name}) | {title} | {minutes} min"
        assert f"| {row}{f', {sittings} sittings' * bool(sittings)} |" in README
    headings = {line for text in texts for line in re.findall("^## (.+)", "\n".join(text), re.M)}
    plans = (ROOT / "notebooks/TEACHING.md").read_text("utf-8")
    for sections in re.findall(r"^\| \d+ \| \[.* \| (?!Exercise)(.+) \| .*\|$", plans, re.M):
        assert {*sections.split("; ")} <= headings, sections


def edit(old: str, new: str):
    """Replace words in the first cell that has them."""

    def change(nb: dict) -> None:
        cell = next(cell for cell in nb["cells"] if old in source(cell))
        cell["source"] = [source(cell).replace(old, new)]

    return change


def every(**values):
    """Give all cells of code something else."""
    return lambda nb: [c.update(values) for c in nb["cells"] if c["cell_type"] == "code"]


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
    found = problems(notebook, NOTEBOOKS[0].name)
    assert [p for p in found if words in p], found


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda r: r.name)
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
