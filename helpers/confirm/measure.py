"""What a step takes, by the host's clock and the device's own memory counter."""

import contextlib
import math
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from helpers.confirm import programs
from helpers.confirm.machine import JAX, Machine
from helpers.confirm.programs import Array, Program
from helpers.confirm.report import Prediction, Time, predictions_of

MEASUREMENTS = 10
STEPS = 10  # of a measurement: the host's own time is a small part of it
SMALLER = 32  # a rehearsal divides each side by it


def measure_all(machine: Machine, profiles: str = "") -> tuple[Time, ...]:
    """Measure each program; with a folder, keep a profile of each there."""
    predictions = predictions_of(machine.chip)
    times = []
    for program in in_order_of_memory(machine.chip):
        times.append(measure(machine, program, predictions[program.name], profiles))
    return tuple(times)


def in_order_of_memory(chip: str) -> list[Program]:
    """Sort the programs: a device's counter only rises, so the smallest comes first."""
    predictions = predictions_of(chip)
    return sorted(programs.PROGRAMS, key=lambda program: predictions[program.name].peak_bytes)


def measure(machine: Machine, program: Program, prediction: Prediction, profiles: str = "") -> Time:
    """Measure a program ten times, ten steps each, after one that compiles it."""
    # A CPU would take minutes for the sizes of a TPU.
    if machine.rehearsed:
        program = program.smaller(SMALLER)
    if machine.framework == JAX:
        call = _call_of_jax(program)
    else:
        call = _call_of_tensorflow(program, machine.strategy)
    steps_ms = _timed(call)
    if profiles:  # of one more call, as a profiler takes time itself
        with _profiler(machine, str(pathlib.Path(profiles, program.name))):
            call()
    if machine.rehearsed:
        peak_bytes = _fake_peak_bytes(program)
        counter = "fake"
    else:
        peak_bytes = _peak_bytes(machine)
        counter = "none" if peak_bytes is None else "device"
    return Time(
        program=program.name,
        steps_ms=steps_ms,
        predicted_ms=prediction.ms,
        peak_bytes=peak_bytes,
        predicted_bytes=prediction.peak_bytes,
        counter=counter,
    )


def _timed(call: Callable[[], None]) -> tuple[float, ...]:
    """Time calls that make some steps and wait for the last; not the first, which compiles."""
    call()
    steps_ms = []
    for _ in range(MEASUREMENTS):
        begin = time.perf_counter()
        call()
        steps_ms.append((time.perf_counter() - begin) / STEPS * 1e3)
    return tuple(steps_ms)


def _profiler(machine: Machine, folder: str) -> contextlib.AbstractContextManager:
    if machine.framework == JAX:
        import jax

        return jax.profiler.trace(folder)
    import tensorflow as tf

    return tf.profiler.experimental.Profile(folder)


def _call_of_jax(program: Program) -> Callable[[], None]:
    import jax
    import jax.numpy as jnp

    ops = programs.jax_operations()

    def fill(arrays: Sequence[Array]) -> tuple:
        return tuple(jnp.full(array.shape, array.value, array.dtype) for array in arrays)

    def step(state: tuple, constants: tuple) -> tuple:
        return program.function(ops, *state, *constants)

    # The next state takes the memory of the one before.
    compiled = jax.jit(step, donate_argnums=0)
    state = fill(program.state)
    constants = fill(program.constants)

    def call() -> None:
        nonlocal state
        for _ in range(STEPS):  # JAX goes on without waiting, so the device is never idle
            state = compiled(state, constants)
        jax.block_until_ready(state)

    return call


def _call_of_tensorflow(program: Program, strategy: Any) -> Callable[[], None]:
    import tensorflow as tf

    ops = programs.tensorflow_operations()

    def fill(arrays: Sequence[Array]) -> list[tf.Variable]:
        # Variables: XLA could compute with constants while it compiles.
        variables = []
        for array in arrays:
            value = tf.fill(array.shape, tf.cast(array.value, array.dtype))
            variables.append(tf.Variable(value, trainable=False))
        return variables

    with strategy.scope():
        state = fill(program.state)
        constants = fill(program.constants)

    def step() -> None:
        tensors = [tf.convert_to_tensor(variable) for variable in (*state, *constants)]
        for variable, value in zip(state, program.function(ops, *tensors), strict=True):
            variable.assign(value)

    # One number is enough to wait for, and quick to fetch.
    def first_number() -> Any:
        return tf.reshape(state[0], [-1])[0]

    @tf.function
    def steps() -> Any:
        for _ in tf.range(STEPS):  # on the host, which isn't asked by Python in between
            strategy.run(step)
        return strategy.run(first_number)

    def call() -> None:
        for value in strategy.experimental_local_results(steps()):
            value.numpy()  # waits for the last step

    return call


def _peak_bytes(machine: Machine) -> int | None:
    """Read the device's own counter: the most bytes in use since it was started."""
    # All devices do the same, so the first one is read.
    if machine.framework == JAX:
        import jax

        statistics = jax.devices()[0].memory_stats() or {}
        return statistics.get("peak_bytes_in_use")
    import tensorflow as tf

    try:
        return tf.config.experimental.get_memory_info("TPU:0")["peak"]
    except (ValueError, KeyError, tf.errors.OpError):  # this build has no counter
        return None


def _fake_peak_bytes(program: Program) -> int:
    """Stand in for a TPU's counter, which a CPU doesn't have: the sizes of the arguments."""
    # No claim about memory: with it a rehearsal goes the way of a real run.
    total_bytes = 0
    for array in (*program.state, *program.constants):
        size = 2 if array.dtype == "bfloat16" else 4
        total_bytes += size * math.prod(array.shape)
    return total_bytes
