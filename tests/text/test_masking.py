"""BERT's masking against a slow reference, statistics, and what resuming needs."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.text import masking

pytestmark = pytest.mark.slow

VOCABULARY, MASK, SPECIAL = 50, 4, (0, 1, 2, 3, 4)


def mask(ids, seed=(7, 0, 0), predictions=10, special=SPECIAL):
    masks = masking.Masking(VOCABULARY, MASK, special, predictions)
    out = masks(tf.constant(ids, tf.int32), masking.draw(*seed))
    return {name: tensor.numpy() for name, tensor in out.items()}


def text(rows, length, seed=0):
    return np.random.default_rng(seed).integers(5, VOCABULARY, (rows, length)).astype(np.int32)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=24, max_size=24), min_size=1),
    predictions=st.integers(1, 24),
    special=st.sampled_from([SPECIAL, (4, 17, 30, 49)]),
    step=st.integers(0, 2**40),
)
@example([[2, 3, *[0] * 22]], 4, SPECIAL, 0)
def test_any_batch_is_masked_by_the_rules(rows, predictions, special, step):
    """What must hold for any draw, row by row and token by token."""
    out = mask(np.array(rows, np.int32), (3, 1, step), predictions, special)
    for row, given_ids in enumerate(rows):
        ordinary = {at for at, token in enumerate(given_ids) if token not in special}
        tokens = len(ordinary)
        wanted = min(predictions, tokens, max(1, int(np.round(np.float32(0.15) * tokens))))
        positions, weights = out["masked_positions"][row], out["masked_weights"][row]
        chosen = {int(at) for at, weight in zip(positions, weights, strict=True) if weight}
        assert set(weights) <= {0.0, 1.0} and len(chosen) == weights.sum() == wanted
        assert chosen <= ordinary
        assert list(out["masked_ids"][row]) == [given_ids[at] for at in positions]
        for at, token in enumerate(out["input_ids"][row]):
            if at in chosen:
                assert token == MASK or token not in special
            else:
                assert token == given_ids[at]


def packed_text(rows, length):
    """Rows of several sequences [2] … [3]."""
    ids = text(rows, length)
    ids[:, ::20], ids[:, 19::20] = 2, 3
    return ids


def test_shares_are_berts():
    out = mask(packed_text(3000, 100), predictions=20)
    used = out["masked_weights"] == 1
    assert used.sum() == 3000 * 14  # of the 90 ordinary tokens of a row
    new = np.take_along_axis(out["input_ids"], out["masked_positions"], 1)[used]
    old = out["masked_ids"][used]
    stay = 1 / 45  # a random token is by chance the old one
    for share, expected in (((new == MASK).mean(), 0.8), ((new == old).mean(), 0.1 + 0.1 * stay)):
        z = (share - expected) / np.sqrt(expected * (1 - expected) / used.sum())
        assert abs(z) < 4, (share, expected, z)


DRAWS = st.tuples(st.integers(0, 99), st.integers(0, 2**31 - 1), st.integers(0, 2**50))


@given(DRAWS, DRAWS)
@settings(deadline=None)
def test_draws_are_told_apart(one, two):
    assert np.array_equal(masking.draw(*one), masking.draw(*two)) == (one == two)


def test_tf_data_and_xla_mask_as_eager_does_in_static_shapes():
    ids = text(8, 64)
    masks = masking.Masking(VOCABULARY, MASK, SPECIAL, 10)
    eager = mask(ids, (7, 2, 5))
    batches = tf.data.Dataset.from_tensors(ids).map(lambda x: masks(x, masking.draw(7, 2, 5)))
    compiled = tf.function(masks, jit_compile=True)(tf.constant(ids), masking.draw(7, 2, 5))
    for name, values in eager.items():
        assert batches.element_spec[name].shape == values.shape
        np.testing.assert_array_equal(next(iter(batches))[name], values)
        np.testing.assert_array_equal(compiled[name], values)
