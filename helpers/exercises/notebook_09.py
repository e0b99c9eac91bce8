"""The exercises of notebook 09, the time of a step."""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned
from tpu_preflight import compiler
from tpu_preflight.chips.hardware import slice_of
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate import calibration
from tpu_preflight.program import program, trace

TEXTS, POSITIONS, WORDS, WIDTH = 3, 40, 50, 4


def _check_last_scores(answer: object) -> str:
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=[TEXTS, POSITIONS, WIDTH]), tf.float32)
    table = tf.constant(rng.normal(size=[WORDS, WIDTH]), tf.float32)
    scores = np.asarray(returned(answer(x, table)))
    expected = np.einsum("rw,vw->rv", x[:, -1], table)
    if scores.shape != expected.shape:
        raise Wrong(
            f"For {TEXTS} rows and {WORDS} words return {list(expected.shape)}, [rows, words]; "
            f"this is {list(scores.shape)}."
        )
    if not np.allclose(scores, expected, atol=1e-5):
        raise Wrong("These are other scores. Return those of the last position.")
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


@dataclasses.dataclass(frozen=True)
class Priced:
    """A run whose price is asked for, of a thousand million steps at 2 for a chip and hour."""

    name: str
    step: Callable
    sizes: tuple[tuple[int, ...], ...]  # of the step's batch
    target: str


STEPS, PRICE = 10**9, 2.0
RUNS = (
    # Its bound is longer than the compiler's estimate.
    Priced(
        name="A product of [8, 2048] and [2048, 2048]",
        step=tf.matmul,
        sizes=((8, 2048), (2048, 2048)),
        target="v5e-8",
    ),
    # Here it is shorter; and a chip of a v3 has two replicas.
    Priced(
        name="A softmax of [512, 1000]", step=tf.nn.softmax, sizes=((512, 1000),), target="v3-8"
    ),
)


def _check_run_price(answer: object) -> str:
    for run in RUNS:
        batch = list(map(tf.zeros, run.sizes))
        try:
            price = np.ravel(returned(answer(run.step, batch, run.target, STEPS, PRICE)))
        except PreflightError as error:  # its reason is on a line of its own
            raise Wrong(f"{error.what} {error.why}") from error
        if price.shape != (2,):
            raise Wrong("Return a pair of numbers: the least and the most that the run costs.")
        _compare_price(run, batch, price)
    return "A range, from your step to the bill."


def _compare_price(run: Priced, batch: list, price: np.ndarray) -> None:
    tpu = slice_of(run.target)
    compiled = compiler.compile(program(trace(run.step, *batch)), run.target, effort="full")
    bound = compiler.roofline(compiled).seconds
    estimate = compiler.profile(compiled).seconds
    seconds = max(bound, estimate)
    factor = calibration.factor(tpu.chip.name)
    range_factors = np.array([factor.low, factor.high])
    expected = range_factors * seconds * STEPS / 3600 * tpu.chips * PRICE
    if np.allclose(price, expected, rtol=1e-3):
        return
    # What the usual mistakes multiply the price by, to say which one it is.
    mistakes = (
        (min(bound, estimate) / seconds, "Take the longer of bound and estimate."),
        (1 / tpu.chips, "That is the price of one chip, and the target has more."),
        (tpu.replicas / tpu.chips, "The price is for each chip, not for each replica."),
        (3600, "The price is for each hour, not for each second."),
        (1 / 1000, "The seconds were taken for milliseconds."),
    )
    reason = "Did you take the longer of bound and estimate, and all chips?"
    for ratio, mistake in mistakes:
        if np.allclose(price, expected * ratio, rtol=1e-3):
            reason = mistake
    raise Wrong(
        f"{run.name} costs from {expected[0]:.4g} to {expected[1]:.4g} on a {run.target}, not from "
        f"{price[0]:.4g} to {price[1]:.4g}. {reason}"
    )
