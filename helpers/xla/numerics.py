"""Numbers as on a TPU, on this CPU: matrix products of bfloat16 numbers, added up in float32.

A TPU multiplies so by default, in programs of float32, too: "matrix multiplication operations with
bfloat16 values and accumulations with IEEE float32 values", rounded to nearest, ties to even
(https://cloud.google.com/tpu/docs/bfloat16; https://docs.jax.dev/en/latest/201/precision.html;
2026-11). Here both operands of every such product are rounded in TensorFlow's own program, and jax
runs it, in a process of its own: two copies of XLA in one are one too many.

That is one pass, the default. TensorFlow asks for more passes after
``tf.config.experimental.enable_tensor_float_32_execution(False)``; such products are left alone.
What else a TPU computes in its own way (exponentials, the order of a sum) is not imitated, and
nothing here was compared with a TPU.
"""

import dataclasses
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from helpers.base.errors import CourseError
from tpu_preflight.compiler.child import Compiler, RefusedError
from tpu_preflight.compiler.process import CHILD_ENVIRONMENT
from tpu_preflight.program import Tracing, program, trace
from tpu_preflight.shown import Shown, Table
from tpu_preflight.text import steady

PRODUCTS = ("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution")

# Exponent and mantissa of bfloat16: https://openxla.org/stablehlo/spec#reduce_precision rounds to
# nearest, ties to even. (A cast to bfloat16 and back is what XLA may leave out.)
EXPONENT_BITS, MANTISSA_BITS = 8, 7


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
            share = f"{value.share * 100:.2g}%" if value.share else "0"
            rows.append(row | {"a TPU's products": both[1], "apart": share})
        yield Table(rows)
        yield "One pass, the default precision, imitated on this CPU; not confirmed on a TPU."


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
    spawn = multiprocessing.get_context("spawn")  # a fork of TensorFlow may hang
    try:
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            job = pool.submit(_run_both, made.hlo, [*given, *_captured(traced)])
            exact, rounded, products, precise = job.result()
    except Exception as error:  # whatever jax raises, or the end of its process
        raise CourseError(
            f"{made.name} could not be run with a TPU's numbers.",
            steady(str(error).partition("\n")[0])[:300],
            "Look at the operation that the line names; a part of the step may run without it.",
        ) from error
    shapes = made.results[: len(made.results) - len(made.donated)]  # the rest: changed variables
    names = [f"result {i}" for i in range(len(shapes))] if len(shapes) > 1 else ["result"]
    results = tuple(map(Value, names, shapes, exact, rounded))
    return Numbers(made.name, products, precise, results)


def together(values: Iterable[Value]) -> float:
    """How far values are apart, taken together as one vector, as a share of its length."""
    pairs = [(v.exact.ravel(), v.rounded.ravel()) for v in values]
    exact, rounded = map(np.concatenate, zip(*pairs, strict=True))
    apart = np.linalg.norm(exact - rounded)
    return float(apart / np.linalg.norm(exact)) if apart else 0.0


def _captured(traced: Tracing) -> Iterator[np.ndarray]:
    """Read the variables and other tensors that a program takes after its arguments."""
    import tensorflow as tf

    for captured in traced.concrete.captured_inputs:
        if captured.dtype == tf.resource:
            kind = captured._handle_data.shape_and_type[0].dtype
            captured = tf.raw_ops.ReadVariableOp(resource=captured, dtype=kind)
        yield captured.numpy()


def _where_most(value: Value) -> tuple[str, str]:
    """Write both numbers where they differ most."""
    distance = np.abs(value.exact.astype(np.complex128) - value.rounded)
    at = np.unravel_index(np.nan_to_num(distance).argmax(), distance.shape)
    where = f"[{', '.join(map(str, at))}] " if at else ""
    return f"{where}{value.exact[at]:.5g}", f"{where}{value.rounded[at]:.5g}"


# --- in jax's process


def _run_both(hlo: bytes, arrays: list[np.ndarray]) -> tuple[list, list, int, int]:
    """Run TensorFlow's program with float32 products and with a TPU's.

    Gives the results of both, and how many products are rounded, and left alone.
    """
    os.environ.update(CHILD_ENVIRONMENT)
    try:
        runner = _Runner()
        module = runner._stablehlo(hlo)
        exact = runner.run(module, arrays)
        return exact, runner.run(module, arrays, runner.round), runner.rounded, runner.precise
    except Exception as error:  # jax's own can't be read where jax is not imported
        raise RuntimeError(f"{type(error).__name__}: {error}") from None


class _Runner(Compiler):
    """Translates TensorFlow's module as the TPU's compiler's process does, and runs it by jax."""

    rounded = precise = 0  # products

    def run(self, program: bytes, arrays: list, *changes: Callable[[Any], None]) -> list:
        """Run a module of StableHLO on this CPU, after some changes."""
        module, inputs, results = self._read(program, self._translate, self._prepare, *changes)
        shapes = [self._jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs]
        run = self._jax.jit(self._calling(module, results), keep_unused=True)
        return [np.asarray(x) for x in run.lower(*shapes).compile()(*arrays)]

    def _prepare(self, module: Any) -> None:
        """Drop what nothing calls (bodies of loops lie beside the main function, too)."""
        from jax.extend.mlir import passmanager

        passmanager.PassManager.parse("builtin.module(symbol-dce)").run(module.operation)
        # Each program that XLA compiles has a seed of its own.
        if any(found.name == "stablehlo.rng" for found in self._operations(module.operation)):
            raise RefusedError("It draws random numbers, which would differ between the two runs.")
        self._strip(module)

    def round(self, module: Any) -> None:
        """Round the float32 operands of the products that a TPU computes in one pass."""
        ir = self._mlir.ir
        for operation in self._operations(module.operation):
            if operation.name not in PRODUCTS:
                continue
            kinds = [ir.RankedTensorType(x.type).element_type for x in operation.operands]
            at = [i for i in (0, 1) if str(kinds[i]) == "f32"]
            config = "precision_config"
            if config in operation.attributes and "HIGH" in str(operation.attributes[config]):
                self.precise += bool(at)  # HIGH: three passes; HIGHEST: six, as exact as float32
                continue
            self.rounded += bool(at)
            with ir.Location.unknown(), ir.InsertionPoint(operation):
                for i in at:
                    value = operation.operands[i]
                    rounded = self._hlo.ReducePrecisionOp(value, EXPONENT_BITS, MANTISSA_BITS)
                    operation.operands[i] = rounded.result
