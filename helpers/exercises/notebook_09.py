"""The exercises of notebook 09, the time of a step."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned
from tpu_preflight import compiler
from tpu_preflight.estimate import calibration
from tpu_preflight.program import program, trace


def _check_last_scores(answer: object) -> str:
    x, table = (np.random.default_rng(0).normal(size=s) for s in ([3, 40, 4], [50, 4]))
    x, table = tf.constant(x, tf.float32), tf.constant(table, tf.float32)
    given = np.asarray(returned(answer(x, table)))
    expected = np.einsum("rw,vw->rv", x[:, -1], table)
    if given.shape != expected.shape or not np.allclose(given, expected, atol=1e-5):
        raise Wrong("These are other scores: [rows, words], of the last position, are asked for.")
    graph = tf.function(answer).get_concrete_function(x, table).graph
    made = [tensor.shape for each in graph.get_operations() for tensor in each.outputs]
    if any(shape.rank and shape.num_elements() == 3 * 40 * 50 for shape in made):
        raise Wrong("The scores are right, but the graph still has scores of all positions.")
    return "The same scores from 40 times fewer products."


def _check_run_price(answer: object) -> str:
    batch = [tf.zeros([8, 2048]), tf.zeros([2048, 2048])]  # its bound is longer than the estimate
    given = np.ravel(returned(answer(tf.matmul, batch, "v5e-8", 10**9, 2.0)))
    compiled = compiler.compile(program(trace(tf.matmul, *batch)), "v5e-8", effort="full")
    factor = calibration.factor("v5e")
    seconds = max(compiler.roofline(compiled).seconds, compiler.profile(compiled).seconds)
    right = np.array([factor.low, factor.high]) * seconds * 10**9 / 3600 * 8 * 2.0
    if given.shape != (2,) or not np.allclose(given, right, rtol=1e-3):
        said = "Did you take the longer of bound and estimate, and all chips?"
        raise Wrong(f"[8, 2048] times [2048, 2048]: {right.round(1)}, not {given.round(1)}. {said}")
    return "A range, from your step to the bill."
