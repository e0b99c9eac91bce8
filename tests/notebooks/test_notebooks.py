"""The core of every notebook runs alone, and with other parameters: none depends on its defaults.

The cells that a workshop leaves out run where nbval compares all stored outputs.
"""

import io
import tomllib

import nbformat
import pytest
from conventions import ROOT, tagged
from rich.console import Console

from helpers.course.map import Notebook, notebooks
from helpers.course.running import run

pytestmark = pytest.mark.slow

CHANGED = tomllib.loads((ROOT / "tests/notebooks/changed.toml").read_text("utf-8"))

KNOWN = {notebook.name: notebook for notebook in notebooks()}


def unfit(changed, known):
    """List what is wrong with a table of changed parameters."""
    wrong = [f"{name}: no entry" for name in known.keys() - changed.keys()]
    for name, values in changed.items():
        if name not in known:
            wrong.append(f"{name}: no such notebook")
            continue
        defaults = known[name].parameters
        wrong += [f"{name}: no parameter {key}" for key in values.keys() - defaults.keys()]
        same = [key for key in values if key in defaults and values[key] == defaults[key]]
        wrong += [f"{name}: {key} has its default" for key in same]
        if defaults and not values:
            wrong.append(f"{name}: nothing is changed")
    return wrong


def test_every_notebook_is_run_with_parameters_that_differ():
    assert unfit(CHANGED, KNOWN) == []


def test_an_unfit_table_is_found():
    names = ("01_a", "02_b", "03_c", "04_d", "05_e")
    known = {name: Notebook(None, name, "", "", {"steps": 3}) for name in names}
    changed = dict(zip(names[:4], ({"steps": 4}, {"steps": 3}, {"stpes": 4}, {}), strict=True))
    assert sorted(unfit(changed | {"06_f": {}}, known)) == [
        "02_b: steps has its default",
        "03_c: no parameter stpes",
        "04_d: nothing is changed",
        "05_e: no entry",
        "06_f: no such notebook",
    ]


@pytest.fixture(scope="class")
def ran(request, tmp_path_factory):
    name = request.cls.notebook
    build, console = tmp_path_factory.mktemp(name), Console(file=io.StringIO(), width=100)
    changed = [(key, repr(value)) for key, value in CHANGED[name].items()]
    report = run([name], changed, build=build, console=console, workshop=True)
    node = nbformat.read(build / f"workshop/{name}.ipynb", 4)
    return report, node, console.file.getvalue()


class Pass:
    """The tests of one notebook's run."""

    notebook: str

    def test_it_passes(self, ran):
        report, _, said = ran
        assert report.status == 0, said

    def test_it_ran_with_the_changed_parameters(self, ran):
        (at,) = tagged(ran[1], "injected-parameters")
        injected, namespace = ran[1].cells[at], {}
        exec(injected.source, namespace)
        assert {key: namespace[key] for key in CHANGED[self.notebook]} == CHANGED[self.notebook]

    def test_every_code_cell_ran_in_order(self, ran):
        counts = [cell.execution_count for cell in ran[1].cells if cell.cell_type == "code"]
        assert counts == list(range(1, len(counts) + 1))


# A class each, because `pytest --dist loadscope` gives a class to one process: so notebooks run
# beside each other. The long test is the first of three: xdist sends a process its next scope when
# two tests are left, and with fewer it would hoard notebooks that the other process could run.
for name in KNOWN:
    globals()[f"Test_{name}"] = type(f"Test_{name}", (Pass,), {"notebook": name})
