"""Measures of guessed labels against scikit-learn's, and numbers worked out by hand."""

import numpy as np
import pytest
import sklearn.metrics as learn
from hypothesis import given
from hypothesis import strategies as st

from helpers.bert.fine_tuning import metrics
from helpers.bert.fine_tuning.evaluation import Evaluation
from helpers.bert.fine_tuning.labelled import Part

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


@given(PAIRS)
def test_accuracy_and_f1_are_those_of_scikit_learn(pairs):
    labels, guessed = zip(*pairs, strict=True)
    matrix = metrics.confusion(labels, guessed, 4)
    np.testing.assert_array_equal(matrix, learn.confusion_matrix(labels, guessed, labels=range(4)))
    assert metrics.accuracy(matrix) == pytest.approx(learn.accuracy_score(labels, guessed))
    options = {"labels": range(4), "average": None, "zero_division": np.nan}
    each = learn.f1_score(labels, guessed, **options)
    np.testing.assert_allclose(metrics.f1(matrix), each)
    assert metrics.macro_f1(matrix) == pytest.approx(np.nanmean(each))


def test_an_interval_holds_the_measure_and_grows_when_texts_come_in_groups():
    draw = np.random.default_rng(0)
    labels = np.zeros(400, int)
    guessed = np.repeat(draw.integers(0, 2, 40), 10)  # pages of ten, each right or wrong as a whole
    alone = metrics.interval(labels, guessed, metrics.accuracy, 2)
    pages = metrics.interval(labels, guessed, metrics.accuracy, 2, groups=np.arange(400) // 10)
    share = np.mean(guessed == 0)
    # The normal approximation: 1.96 sqrt(p (1 - p) / n), of 400 texts and of 40 pages.
    for (low, high), n in ((alone, 400), (pages, 40)):
        width = 1.96 * np.sqrt(share * (1 - share) / n)
        assert (share - low, high - share) == pytest.approx((width, width), rel=0.25)


def test_calibration_by_hand():
    # Confidence 0.9 thrice, right twice; 0.6 twice, right once; 1.0 once, right.
    sure = np.array([0.9, 0.9, 0.9, 0.6, 0.6, 1.0])
    found = metrics.calibration([0, 0, 1, 0, 1, 0], np.stack([sure, 1 - sure], 1))
    assert found.texts.tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 3, 1]
    assert found.accuracy[5] == 0.5 and found.confidence[8] == pytest.approx(0.9)
    assert found.error == pytest.approx((3 * abs(0.9 - 2 / 3) + 2 * 0.1) / 6)


def made(labels, probabilities, names=("a", "b")):
    texts = tuple(f"text {at}" for at in range(len(labels)))
    part = Part(texts, np.array(labels), np.arange(len(labels)))
    return Evaluation(names, part, np.array(probabilities, np.float32))


def test_an_evaluation_tells_its_table_and_its_worst_mistakes():
    found = made([0, 0, 1, 1], [[0.9, 0.1], [0.4, 0.6], [0.8, 0.2], [0.1, 0.9]])
    assert [(g.text, g.label, g.guessed) for g in found.mistakes()] == [
        ("text 2", "b", "a"),
        ("text 1", "a", "b"),
    ]
    assert len(found.mistakes(1)) == 1
    assert found.table().splitlines()[2] == "| a              | 1 | 1 |"
    assert "4 texts: accuracy 50.0% (95 %: " in repr(found) and "macro-F1 50.0%" in repr(found)
    assert found.tsv().splitlines()[1] == "a\ta\t0.9000\ttext 0"


def test_of_many_labels_the_commonest_mistakes_are_told():
    names = tuple(f"label {at}" for at in range(20))
    found = made([3, 3, 4], np.eye(20)[[5, 5, 4]], names)
    assert found.table().splitlines()[2:] == ["| label 3 | label 5 | 2     |"]
