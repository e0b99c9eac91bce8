"""Exercises of notebook 07: what a loss means at the first step, and of a table of counts."""

import numpy as np

from helpers.exercises import Wrong, returned

CLOSE = 1e-5


def _check_first_loss(first_loss: object) -> str:
    for size in (3000, 30522):
        found = float(returned(first_loss(size)))
        if abs(found - np.log2(size)) < CLOSE:
            raise Wrong(
                "That is in bits. TensorFlow's cross-entropy is in nats: natural logarithm."
            )
        if abs(found + np.log(size)) < CLOSE:
            raise Wrong("The sign: a loss is minus the logarithm of a probability, so positive.")
        if abs(found - np.log(size)) > CLOSE:
            raise Wrong(
                f"For {size} tokens yours is {found:.4f}. Each has the probability 1/{size}; "
                "the loss is minus its natural logarithm."
            )
    return "3,000 tokens: 8.01. BERT's own vocabulary of 30,522: 10.33."


def _check_unigram(unigram: object) -> str:
    rng = np.random.default_rng(0)
    for counts in (np.array([3, 1, 0, 4]), rng.integers(0, 50, 200)):
        tokens = rng.integers(0, len(counts), (5, 7))
        p = (counts + 1) / (counts + 1).sum()
        expected = -np.mean([np.log(p[token]) for token in tokens.ravel()])
        before = counts.copy()
        found = float(returned(unigram(counts, tokens)))
        if not np.array_equal(counts, before):
            raise Wrong("Your function changes the counts it is given: work on a new array.")
        if not np.isfinite(found):
            raise Wrong(
                "The loss is not finite: a token that training never saw has probability 0."
            )
        if abs(found - np.log(len(counts))) < CLOSE:
            raise Wrong("That is the uniform baseline: the counts don't matter in it.")
        if abs(found - expected) > CLOSE:
            raise Wrong(
                f"Yours is {found:.4f}, expected {expected:.4f}. Add 1 to each count, divide by "
                "the sum of the new counts, take minus the mean logarithm over the masked tokens."
            )
    return "Finite for every token, and the right mean: a baseline to be beaten."
