"""The exercises of notebook 09, the time of a step."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned
from tpu_preflight import compiler
from tpu_preflight.estimate import calibration
from tpu_preflight.program import program, trace

TEXTS, POSITIONS, WORDS, WIDTH = 3, 40, 50, 4


def _check_last_scores(answer: object) -> str:
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=[TEXTS, POSITIONS, WIDTH]), tf.float32)
    table = tf.constant(rng.normal(size=[WORDS, WIDTH]), tf.float32)
    scores = np.asarray(returned(answer(x, table)))
    expected = np.einsum("rw,vw->rv", x[:, -1], table)
    if scores.shape != expected.shape or not np.allclose(scores, expected, atol=1e-5):
        raise Wrong("These are other scores. Return those of the last position, [rows, words].")
    # To compute all scores and throw away most of them gives the same result.
    graph = tf.function(answer).get_concrete_function(x, table).graph
    for operation in graph.get_operations():
        for tensor in operation.outputs:
            rank = tensor.shape.rank
            if rank and tensor.shape.num_elements() == TEXTS * POSITIONS * WORDS:
                raise Wrong(
                    "The scores are right, but the graph still has scores of all positions."
                )
    return "The same scores from 40 times fewer products."


def _check_run_price(answer: object) -> str:
    batch = [tf.zeros([8, 2048]), tf.zeros([2048, 2048])]  # its bound is longer than the estimate
    dollars = np.ravel(returned(answer(tf.matmul, batch, "v5e-8", 10**9, 2.0)))
    compiled = compiler.compile(program(trace(tf.matmul, *batch)), "v5e-8", effort="full")
    factor = calibration.factor("v5e")
    seconds = max(compiler.roofline(compiled).seconds, compiler.profile(compiled).seconds)
    expected = np.array([factor.low, factor.high]) * seconds * 10**9 / 3600 * 8 * 2.0
    if dollars.shape != (2,) or not np.allclose(dollars, expected, rtol=1e-3):
        raise Wrong(
            f"[8, 2048] times [2048, 2048]: {expected.round(1)}, not {dollars.round(1)}. "
            "Did you take the longer of bound and estimate, and all chips?"
        )
    return "A range, from your step to the bill."
