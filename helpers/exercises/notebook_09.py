"""The exercises of notebook 09, the time of a step."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned


def _operations(answer: object, *shapes: list[int]) -> list[tf.Operation]:
    specs = [tf.TensorSpec(shape) for shape in shapes]
    return tf.function(answer).get_concrete_function(*specs).graph.get_operations()


def _check_last_scores(answer: object) -> str:
    rows, length, width, words = 3, 40, 4, 50
    x = np.random.default_rng(0).normal(size=[rows, length, width]).astype(np.float32)
    table = np.random.default_rng(1).normal(size=[words, width]).astype(np.float32)
    given = np.asarray(returned(answer(tf.constant(x), tf.constant(table))))
    if given.shape != (rows, words):
        raise Wrong(f"[{rows}, {words}] scores are asked for, not {[*given.shape]}.")
    if not np.allclose(given, x[:, -1] @ table.T, atol=1e-5):
        raise Wrong("These are the wrong scores: take the last position of each row.")
    made = [t.shape for o in _operations(answer, x.shape, table.shape) for t in o.outputs]
    if any(shape.rank and shape.num_elements() == rows * length * words for shape in made):
        raise Wrong("The scores are right, but the graph still has scores of all positions.")
    return f"The same scores from {length} times fewer products."


def _check_mean_so_far(answer: object) -> str:
    rows, length, width = 2, 64, 3
    x = np.random.default_rng(0).normal(size=[rows, length, width]).astype(np.float32)
    expected = np.cumsum(x, 1) / np.arange(1, length + 1)[:, None]
    given = np.asarray(returned(answer(tf.constant(x))))
    if given.shape != expected.shape:
        raise Wrong(f"A tensor of shape {[*expected.shape]} is asked for, not {[*given.shape]}.")
    if not np.allclose(given, expected, atol=1e-5):
        at = int(np.argwhere(~np.isclose(given, expected, atol=1e-5))[0][1])
        raise Wrong(f"position {at} must be the mean of {at + 1} positions; yours is another.")
    operations = _operations(answer, x.shape)
    if any("While" in operation.type for operation in operations):
        raise Wrong("The means are right, but the graph still goes round for each position.")
    if len(operations) > length:
        raise Wrong(f"A Python loop is a loop, too: the graph has {len(operations)} operations.")
    return "The same means, and no position waits for the one before."
