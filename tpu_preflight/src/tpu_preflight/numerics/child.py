"""The process that runs a program with the numbers of a TPU; `running` gives it its job.

It translates TensorFlow's module as the TPU's compiler's process does, rounds the operands of its
matrix products, and runs it with jax on this CPU. Imports no TensorFlow.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tpu_preflight.compiler.child import Compiler, RefusedError, main
from tpu_preflight.processes import Answer

PRODUCTS = ("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution")
KEPT = 100_000  # values of a result that are handed back; of a larger one only norms are

# Exponent and mantissa of bfloat16: https://openxla.org/stablehlo/spec#reduce_precision rounds to
# nearest, ties to even. (A cast to bfloat16 and back is what XLA may leave out.)
EXPONENT_BITS, MANTISSA_BITS = 8, 7


def pack(arrays: Iterable[np.ndarray]) -> tuple[list[Any], bytes]:
    """Describe arrays (type and shape), and join their bytes; ``.npz`` has no bfloat16."""
    arrays = list(arrays)
    return [[a.dtype.name, a.shape] for a in arrays], b"".join(a.tobytes() for a in arrays)


def unpack(kinds: Iterable[Any], data: bytes) -> list[np.ndarray]:
    """Read what `pack` wrote."""
    arrays, at = [], 0
    for name, shape in kinds:
        kind, count = np.dtype(name), math.prod(shape)
        arrays.append(np.frombuffer(data, kind, count, at).reshape(shape))
        at += count * kind.itemsize
    return arrays


def measure(exact: np.ndarray, rounded: np.ndarray, first: np.ndarray) -> list[Any]:
    """Compare a value with its rounded self, and with the one of the first batch.

    Gives its norm, the norm of the difference, whether each is finite, and the norm of the
    difference from the first batch's.
    """
    kind = np.complex128 if np.iscomplexobj(exact) else np.float64
    a, b, c = (x.astype(kind).ravel() for x in (exact, rounded, first))
    with np.errstate(invalid="ignore", over="ignore"):
        norm, apart, between = (float(np.linalg.norm(x)) for x in (a, a - b, a - c))
    return [norm, apart, *(bool(np.isfinite(x).all()) for x in (a, b)), between]


class Runner(Compiler):
    """Runs TensorFlow's programs on this CPU by way of jax."""

    def _draw(self, module: Any) -> None:
        """Let random numbers be parameters: shapes, and whether uniform, become ``self._drawn``.

        XLA gives each program that it compiles a seed of its own, so dropout would drop other
        values in the program with a TPU's products.
        """
        from jax.extend.mlir import passmanager

        # Bodies of loops lie beside the main function, too, where nothing calls them.
        passmanager.PassManager.parse("builtin.module(symbol-dce)").run(module.operation)
        ir, hlo, main = self._mlir.ir, self._hlo, self._main(module)
        inside = self._operations(main.operation)
        self._drawn, inputs = [], list(main.type.inputs)
        for draw in self._operations(module.operation):
            if draw.name != "stablehlo.rng":
                continue
            if draw not in inside:
                raise RefusedError("It draws random numbers in a function of their own.")
            kind = ir.RankedTensorType(draw.results[0].type)
            if str(kind.element_type) != "f32" or not kind.has_static_shape:
                raise RefusedError(f"It draws random numbers of type {kind}.")
            uniform = "UNIFORM" in str(draw.attributes["rng_distribution"])
            self._drawn.append((kind.shape, uniform))
            inputs.append(kind)
            with ir.Location.unknown(), ir.InsertionPoint(draw):
                given = main.entry_block.add_argument(kind, ir.Location.unknown())
                first, second = (
                    hlo.BroadcastInDimOp(kind, value, ir.DenseI64ArrayAttr.get([])).result
                    for value in list(draw.operands)[:2]
                )
                width = hlo.SubtractOp(second, first).result if uniform else second
                drawn = hlo.AddOp(first, hlo.MulOp(given, width).result).result
            draw.results[0].replace_all_uses_with(drawn)
            draw.erase()
        self._strip(module)
        self._retype(main, inputs, list(main.type.results))

    def _round(self, module: Any) -> None:
        """Round the float32 operands of the products that a TPU computes in one pass.

        Counts these as ``self._rounded``, and those that ask for more passes as ``self._precise``.
        """
        ir = self._mlir.ir
        self._rounded = self._precise = 0
        for operation in self._operations(module.operation):
            if operation.name not in PRODUCTS:
                continue
            at = [i for i in (0, 1) if self._is_float32(operation.operands[i])]
            config = "precision_config"
            if config in operation.attributes and "HIGH" in str(operation.attributes[config]):
                self._precise += bool(at)  # HIGH: three passes; HIGHEST: six, as exact as float32
                continue
            self._rounded += bool(at)
            with ir.Location.unknown(), ir.InsertionPoint(operation):
                for i in at:
                    value = operation.operands[i]
                    rounded = self._hlo.ReducePrecisionOp(value, EXPONENT_BITS, MANTISSA_BITS)
                    operation.operands[i] = rounded.result

    def _is_float32(self, value: Any) -> bool:
        """Whether a value is float32, and not bfloat16 that was made so for the product."""
        kinds = [value.type]
        if getattr(value.owner, "name", "") == "stablehlo.convert":
            kinds.append(value.owner.operands[0].type)
        types = [str(self._mlir.ir.RankedTensorType(kind).element_type) for kind in kinds]
        return types[0] == "f32" and types[-1] != "bf16"

    def _runnable(self, program: bytes, *changes: Callable[[Any], None]) -> Any:
        module, inputs, results = self._read(program, self._translate, self._draw, *changes)
        shapes = [self._jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs]
        run = self._calling(module, results)
        return self._jax.jit(run, keep_unused=True).lower(*shapes).compile()

    def answer(self, job: dict[str, Any], data: bytes) -> Answer:
        """Run a step on several batches, each with float32 products and with a TPU's.

        In the job: ``program``, the size of the module that the data begin with; ``donated``,
        positions of the parameters that it changes; ``kinds`` of all arrays, which are the
        ``state`` (a number of arrays) that each run begins with, and those of the ``batches``.
        Tells of each batch what `measure` says of each result and of the change of each variable;
        small results come whole, each twice.
        """
        program = self._stablehlo(data[: job["program"]])
        runs = [self._runnable(program), self._runnable(program, self._round)]
        arrays = unpack(job["kinds"], data[job["program"] :])
        state, rest = arrays[: job["state"]], arrays[job["state"] :]
        width = len(rest) // job["batches"]
        steps, kept, first = [], [], None
        for number in range(job["batches"]):
            given = [*rest[number * width : (number + 1) * width], *state]
            drawn = [
                _drawn(np.random.default_rng([number, i]), *what)
                for i, what in enumerate(self._drawn)
            ]
            exact, rounded = ([np.asarray(x) for x in run(*given, *drawn)] for run in runs)
            count = len(exact) - len(job["donated"])
            for found in (exact, rounded):  # the changes: all steps begin with the same values
                found[count:] = [
                    after if after.dtype.kind in "iub" else after - given[at]
                    for at, after in zip(job["donated"], found[count:], strict=True)
                ]
            first = first or exact
            steps.append([measure(*each) for each in zip(exact, rounded, first, strict=True)])
            small = [i for i, x in enumerate(exact[:count]) if x.size <= KEPT]
            kept += [found[i] for i in small for found in (exact, rounded)]
        kinds, values = pack(kept)
        counts = [self._rounded, self._precise]
        return {"verdict": "ran", "steps": steps, "kinds": kinds, "counts": counts}, values


def _drawn(generator: np.random.Generator, shape: list[int], uniform: bool) -> np.ndarray:
    draw = generator.random if uniform else generator.standard_normal
    return draw(shape, np.float32)


if __name__ == "__main__":
    main(Runner)
