"""Every notebook runs with other parameters, too: none depends on its defaults."""

import io

import nbformat
import pytest
from rich.console import Console

from helpers.course.map import Notebook, notebooks
from helpers.course.running import run

# For each notebook: other values for its parameters, still small enough for a CPU. Add a line
# here for a new notebook; the tests below say what is missing.
CHANGED = {
    "00_start_here": {
        "SIZE": 4,
        "TICK": 6,
        "TYPES": ["v2-8", "v6e-8"],
        "CHIPS_RENTED": 4,
        "HOURS": 10.0,
        "PRICE": 2.5,
    },
    "01_xla_compiler": {"ROWS": 1024, "COLUMNS": 500, "WIDTH": 128, "LAYERS": 4},
    "02_xla_rules": {
        "BATCHES": 4,
        "BATCH_SIZE": 8,
        "MULTIPLE": 16,
        "POSITIONS": 256,
        "CLASSES": 500,
        "TARGET": "v3-8",
    },
    "03_padding_buckets": {
        "PARAGRAPHS": 128,
        "BATCH_SIZE": 8,
        "MAXIMUM": 256,
        "BUCKETS": 3,
        "MULTIPLE": 16,
        "COMPILE_SECONDS": 1.0,
        "POSITIONS_PER_SECOND": 20_000,
    },
    "04_colab_tpu_node": {"EXAMPLES": 32, "BATCH_SIZE": 8, "EPOCHS": 3, "DEVICES": 2},
    "05_tpu_vm": {
        "REPLICAS": 2,
        "PROJECT": "another-project",
        "ZONE": "us-central1-a",
        "ACCELERATOR": "v3-8",
        "SYMBOLS": 8,
        "LENGTH": 16,
        "PER_REPLICA": 8,
        "STEPS": 16,
    },
    "06_bert_data": {
        "VOCABULARIES": [1500, 2500],
        "SEQUENCE_LENGTH": 64,
        "SHARDS": 5,
        "BATCH_SIZE": 32,
        "BATCHES": 10,
        "SEED": 3,
    },
    "07_bert_pretraining": {
        "STEPS": 20,
        "SEQUENCE_LENGTH": 64,
        "BATCH_SIZE": 8,
        "STEPS_PER_EXECUTION": 2,
        "SIZE": "mini",
        "SEED": 3,
    },
    "08_preflight": {
        "TARGET": "v3-8",
        "COMPARED": "v5e-8 v6e-8",
        "PARAGRAPHS": 200,
        "LAYERS": 1,
        "HIDDEN": 64,
        "SEQUENCE_LENGTH": 64,
        "ROWS": 32,
    },
}

KNOWN = {notebook.name: notebook for notebook in notebooks()}


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
        name: Notebook(None, name, "", "", {"steps": 3})
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


@pytest.fixture(scope="class")
def ran(request, tmp_path_factory):
    name = request.cls.notebook
    build, console = tmp_path_factory.mktemp(name), Console(file=io.StringIO(), width=100)
    changed = [(key, repr(value)) for key, value in CHANGED[name].items()]
    report = run([name], changed, build=build, console=console)
    node = nbformat.read(build / f"{name}.ipynb", 4)
    return report, node, console.file.getvalue()


class Pass:
    """The tests of one notebook's run."""

    notebook: str

    def test_it_passes(self, ran):
        report, _, said = ran
        assert report.status == 0, said

    def test_it_ran_with_the_changed_parameters(self, ran):
        (injected,) = [
            cell for cell in ran[1].cells if "injected-parameters" in cell.metadata["tags"]
        ]
        namespace = {}
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
