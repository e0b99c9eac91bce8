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
    output = call(sys.executable, *words, check=True).stdout
    for row in ("Hugging Face's fit, padded", "ours, padded", "ours, packed"):
        assert row in output
    assert f"TensorFlow {tf.__version__}" in output
    assert "peak_megabytes" in output


def test_the_batches_hold_the_same_text_in_both_layouts():
    text = pretraining.read(30)
    labels = text.padded["labels"]
    is_word = text.padded["attention_mask"] == 1
    is_masked = labels >= 0
    np.testing.assert_array_equal(text.whole["masked_weights"] > 0, is_masked)
    np.testing.assert_array_equal(text.whole["masked_ids"][is_masked], labels[is_masked])
    assert is_masked.any()
    assert is_word[is_masked].all()
    assert not text.padded["input_ids"][~is_word].any()


def test_what_notebook_10_shows_comes_out_again():
    keys = ["model", "trained_on", "tested_on", "labels", "seed"]
    table = pd.read_csv(fine_tuning.RESULTS, sep="\t", dtype={"labels": str}).set_index(keys)
    row = table.loc[("words", "ko", "ko", "4", 1)]
    train, test = fine_tuning.read()
    sample = fine_tuning.few(train, 4, 1)
    model = fine_tuning.counting("words").fit(sample.ko, sample.label)
    scores = fine_tuning.score(test.label, model.predict(test.ko))
    assert dict(row.map("{:.4f}".format)) == scores
