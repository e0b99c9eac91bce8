"""Edges against all others, packing against the fewest rows there can be, layouts by hand."""

import itertools

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.base.errors import CourseError
from helpers.text import corpus
from helpers.text.buckets import optimal_edges, pack

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=40)


def padded_tokens(lengths, edges):
    return sum(min(edge for edge in edges if edge >= length) for length in lengths)


@given(LENGTHS, st.integers(1, 4), st.sampled_from([1, 4, 8, 16]))
@settings(deadline=None)
def test_optimal_edges_are_the_best_of_all(lengths, count, multiple):
    rounded = sorted({-(-length // multiple) * multiple for length in lengths})[:-1]
    count = min(count, len(rounded) + 1)
    last = -(-max(lengths) // multiple) * multiple
    every = [[*some, last] for some in itertools.combinations(rounded, count - 1)]
    found = optimal_edges(lengths, count, multiple)
    assert len(found.edges) == count and not any(edge % multiple for edge in found.edges)
    assert found.padded_tokens == padded_tokens(lengths, found.edges)
    assert found.padded_tokens == min(padded_tokens(lengths, edges) for edges in every)
    assert sum(found.tokens) == sum(lengths) and sum(found.sequences) == len(lengths)


@pytest.mark.parametrize(
    "call",
    [
        lambda: optimal_edges([], 2),
        lambda: optimal_edges([3, 0, 4], 1),
        lambda: optimal_edges([3, 4], 0),
        lambda: pack([3], 2**62),
        lambda: pack([3, 9], 24).lay_out([1, 2]),
    ],
)
def test_numbers_that_cant_be_are_refused(call):
    with pytest.raises(ValueError, match=r"1 to|must|at least|tokens were packed"):
        call()


def test_what_does_not_fit_has_its_own_error():
    with pytest.raises(CourseError, match="1 of 4 sequences are longer than 16 tokens; the lon"):
        pack([3, 9, 9, 20], 16)


def best_fit(lengths, row_length):
    """Best fit decreasing, row by row: the length of its rows' contents, sorted."""
    rows = []
    for length in sorted(lengths, reverse=True):
        fitting = [row for row in rows if sum(row) + length <= row_length]
        if not fitting:
            rows.append(fitting := [])
            fitting = [fitting]
        max(fitting, key=sum).append(length)
    return sorted(map(sum, rows))


@given(LENGTHS, st.integers(60, 90))
@settings(deadline=None)
def test_rows_are_laid_out_as_by_hand(lengths, row_length):
    packing = pack(lengths, row_length)
    assert sorted(itertools.chain(*packing.rows)) == list(range(len(lengths)))
    filled = sorted(sum(lengths[i] for i in row) for row in packing.rows)
    assert filled == best_fit(lengths, row_length)
    assert packing.efficiency == sum(lengths) / (len(packing.rows) * row_length)
    texts = [[100 * i + k for k in range(length)] for i, length in enumerate(lengths)]
    shape = (len(packing.rows), row_length)
    ids, segments, positions = np.full(shape, -1), np.zeros(shape), np.zeros(shape)
    for r, row in enumerate(packing.rows):
        at = 0
        for number, i in enumerate(row, 1):
            for position, value in enumerate(texts[i]):
                ids[r, at], segments[r, at], positions[r, at] = value, number, position
                at += 1
    assert np.array_equal(packing.lay_out(np.concatenate(texts), -1), ids)
    assert np.array_equal(packing.segment_ids(), segments)
    assert np.array_equal(packing.position_ids(), positions)


def test_rows_come_in_the_order_of_their_longest_sequences():
    packing = pack([2, 7, 3, 9, 1, 8, 7], 10)
    assert packing.rows == [[1], [3, 4], [0, 5], [2, 6]]
    assert repr(packing) == (
        "7 sequences in 4 rows of 10: 92.50% real tokens, up to 2 sequences in a row"
    )


@pytest.mark.parametrize("language", ["ko", "en"])
def test_rows_of_512_are_filled_to_995_thousandths(language):
    tokenizer = tokenizers.Tokenizer.from_file(str(corpus.kept_tokenizer()))
    encodings = tokenizer.encode_batch_fast(corpus.read(corpus.DATA / f"{language}.txt"))
    lengths = [len(encoding.ids) for encoding in encodings]
    packing = pack(lengths, 512)
    assert len(packing.rows) <= -(-packing.tokens // 512) + 1  # the fewest there can be
    assert pack(np.random.default_rng(1).choice(lengths, 150_000), 512).efficiency >= 0.995
