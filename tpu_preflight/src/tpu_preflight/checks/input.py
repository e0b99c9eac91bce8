"""Check 9: does the input pipeline keep up with the step?

Its stages are timed as one does by hand: build the pipeline up, one stage after the other, and
take the differences. What a TPU VM's host makes of it is reckoned from this machine's numbers.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_preflight.checks import pipeline
from tpu_preflight.checks.subject import rows_of
from tpu_preflight.chips import hardware
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate.input import Need, Rate, Stage
from tpu_preflight.estimate.step import Estimate, Timing
from tpu_preflight.processes import TooLate, within
from tpu_preflight.report import PASS, WARN, Item, finding

SECONDS = 3.0  # for all stages together, where each gives its elements soon
PATIENCE = 20.0  # seconds after which a pipeline is left alone
LEAST = 2  # elements of each stage, however long they take

# A host's processors aren't this machine's: beyond twice the need, either way, there is a verdict.
MARGIN = 2.0

SLOWER = 5.0  # times its bound: no published step took longer (tpu_preflight.estimate)

# Stages that give an element for each. (For batch, `_stages` knows.) At any other it isn't known
# how many elements of the stage before go into a row: that stage is timed with all before it.
ONE_TO_ONE = {"map", "parallelmap", "shuffle", "prefetch", "repeat", "take", "skip", "cache"}
ONE_TO_ONE |= {"zip", "options", "assertcardinality", "ignoreerrors"}


def check(
    dataset: Any,
    estimates: Sequence[Estimate],
    timings: Sequence[Timing],
    node: bool,
    say: Callable[[str], None],
) -> tuple[list[Item], Rate | None]:
    """Compare what the pipeline gives with what the step needs, on each target."""
    if not isinstance(dataset, tf.data.Dataset):
        return [finding(9, "not_timed", reason="only shapes were given, no dataset")], None
    say("timing the input pipeline")
    try:
        rate = measure(dataset)
    except PreflightError as error:
        return [finding(9, "not_timed", reason=f"{error.what} {error.why}")], None
    times = {timing.target: timing for timing in timings}
    needs = [need(e, times.get(e.target)) for e in estimates if e.rows is not None]
    if not needs:
        reason = "what the step needs is not known: it does not compile, or its batch has no rows"
        return [finding(9, "not_timed", reason=reason)], rate
    return [judged(rate, one, node) for one in needs], rate


def need(estimate: Estimate, timing: Timing | None) -> Need:
    """Say how many rows a second a step takes in, from its time's range or its bound."""
    rows = estimate.rows * estimate.replicas * 1e3
    if timing is None:  # faster than its bound no step can be, however much slower it is
        return Need(estimate.target, 0.0, rows / max(estimate.bound_ms, 1e-3), "least time")
    return Need(estimate.target, rows / timing.high_ms, rows / timing.low_ms, "estimated time")


def judged(rate: Rate, wanted: Need, node: bool) -> Item:
    """Compare what a pipeline gives here with a need; a ``node`` is fed by this machine."""
    tpu = hardware.slice_of(wanted.target, jax=True)
    host = f"{tpu.hosts} host{'s' if tpu.hosts > 1 else ''} of {tpu.host_vcpus} vCPUs"
    low, high = rate.per_second * tpu.hosts, rate.per_core * tpu.hosts * tpu.host_vcpus
    if node:
        host, low, high = "your own machine, which feeds a TPU Node", rate.per_second, 0.0
    high, slowest = max(low, high), rate.slowest
    about = {"state": WARN, "stage": ""}
    if slowest:
        about |= {"where": slowest.where, "stage": f"; the slowest stage is {slowest.said}"}
    key = "between"
    if low >= MARGIN * wanted.high:
        key = "keeps_up"
        about |= {"state": PASS, "where": ""}
    elif high * MARGIN < (wanted.low or wanted.high / SLOWER):
        key = "too_slow"
    about |= {"needs": str(wanted), "gives": rate.said, "host": host, "target": wanted.target}
    return finding(9, key, low=f"{low:,.0f}", high=f"{high:,.0f}", **about)


def measure(dataset: tf.data.Dataset, seconds: float = SECONDS) -> Rate:
    """Time a pipeline of batches and its stages, in wall-clock and in processor time.

    The dataset is read several times over, from its beginning, all stages together in so many
    ``seconds``. Other work of this process counts as the pipeline's.

    Raises:
        PreflightError: It is empty, raises, did not give enough batches within 20 seconds, or its
            batches have no common number of rows.
    """
    deadline = time.monotonic() + PATIENCE
    stages = _stages(dataset)
    each = seconds / (len(stages) + 2)
    batch, whole = _timed(dataset, 3 * each, deadline)
    rows = rows_of(x.shape for x in tf.nest.flatten(batch))
    if rows is None:
        raise PreflightError(
            "The input pipeline could not be timed.",
            "The tensors of a batch have no common first size.",
            "Batch the dataset: every tensor's first dimension is the global batch.",
        )
    found, before = [], np.zeros(2)
    for prefix, name, elements in stages:
        times = whole
        if prefix is not dataset and time.monotonic() < deadline:
            times = _timed(prefix, each, deadline)[1] * elements
        added = np.maximum(times - before, 0) / rows * 1e6
        found.append(Stage(name, _line(prefix), *added.tolist()))
        before = np.maximum(times, before)
    rates = 1 / np.maximum(whole / rows, 1e-9)
    return Rate(*rates.tolist(), os.cpu_count() or 1, tuple(found))


def _timed(dataset: tf.data.Dataset, budget: float, deadline: float) -> tuple[Any, np.ndarray]:
    """Give the first element, and the wall-clock and processor seconds of each of those after it.

    Not longer than the deadline: an element may never come.
    """

    def clocks() -> np.ndarray:
        return np.array([time.perf_counter(), time.process_time()])

    def read() -> tuple[Any, np.ndarray]:
        elements = iter(dataset.repeat())
        first = next(elements)
        count, start = 0, clocks()
        until = min(deadline, time.monotonic() + budget)
        while count < LEAST or time.monotonic() < until:
            next(elements)
            count += 1
        return first, (clocks() - start) / count

    try:
        return within(max(1.0, deadline - time.monotonic()), read)
    except TooLate:
        raise PreflightError(
            "The input pipeline is slow.",
            f"It did not give {LEAST + 1} elements within {PATIENCE:g} s.",
            "Time it by hand: next(iter(dataset)).",
        ) from None
    except StopIteration:
        why = "It is empty."
    except Exception as error:  # whatever the learner's pipeline raises
        why = f"{type(error).__name__}: {error}"[:200]
    raise PreflightError(
        "The input pipeline could not be timed.", why, "Read it first: for batch in dataset."
    )


def _stages(dataset: tf.data.Dataset) -> list[tuple[tf.data.Dataset, str, float]]:
    """List prefixes of a pipeline from its source on, with their names and elements per batch."""
    chain, before, elements = [], [dataset], 1.0
    while len(before) == 1:
        (stage,) = before
        name = type(stage).__name__.strip("_").removesuffix("Dataset").removesuffix("V2").lower()
        # What only passes elements on is no stage of its own.
        if stage is dataset or name not in ("options", "model"):
            chain.append((stage, name, elements))
        before = stage._inputs()
        if name == "zip":  # enumerate: the numbers of a range beside the elements
            before = [one for one in before if not _is_range(one)]
        size = getattr(stage, "_batch_size", None)
        if "batch" in name and size is not None and "un" not in name:
            elements *= int(size)
        elif name not in ONE_TO_ONE:
            break
    return chain[::-1]


def _is_range(stage: tf.data.Dataset) -> bool:
    """Whether these are the numbers of enumerate: TensorFlow wraps them, which hides the range."""
    wrapped = type(stage).__name__ in ("_VariantDataset", "_RangeDataset")
    return wrapped and stage.element_spec == tf.TensorSpec([], tf.int64)


def _line(stage: tf.data.Dataset) -> str:
    """The learner's line inside the stage's function, where there is one."""
    operations = (op for f in stage._functions() for op in f.function.graph.get_operations())
    # An argument is made where map was called.
    lines = (pipeline.made_at(op) for op in operations if op.type != "Placeholder")
    return next(filter(None, lines), "")
