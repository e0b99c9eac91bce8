"""Notebook 12's lines for KerasHub run as they stand, with random weights, on eight devices."""

import os
import re
import subprocess

import nbformat
import pytest
from conventions import ROOT, source

PYTHON = ROOT / "build/kerashub/bin/python"
SIZES = """
import jax
import numpy as np

jax.config.update("jax_num_cpu_devices", 8)
names = "vocabulary_size num_layers num_query_heads num_key_value_heads"
names += " hidden_dim intermediate_dim head_dim"
sizes = dict(zip(names.split(), (104, 2, 8, 1, 64, 128, 8)))
ids = np.random.default_rng(0).integers(1, 100, (8, 16))
x = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
y, sample_weight = np.roll(ids, -1, 1), np.ones(ids.shape, "float32")
"""
REPORT = """
def count(weights):
    return sum(int(np.prod(weight.shape)) for weight in weights)

sharded = set()
for weight in gemma.weights:
    if set(weight.value.sharding.spec) - {None}:
        sharded.add(weight.path.split("/")[-2])
print("result", count(gemma.trainable_weights), count(gemma.weights), *sorted(sharded))
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="needs KerasHub apart: make libraries")
def test_kerashubs_gemma_trains_lora_alone_in_parts():
    cells = nbformat.read(ROOT / "notebooks/12_language_models.ipynb", 4).cells
    text = "\n".join(map(source, cells))
    lines = re.search(r"```python\n((?:(?!```).)*keras_hub.*?)```", text, re.S)[1]
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    environment.pop("TF_USE_LEGACY_KERAS", None)
    command = [PYTHON, "-c", SIZES + lines + REPORT]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    # In each of two layers, for the query's 8 heads and the value's one: [heads, 64, 8] and [8, 8].
    _, trainable, weights, *sharded = run.stdout.splitlines()[-1].split()
    adapters = (8 * 64 * 8 + 8 * 8) + (64 * 8 + 8 * 8)
    assert int(trainable) == 2 * adapters < int(weights) / 6
    assert {"query", "key", "value", "ffw_linear", "token_embedding"} <= set(sharded)
