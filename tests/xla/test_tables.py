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
    keras = name == "layers"
    for package in ("tensorflow", "jax", *(("keras",) if keras else ("transformers", "libtpu"))):
        assert f"{package} {locked_versions()[package]}" in first
    assert {"ops": OPS, "layers": LAYERS, "models": MODELS}[name].name.is_unique


def test_the_numbers_that_notebook_02_tells():
    asked = OPS[OPS.tpu != "not reached"]
    differ = asked[asked.cpu != asked.tpu].set_index("name").tpu.to_dict()
    assert differ == {
        "int64_matmul": "refused",
        "fft_complex128": "refused",
        "random_shuffle": "compiles",
    }
    notebook = nbformat.read(ROOT / "notebooks/02_xla_rules.ipynb", 4)
    text = " ".join(" ".join(c.source for c in notebook.cells).split())
    assert f"{len(OPS)} operations of the course's table" in text
    assert f"{len(asked)} reach this compiler; for three of them its verdict differs" in text


@pytest.mark.long
@pytest.mark.slow
def test_a_sample_of_operations_is_what_the_compilers_say_today(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(DATA)
    import make_tables as tables

    stored = {row["name"]: row for row in tables.read(DATA / "ops.tsv")}
    assert {stored[name]["verdict"] for name in SAMPLE} == set(OPS.verdict)
    for name in SAMPLE:
        asked = {k: stored[name][k] for k in ("subject", "name", "arguments", "code")}
        assert tables.operation(asked, str(tmp_path)) == stored[name]
    stored = {row["name"]: row for row in tables.read(DATA / "layers.tsv")}
    for name in ("keras.RandomFlip", "keras.RandomRotation", "keras.CategoryEncoding"):
        asked = {k: stored[name][k] for k in ("subject", "name", "arguments", "code", "instead")}
        found = tables.operation(asked, str(tmp_path), google=False)
        assert {k: found[k] for k in stored[name]} == stored[name]
