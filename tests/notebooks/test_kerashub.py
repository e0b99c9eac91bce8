"""Notebook 12's lines for KerasHub run as they stand, with random weights, on eight devices."""

import os
import re
import subprocess

import nbformat
import pytest
from conventions import ROOT, source

PYTHON = ROOT / "build/kerashub/bin/python"
BEFORE = """
import jax
import numpy as np

jax.config.update("jax_num_cpu_devices", 8)
names = "vocabulary_size num_layers num_query_heads num_key_value_heads"
names += " hidden_dim intermediate_dim head_dim"
sizes = dict(zip(names.split(), (100, 2, 8, 1, 64, 128, 8)))
ids = np.random.default_rng(0).integers(1, 100, (8, 16))
x = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
y, sample_weight = np.roll(ids, -1, 1), np.ones(ids.shape, "float32")
"""
AFTER = """
count = lambda weights: sum(w.shape.num_elements() if False else int(np.prod(w.shape)) for w in weights)
print("trained", count(gemma.trainable_weights), "of", count(gemma.weights))
spread = {w.path.split("/")[-2] for w in gemma.weights if set(w.value.sharding.spec) - {None}}
print("spread", *sorted(spread))
print("finite", np.isfinite(gemma.evaluate(x, y, sample_weight=sample_weight, verbose=0)))
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="needs KerasHub apart: make libraries")
def test_kerashubs_gemma_trains_lora_alone_in_parts():
    cells = nbformat.read(ROOT / "notebooks/12_language_models.ipynb", 4).cells
    (lines,) = (
        m[1] for c in cells if (m := re.search(r"```python\n(.*keras_hub.*?)```", source(c), re.S))
    )
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    environment.pop("TF_USE_LEGACY_KERAS", None)
    run = subprocess.run(
        [PYTHON, "-c", BEFORE + lines + AFTER], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    print(run.stdout[-500:])
