"""Edges against brute force and against the full table of the dynamic program."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.base.errors import CourseError
from helpers.text.buckets import TooLong, TooManyBuckets, choose_edges, measure_edges, optimal_edges

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=60)


def padded_tokens(lengths, edges):
    return sum(min(edge for edge in edges if edge >= length) for length in lengths)


def rounded(lengths, multiple):
    return sorted({-(-length // multiple) * multiple for length in lengths})


def least_padded_tokens(lengths, count, multiple):
    *below, last = rounded(lengths, multiple)
    choices = itertools.combinations(below, count - 1)
    return min(padded_tokens(lengths, [*chosen, last]) for chosen in choices)


@given(LENGTHS, st.integers(1, 6), st.integers(1, 9))
@settings(max_examples=300, deadline=None)
def test_optimal_edges_equal_brute_force(lengths, wanted, multiple):
    count = min(wanted, len(rounded(lengths, multiple)))
    found = optimal_edges(lengths, count, multiple)
    assert len(found.edges) == count
    assert found.edges == tuple(sorted(set(found.edges)))
    assert all(edge % multiple == 0 for edge in found.edges)
    assert found.padded_tokens == padded_tokens(lengths, found.edges)
    assert found.padded_tokens == least_padded_tokens(lengths, count, multiple)


def test_optimal_edges_of_many_lengths_equal_the_full_table_of_the_dynamic_program():
    lengths = np.random.default_rng(0).lognormal(6, 1, 20_000).astype(int).clip(1, 3000)
    edges, counts = np.unique(lengths, return_counts=True)
    assert len(edges) > 1500
    below = np.append(0, np.cumsum(counts))
    later = np.arange(len(edges) + 1)[:, None] < np.arange(1, len(edges) + 1)
    pay = np.where(later, edges * (below[1:] - below[:, None]), 2**60)
    best = np.append(0, pay[0])
    for count in range(1, 7):
        assert optimal_edges(lengths, count, 1).padded_tokens == best[-1]
        best = np.append(2**60, (best[:, None] + pay).min(axis=0))


def test_optimal_edges_by_hand():
    found = optimal_edges([3, 3, 4, 9, 20], max_buckets=2, multiple=4)
    assert found.edges == (4, 20)  # 3 * 4 + 2 * 20 = 52; (12, 20) would take 68
    assert found.sequences == (3, 2)
    assert found.tokens == (10, 29)
    assert found.padded_tokens == 52
    assert found.efficiency == 39 / 52
    assert repr(found) == "2 buckets 4, 20: 39 tokens in 52 positions, 75.0% real"
    assert repr(optimal_edges([5], 1)) == "1 bucket 8: 5 tokens in 8 positions, 62.5% real"
    assert "<td>12</td>" in found._repr_html_()


@given(LENGTHS, st.sets(st.integers(1, 60), min_size=1, max_size=5))
def test_measured_edges_equal_one_by_one(lengths, edges):
    edges = sorted(edges | {60})
    found = measure_edges(lengths, edges)
    assert found.padded_tokens == padded_tokens(lengths, edges)
    assert sum(found.tokens) == sum(lengths)
    assert sum(found.sequences) == len(lengths)
    assert found.edges == tuple(edges)


@given(LENGTHS, st.floats(0.1, 1e4), st.floats(1e-3, 10), st.floats(0.1, 100), st.integers(1, 9))
@settings(deadline=None)
def test_the_chosen_number_of_buckets_is_the_best_of_all(lengths, compiling, token, epochs, m):
    choice = choose_edges(lengths, compiling, token, epochs, m)
    every = [
        count * compiling + optimal_edges(lengths, count, m).padded_tokens * token * epochs
        for count in range(1, len(rounded(lengths, m)) + 1)
    ]
    assert choice.best.seconds == pytest.approx(min(every))
    assert choice.best.padded_tokens == choice.edges.padded_tokens
    assert [cost.seconds for cost in choice.costs] == pytest.approx(every[: len(choice.costs)])
    assert len(choice.costs) >= min(2 * choice.best.buckets, len(every))


def test_a_short_run_takes_fewer_buckets_and_says_why():
    lengths = [8] * 70 + [16] * 20 + [64] * 10
    short = choose_edges(lengths, compile_seconds=3, seconds_per_token=0.001, epochs=1)
    assert repr(short) == (
        "Best: 2 buckets: 6.0 s compiling + 2.1 s of steps = 8.1 s\n"
        "      1 bucket: 3.0 s compiling + 6.4 s of steps = 9.4 s\n"
        "      3 buckets: 9.0 s compiling + 1.5 s of steps = 10.5 s"
    )
    long = choose_edges(lengths, compile_seconds=3, seconds_per_token=0.001, epochs=10)
    assert long.edges.edges == (8, 16, 64)
    assert "(best)" in long._repr_html_()


FEW = [3, 9, 9, 20]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: optimal_edges([], 2), r"There are no sequences"),
        (lambda: optimal_edges([3, 0, 4], 1), r"Sequence 1 has length 0"),
        (lambda: optimal_edges([3, 4, -1], 1), r"Sequence 2 has length -1"),
        (lambda: optimal_edges([3.5, 4.0], 1), r"Lengths are float64 of shape \(2,\)"),
        (lambda: optimal_edges([[3], [4]], 1), r"shape \(2, 1\)"),
        (lambda: optimal_edges(FEW, 0), r"max_buckets is 0"),
        (lambda: optimal_edges(FEW, 1, 0), r"multiple is 0"),
        (lambda: measure_edges(FEW, [24, 8]), r"\[24, 8\] are not in rising order"),
        (lambda: measure_edges(FEW, [8, 8, 24]), r"not in rising order"),
        (lambda: measure_edges(FEW, [0, 24]), r"not positive whole"),
        (lambda: measure_edges(FEW, [8.5, 24]), r"not positive whole"),
        (lambda: measure_edges(FEW, []), r"Write them smallest first"),
        (lambda: choose_edges(FEW, 0, 1), r"compile_seconds is 0"),
        (lambda: choose_edges(FEW, 1, -1), r"seconds_per_token is -1"),
        (lambda: choose_edges(FEW, 1, float("nan")), r"seconds_per_token is nan"),
        (lambda: choose_edges(FEW, 1, 1, epochs=0), r"epochs is 0"),
    ],
)
def test_numbers_that_cant_be_are_refused(call, words):
    with pytest.raises(CourseError, match=words):
        call()


def test_what_does_not_fit_has_its_own_error():
    with pytest.raises(TooLong, match="1 of 4 sequences are longer than 16 tokens; the longest"):
        measure_edges(FEW, [8, 16])
    with pytest.raises(TooManyBuckets, match="Ask for at most 3"):
        optimal_edges(FEW, 4)
