"""The exercises of notebook 09, the time of a step."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned
from tpu_preflight import compiler
from tpu_preflight.estimate import calibration
from tpu_preflight.program import program, trace


def _check_last_scores(answer: object) -> str:
    rows, length, words = 3, 40, 50
    x, table = (np.random.default_rng(0).normal(size=s) for s in ([3, 40, 4], [50, 4]))
    x, table = tf.constant(x, tf.float32), tf.constant(table, tf.float32)
    try:
        given = np.asarray(returned(answer(x, table)))
    except AttributeError as error:
        if "'T'" in str(error):
            error = Wrong("A tensor has no .T: write tf.transpose(table), or transpose_b=True.")
        raise error from None
    expected = np.einsum("rw,vw->rv", x[:, -1], table)
    if given.shape != expected.shape or not np.allclose(given, expected, atol=1e-5):
        raise Wrong("These are other scores: [rows, words], of the last position, are asked for.")
    graph = tf.function(answer).get_concrete_function(x, table).graph
    made = [tensor.shape for each in graph.get_operations() for tensor in each.outputs]
    if any(shape.rank and shape.num_elements() == rows * length * words for shape in made):
        raise Wrong("The scores are right, but the graph still has scores of all positions.")
    return f"The same scores from {length} times fewer products."


def _check_run_price(answer: object) -> str:
    def product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return a @ b

    batch = [tf.zeros([8, 2048]), tf.zeros([2048, 2048])]  # its bound is longer than the estimate
    given = np.ravel(returned(answer(product, batch, "v5e-8", 10**9, 2.0)))
    compiled = compiler.compile(program(trace(product, *batch)), "v5e-8", effort="full")
    factor = calibration.factor("v5e")
    bound, estimate = compiler.roofline(compiled).seconds, compiler.profile(compiled).seconds
    hours = np.array([factor.low, factor.high]) * 10**9 / 3600
    right = max(bound, estimate) * hours * 8 * 2.0
    if given.shape != (2,) or not np.allclose(given, right, rtol=1e-3):
        said = "Did you take the longer of bound and estimate, and all chips?"
        raise Wrong(f"[8, 2048] times [2048, 2048]: {right.round(1)}, not {given.round(1)}. {said}")
    return "A range, from your step to the bill."
