"""Each sentence that the course has not confirmed on a TPU, tried on the one that is here.

``notebooks/data/unconfirmed.tsv`` names the function that tries a sentence. It gives a verdict on
the *claim* of that row, and what was seen.
"""

import dataclasses
import gc
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from packaging.version import Version

from helpers.base.errors import CourseError, cause
from helpers.base.settings import DRIVER
from helpers.base.text import without_paths
from helpers.confirm.machine import JAX, TENSORFLOW, Machine
from helpers.confirm.report import (
    CONFIRMED,
    NOT_APPLICABLE,
    REFUTED,
    Time,
    Verdict,
    unconfirmed,
)
from helpers.tpu.iterators import disable_autotuning

WITHIN = 0.15  # of a prediction


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a check may look at."""

    machine: Machine
    times: Mapping[str, Time]  # by program

    @property
    def uses_tensorflow(self) -> bool:
        """Whether the programs ran in TensorFlow."""
        return self.machine.framework == TENSORFLOW


Finding = tuple[str, str]  # a verdict, and what was seen
Check = Callable[[Trial], Finding]

OF_TENSORFLOW = NOT_APPLICABLE, "about TensorFlow, and JAX ran here"


def check_all(
    machine: Machine, times: tuple[Time, ...], judged: Mapping[str, str]
) -> tuple[Verdict, ...]:
    """Try each sentence; a check that fails itself says so, and its sentence stays open.

    ``judged`` has verdicts, by id, on sentences that no program can try.

    Raises `CourseError`: One of them is about another sentence, or no verdict.
    """
    # A slip in BY_HAND would otherwise judge nothing, without a word.
    asked = [sentence.id for sentence in unconfirmed() if sentence.check == "by_hand"]
    for name, verdict in judged.items():
        if name not in asked or verdict not in (CONFIRMED, REFUTED):
            raise CourseError(
                f"{name}: {verdict} can't be taken.",
                f"By hand you can judge {' and '.join(asked)}: {CONFIRMED} or {REFUTED}.",
                "Write BY_HAND like {'" + asked[0] + "': 'confirmed'}, or leave it empty.",
            )
    trial = Trial(machine, {time.program: time for time in times})
    findings: dict[str, Finding] = {}
    verdicts = []
    for sentence in unconfirmed():
        # Several sentences may share a check: it runs once.
        if sentence.check not in findings:
            findings[sentence.check] = _try(globals()[sentence.check], trial)
        verdict, evidence = findings[sentence.check]
        if sentence.id in judged:
            verdict = judged[sentence.id]
            evidence = "as the person says who ran this"
        verdicts.append(Verdict(sentence.id, verdict, evidence))
    return tuple(verdicts)


def _try(check: Check, trial: Trial) -> Finding:
    try:
        return check(trial)
    except Exception as error:  # a TPU's library raises what it likes
        return NOT_APPLICABLE, f"the check itself failed: {cause(error, without_paths)}"


def _judge(is_so: bool, evidence: str) -> Finding:
    return (CONFIRMED if is_so else REFUTED), evidence


def nothing_run(trial: Trial) -> Finding:
    """A real report refutes that nothing was run on a TPU."""
    if trial.machine.rehearsed:
        return NOT_APPLICABLE, "rehearsed on a CPU"
    return REFUTED, "this report"


def by_hand(trial: Trial) -> Finding:
    """Only whoever rented the TPU knows."""
    return NOT_APPLICABLE, "nobody said so by hand"


def v4_replicas(trial: Trial) -> Finding:
    """Count the devices of a v4-8."""
    accelerator = trial.machine.place.accelerator
    if trial.machine.rehearsed or accelerator is None or accelerator.name != "v4-8":
        return NOT_APPLICABLE, "no v4-8"
    devices = trial.machine.devices
    return _judge(devices == 4, f"{devices} devices")


def node(trial: Trial) -> Finding:
    """A TPU Node, if this is one, has trained the programs."""
    if trial.machine.rehearsed or trial.machine.place.kind != "node":
        return NOT_APPLICABLE, "no TPU Node"
    return same_lines(trial)


def pod_slice(trial: Trial) -> Finding:
    """One program for all hosts of a slice, if this is worker 0 of one."""
    if trial.machine.rehearsed or trial.machine.place.kind != "pod_slice":
        return NOT_APPLICABLE, "no slice of several hosts"
    if not trial.uses_tensorflow:
        return OF_TENSORFLOW
    return CONFIRMED, f"{trial.machine.devices} replicas from here"


def plugin(trial: Trial) -> Finding:
    """TensorFlow reached this TPU by the plug-in, or this kind needs none."""
    machine = trial.machine
    if machine.rehearsed or machine.chip not in ("v5e", "v5p", "v6e"):
        return NOT_APPLICABLE, "no v5e, v5p or v6e"
    if not trial.uses_tensorflow:
        return OF_TENSORFLOW
    return CONFIRMED, f"{machine.devices} replicas of a {machine.chip}"


def newer_libtpu(trial: Trial) -> Finding:
    """TensorFlow found this TPU: with a newer libtpu than the course installs?"""
    if trial.machine.rehearsed:
        return NOT_APPLICABLE, "no TPU"
    if not trial.uses_tensorflow:
        return OF_TENSORFLOW
    installed = trial.machine.versions.get("libtpu", "0")
    if Version(installed) <= Version(DRIVER.partition("==")[2]):
        return NOT_APPLICABLE, f"libtpu {installed} is not newer"
    return REFUTED, f"libtpu {installed} found the TPU"


def jax_alone(trial: Trial) -> Finding:
    """JAX found the TPU in this process."""
    if trial.machine.framework != JAX:
        return NOT_APPLICABLE, "about JAX, and TensorFlow ran here"
    if trial.machine.rehearsed:
        return NOT_APPLICABLE, "no TPU"
    return CONFIRMED, f"{trial.machine.devices} devices of a {trial.machine.chip}"


def tpu7x_clock(trial: Trial) -> Finding:
    """Compare a large product's time with what the compiler's cycles make at 2.2 GHz."""
    if trial.machine.rehearsed or trial.machine.chip != "tpu7x":
        return NOT_APPLICABLE, "no TPU7x"
    # A product of large matrices is the cycles of the compiler and little else.
    product = trial.times["product"]
    ratio = product.median_ms / product.predicted_ms
    return _judge(abs(ratio - 1) <= WITHIN, f"{ratio:.2f} times the prediction")


def _run(trial: Trial, function: Callable, *arguments: Any) -> list[Any]:
    """Run a function of TensorFlow once on the TPU; give the first replica's results as lists.

    A CPU compiles it with XLA, as `strategy.run` does on a TPU by itself.
    """
    import tensorflow as tf

    strategy = trial.machine.strategy
    step = tf.function(function, jit_compile=True) if trial.machine.rehearsed else function
    results = tf.function(lambda *tensors: strategy.run(step, args=tensors))(*arguments)
    values = []
    for result in tf.nest.flatten(results):
        values.append(strategy.experimental_local_results(result)[0].numpy().tolist())
    return values


def jit_compile(trial: Trial) -> Finding:
    """Leave `jit_compile=True` in, where the strategy compiles by itself.

    Functions for AutoGraph name no type of TensorFlow here: it looks for `tf` in vain.
    """
    if not trial.uses_tensorflow:
        return OF_TENSORFLOW
    import tensorflow as tf

    strategy = trial.machine.strategy

    @tf.function(jit_compile=True)
    def square(x: Any) -> Any:
        return x * x

    try:
        result = tf.function(lambda: strategy.run(square, args=(tf.constant(3.0),)))()
        value = float(strategy.experimental_local_results(result)[0])
    except Exception as error:
        return CONFIRMED, cause(error, without_paths)
    return _judge(value != 9.0, f"one small function gave {value:g}, 9 is right")


def same_lines(trial: Trial) -> Finding:
    """Train a small model on the TPU and on its host's CPU."""
    if not trial.uses_tensorflow:
        return OF_TENSORFLOW
    import tensorflow as tf

    host = tf.distribute.OneDeviceStrategy("/CPU:0")
    losses = _fit(trial.machine.strategy)
    expected = _fit(host)
    # A TPU multiplies in bfloat16, so the losses are near each other and not equal.
    is_same = abs(losses[-1] - expected[-1]) <= 0.02 * expected[-1]
    return _judge(is_same, f"loss {losses[-1]:.3f}, the CPU's {expected[-1]:.3f}")


def _fit(strategy: Any) -> list[float]:
    import numpy as np
    import tensorflow as tf

    # NumPy draws for both, so that both train on the same numbers.
    draw = np.random.default_rng(0).normal
    x = draw(size=[128, 8]).astype("float32")
    y = x.sum(1, keepdims=True)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64, drop_remainder=True)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=[8])])
        model.compile("sgd", "mse", steps_per_execution=2)
    # Both begin with the same weights.
    model.set_weights([np.zeros([8, 1]), np.zeros([1])])
    return model.fit(data, epochs=3, verbose=0).history["loss"]


def steps_per_call(trial: Trial) -> Finding:
    """Time a small step, one and ten for each call of Python."""
    if not trial.uses_tensorflow:
        return OF_TENSORFLOW
    import tensorflow as tf

    strategy = trial.machine.strategy
    with strategy.scope():
        # Small, so that most of a call is the part of Python.
        weights = tf.Variable(tf.zeros([128, 128]))

    def step() -> None:
        weights.assign(weights @ weights + 1e-3)

    @tf.function
    def steps(count: Any) -> Any:
        for _ in tf.range(count):
            strategy.run(step)
        return strategy.run(lambda: weights[0, 0])

    seconds = {}
    for count in (1, 10):
        # As many steps for both.
        calls = 100 // count
        # The first call compiles.
        steps(tf.constant(count))
        begin = time.perf_counter()
        for _ in range(calls):
            result = steps(tf.constant(count))
        # TensorFlow goes on before the device is done; to read a result is to wait for it.
        strategy.experimental_local_results(result)[0].numpy()
        seconds[count] = time.perf_counter() - begin
    gain = seconds[1] / seconds[10]
    # Less than a tenth is within the noise of a host.
    return _judge(gain >= 1.1, f"{gain:.2f} times as fast")


def resume(trial: Trial) -> Finding:
    """Save after two steps, restore into new variables, compare two steps later."""
    if not trial.uses_tensorflow:
        return OF_TENSORFLOW
    import tensorflow as tf

    strategy = trial.machine.strategy

    def new_weights() -> tf.Variable:
        with strategy.scope():
            return tf.Variable(tf.eye(64))

    def train(weights: tf.Variable, numbers: range) -> None:
        def step(number: Any) -> None:
            # The step's number is its seed, so a resumed step draws the same.
            noise = tf.random.stateless_normal([64, 64], tf.stack([number, 0]))
            weights.assign(0.9 * weights + 0.1 * tf.tanh(noise @ weights))

        run = tf.function(lambda number: strategy.run(step, args=(number,)))
        for number in numbers:
            run(tf.constant(number))

    weights = new_weights()
    restored = new_weights()
    with tempfile.TemporaryDirectory() as folder:
        train(weights, range(2))
        path = tf.train.Checkpoint(weights=weights).save(str(pathlib.Path(folder, "step")))
        train(weights, range(2, 4))
        # Nothing but the checkpoint leads from one to the other.
        tf.train.Checkpoint(weights=restored).restore(path).assert_consumed()
        train(restored, range(2, 4))
    is_same = bool((weights.numpy() == restored.numpy()).all())
    return _judge(is_same, "a small model, four steps, broken off after two")


def bucketizing(trial: Trial) -> Finding:
    """Time batches of 5, 6 and 7 rows: the first alone should be compiled."""
    if not trial.uses_tensorflow:
        return OF_TENSORFLOW
    import tensorflow as tf

    strategy = trial.machine.strategy
    options = tf.distribute.RunOptions(experimental_bucketizing_dynamic_shape=True)

    @tf.function(input_signature=[tf.TensorSpec([None, 128])])
    def total(rows: Any) -> Any:
        return strategy.run(tf.reduce_sum, args=(rows,), options=options)

    seconds = []
    # All three are rounded up to 8 rows.
    for count in (5, 6, 7):
        begin = time.perf_counter()
        result = strategy.experimental_local_results(total(tf.ones([count, 128])))[0]
        # The rows that fill the bucket up must not count.
        if float(result) != count * 128:
            return REFUTED, f"{count} rows of ones gave {float(result):g}"
        seconds.append(time.perf_counter() - begin)
    text = ", ".join(f"{value:.3f}" for value in seconds)
    # Compiling takes far longer than this sum.
    return _judge(max(seconds[1:]) < seconds[0] / 2, f"5, 6 and 7 rows took {text} s")


def silent_answers(trial: Trial) -> Finding:
    """Ask for three rows of the appendix's table."""
    if not trial.uses_tensorflow:
        return OF_TENSORFLOW
    import tensorflow as tf

    def answers(table: Any, ids: Any, a: Any, b: Any, x: Any) -> tuple:
        return tf.gather(table, ids), a // b, tf.cast(x, tf.int32)

    values = _run(
        trial,
        answers,
        tf.constant([10, 20, 30]),
        tf.constant([0, 7]),
        tf.constant([7, 8]),
        tf.constant([0, 2]),
        tf.constant([float("nan"), 1e10]),
    )
    # TensorFlow on a CPU raises at the first two, when no XLA is asked.
    expected = [[10, 30], [-1, 4], [0, 2**31 - 1]]
    return _judge(values == expected, f"gather, division, cast: {values}")


def iterators(trial: Trial) -> Finding:
    """Use an iterator under the strategy, and time how long it takes to go away."""
    if not trial.uses_tensorflow:
        return OF_TENSORFLOW
    import tensorflow as tf

    if not disable_autotuning():
        return NOT_APPLICABLE, "this TensorFlow has no such method"
    data = tf.data.Dataset.range(10_000).map(lambda x: x + 1).batch(64, drop_remainder=True)
    iterator = iter(trial.machine.strategy.experimental_distribute_dataset(data.prefetch(2)))
    for _ in range(20):
        next(iterator)
    # What waits in notebook 05 is the end of an iterator, not its use.
    begin = time.perf_counter()
    del iterator
    gc.collect()
    seconds = time.perf_counter() - begin
    return _judge(seconds < 2, f"{seconds:.1f} s")


def small_integers(trial: Trial) -> Finding:
    """Add whole numbers of 8 and of 16 bits."""
    if not trial.uses_tensorflow:
        return OF_TENSORFLOW
    import tensorflow as tf

    values = []
    for dtype in (tf.int8, tf.uint8, tf.int16, tf.uint16):
        numbers = tf.constant([1, 2], dtype)
        try:
            values += _run(trial, lambda x: x + x, numbers)
        # A type that the compiler refuses is an answer as well.
        except Exception as error:
            return REFUTED, f"{dtype.name}: {cause(error, without_paths)}"
    return _judge(values == [[2, 4]] * 4, f"1 + 1 and 2 + 2: {values}")
