"""The tables of operations and models: well formed; a sample is compiled again and agrees."""

import nbformat
import pandas as pd
import pytest
from conventions import ROOT

from helpers.base.settings import locked_versions

DATA = ROOT / "notebooks" / "data"
OPS, LAYERS, MODELS = (
    pd.read_csv(DATA / f"{name}.tsv", sep="\t", skiprows=1, keep_default_na=False)
    for name in ("ops", "layers", "models")
)
# Of each verdict one, and what takes a way of its own: AutoGraph, a variable, layers, a gradient.
SAMPLE = (
    *("while_on_a_tensor", "if_without_autograph", "boolean_mask", "int64_matmul", "py_function"),
    *("variable_scatter", "lstm", "train_step", "gradient_of_sort", "conv2d", "lookup_table"),
)


@pytest.mark.parametrize("name", ["ops", "layers", "models"])
def test_a_table_is_of_the_locked_versions_and_has_each_name_once(name):
    first = (DATA / f"{name}.tsv").read_text("utf-8").partition("\n")[0]
    others = "keras" if name == "layers" else "transformers libtpu"
    for package in f"tensorflow jax {others}".split():
        assert f"{package} {locked_versions()[package]}" in first
    table = {"ops": OPS, "layers": LAYERS, "models": MODELS}[name]
    assert table.name.is_unique and not table.verdict.isin(["", "not asked"]).any()


def test_the_numbers_that_notebook_02_tells():
    asked = OPS[OPS.tpu != "not reached"]
    differ = asked[asked.cpu != asked.tpu].set_index("name").tpu.to_dict()
    refused = {"int64_matmul": "refused", "fft_complex128": "refused"}
    assert differ == refused | {"random_shuffle": "compiles"}
    notebook = nbformat.read(ROOT / "notebooks/02_xla_rules.ipynb", 4)
    text = " ".join(" ".join(c.source for c in notebook.cells).split())
    assert f"{len(OPS)} operations of the course's table" in text
    assert f"{len(asked)} reach this compiler; for three of them its verdict differs" in text


@pytest.mark.long
def test_a_sample_of_operations_is_what_the_compilers_say_today(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(DATA)
    import make_tables as tables

    layers = "keras.RandomFlip", "keras.RandomRotation", "keras.CategoryEncoding"
    for table, names in {"ops": SAMPLE, "layers": layers}.items():
        stored = {row["name"]: row for row in tables.read(DATA / f"{table}.tsv")}
        for row in map(stored.get, names):
            given = {k: row[k] for k in tables.COLUMNS[table].split(" cpu")[0].split()}
            assert row.items() <= tables.operation(given, str(tmp_path), table == "ops").items()
    assert {OPS.set_index("name").verdict[name] for name in SAMPLE} == set(OPS.verdict)
