"""Running a function twice, with float32 products and with a TPU's, in the process of `child`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tpu_preflight.compiler.process import Process, versions
from tpu_preflight.errors import PreflightError
from tpu_preflight.numerics.child import pack, unpack
from tpu_preflight.numerics.results import Numbers, Value
from tpu_preflight.program import Program, Tracing, program, trace
from tpu_preflight.text import steady

TIMEOUT = 600.0  # seconds for all steps together

Arrays = list[np.ndarray]


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
    return compare_batches(trace(fn, *arguments), [_flat(arguments)])[0]


def compare_batches(
    traced: Tracing, batches: Sequence[Sequence[Any]], *, reset: Iterable[Any] = ()
) -> list[Numbers]:
    """Compare a traced function on several batches, each from the same values of the variables.

    It was traced with one replica; the batches are tensors or arrays, flat, as its specs say.
    Variables of ``reset``, a model's metrics, begin with zeros, whatever they hold.

    Raises:
        NotCompilable, NotRun: As for `compare`.
    """
    made = program(traced)
    told, arrays = _ask(made, _values(traced, reset), batches)
    return [_numbers(made, told, step, arrays) for step in told["steps"]]


def _flat(nest: Any) -> list[Any]:
    import tensorflow as tf

    return tf.nest.flatten(nest)


def _kept(made: Program) -> tuple[str, ...]:
    """The results without the changed variables."""
    return made.results[: len(made.results) - len(made.donated)]


def _values(traced: Tracing, reset: Iterable[Any]) -> Arrays:
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


def _ask(
    made: Program, state: Arrays, batches: Sequence[Sequence[Any]]
) -> tuple[dict[str, Any], Iterator[np.ndarray]]:
    """Let the child run; gives what it tells, and the arrays."""
    if "jax" not in versions():
        raise NotRun(
            "There are no numbers without jax.",
            "It is not installed, and it runs TensorFlow's program with a TPU's products.",
            "Install it: python -m pip install 'tpu-preflight[jax]'",
        )
    kinds, data = pack([*state, *(np.asarray(x) for batch in batches for x in batch)])
    about = {"program": len(made.hlo), "donated": made.donated}
    job = about | {"state": len(state), "batches": len(batches), "kinds": kinds}
    process = Process(f"{__package__}.child", "run with a TPU's numbers")
    try:
        told, values = process.ask(job, made.hlo + data, TIMEOUT, None)
    finally:
        process.stop()
    if told["verdict"] != "ran":
        raise NotRun(
            f"{made.name} could not be run with a TPU's numbers.",
            steady(told["message"].removeprefix("RefusedError: ").partition("\n")[0])[:300],
            "Look at the operation that the line names; a part of the step may run without it.",
        )
    return told, iter(unpack(told["kinds"], values))


def _numbers(
    made: Program, told: dict[str, Any], step: dict[str, Any], arrays: Iterator
) -> Numbers:
    """Name what the child tells of one batch."""
    exact, rounded = ({i: next(arrays) for i in kept} for kept in step["kept"])
    shapes = _kept(made)
    results = tuple(
        Value(
            f"result {i}" if len(shapes) > 1 else "result",
            shape,
            *step["results"][i],
            exact.get(i),
            rounded.get(i),
        )
        for i, shape in enumerate(shapes)
    )
    changed = [made.parameters[i] for i in made.donated]
    updates = tuple(
        Value(variable.name, variable.shape, *measured)
        for variable, measured in zip(changed, step["updates"], strict=True)
        if measured is not None
    )
    return Numbers(made.name, *told["counts"], results, updates)
