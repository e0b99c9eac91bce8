"""Check 9: does the input pipeline keep up with the step?

Its stages are timed as one does by hand: build the pipeline up, one stage after the other, and
take the differences. What a TPU VM's host makes of it is reckoned from this machine's numbers.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

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


class TooSlow(PreflightError):
    """A pipeline did not give enough elements in time."""


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
    times = {t.target: t for t in timings}
    needs = [n for e in estimates if (n := need(e, times.get(e.target))) is not None]
    if not needs:
        reason = "what the step needs is not known: it does not compile, or its batch has no rows"
        return [finding(9, "not_timed", reason=reason)], rate
    return [_judged(rate, one, node) for one in needs], rate


def need(estimate: Estimate, timing: Timing | None) -> Need | None:
    """Say how many rows a second a step takes in, from its time's range or its bound."""
    if estimate.rows is None:
        return None
    rows = estimate.rows * estimate.replicas
    if timing is None:  # faster than its bound no step can be, however much slower it is
        return Need(estimate.target, 0.0, rows / max(estimate.bound_ms, 1e-3) * 1e3, "least time")
    low, high = timing.low_ms, timing.high_ms
    return Need(estimate.target, rows / high * 1e3, rows / low * 1e3, "estimated time")


def _judged(rate: Rate, wanted: Need, node: bool) -> Item:
    tpu = hardware.slice_of(wanted.target, jax=True)
    low, high = rate.per_second * tpu.hosts, rate.per_core * tpu.hosts * tpu.host_vcpus
    vcpus = f"of {tpu.host_vcpus} vCPUs"
    host = f"{tpu.hosts} hosts {vcpus}" if tpu.hosts > 1 else f"{tpu.hosts} host {vcpus}"
    if node:
        low = high = rate.per_second
        host = "your own machine, which feeds a TPU Node"
    high = max(low, high)
    key, state = "between", WARN
    if low >= MARGIN * wanted.high:
        key, state = "keeps_up", PASS
    elif high * MARGIN < (wanted.low or wanted.high / SLOWER):
        key = "too_slow"
    about = {"needs": str(wanted), "gives": rate.said, "host": host, "target": wanted.target}
    slowest = rate.slowest
    stage = f"; the slowest stage is {slowest.said}" if slowest else ""
    about |= {"low": f"{low:,.0f}", "high": f"{high:,.0f}", "stage": stage}
    where = slowest.where if slowest and state == WARN else ""
    return finding(9, key, state=state, where=where, **about)


def measure(dataset: tf.data.Dataset, seconds: float = SECONDS) -> Rate:
    """Time a pipeline of batches and its stages, in wall-clock and in processor time.

    The dataset is read several times over, from its beginning, all stages together in so many
    ``seconds``. Other work of this process counts as the pipeline's.

    Raises:
        TooSlow: It did not give two batches within 20 seconds.
        PreflightError: It is empty, raises, or its batches have no common number of rows.
    """
    deadline = time.monotonic() + PATIENCE
    stages = list(_stages(dataset))
    each = seconds / (len(stages) + 2)
    rows = rows_of(x.shape for x in tf.nest.flatten(_first(dataset, deadline)))
    if rows is None:
        raise PreflightError(
            "The input pipeline could not be timed.",
            "The tensors of a batch have no common first size.",
            "Batch the dataset: every tensor's first dimension is the global batch.",
        )
    wall, processor = (x / rows for x in _seconds(dataset, 3 * each, deadline))
    found, before = [], (0.0, 0.0)
    for prefix, name, elements in stages:
        if prefix is not dataset and time.monotonic() < deadline:
            times = tuple(x * elements / rows for x in _seconds(prefix, each, deadline))
        else:
            times = (wall, processor)
        grown = (max(0.0, now - then) for now, then in zip(times, before, strict=True))
        found.append(Stage(name, _line(prefix), *(x * 1e6 for x in grown)))
        before = tuple(map(max, times, before))
    return Rate(1 / wall, 1 / max(processor, 1e-9), os.cpu_count() or 1, tuple(found))


def _stages(dataset: tf.data.Dataset) -> Iterator[tuple[tf.data.Dataset, str, float]]:
    """List prefixes of a pipeline from its source on, with their names and elements per batch."""
    chain, stage, elements = [], dataset, 1.0
    while True:
        name = type(stage).__name__.strip("_").removesuffix("Dataset").removesuffix("V2")
        chain.append((stage, name.lower(), elements))
        before = stage._inputs()
        if name == "Zip":  # enumerate: the numbers of a range beside the elements
            before = [one for one in before if not _is_range(one)]
        size = getattr(stage, "_batch_size", None)
        if "batch" in name.lower() and size is not None and "un" not in name.lower():
            elements *= int(size)
        elif name.lower() not in ONE_TO_ONE:
            break
        if len(before) != 1:
            break
        stage = before[0]
    # What only passes elements on is no stage of its own.
    passing = ("options", "model")
    kept = [one for one in chain if one[1] not in passing or one[0] is dataset]
    return reversed(kept)


def _is_range(stage: tf.data.Dataset) -> bool:
    """Whether these are the numbers of enumerate: TensorFlow wraps them, which hides the range."""
    wrapped = type(stage).__name__ in ("_VariantDataset", "_RangeDataset")
    return wrapped and stage.element_spec == tf.TensorSpec([], tf.int64)


def _line(stage: tf.data.Dataset) -> str:
    """The learner's line inside the stage's function, where there is one."""
    for function in stage._functions():
        for operation in function.function.graph.get_operations():
            made = operation.type != "Placeholder"  # an argument: made where map was called
            if made and (where := pipeline.made_at(operation)):
                return where
    return ""


def _first(dataset: tf.data.Dataset, deadline: float) -> object:
    return _within(lambda: next(iter(dataset), None), deadline)


def _seconds(dataset: tf.data.Dataset, budget: float, deadline: float) -> tuple[float, float]:
    """Time an element, in wall-clock and processor seconds; the first is not counted."""
    return _within(lambda: _timed(dataset, budget, deadline), deadline)


def _timed(dataset: tf.data.Dataset, budget: float, deadline: float) -> tuple[float, float]:
    elements = iter(dataset.repeat())
    next(elements)
    count, start, processor = 0, time.perf_counter(), time.process_time()
    while count < LEAST or time.perf_counter() - start < budget:
        next(elements)
        count += 1
        if time.monotonic() > deadline and count >= LEAST:
            break
    return (time.perf_counter() - start) / count, (time.process_time() - processor) / count


def _within(call: Callable[[], object], deadline: float) -> object:
    """Call, but no longer than the deadline: an element may never come."""
    why = "It is empty."
    try:
        if (result := within(max(1.0, deadline - time.monotonic()), call)) is not None:
            return result
    except TooLate:
        raise TooSlow(
            "The input pipeline is slow.",
            f"It did not give {LEAST + 1} elements within {PATIENCE:g} s.",
            "Time it by hand: next(iter(dataset)).",
        ) from None
    except Exception as error:  # whatever the learner's pipeline raises
        why = f"{type(error).__name__}: {error}"[:200]
    raise PreflightError(
        "The input pipeline could not be timed.", why, "Read it first: for batch in dataset."
    )
