"""The benchmarks run, and what they compare is comparable."""

import sys

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from terminal import call

from benchmarks import fine_tuning, pretraining

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_the_tables_have_every_row_and_say_what_they_were_measured_on():
    words = ("-m", "benchmarks", "--small", "pretraining", "prepare")
    done = call(sys.executable, *words, check=True)
    for row in ("Hugging Face's fit, padded", "ours, padded", "ours, packed"):
        assert row in done.stdout
    assert f"TensorFlow {tf.__version__}" in done.stdout and "peak_megabytes" in done.stdout


def test_the_batches_hold_the_same_text_in_both_layouts():
    text = pretraining.read(30)
    labels, mask = text.padded["labels"], text.padded["attention_mask"]
    used = labels >= 0
    np.testing.assert_array_equal(text.whole["masked_weights"] > 0, used)
    np.testing.assert_array_equal(text.whole["masked_ids"][used], labels[used])
    assert used.any() and mask[used].all() and not text.padded["input_ids"][mask == 0].any()


def test_what_notebook_10_shows_comes_out_again():
    keys = ["model", "trained_on", "tested_on", "labels", "seed"]
    found = pd.read_csv(fine_tuning.RESULTS, sep="\t", dtype={"labels": str}).set_index(keys)
    train, test = fine_tuning.read()
    known = fine_tuning.few(train, 4, 1)
    counted = fine_tuning.counting("words").fit(known.ko, known.label)
    scores = fine_tuning.score(test.label, counted.predict(test.ko))
    assert dict(found.loc[("words", "ko", "ko", "4", 1)].map("{:.4f}".format)) == scores
