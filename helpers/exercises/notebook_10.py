"""Exercises of notebook 10: scores, splits and calibration of a classifier."""

import numpy as np

from helpers.exercises import Wrong, read, returned

CLOSE = 1e-9
BINS = 10
PAGES = [f"swriter/01/{number:04d}.html" for number in range(2000)]


def _check_macro_f1(macro_f1: object) -> str:
    balanced = np.array([[3, 1], [1, 3]])
    skewed = np.array([[90, 0, 0], [8, 2, 0], [0, 0, 0]])
    for matrix in (balanced, skewed, skewed.T):
        found = float(returned(macro_f1(matrix.copy())))
        right, all_of_them = np.diag(matrix), matrix.sum(0) + matrix.sum(1)
        expected = float((2 * right / np.maximum(all_of_them, 1)).mean())
        if np.isnan(found):
            raise Wrong(
                "A label that neither occurs nor is guessed makes yours nan: 0/0 is 0 here."
            )
        if abs(found - right.sum() / matrix.sum()) < CLOSE and matrix is not balanced:
            raise Wrong("That is the accuracy: the rare labels hardly count in it.")
        if abs(found - expected) > CLOSE:
            raise Wrong(
                f"For {matrix.tolist()} yours is {found:.3f}, expected {expected:.3f}. The F1 of a "
                "label is twice its right answers over the sum of its row and its column."
            )
    return "Every label counts as much as the others, however rare it is."


def _check_is_test(is_test: object) -> str:
    first = [returned(is_test(page)) for page in PAGES]
    if first != [is_test(page) for page in PAGES]:
        raise Wrong("Asked twice, it answers differently: draw nothing at random.")
    if [is_test(page) for page in PAGES[::-1]] != first[::-1]:
        raise Wrong("The answer depends on the pages that were asked before.")
    share = np.mean(np.array(first, bool))
    if not 0.15 < share < 0.25:
        raise Wrong(f"{share:.0%} of {len(PAGES):,} pages are in the test part, not about a fifth.")
    return f"{share:.0%} of the pages, and a new page moves no other."


def _check_calibration_error(calibration_error: object) -> str:
    sure = np.repeat([0.95, 0.65], [20, 10])
    right = np.concatenate([np.arange(20) < 15, np.arange(10) < 5]).astype(int)
    draw = np.random.default_rng(0)
    confidence = draw.uniform(0.2, 1, 300)
    for sureness, truth in ((sure, right), (confidence, draw.integers(0, 2, 300))):
        found = float(returned(calibration_error(sureness.copy(), truth.copy())))
        bins = np.ceil(sureness * BINS).astype(int)  # a border belongs to the lower bin
        gaps = [abs((sureness - truth)[bins == at].sum()) for at in np.unique(bins)]
        expected = sum(gaps) / len(truth)
        if abs(found - abs(sureness.mean() - truth.mean())) < CLOSE < abs(found - expected):
            raise Wrong(
                "That is one bin: a model too sure here and too modest there looks perfect."
            )
        if abs(found - expected) > 1e-6:
            raise Wrong(
                f"Yours is {found:.3f}, expected {expected:.3f}. In each bin: the mean confidence "
                "minus the share of right answers, without its sign; weigh by the answers."
            )
    return "Zero means: of the answers given with 80 % confidence, 80 % are right."


EXERCISES = read("10", _check_macro_f1, _check_is_test, _check_calibration_error)
