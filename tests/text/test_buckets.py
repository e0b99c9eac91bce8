"""Edges against all others, packing against the fewest rows there can be, layouts by hand."""

import itertools
import math

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
    total = 0
    for length in lengths:
        total += min(edge for edge in edges if edge >= length)
    return total


@given(LENGTHS, st.integers(1, 4), st.sampled_from([1, 4, 8, 16]))
@settings(deadline=None)
def test_optimal_edges_are_the_best_of_all(lengths, count, multiple):
    rounded_up = {math.ceil(length / multiple) * multiple for length in lengths}
    *lower, highest = sorted(rounded_up)
    count = min(count, len(rounded_up))
    result = optimal_edges(lengths, count, multiple)
    assert len(result.edges) == count
    assert not any(edge % multiple for edge in result.edges)
    assert result.padded_tokens == padded_tokens(lengths, result.edges)
    costs = []
    for edges in itertools.combinations(lower, count - 1):
        costs.append(padded_tokens(lengths, [*edges, highest]))
    assert result.padded_tokens == min(costs)
    assert sum(result.tokens) == sum(lengths)
    assert sum(result.sequences) == len(lengths)


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


def test_one_bucket_is_not_called_buckets():
    assert repr(optimal_edges([3, 4], 1, 4)).startswith("1 bucket 4: 7 tokens in 8 positions")
    assert repr(optimal_edges([3, 8], 2, 4)).startswith("2 buckets 4, 8: ")


def test_what_does_not_fit_has_its_own_error():
    with pytest.raises(CourseError, match="1 of 4 sequences are longer than 16 tokens; the lon"):
        pack([3, 9, 9, 20], 16)


def best_fit(lengths, row_length):
    """Best fit decreasing, row by row: the length of its rows' contents, sorted."""
    rows = []
    for length in sorted(lengths, reverse=True):
        candidates = [row for row in rows if sum(row) + length <= row_length]
        if candidates:
            fullest = max(candidates, key=sum)
            fullest.append(length)
        else:
            rows.append([length])
    return sorted(map(sum, rows))


@given(LENGTHS, st.integers(60, 90))
@settings(deadline=None)
def test_rows_are_laid_out_as_by_hand(lengths, row_length):
    packing = pack(lengths, row_length)
    assert sorted(itertools.chain(*packing.rows)) == list(range(len(lengths)))
    tokens_in_rows = [np.take(lengths, row).sum() for row in packing.rows]
    assert sorted(tokens_in_rows) == best_fit(lengths, row_length)
    assert packing.efficiency == sum(lengths) / (len(packing.rows) * row_length)
    texts = [list(range(100 * index, 100 * index + n)) for index, n in enumerate(lengths)]
    shape = (len(packing.rows), row_length)
    ids = np.full(shape, -1)
    segments = np.zeros(shape)
    positions = np.zeros(shape)
    for r, row in enumerate(packing.rows):
        column = 0
        for number, index in enumerate(row, 1):
            for position, value in enumerate(texts[index]):
                ids[r, column] = value
                segments[r, column] = number
                positions[r, column] = position
                column += 1
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
