"""BERT's masking against a slow reference, statistics, and what resuming needs."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.text import masking

pytestmark = pytest.mark.slow

VOCABULARY = 50
MASK = 4
SPECIAL = (0, 1, 2, 3, 4)


def mask(ids, seed=(7, 0, 0), predictions=10, special=SPECIAL):
    masks = masking.Masking(VOCABULARY, MASK, special, predictions)
    batch = masks(tf.constant(ids, tf.int32), masking.draw(*seed))
    return {name: tensor.numpy() for name, tensor in batch.items()}


def text(rows, length, seed=0):
    return np.random.default_rng(seed).integers(5, VOCABULARY, (rows, length)).astype(np.int32)


def round_half_to_even(share, count):
    return int(np.round(np.float32(share) * count))


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
    batch = mask(np.array(rows, np.int32), (3, 1, step), predictions, special)
    for row, ids in enumerate(rows):
        ordinary = set(np.flatnonzero(~np.isin(ids, special)))
        share = round_half_to_even(0.15, len(ordinary))
        count = min(predictions, len(ordinary), max(1, share))
        positions = batch["masked_positions"][row]
        weights = batch["masked_weights"][row]
        assert set(weights) <= {0.0, 1.0}
        masked = set(positions[weights == 1])
        assert len(masked) == weights.sum() == count
        assert masked <= ordinary
        assert list(batch["masked_ids"][row]) == [ids[position] for position in positions]
        for position, token in enumerate(batch["input_ids"][row]):
            if position in masked:
                assert token == MASK or token not in special
            else:
                assert token == ids[position]


def packed_text(rows, length):
    """Rows of several sequences [2] … [3]."""
    ids = text(rows, length)
    ids[:, ::20] = 2
    ids[:, 19::20] = 3
    return ids


def test_shares_are_berts():
    batch = mask(packed_text(3000, 100), predictions=20)
    is_used = batch["masked_weights"] == 1
    assert is_used.sum() == 3000 * 14  # of the 90 ordinary tokens of a row
    tokens = np.take_along_axis(batch["input_ids"], batch["masked_positions"], 1)[is_used]
    original = batch["masked_ids"][is_used]
    chance = 1 / 45  # that a random token is the original one
    check_share(tokens == MASK, 0.8)
    check_share(tokens == original, 0.1 + 0.1 * chance)


def check_share(is_true, expected):
    """A share is within four standard deviations of a binomial distribution's."""
    deviation = np.sqrt(expected * (1 - expected) / is_true.size)
    z = (is_true.mean() - expected) / deviation
    assert abs(z) < 4, (is_true.mean(), expected, z)


DRAWS = st.tuples(st.integers(0, 99), st.integers(0, 2**31 - 1), st.integers(0, 2**50))


@given(DRAWS, DRAWS)
@settings(deadline=None)
def test_different_places_of_a_run_have_different_draws(place, other_place):
    is_same_draw = np.array_equal(masking.draw(*place), masking.draw(*other_place))
    assert is_same_draw == (place == other_place)


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
