import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from conventions import ROOT

from benchmarks import algorithms, epochs, measure
from benchmarks.measure import Clock
from helpers import buckets


def bench(*words):
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def small():
    done = bench("--small")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "row",
    [
        *("maximum", "multiple of 32", "optimal edges, short", "optimal edges, long", "packed"),
        *("plain Python", "group_texts", "group_by_length", "bucket_by_sequence_length"),
        *("helpers.records", "helpers.records, whole words", "Hugging Face's TPU script"),
        *("helpers.masking", "Hugging Face's collator, NumPy"),
        *("masked head, same rows", "masked head, packed", "ours, filling XLA's cache"),
    ],
)
def test_the_tables_have_every_row(small, row):
    assert f"│ {row}" in small


def test_the_output_says_what_it_was_measured_on(small):
    assert f"TensorFlow {tf.__version__}" in small and "cores" in small
    assert "real tokens per epoch" in small and "median (min–max of the rounds)" in small


def test_an_unknown_benchmark_is_refused_and_help_lists_them():
    wrong = bench("epoch")
    assert wrong.returncode == 2 and "none of algorithms, epochs" in wrong.stderr
    shown = bench("--help").stdout
    assert "algorithms or epochs" in shown and "--small" in shown


def test_turns_alternate():
    assert [name for _, name in measure.turns("ab", 3)] == ["a", "b", "b", "a", "a", "b"]


def test_ratio_is_of_each_round():
    assert measure.ratio([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == "2.00 (1.00–3.00)"


def test_clock_counts_the_time_since():
    assert Clock(5.0, 3.0).since(Clock(1.0, 2.0)) == Clock(4.0, 1.0)


def test_the_plain_references_solve_the_same_problem():
    lengths = algorithms.draw_lengths(300)
    edges = algorithms.reference_edges(lengths.tolist(), 5)
    best = buckets.optimal_edges(lengths, 5, 1)
    assert buckets.measure_edges(lengths, edges).padded_tokens == best.padded_tokens
    rows = algorithms.reference_pack(lengths.tolist(), 512)
    assert sorted(at for row in rows for at in row) == list(range(300))
    assert max(sum(lengths[at] for at in row) for row in rows) <= 512
    order = algorithms.length_grouped(lengths.tolist(), 8)
    assert sorted(order) == list(range(300)) and lengths[order[0]] == lengths.max()


def test_the_baseline_pads_as_hugging_face_does():
    text = epochs.read(40)
    total = 0
    for batch in epochs.multiple_of_32(text):
        ids, mask, labels = (batch[k].numpy() for k in ("input_ids", "attention_mask", "labels"))
        rows = mask.sum(1)
        assert ids.shape == (epochs.ROWS, -(-rows.max() // 32) * 32)
        np.testing.assert_array_equal(mask, np.arange(ids.shape[1]) < rows[:, None])
        assert not ids[mask == 0].any() and (labels[mask == 0] == -100).all()
        total += rows.sum()
    assert total == text.lengths.sum()
