"""BERT's masking against a slow reference, statistics, and what resuming needs."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.text import masking

pytestmark = pytest.mark.slow

VOCABULARY, MASK, SPECIAL = 50, 4, (0, 1, 2, 3, 4)


def mask(ids, seed=(7, 0, 0), predictions=10, special=SPECIAL, continuations=()):
    masks = masking.Masking(VOCABULARY, MASK, special, predictions, continuations)
    out = masks(tf.constant(ids, tf.int32), masking.draw(*seed))
    return {name: tensor.numpy() for name, tensor in out.items()}


def text(rows, length, seed=0):
    return np.random.default_rng(seed).integers(5, VOCABULARY, (rows, length)).astype(np.int32)


CONTINUED = tuple(range(30, VOCABULARY))  # as if these tokens were written with ##


def words_of(row, continued=CONTINUED, special=SPECIAL):
    """The slow way: the positions of each word, token by token."""
    words = []
    for at, token in enumerate(row):
        if token in special:
            continue
        if token in continued and at and row[at - 1] not in special:
            words[-1].append(at)
        else:
            words.append([at])
    return words


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=24, max_size=24), min_size=1),
    predictions=st.integers(1, 24),
    special=st.sampled_from([SPECIAL, (4, 17, 30, 49)]),
    continued=st.sampled_from([(), CONTINUED, (5, 9, 20, 21, 48), tuple(range(5, VOCABULARY))]),
    step=st.integers(0, 2**40),
)
@example([[2, 3, *[0] * 22]], 4, SPECIAL, (), 0)
def test_any_batch_is_masked_by_the_rules(rows, predictions, special, continued, step):
    """What must hold for any draw, row by row and token by token."""
    out = mask(np.array(rows, np.int32), (3, 1, step), predictions, special, continued)
    for row, given_ids in enumerate(rows):
        words = words_of(given_ids, continued, special)
        tokens = sum(map(len, words))
        wanted = min(predictions, tokens, max(1, int(np.round(np.float32(0.15) * tokens))))
        positions, weights = out["masked_positions"][row], out["masked_weights"][row]
        chosen = {int(at) for at, weight in zip(positions, weights, strict=True) if weight}
        assert set(weights) <= {0.0, 1.0} and len(chosen) == weights.sum() <= wanted
        assert all(chosen.issuperset(word) or chosen.isdisjoint(word) for word in words)
        assert chosen <= {at for word in words for at in word}
        # Nothing is left out that would have been taken in the first pass.
        assert chosen or min(map(len, words), default=99) > wanted
        assert continued or len(chosen) == wanted
        assert list(out["masked_ids"][row]) == [given_ids[at] for at in positions]
        for at, token in enumerate(out["input_ids"][row]):
            if at in chosen:
                assert token == MASK or token not in special
            else:
                assert token == given_ids[at]


def packed_text(rows, length, seed=0):
    """Rows of several sequences [2] … [3], two words of three beginning a new word."""
    draw = np.random.default_rng(seed)
    ids = np.where(
        draw.random((rows, length)) < 2 / 3,
        draw.integers(5, 30, (rows, length)),
        draw.integers(30, VOCABULARY, (rows, length)),
    ).astype(np.int32)
    ids[:, ::20], ids[:, 19::20] = 2, 3
    return ids


@pytest.mark.parametrize(("continued", "least"), [((), 1), (CONTINUED, 0.998)])
def test_shares_are_berts(continued, least):
    out = mask(packed_text(3000, 100), predictions=20, continuations=continued)
    used = out["masked_weights"] == 1
    # 14 of the 90 ordinary tokens of a row; rows are short of them by what no word fits into.
    assert least <= used.sum() / (3000 * 14) <= 1
    new = np.take_along_axis(out["input_ids"], out["masked_positions"], 1)[used]
    old = out["masked_ids"][used]
    stay = 1 / 45  # a random token is by chance the old one
    for share, expected in (((new == MASK).mean(), 0.8), ((new == old).mean(), 0.1 + 0.1 * stay)):
        z = (share - expected) / np.sqrt(expected * (1 - expected) / used.sum())
        assert abs(z) < 4, (share, expected, z)


@pytest.mark.parametrize("continued", [(), CONTINUED])
def test_a_word_is_chosen_as_often_as_google_researchs_loop_chooses_it(continued):
    def reference(row, rng):  # create_masked_lm_predictions of google-research/bert
        words = words_of(row, continued)
        wanted = max(1, round(0.15 * sum(map(len, words))))
        chosen = []
        for number in rng.permutation(len(words)):
            if len(chosen) >= wanted:
                break
            if len(chosen) + len(words[number]) <= wanted:
                chosen += words[number]
        return chosen

    row, times, rng = packed_text(1, 60, 3)[0], 6000, np.random.default_rng(0)
    slow = np.bincount(np.concatenate([reference(row, rng) for _ in range(times)]), minlength=60)
    out = mask(np.tile(row, (times, 1)), predictions=10, continuations=continued)
    fast = np.bincount(out["masked_positions"][out["masked_weights"] == 1], minlength=60)
    assert abs(slow.sum() - fast.sum()) <= 0.002 * slow.sum() * bool(continued)
    p = (slow + fast) / (2 * times)
    seen = p > 0
    z = (slow - fast)[seen] / np.sqrt(2 * times * p[seen] * (1 - p[seen]))
    assert np.abs(z).max() < 4.5


DRAWS = st.tuples(st.integers(0, 99), st.integers(0, 2**31 - 1), st.integers(0, 2**50))


@given(DRAWS, DRAWS)
@settings(deadline=None)
def test_draws_are_told_apart(one, two):
    assert np.array_equal(masking.draw(*one), masking.draw(*two)) == (one == two)


@pytest.mark.parametrize("continuations", [(), CONTINUED])
def test_tf_data_and_xla_mask_as_eager_does_in_static_shapes(continuations):
    ids = text(8, 64)
    masks = masking.Masking(VOCABULARY, MASK, SPECIAL, 10, continuations)
    eager = mask(ids, (7, 2, 5), continuations=continuations)
    batches = tf.data.Dataset.from_tensors(ids).map(lambda x: masks(x, masking.draw(7, 2, 5)))
    compiled = tf.function(masks, jit_compile=True)(tf.constant(ids), masking.draw(7, 2, 5))
    for name, values in eager.items():
        assert batches.element_spec[name].shape == values.shape
        np.testing.assert_array_equal(next(iter(batches))[name], values)
        np.testing.assert_array_equal(compiled[name], values)


def test_continuations_are_the_tokens_with_hashes():
    assert masking.continuations({"##b": 7, "[MASK]": 1, "a": 2, "##a": 5, "#": 3}) == (5, 7)
