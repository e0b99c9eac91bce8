"""The predictions that were committed before anybody here knew the truth are whole."""

import math
import re

import jax
import pytest

from benchmarks import blind
from benchmarks.blind import bound, qwen3

COLUMNS = [
    "id",
    "target",
    "ms",
    "low",
    "high",
    "arguments GiB",
    "temporaries GiB",
    "peak GiB",
    "tpu-preflight",
    "commit",
    "what the program lacks",
]


def test_each_of_the_eight_steps_is_predicted_once_and_before_it_was_known():
    rows = blind.preregistered()
    assert [row["id"] for row in rows] == [f"R{number}" for number in range(1, 9)]
    for row in rows:
        assert list(row) == COLUMNS
        assert row["target"] == blind.STEPS[row["id"]].target
        assert re.fullmatch(r"\d+\.\d+\.\d+\S*", row["tpu-preflight"])
        assert re.fullmatch(r"[0-9a-f]{8,40}", row["commit"])
        assert row["what the program lacks"]


def test_ranges_hold_their_predictions_or_the_row_says_why_there_is_none():
    for row in blind.preregistered():
        if not row["ms"]:
            assert row["what the program lacks"].startswith("not compiled")
            continue
        assert 0 < float(row["low"]) <= float(row["ms"]) <= float(row["high"])
        arguments = float(row["arguments GiB"])
        temporaries = float(row["temporaries GiB"])
        peak = float(row["peak GiB"])
        assert 0 < arguments < peak
        assert 0 < temporaries < peak <= 32.0


def test_a_step_that_is_unknown_is_refused():
    with pytest.raises(ValueError, match="'R9' is none of K1"):
        list(blind.run(small=False, steps=["R9"]))


def test_qwen3_has_its_weights_and_fsdp_leaves_an_eighth_of_them_on_each_device():
    of_all = {}
    of_one = {}
    for name in ("Q1", "Q2"):
        _, (weights, _, tokens) = qwen3.step_and_arguments(name)
        assert tokens.shape == (8, 1024)
        assert tokens.sharding.shard_shape(tokens.shape) == (1, 1024)
        arrays = jax.tree.leaves(weights)
        of_all[name] = sum(array.size for array in arrays)
        shards = [array.sharding.shard_shape(array.shape) for array in arrays]
        of_one[name] = sum(map(math.prod, shards))
    # Three in a layer's attention and one after it, three in the MLP, four norms; tied embeddings.
    assert of_all["Q1"] == of_all["Q2"] == of_one["Q1"] == 596_049_920
    norms = 28 * (2 * 1024 + 2 * 128) + 1024
    assert of_one["Q2"] == (596_049_920 - norms) / 8 + norms


COPY = """HloModule step, is_scheduled=true

ENTRY %main (p: f32[8,1024,1024]) -> f32[8,1024,1024] {
  %p = f32[8,1024,1024]{2,1,0} parameter(0)
  ROOT %turned = f32[8,1024,1024]{1,2,0} copy(%p), metadata={op_name="turned"}
}
"""


def test_a_copy_is_bounded_by_its_way_through_memory():
    kernels, waiting = bound.step_seconds(COPY, "v6e-1")
    assert kernels == pytest.approx(2 * 8 * 1024**2 * 4 / 1360e9)
    assert waiting == 0.0
