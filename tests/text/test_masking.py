"""BERT's masking against a slow reference, statistics, and what resuming needs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import runtime

runtime.setup()

import tensorflow as tf  # noqa: E402

from helpers.text import masking  # noqa: E402

VOCABULARY, MASK, SPECIAL = 50, 4, (0, 1, 2, 3, 4)


def mask(ids, seed=(7, 0, 0), predictions=10, special=SPECIAL, continuations=()):
    masks = masking.Masking(VOCABULARY, MASK, special, predictions, continuations)
    out = masks(tf.constant(ids, tf.int32), masking.draw(*seed))
    return {name: tensor.numpy() for name, tensor in out.items()}


def text(rows, length, seed=0):
    return np.random.default_rng(seed).integers(5, VOCABULARY, (rows, length)).astype(np.int32)


def check_by_hand(ids, out, predictions, special):
    """What must hold for any draw, row by row and token by token."""
    for row, given_ids in enumerate(ids):
        ordinary = [at for at, token in enumerate(given_ids) if token not in special]
        wanted = min(
            predictions,
            len(ordinary),
            max(1, int(np.round(np.float32(0.15) * np.float32(len(ordinary))))),
        )
        positions, weights = out["masked_positions"][row], out["masked_weights"][row]
        chosen = [int(at) for at, weight in zip(positions, weights, strict=True) if weight]
        assert set(weights) <= {0.0, 1.0}
        assert len(chosen) == len(set(chosen)) == wanted
        assert set(chosen) <= set(ordinary)
        check_tokens(row, given_ids, out, chosen, special)


def check_tokens(row, given_ids, out, chosen, special):
    """Chosen tokens are replaced by [MASK] or an ordinary token; all others stay."""
    assert list(out["masked_ids"][row]) == [given_ids[at] for at in out["masked_positions"][row]]
    for at, token in enumerate(out["input_ids"][row]):
        if at in chosen:
            assert token == MASK or token not in special
        else:
            assert token == given_ids[at]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=12, max_size=12), min_size=1),
    predictions=st.integers(1, 12),
    special=st.sampled_from([SPECIAL, (4, 17, 30, 49)]),
    step=st.integers(0, 2**40),
)
def test_any_batch_is_masked_by_the_rules(rows, predictions, special, step):
    ids = np.array(rows, np.int32)
    out = mask(ids, (3, 1, step), predictions, special)
    check_by_hand(ids, out, predictions, special)


def test_shares_are_berts():
    ids = text(4000, 100)  # 15 of 100 per row
    out = mask(ids, predictions=16)
    used = out["masked_weights"] == 1
    new = np.take_along_axis(out["input_ids"], out["masked_positions"], 1)[used]
    old = out["masked_ids"][used]
    n = used.sum()
    assert n == 4000 * 15
    stay = 1 / 45  # a random token is by chance the old one
    for share, expected in (
        ((new == MASK).mean(), 0.8),
        ((new == old).mean(), 0.1 + 0.1 * stay),
        (((new != MASK) & (new != old)).mean(), 0.1 * (1 - stay)),
    ):
        z = (share - expected) / np.sqrt(expected * (1 - expected) / n)
        assert abs(z) < 4, (share, expected, z)


def test_every_position_and_every_random_token_is_as_likely():
    ids = text(20000, 40)
    out = mask(ids, predictions=6)
    counts = np.bincount(out["masked_positions"].ravel(), minlength=40)
    p = 6 / 40
    assert np.abs((counts - 20000 * p) / np.sqrt(20000 * p * (1 - p))).max() < 4.5
    new = np.take_along_axis(out["input_ids"], out["masked_positions"], 1)
    drawn = np.bincount(new[(new != MASK) & (new != out["masked_ids"])], minlength=VOCABULARY)
    assert drawn[:5].sum() == 0
    share = 1 / 45
    z = (drawn[5:] - drawn.sum() * share) / np.sqrt(drawn.sum() * share * (1 - share))
    assert np.abs(z).max() < 4.5


def test_the_slow_reference_chooses_as_often():
    def reference(row, rng):
        ordinary = [at for at, token in enumerate(row) if token not in SPECIAL]
        return rng.choice(ordinary, round(0.15 * len(ordinary)), replace=False)

    row = np.array([2, *range(5, 25), 3, *range(5, 24)], np.int32)  # 39 ordinary tokens of 41
    times, rng = 4000, np.random.default_rng(0)
    slow = np.bincount(
        np.concatenate([reference(row, rng) for _ in range(times)]), minlength=len(row)
    )
    out = mask(np.tile(row, (times, 1)), predictions=8)
    used = out["masked_weights"] == 1
    fast = np.bincount(out["masked_positions"][used], minlength=len(row))
    assert slow.sum() == fast.sum() == times * 6
    p = slow.sum() / times / 39
    z = (slow - fast) / np.sqrt(2 * times * p * (1 - p))
    assert np.abs(z).max() < 4.5


def test_the_same_step_of_the_run_draws_the_same_and_no_other_does():
    ids = text(8, 64)
    outs = {
        (seed, epoch, step): mask(ids, (seed, epoch, step))["input_ids"].tobytes()
        for seed in (0, 1)
        for epoch in (0, 1, 2)
        for step in (0, 1, 2)
    }
    assert len(set(outs.values())) == len(outs)
    for at, bytes_ in outs.items():
        assert mask(ids, at)["input_ids"].tobytes() == bytes_


def test_masks_of_neighbouring_draws_are_independent():
    ids = text(2000, 40)
    chosen = []
    for at in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)):
        out = mask(ids, at, predictions=6)
        one = np.zeros(ids.shape, bool)
        np.put_along_axis(one, out["masked_positions"], True, 1)
        chosen.append(one)
    p, n = 6 / 40, ids.size
    for other in chosen[1:]:
        both = (chosen[0] & other).sum()
        assert abs(both - n * p * p) / np.sqrt(n * p * p * (1 - p * p)) < 4


@given(
    one=st.tuples(st.integers(0, 99), st.integers(0, 2**31 - 1), st.integers(0, 2**50)),
    two=st.tuples(st.integers(0, 99), st.integers(0, 2**31 - 1), st.integers(0, 2**50)),
)
@settings(max_examples=100, deadline=None)
def test_draws_are_told_apart(one, two):
    same = np.array_equal(masking.draw(*one), masking.draw(*two))
    assert same == (one == two)


def test_draw_is_known_by_hand():
    assert masking.draw(3, 5, 9).numpy().tolist() == [3 * 2**31 + 5, 9]


@pytest.mark.parametrize("continuations", [(), tuple(range(30, VOCABULARY))])
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


def test_a_row_of_special_tokens_only_stays_as_it_is():
    ids = np.array([[2, 3, 0, 0, 0, 0, 0, 0, 0, 0]], np.int32)
    out = mask(ids, predictions=4)
    assert out["masked_weights"].sum() == 0
    np.testing.assert_array_equal(out["input_ids"], ids)


# Whole words

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


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=24, max_size=24), min_size=1),
    predictions=st.integers(1, 24),
    continued=st.sampled_from([CONTINUED, (5, 9, 20, 21, 49), tuple(range(5, VOCABULARY))]),
    step=st.integers(0, 2**40),
)
def test_whole_words_only(rows, predictions, continued, step):
    ids = np.array(rows, np.int32)
    out = mask(ids, (3, 1, step), predictions, continuations=continued)
    for row, given_ids in enumerate(rows):
        words = words_of(given_ids, continued)
        tokens = sum(map(len, words))
        wanted = min(predictions, tokens, max(1, int(np.round(np.float32(0.15) * tokens))))
        positions, weights = out["masked_positions"][row], out["masked_weights"][row]
        chosen = {int(at) for at, weight in zip(positions, weights, strict=True) if weight}
        assert len(chosen) == weights.sum() <= wanted
        assert all(chosen.issuperset(word) or chosen.isdisjoint(word) for word in words)
        assert chosen <= {at for word in words for at in word}
        # Nothing is left out that would have been taken in the first pass.
        smallest = min(map(len, words), default=99)
        assert chosen or smallest > wanted
        check_tokens(row, given_ids, out, chosen, SPECIAL)


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


def test_whole_words_have_berts_shares():
    ids = packed_text(3000, 100)
    out = mask(ids, predictions=20, continuations=CONTINUED)
    used = out["masked_weights"] == 1
    # 14 of the 90 ordinary tokens of a row; rows are short of them by what no word fits into.
    assert 0.998 < used.sum() / (3000 * 14) <= 1
    new = np.take_along_axis(out["input_ids"], out["masked_positions"], 1)[used]
    old = out["masked_ids"][used]
    n, stay = used.sum(), 1 / 45
    for share, expected in (((new == MASK).mean(), 0.8), ((new == old).mean(), 0.1 + 0.1 * stay)):
        z = (share - expected) / np.sqrt(expected * (1 - expected) / n)
        assert abs(z) < 4, (share, expected, z)


def test_a_word_is_chosen_as_often_as_google_researchs_loop_chooses_it():
    def reference(row, rng):  # create_masked_lm_predictions of google-research/bert
        words = words_of(row)
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
    out = mask(np.tile(row, (times, 1)), predictions=10, continuations=CONTINUED)
    fast = np.bincount(out["masked_positions"][out["masked_weights"] == 1], minlength=60)
    assert abs(slow.sum() - fast.sum()) < 0.002 * slow.sum()
    p = (slow + fast) / (2 * times)
    seen = p > 0
    z = (slow - fast)[seen] / np.sqrt(2 * times * p[seen] * (1 - p[seen]))
    assert np.abs(z).max() < 4.5


def test_continuations_are_the_tokens_with_hashes():
    assert masking.continuations({"##b": 7, "[MASK]": 1, "a": 2, "##a": 5, "#": 3}) == (5, 7)
