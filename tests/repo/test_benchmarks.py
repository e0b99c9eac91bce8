"""The benchmarks run, and what they compare is comparable."""

import sys

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from terminal import call

from benchmarks import fine_tuning, measure, pretraining, published
from benchmarks.measure import Clock

pytestmark = pytest.mark.slow


def bench(*words):
    return call(sys.executable, "-m", "benchmarks", *words)


def test_the_tables_have_every_row_and_say_what_they_were_measured_on():
    done = bench("--small", "pretraining", "prepare")
    assert done.returncode == 0, done.stderr
    for row in ("Hugging Face's fit, padded", "ours, padded", "ours, packed"):
        assert row in done.stdout
    assert f"TensorFlow {tf.__version__}" in done.stdout and "peak_megabytes" in done.stdout
    beside = "PyTorch, padded" if pretraining.PYTORCH.exists() else "`make pytorch` installs"
    assert beside in done.stdout


def test_an_unknown_benchmark_is_refused():
    wrong = bench("epoch")
    assert wrong.returncode == 2 and "none of pretraining, prepare" in wrong.stderr


def test_the_batches_hold_the_same_text_in_both_layouts():
    text = pretraining.read(30)
    labels, mask = text.padded["labels"], text.padded["attention_mask"]
    np.testing.assert_array_equal(text.whole["masked_weights"] > 0, labels >= 0)
    used = labels >= 0
    np.testing.assert_array_equal(text.whole["masked_ids"][used], labels[used])
    assert used.any() and mask[used].all() and not text.padded["input_ids"][mask == 0].any()
    assert np.count_nonzero(text.packed["attention_mask"]) > 2 * np.count_nonzero(mask)


def test_published_runs_are_shown_without_compiling_and_written_as_they_are_read(
    tmp_path, monkeypatch
):
    runs = published.calibration.published()
    ((_, rows),) = published.run(small=True)
    assert len(rows) == len(runs)
    before = published.calibration.TABLE.read_bytes()
    monkeypatch.setattr(published.calibration, "TABLE", tmp_path / "published.tsv")
    published.write(runs)
    assert published.calibration.TABLE.read_bytes() == before


def test_rounds_alternate_and_a_call_in_another_process_gives_its_own_clock():
    calls = []
    times = measure.alternating(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b") or Clock(3.0, 2.0)}, 2
    )
    assert "".join(calls) in ("baabba", "abbaab") and times["b"] == [Clock(3.0, 2.0)] * 2
    assert measure.ratio([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == "2.00 (1.00–3.00)"


def test_what_notebook_10_shows_comes_out_again():
    found = pd.read_csv(fine_tuning.RESULTS, sep="\t", dtype={"labels": str}).set_index(
        ["model", "trained_on", "tested_on", "labels", "seed"]
    )
    assert found.index.is_unique
    train, test = fine_tuning.read()
    known = fine_tuning.few(train, 4, 1)
    for model in ("words", "n-grams"):
        counted = fine_tuning.counting(model).fit(known.ko, known.label)
        scores = fine_tuning.score(test.label, counted.predict(test.ko))
        stored = found.loc[(model, "ko", "ko", "4", 1)]
        assert dict(stored.map("{:.4f}".format)) == scores
