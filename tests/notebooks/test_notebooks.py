"""The core of each notebook runs alone, and with other parameters: none depends on its defaults."""

import ast
import tomllib

import nbformat
import papermill
import pytest
from conventions import ROOT, tagged
from typer.testing import CliRunner

from course.catalog import notebooks
from course.commands.app import app
from course.running import execute
from helpers.confirm import report as reports

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


@pytest.fixture(scope="class")
def executed(request):
    """The core of a class' notebook, run once: the result, and the notebook with its outputs."""
    notebook = KNOWN[request.cls.notebook]
    return execute(notebook, CHANGED[notebook.name], workshop=True)


@pytest.mark.long
class Pass:
    notebook: str

    def test_its_core_passes_with_changed_parameters(self, executed):
        notebook = KNOWN[self.notebook]
        result, node = executed
        assert result.state == "passed", result
        for cell in node.cells:
            assert cell.cell_type != "code" or cell.execution_count
        whole_node = nbformat.read(notebook.path, 4)
        for tag in ("setup", "exercise"):  # a workshop leaves out neither
            assert len(tagged(node, tag)) == len(tagged(whole_node, tag))


class Reports(Pass):
    """Notebook 13, which stored outputs show with TensorFlow, rehearses with JAX here."""

    def test_its_report_of_a_rehearsal_with_jax_is_what_confirm_reads(self, executed, tmp_path):
        _, node = executed
        code = [cell for cell in node.cells if cell.cell_type == "code"]
        printed = code[-1].outputs[0].text
        report = reports.read(printed)
        assert report.rehearsed
        assert (report.framework, report.chip) == ("jax", CHANGED[self.notebook]["CHIP"])
        assert report.versions["jax"]
        predictions = reports.predictions_of(report.chip)
        for time in report.times:
            assert time.predicted_ms == predictions[time.program].ms
            assert min(time.steps_ms) > 0

        path = tmp_path / "report.json"
        path.write_text(printed, "utf-8")
        result = CliRunner().invoke(app, ["confirm", str(path)])
        assert result.exit_code == 1
        assert "Rehearsed on a CPU" in result.output


# A class each, because `--dist loadscope` gives a class to one process: they run beside each other.
for name in KNOWN:
    base = Reports if name == "13_on_a_tpu" else Pass
    globals()[f"Test_{name}"] = type(f"Test_{name}", (base,), {"notebook": name})
