"""The tables of operations and models: well formed; a sample is compiled again and agrees."""

import nbformat
import pandas as pd
import pytest
from conventions import ROOT

from helpers.base.settings import locked_versions

DATA = ROOT / "notebooks" / "data"
TABLES = {}
for name in ("ops", "layers", "models"):
    path = DATA / f"{name}.tsv"
    TABLES[name] = pd.read_csv(path, sep="\t", skiprows=1, keep_default_na=False)
OPS = TABLES["ops"]
# Of each verdict one, and what takes a way of its own: AutoGraph, a variable, layers, a gradient.
SAMPLE = [
    "while_on_a_tensor",
    "if_without_autograph",
    "boolean_mask",
    "int64_matmul",
    "py_function",
    "variable_scatter",
    "lstm",
    "train_step",
    "gradient_of_sort",
    "conv2d",
    "lookup_table",
]


@pytest.mark.parametrize("name", ["ops", "layers", "models"])
def test_a_table_is_of_the_locked_versions_and_has_each_name_once(name):
    versions = (DATA / f"{name}.tsv").read_text("utf-8").partition("\n")[0]
    packages = ["tensorflow", "jax", "transformers", "libtpu"]
    if name == "layers":
        packages = ["tensorflow", "jax", "keras"]
    for package in packages:
        assert f"{package} {locked_versions()[package]}" in versions
    table = TABLES[name]
    assert table.name.is_unique
    assert not table.verdict.isin(["", "not asked"]).any()


def test_the_numbers_that_notebook_02_tells():
    compiled = OPS[OPS.tpu != "not reached"]
    differences = compiled[compiled.cpu != compiled.tpu].set_index("name").tpu.to_dict()
    assert differences == {
        "int64_matmul": "refused",
        "fft_complex128": "refused",
        "random_shuffle": "compiles",
    }
    notebook = nbformat.read(ROOT / "notebooks/02_xla_rules.ipynb", 4)
    cells = " ".join(cell.source for cell in notebook.cells)
    text = " ".join(cells.split())
    assert f"We tried {len(OPS)} operations" in text
    assert f"{len(compiled)} reach this compiler" in text
    assert "for three of these its verdict differs" in text


@pytest.mark.long
def test_a_sample_of_operations_is_what_the_compilers_say_today(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(DATA)
    import make_tables as tables

    layers = "keras.RandomFlip", "keras.RandomRotation", "keras.CategoryEncoding"
    for table, names in {"ops": SAMPLE, "layers": layers}.items():
        stored = {row["name"]: row for row in tables.read(DATA / f"{table}.tsv")}
        columns = tables.COLUMNS[table].split(" cpu")[0].split()
        for row in map(stored.get, names):
            program = {column: row[column] for column in columns}
            verdicts = tables.operation(program, str(tmp_path), table == "ops")
            assert row.items() <= verdicts.items()
    assert {OPS.set_index("name").verdict[name] for name in SAMPLE} == set(OPS.verdict)
