"""Exercises of notebook 07: what a loss means before, during and across replicas."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, read, returned

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


def _check_replica_loss(replica_loss: object) -> str:
    rng = np.random.default_rng(1)
    compiled = tf.function(replica_loss, jit_compile=True)
    for numbers in ((20, 2), (7, 0), (0, 0)):
        losses = [rng.uniform(1, 9, 24).astype(np.float32) for _ in numbers]
        weights = [(np.arange(24) < number).astype(np.float32) for number in numbers]
        total = np.float32(sum(numbers))
        pairs = list(zip(losses, weights, strict=True))
        parts = [
            float(returned(compiled(tf.constant(a), tf.constant(b), tf.constant(total))))
            for a, b in pairs
        ]
        if not np.isfinite(parts).all():
            raise Wrong(f"With {numbers} masked tokens a share is not finite: 0 is divided by 0.")
        if abs(sum(parts) - sum(float(a.sum()) for a in losses) / max(total, 1)) < 1e-3:
            raise Wrong(
                "Every position counts in it. The masked positions only: weights are 0 elsewhere."
            )
        summed = sum(float((a * b).sum()) for a, b in pairs)
        if abs(sum(parts) - summed / max(total, 1)) > 1e-4:
            raise Wrong(
                f"With {numbers} masked tokens the shares add up to {sum(parts):.4f}; the "
                f"mean over all of them is {summed / max(total, 1):.4f}. Divide the sum of this "
                "replica's losses, of masked positions only, by the number in all replicas."
            )
    return "The sum over the replicas is the mean over all masked tokens, compiled by XLA."


EXERCISES = read("07", _check_first_loss, _check_unigram, _check_replica_loss)
