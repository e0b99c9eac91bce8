"""Numbers as on a TPU, on this CPU: matrix products of bfloat16 numbers, added up in float32.

A TPU multiplies so by default, in programs of float32, too: "matrix multiplication operations with
bfloat16 values and accumulations with IEEE float32 values", rounded to nearest, ties to even
(https://cloud.google.com/tpu/docs/bfloat16; https://docs.jax.dev/en/latest/201/precision.html;
2026-11). Here both operands of every such product are rounded in TensorFlow's own program, and jax
runs it, in a process of its own (`numerics_child`).

That is one pass, the default. TensorFlow asks for more passes after
``tf.config.experimental.enable_tensor_float_32_execution(False)``; such products are left alone.
What else a TPU computes in its own way (exponentials, the order of a sum) is not imitated, and
nothing here was compared with a TPU.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from helpers.base.errors import CourseError
from helpers.xla.numerics_child import pack, unpack
from tpu_preflight.compiler.process import child, failure
from tpu_preflight.processes import NoAnswer
from tpu_preflight.program import Tracing, program, trace
from tpu_preflight.shown import Shown, Table
from tpu_preflight.text import steady

HONEST = "One pass, the default precision, imitated on this CPU; not confirmed on a TPU."
TIMEOUT = 600.0  # seconds


@dataclasses.dataclass(frozen=True)
class Value:
    """One result, computed both ways."""

    name: str  # ``result``, or ``result 0`` and so on
    shape: str  # type and shape as XLA writes them: ``f32[8,128]``
    exact: np.ndarray = dataclasses.field(repr=False)  # with float32 products
    rounded: np.ndarray = dataclasses.field(repr=False)  # with a TPU's

    @property
    def share(self) -> float:
        """Norm of the difference as a share of the value's: 0.01 is one percent."""
        return together([self])


@dataclasses.dataclass(frozen=True, repr=False)
class Numbers(Shown):
    """The results of one run, with float32 products and with a TPU's."""

    name: str  # the function's name
    products: int  # matrix products that are rounded; one in a loop counts once
    precise: int  # products that ask for more passes, left alone
    results: tuple[Value, ...]  # what the function returned, flat

    @property
    def summary(self) -> str:
        """One line: how much was rounded."""
        products = f"{self.products} product{'s' * (self.products != 1)}"
        more = f"; {self.precise} that ask for more precision are not" if self.precise else ""
        return f"{self.name}: the operands of {products} are rounded{more}"

    def blocks(self) -> Iterator[Any]:
        """Give its parts in order; see `Shown`."""
        yield self.summary
        rows = []
        for value in self.results:
            both = _where_most(value)
            row = {"": value.name, "shape": value.shape, "float32 products": both[0]}
            rows.append(row | {"a TPU's products": both[1], "apart": _percent(value.share)})
        yield Table(rows)
        yield HONEST


def compare(fn: Callable, *arguments: Any) -> Numbers:
    """Run a function of tensors, or a Keras model, with float32 products and with a TPU's.

    Its arguments are tensors or arrays, or nests of them. Variables that it changes keep their
    values.

    Raises:
        NotCompilable: TensorFlow or XLA refuses the function.
        CourseError: jax can't run the program.
    """
    import tensorflow as tf

    traced = trace(fn, *arguments)
    made = program(traced)
    given = [np.asarray(x) for x in tf.nest.flatten(arguments)]
    kinds, data = pack([*given, *_captured(traced)])
    try:
        with contextlib.closing(child("helpers.xla.numerics_child")) as process:
            job = {"program": len(made.hlo), "kinds": kinds}
            told, values = process.ask(job, made.hlo + data, timeout=TIMEOUT)
    except NoAnswer as error:
        _, message = failure(error, "run with a TPU's numbers", TIMEOUT, None)
        told = {"verdict": "failed", "message": message}
    if told["verdict"] != "ran":
        raise CourseError(
            f"{made.name} could not be run with a TPU's numbers.",
            steady(told["message"].partition("\n")[0])[:300],
            "Look at the operation that the line names; a part of the step may run without it.",
        )
    arrays = unpack(told["kinds"], values)
    exact, rounded = arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :]
    shapes = made.results[: len(made.results) - len(made.donated)]  # the rest: changed variables
    names = [f"result {i}" for i in range(len(shapes))] if len(shapes) > 1 else ["result"]
    results = tuple(map(Value, names, shapes, exact, rounded))
    return Numbers(made.name, told["rounded"], told["precise"], results)


def together(values: Iterable[Value]) -> float:
    """How far values are apart, taken together as one vector, as a share of its length."""
    pairs = [
        (np.linalg.norm(np.ravel(v.exact - v.rounded)), np.linalg.norm(np.ravel(v.exact)))
        for v in values
    ]
    apart, norm = (math.hypot(*column) for column in zip(*pairs, strict=True))
    return apart / norm if apart else 0.0


def _captured(traced: Tracing) -> Iterator[np.ndarray]:
    """Read the variables and other tensors that a program takes after its arguments."""
    import tensorflow as tf

    for captured in traced.concrete.captured_inputs:
        if captured.dtype == tf.resource:
            kind = captured._handle_data.shape_and_type[0].dtype
            captured = tf.raw_ops.ReadVariableOp(resource=captured, dtype=kind)
        yield captured.numpy()


def _percent(share: float) -> str:
    return f"{share * 100:.2g}%" if share else "0"


def _where_most(value: Value) -> tuple[str, str]:
    """Write both numbers where they differ most."""
    distance = np.abs(value.exact.astype(np.complex128) - value.rounded)
    at = np.unravel_index(np.nan_to_num(distance).argmax(), distance.shape)
    where = f"[{', '.join(map(str, at))}] " if at else ""
    exact, rounded = (f"{where}{x[at]:.5g}" for x in (value.exact, value.rounded))
    return exact, rounded
