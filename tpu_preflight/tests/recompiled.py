"""Two published runs rebuilt in TensorFlow and compiled with full effort: `make published`.

They are the two of `published.tsv` that libtpu 0.0.51 compiles in the least processor time: 60 and
78 s, where a BERT-base takes 83 and a ResNet, with its convolutions, 166 to 207 (2026-11). Those of
MaxText (`notebooks/data/maxtext.py 16B v5e-256`) take 349 to 1,797 s on two idle cores.
"""

import pytest

from benchmarks.published import estimated
from tpu_preflight.estimate.calibration import published


@pytest.mark.parametrize("name", ["big_vision", "gpt-jax", "MaxText, 16B"])
def test_a_runs_estimate_is_the_tables(name):
    (stored,) = (run for run in published() if run.run.startswith(name))
    found = estimated(stored)
    assert found.estimate_ms == pytest.approx(stored.estimate_ms, rel=0.02)
    assert found.roofline_ms == pytest.approx(stored.roofline_ms, rel=0.02)
