"""The process that runs a program with the numbers of a TPU; `numerics` gives it its job.

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


class Runner(Compiler):
    """Runs TensorFlow's programs on this CPU by way of jax."""

    def _prepare(self, module: Any) -> None:
        """Drop what nothing calls (bodies of loops lie beside the main function, too)."""
        from jax.extend.mlir import passmanager

        passmanager.PassManager.parse("builtin.module(symbol-dce)").run(module.operation)
        names = [operation.name for operation in self._operations(module.operation)]
        if "stablehlo.rng" in names:  # each program that XLA compiles has a seed of its own
            raise RefusedError("It draws random numbers, which would differ between the two runs.")
        self._strip(module)

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

    def _run(self, program: bytes, arrays: list, *changes: Callable[[Any], None]) -> list:
        module, inputs, results = self._read(program, self._translate, self._prepare, *changes)
        shapes = [self._jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs]
        run = self._jax.jit(self._calling(module, results), keep_unused=True)
        return [np.asarray(x) for x in run.lower(*shapes).compile()(*arrays)]

    def answer(self, job: dict[str, Any], data: bytes) -> Answer:
        """Run a step with float32 products and with a TPU's.

        In the job: ``program``, the size of the module that the data begin with, and ``kinds`` of
        the arrays that follow. Gives all results, those with a TPU's products last.
        """
        program = self._stablehlo(data[: job["program"]])
        arrays = unpack(job["kinds"], data[job["program"] :])
        exact = self._run(program, arrays)
        rounded = self._run(program, arrays, self._round)
        kinds, values = pack([*exact, *rounded])
        counts = {"rounded": self._rounded, "precise": self._precise}
        return {"verdict": "ran", "kinds": kinds} | counts, values


if __name__ == "__main__":
    main(Runner)
