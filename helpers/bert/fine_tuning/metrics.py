"""How good guessed labels are: accuracy, F1, intervals, calibration.

Accuracy and F1 take any number of confusion matrices at once: the bootstrap makes a thousand.
scikit-learn's, with which the tests compare, take one list of guesses at a time.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

DRAWS = 1000  # samples of an interval
BINS = 10  # of a calibration


def confusion(labels: npt.ArrayLike, guessed: npt.ArrayLike, classes: int) -> np.ndarray:
    """Count what was guessed for what: int64 [classes, classes], a row for each true label.

    ``labels`` and ``guessed`` are whole numbers from 0, [texts].
    """
    cells = np.asarray(labels) * classes + np.asarray(guessed)
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)


def accuracy(matrix: np.ndarray) -> np.ndarray:
    """Give the share of right guesses; from `confusion`, [..., classes, classes] to [...]."""
    return np.trace(matrix, axis1=-2, axis2=-1) / matrix.sum((-2, -1))


def f1(matrix: np.ndarray) -> np.ndarray:
    """Give each label's F1: [..., classes, classes] to [..., classes].

    It is the harmonic mean of precision and recall; nan for a label that neither occurs nor is
    guessed.
    """
    right = np.diagonal(matrix, axis1=-2, axis2=-1)
    with np.errstate(invalid="ignore"):
        return 2 * right / (matrix.sum(-1) + matrix.sum(-2))


def macro_f1(matrix: np.ndarray) -> np.ndarray:
    """Give the mean of the labels' F1, rare and frequent ones alike: to [...].

    A label that neither occurs nor is guessed is left out.
    """
    return np.nanmean(f1(matrix), axis=-1)


def interval(
    labels: npt.ArrayLike,
    guessed: npt.ArrayLike,
    measure: Callable[[np.ndarray], np.ndarray],
    classes: int,
    *,
    groups: npt.ArrayLike | None = None,
) -> tuple[float, float]:
    """Give a measure's 95 % interval by the bootstrap (Efron 1979): other texts of the same kind.

    Args:
        labels: True labels, whole numbers from 0, [texts].
        guessed: Guessed ones.
        measure: `accuracy`, `macro_f1`, or another of the confusion matrix.
        classes: Number of labels.
        groups: What is drawn as a whole, such as the page of each text; None: each text.
    """
    labels, guessed = np.asarray(labels), np.asarray(guessed)
    _, group = np.unique(np.arange(len(labels)) if groups is None else groups, return_inverse=True)
    count = group.max() + 1
    draw = np.random.default_rng(0)
    cells = labels * classes + guessed
    found = []
    for _ in range(DRAWS):
        weights = np.bincount(draw.integers(count, size=count), minlength=count)[group]
        found.append(np.bincount(cells, weights, minlength=classes**2))
    low, high = np.percentile(measure(np.reshape(found, (-1, classes, classes))), [2.5, 97.5])
    return float(low), float(high)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How often a model is right when it is so sure, by bins of equal width from 0 to 1."""

    texts: np.ndarray  # in each bin, int64 [bins]
    confidence: np.ndarray  # mean of the bin's texts, nan where there are none
    accuracy: np.ndarray  # share of them that are right

    @property
    def error(self) -> float:
        """Mean distance of confidence and accuracy over the texts (expected calibration error)."""
        used = self.texts > 0
        distance = np.abs(self.confidence - self.accuracy)[used]
        return float(np.average(distance, weights=self.texts[used]))


def calibration(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> Calibration:
    """Compare confidence, the probability of the guessed label, with how often it is right.

    As in Guo et al., "On Calibration of Modern Neural Networks", 2017; a confidence on the border
    of two bins is in the lower one. ``labels`` are [texts], ``probabilities`` [texts, classes].
    """
    probabilities = np.asarray(probabilities)
    confidence = probabilities.max(-1).astype(np.float64)
    right = probabilities.argmax(-1) == np.asarray(labels)
    at = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    texts = np.bincount(at, minlength=BINS)
    with np.errstate(invalid="ignore"):
        sums = [np.bincount(at, what, minlength=BINS) / texts for what in (confidence, right)]
    return Calibration(texts, *sums)
