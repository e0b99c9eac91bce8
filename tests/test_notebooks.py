"""Every notebook runs with other parameters, too: none depends on its defaults."""

import io

import pytest
from rich.console import Console

from helpers import course

# For each notebook: other values for its parameters, still small enough for a CPU. Add a line
# here for a new notebook; the tests below say what is missing.
CHANGED = {
    "02_xla_rules": {
        "batches": 4,
        "batch_size": 8,
        "multiple": 16,
        "positions": 256,
        "classes": 500,
    },
}

KNOWN = {notebook.name: notebook for notebook in course.notebooks()}


def unfit(changed, known):
    """List what is wrong with a table of changed parameters."""
    wrong = [f"{name}: no entry" for name in known if name not in changed]
    wrong += [f"{name}: no such notebook" for name in changed if name not in known]
    for name in changed.keys() & known.keys():
        defaults = known[name].parameters
        wrong += [f"{name}: no parameter {key}" for key in changed[name] if key not in defaults]
        wrong += [
            f"{name}: {key} has its default"
            for key, value in changed[name].items()
            if key in defaults and value == defaults[key]
        ]
        if defaults and not changed[name]:
            wrong.append(f"{name}: nothing is changed")
    return wrong


def test_every_notebook_is_run_with_parameters_that_differ():
    assert unfit(CHANGED, KNOWN) == []


def test_an_unfit_table_is_found():
    known = {
        name: course.Notebook(None, name, "", "", {"steps": 3})
        for name in ("01_a", "02_b", "03_c", "04_d", "05_e")
    }
    changed = {
        "01_a": {"steps": 4},
        "02_b": {"steps": 3},
        "03_c": {"stpes": 4},
        "04_d": {},
        "06_f": {},
    }
    assert sorted(unfit(changed, known)) == [
        "02_b: steps has its default",
        "03_c: no parameter stpes",
        "04_d: nothing is changed",
        "05_e: no entry",
        "06_f: no such notebook",
    ]


# `pytest --dist loadscope` gives everything before the last "::" of a test's name to one process:
# with one in the parameter's name, each notebook is a scope of its own, as it is under nbval.
@pytest.mark.parametrize("name", [pytest.param(name, id=f"{name}::changed") for name in KNOWN])
def test_it_runs_with_changed_parameters(name, tmp_path):
    console = Console(file=io.StringIO(), width=100)
    changed = [(key, repr(value)) for key, value in CHANGED[name].items()]
    report = course.run([name], changed, build=tmp_path, console=console)
    assert report.status == 0, console.file.getvalue()
    assert report.results[0].parameters == CHANGED[name]
