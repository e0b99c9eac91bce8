"""The core of each notebook runs alone, and with other parameters: none depends on its defaults."""

import ast
import tomllib

import nbformat
import papermill
import pytest
from conventions import ROOT, tagged

from course.catalog import notebooks
from course.running import execute

CHANGED = tomllib.loads((ROOT / "tests/notebooks/changed.toml").read_text("utf-8"))
KNOWN = {notebook.name: notebook for notebook in notebooks()}


def test_every_notebook_is_run_with_parameters_that_differ():
    assert CHANGED.keys() == KNOWN.keys()
    for name, values in CHANGED.items():
        defaults = {}
        for key, parameter in papermill.inspect_notebook(KNOWN[name].path).items():
            defaults[key] = ast.literal_eval(parameter["default"])
        assert values.keys() <= defaults.keys(), name
        assert bool(values) == bool(defaults), name
        for key, value in values.items():
            assert value != defaults[key], (name, key)


@pytest.mark.long
class Pass:
    notebook: str

    def test_its_core_passes_with_changed_parameters(self):
        notebook = KNOWN[self.notebook]
        result, node = execute(notebook, CHANGED[notebook.name], workshop=True)
        assert result.state == "passed", result
        for cell in node.cells:
            assert cell.cell_type != "code" or cell.execution_count
        whole_node = nbformat.read(notebook.path, 4)
        for tag in ("setup", "exercise"):  # a workshop leaves out neither
            assert len(tagged(node, tag)) == len(tagged(whole_node, tag))


# A class each, because `--dist loadscope` gives a class to one process: they run beside each other.
for name in KNOWN:
    globals()[f"Test_{name}"] = type(f"Test_{name}", (Pass,), {"notebook": name})
