"""Packing against rows that are filled one by one, and layouts against ones made by hand."""

import collections
import itertools

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.base.errors import CourseError
from helpers.text import corpus
from helpers.text.buckets import TooLong, pack

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=60)


def fullest_rows(lengths, row_length):
    """One row after another: the longest, and of all the others those that fill best.

    Of equally good ones those with the fewest of the shortest, then of the second shortest, ...
    """
    left, rows = collections.Counter(lengths), []
    while left:
        longest = max(left)
        left[longest] -= 1
        kinds = sorted(+left)
        every = itertools.product(*(range(left[kind] + 1) for kind in kinds))
        sums = (
            (sum(n * kind for n, kind in zip(some, kinds, strict=True)), some) for some in every
        )
        fits = [(total, some) for total, some in sums if total <= row_length - longest]
        most = max(total for total, _ in fits)
        chosen = min(some for total, some in fits if total == most)
        row = collections.Counter(dict(zip(kinds, chosen, strict=True)))
        left -= row
        rows.append(sorted([longest, *row.elements()]))
    return rows


@given(LENGTHS, st.integers(60, 90))
@settings(deadline=None)
def test_every_sequence_is_in_one_row_and_rows_hold_them(lengths, row_length):
    packing = pack(lengths, row_length)
    assert sorted(itertools.chain(*packing.rows)) == list(range(len(lengths)))
    fill = [sum(lengths[i] for i in row) for row in packing.rows]
    assert max(fill) <= row_length
    assert packing.tokens == sum(lengths)
    assert packing.efficiency == sum(lengths) / (len(fill) * row_length)


@given(
    st.dictionaries(st.integers(1, 30), st.integers(1, 6), min_size=1, max_size=5),
    st.integers(30, 70),
)
@settings(max_examples=80, deadline=None)
def test_rows_are_as_full_as_those_filled_one_by_one(counts, row_length):
    lengths = list(collections.Counter(counts).elements())
    found = [sorted(lengths[i] for i in row) for row in pack(lengths, row_length).rows]
    assert sorted(found) == sorted(fullest_rows(lengths, row_length))


def test_rows_come_in_the_order_of_their_longest_sequences():
    packing = pack([2, 7, 3, 9, 1, 8, 7], 10)
    assert packing.rows == [[1, 2], [3, 4], [5, 0], [6]]
    assert repr(packing) == (
        "7 sequences in 4 rows of 10: 92.50% real tokens, up to 2 sequences in a row"
    )


def test_a_stream_can_be_packed_window_by_window(monkeypatch):
    monkeypatch.setattr("helpers.text.buckets.packing.WINDOW", 100)
    lengths = np.random.default_rng(0).integers(1, 60, 250)
    whole = pack(lengths, 64).rows
    parts = [
        [[i + start for i in row] for row in pack(lengths[start : start + 100], 64).rows]
        for start in (0, 100, 200)
    ]
    assert whole == [row for part in parts for row in part]


@pytest.mark.parametrize(("row_length", "least"), [(128, 0.994), (512, 0.995)])
@pytest.mark.parametrize("language", ["ko", "en"])
def test_the_shipped_text_is_packed_into_the_fewest_rows_possible(language, row_length, least):
    tokenizer = tokenizers.Tokenizer.from_file(str(corpus.kept_tokenizer()))
    encodings = tokenizer.encode_batch_fast(corpus.read(corpus.DATA / f"{language}.txt"))
    lengths = [len(encoding.ids) for encoding in encodings]
    packing = pack(lengths, row_length, truncate=True)
    assert len(packing.rows) == -(-packing.tokens // row_length)
    drawn = np.random.default_rng(1).choice(lengths, 150_000)
    assert pack(drawn, row_length, truncate=True).efficiency >= least


@pytest.mark.parametrize(("mean", "spread"), [(2.6, 0.6), (3.0, 1.5), (4.5, 1.2)])
@pytest.mark.parametrize("row_length", [128, 512, 2048])
def test_rows_of_heavy_tails_are_nearly_full(mean, spread, row_length):
    drawn = np.random.default_rng(1).lognormal(mean, spread, 100_000).astype(int)
    assert pack(drawn.clip(2, row_length), row_length).efficiency >= 0.995


@given(LENGTHS, st.integers(60, 90))
@settings(max_examples=50, deadline=None)
def test_rows_are_laid_out_as_by_hand(lengths, row_length):
    packing = pack(lengths, row_length)
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


def test_truncated_rows_hold_the_beginnings():
    packing = pack([3, 12, 4], 8, truncate=True)
    assert packing.rows == [[1], [2, 0]]
    assert packing.truncated == 1
    assert packing.tokens == 15
    assert repr(packing).endswith("; 1 sequences truncated")
    rows = packing.lay_out(np.arange(19), -1)
    assert rows.tolist() == [[*range(3, 11)], [15, 16, 17, 18, 0, 1, 2, -1]]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: pack([3], 0), CourseError, "row_length is 0"),
        (lambda: pack([3, 9], 24).lay_out([1, 2]), CourseError, "12 tokens were packed"),
        (lambda: pack([3, 9, 12], 8), TooLong, "2 of 3 sequences are longer than 8 tokens; the"),
    ],
)
def test_what_cant_be_packed_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
