"""Running a function twice, with float32 products and with a TPU's, in the process of `child`."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from helpers.base.errors import CourseError
from helpers.base.messages import steady
from helpers.xla.numerics.child import pack, unpack
from helpers.xla.numerics.results import Numbers, Training, Value
from helpers.xla.program import Program, Tracing, program, trace
from helpers.xla.tpu_compiler.process import Process, versions

TIMEOUT = 600.0  # seconds for all steps together

Arrays = list[np.ndarray]


class NotRun(CourseError):
    """A program that TensorFlow wrote did not run in jax, so there are no numbers."""


@dataclasses.dataclass(frozen=True)
class _Run:
    """A training to do: its program, first values, and the batch of each step."""

    program: Program
    values: Arrays
    order: Sequence[int]
    is_rounded: bool = False


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
    made, order = program(traced), range(len(batches))
    _, values = _reset(traced, reset)
    runs = [_Run(made, values, order, is_rounded) for is_rounded in (False, True)]
    told, arrays = _ask(runs, batches)
    return [_numbers(made, told, step, arrays) for step in told["steps"]]


def train(
    step: Callable,
    batches: Iterable[Any],
    *,
    steps: int | None = None,
    other: Callable | None = None,
) -> Training:
    """Train with float32 products and with a TPU's, from the same start on the same batches.

    Nothing is changed: the variables keep their values.

    Args:
        step: Takes one batch, changes variables, and returns the loss, or a nest whose first
            number is the loss.
        batches: Batches of the same shapes.
        steps: How many; with more than there are batches these come again. Each once when None.
        other: The same step of a model that begins with other weights, for the difference that a
            seed makes. Without it the other seed is another order of the batches.

    Raises:
        CourseError: There are no batches, or the step returns no number or changes no variable.
        NotCompilable: TensorFlow or XLA refuses the step.
        NotRun: jax can't run the program, or is not installed.
    """
    batches = list(batches)
    if not batches:
        raise CourseError(
            "There are no batches.", "A training needs at least one.", "Hand in a list of batches."
        )
    traced = trace(step, batches[0])
    beside = trace(other, batches[0]) if other is not None else None
    return train_traced(traced, [_flat(batch) for batch in batches], steps, other=beside)


def train_traced(
    traced: Tracing,
    batches: Sequence[Sequence[Any]],
    steps: int | None = None,
    *,
    other: Tracing | None = None,
    reset: Iterable[Any] = (),
) -> Training:
    """Train as `train` does, with a step traced with one replica and flat batches.

    Variables of ``reset`` begin each step with zeros: a model's metrics, whose loss would be the
    mean of all steps so far.
    """
    made, count = program(traced), len(batches)
    if not (scalars := [i for i, shape in enumerate(_kept(made)) if _is_loss(shape)]):
        raise CourseError(
            f"{traced.name} returns no loss.",
            f"It returns {', '.join(_kept(made)) or 'nothing'}.",
            "Let it return the loss, one number.",
        )
    if not made.donated:
        raise CourseError(
            f"{traced.name} trains nothing.",
            "It changes no variable.",
            "Compare a single step: numerics.compare.",
        )
    order = [i % count for i in range(steps or count)]
    fixed, values = _reset(traced, reset)
    beside = _Run(made, values, np.random.default_rng(0).permutation(order).tolist())
    if other is not None:
        beside = _Run(program(other), _values(other), order)
    runs = [_Run(made, values, order), _Run(made, values, order, True), beside]
    told, arrays = _ask(runs, batches, fixed, carry=True)
    curves = [[] for _ in runs]
    for step in told["steps"]:
        for curve, kept in zip(curves, step["kept"], strict=True):
            found = dict(zip(kept, (next(arrays) for _ in kept), strict=True))
            curve.append(float(found[scalars[0]]))
    seed = "the order of the batches" if other is None else "the weights"
    return Training(traced.name, *map(tuple, curves), seed, told["counts"][0])


def _flat(nest: Any) -> list[Any]:
    import tensorflow as tf

    return tf.nest.flatten(nest)


def _is_loss(shape: str) -> bool:
    return shape.endswith("[]") and shape.startswith(("f", "bf"))


def _kept(made: Program) -> tuple[str, ...]:
    """The results without the changed variables."""
    return made.results[: len(made.results) - len(made.donated)]


def _values(traced: Tracing) -> Arrays:
    """Read the variables and other tensors that a program takes after its arguments."""
    import tensorflow as tf

    found = []
    for captured in traced.concrete.captured_inputs:
        if captured.dtype == tf.resource:
            kind = captured._handle_data.shape_and_type[0].dtype
            captured = tf.raw_ops.ReadVariableOp(resource=captured, dtype=kind)
        found.append(captured.numpy())
    return found


def _reset(traced: Tracing, variables: Iterable[Any]) -> tuple[list[int], Arrays]:
    """Find where some variables are among a program's values, and begin them with zeros."""
    # Keras 3's own variables hold TensorFlow's.
    handles = {id((v if hasattr(v, "handle") else v.value).handle) for v in variables}
    values = _values(traced)
    fixed = [i for i, x in enumerate(traced.concrete.captured_inputs) if id(x) in handles]
    for i in fixed:
        values[i] = np.zeros_like(values[i])
    return fixed, values


def _ask(
    runs: Sequence[_Run],
    batches: Sequence[Sequence[Any]],
    fixed: Iterable[int] = (),
    carry: bool = False,
) -> tuple[dict[str, Any], Any]:
    """Let the child run; gives what it tells, and an iterator over the arrays."""
    if "jax" not in versions():
        raise NotRun(
            "There are no numbers without jax.",
            "It is not installed, and it runs TensorFlow's program with a TPU's products.",
            "Install the course with its extra: python -m pip install -e '.[preflight]'",
        )
    programs = list({id(run.program): run.program for run in runs}.values())
    flat = [np.asarray(x) for batch in batches for x in batch]
    kinds, data = pack([*flat, *(x for run in runs for x in run.values)])
    job = {
        "programs": [(len(p.hlo), p.donated) for p in programs],
        "kinds": kinds,
        "batches": [len(batch) for batch in batches],
        "runs": [
            (programs.index(r.program), r.is_rounded, list(r.order), len(r.values)) for r in runs
        ],
        "fixed": list(fixed),
        "carry": carry,
    }
    process = Process("helpers.xla.numerics.child", "run with a TPU's numbers")
    try:
        data = b"".join(p.hlo for p in programs) + data
        told, values = process.ask(job, data, TIMEOUT, None)
    finally:
        process.stop()
    if told["verdict"] != "ran":
        raise NotRun(
            f"{runs[0].program.name} could not be run with a TPU's numbers.",
            steady(told["message"].removeprefix("RefusedError: ").partition("\n")[0])[:300],
            "Look at the operation that the line names; a part of the step may run without it.",
        )
    return told, iter(unpack(told["kinds"], values))


def _numbers(made: Program, told: dict[str, Any], step: dict[str, Any], arrays: Any) -> Numbers:
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
