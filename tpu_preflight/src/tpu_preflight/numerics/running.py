"""Running a function twice, with float32 products and with a TPU's, in the process of `child`."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tpu_preflight.compiler.process import child, failure, versions
from tpu_preflight.compiler.walking import sizes
from tpu_preflight.errors import PreflightError
from tpu_preflight.numerics.child import KEPT, pack, unpack
from tpu_preflight.numerics.results import Numbers, Value
from tpu_preflight.processes import NoAnswer
from tpu_preflight.program import Program, Tracing, program, trace
from tpu_preflight.text import steady

TIMEOUT = 600.0  # seconds for all steps together


class NotRun(PreflightError):
    """A program that TensorFlow wrote did not run in jax, so there are no numbers."""


def compare(fn: Callable, *arguments: Any) -> Numbers:
    """Run a function of tensors, or a Keras model, with float32 products and with a TPU's.

    Its arguments are tensors or arrays, or nests of them. Variables that it changes keep their
    values; the changes are compared.

    Raises:
        NotCompilable: TensorFlow or XLA refuses the function.
        NotRun: jax can't run the program, or is not installed.
    """
    import tensorflow as tf

    return compare_batches(trace(fn, *arguments), [tf.nest.flatten(arguments)])[0]


def compare_batches(
    traced: Tracing, batches: Sequence[Sequence[Any]], *, reset: Iterable[Any] = ()
) -> list[Numbers]:
    """Compare a traced function on several batches, each from the same values of the variables.

    It was traced with one replica; the batches are tensors or arrays, flat, as its specs say.
    Variables of ``reset``, a model's metrics, begin with zeros, whatever they hold.

    Raises:
        NotCompilable, NotRun: As for `compare`.
    """
    if "jax" not in versions():
        raise NotRun(
            "There are no numbers without jax.",
            "It is not installed, and it runs TensorFlow's program with a TPU's products.",
            "Install it: python -m pip install 'tpu-preflight[jax]'",
        )
    made, state = program(traced), _values(traced, reset)
    kinds, data = pack([*state, *(np.asarray(x) for batch in batches for x in batch)])
    about = {"program": len(made.hlo), "donated": made.donated}
    job = about | {"state": len(state), "batches": len(batches), "kinds": kinds}
    try:
        with contextlib.closing(child(f"{__package__}.child")) as process:
            told, values = process.ask(job, made.hlo + data, timeout=TIMEOUT)
    except NoAnswer as error:
        verdict, message = failure(error, "run with a TPU's numbers", TIMEOUT, None)
        told = {"verdict": verdict, "message": message}
    if told["verdict"] != "ran":
        raise NotRun(
            f"{made.name} could not be run with a TPU's numbers.",
            steady(told["message"].removeprefix("RefusedError: ").partition("\n")[0])[:300],
            "Look at the operation that the line names; a part of the step may run without it.",
        )
    arrays = iter(unpack(told["kinds"], values))
    return [_numbers(made, told["counts"], measured, arrays) for measured in told["steps"]]


def _values(traced: Tracing, reset: Iterable[Any]) -> list[np.ndarray]:
    """Read what a program takes after its arguments: zeros for the variables of ``reset``."""
    import tensorflow as tf

    # Keras 3's own variables hold TensorFlow's.
    handles = {id((v if hasattr(v, "handle") else v.value).handle) for v in reset}
    found = []
    for captured in traced.concrete.captured_inputs:
        value = captured
        if captured.dtype == tf.resource:
            kind = captured._handle_data.shape_and_type[0].dtype
            value = tf.raw_ops.ReadVariableOp(resource=captured, dtype=kind)
        value = value.numpy()
        found.append(np.zeros_like(value) if id(captured) in handles else value)
    return found


def _numbers(
    made: Program, counts: list[int], measured: list[Any], arrays: Iterator[np.ndarray]
) -> Numbers:
    """Name what the child tells of one batch."""
    count = len(made.results) - len(made.donated)  # the others are changed variables
    results = []
    for i, shape in enumerate(made.results[:count]):
        name = f"result {i}" if count > 1 else "result"
        small = math.prod(sizes(shape)) <= KEPT
        both = (next(arrays), next(arrays)) if small else ()
        results.append(Value(name, shape, *measured[i], *both))
    updates = [
        Value(made.parameters[at].name, made.parameters[at].shape, *told)
        for at, told in zip(made.donated, measured[count:], strict=True)
        # Whole numbers count something: their change is no matter of rounding.
        if made.parameters[at].shape[0] not in "sup"
    ]
    return Numbers(made.name, *counts, tuple(results), tuple(updates))
