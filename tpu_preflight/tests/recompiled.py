"""Eight published runs built again, in TensorFlow or JAX, and compiled with full effort.

They take libtpu 0.0.51 little processor time: 60 and 78 s, and 180 and 230 for MaxText's 16B and
32B on 256 chips, where a BERT-base takes 83 and a ResNet, with its convolutions, 166 to 207
(2026-11); the GPT takes some 150, the product 2, Qwen3's two some 150 and 290. MaxText's
128B on v5p-256 takes half an hour: `python notebooks/data/maxtext.py 128B v5p-256`.
"""

import pytest

from benchmarks.published import estimated
from tpu_preflight.estimate.calibration import published

NAMES = [
    "big_vision",
    "gpt-jax",
    "MaxText, 16B",
    "MaxText, 32B on v5e",
    "GPT of 160M, K1",
    "Product",
    "Qwen3-0.6B, copies",
    "Qwen3-0.6B, FSDP",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_runs_estimate_is_the_tables(name):
    (run,) = (run for run in published() if run.run.startswith(name))
    recompiled = estimated(run)
    assert recompiled.estimate_ms == pytest.approx(run.estimate_ms, rel=0.02)
    assert recompiled.roofline_ms == pytest.approx(run.roofline_ms, rel=0.02)
