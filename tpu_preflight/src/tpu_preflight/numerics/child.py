"""The process that runs a program with the numbers of a TPU; `running` starts it and talks to it.

It translates TensorFlow's module as the TPU's compiler's process does, rounds the operands of its
matrix products, and runs it with jax on this CPU. Imports no TensorFlow.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tpu_preflight.compiler.child import Compiler, main
from tpu_preflight.numerics.drawing import Drawing

PRODUCTS = ("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution")
KEPT = 100_000  # values of a result that are handed back; of a larger one only norms are

# Exponent and mantissa of bfloat16: https://openxla.org/stablehlo/spec#reduce_precision rounds to
# nearest, ties to even. (A cast to bfloat16 and back is what XLA may leave out.)
EXPONENT_BITS, MANTISSA_BITS = 8, 7


# Results, and each changed variable before and after.
Step = tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]


def pack(arrays: Iterable[np.ndarray]) -> tuple[list[Any], bytes]:
    """Describe arrays (type and shape), and join their bytes."""
    arrays = [np.ascontiguousarray(a).reshape(np.shape(a)) for a in arrays]
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
    a, b, c = (np.asarray(x).astype(kind).ravel() for x in (exact, rounded, first))
    finite = [bool(np.isfinite(x).all()) for x in (a, b)]
    with np.errstate(invalid="ignore", over="ignore"):
        norms = [float(np.linalg.norm(x)) for x in (a, a - b, a - c)]
    return [*norms[:2], *finite, norms[2]]


class Runner(Compiler):
    """Runs TensorFlow's programs on this CPU by way of jax."""

    def _reachable(self, module: Any) -> list[Any]:
        """List the operations of main and of what it calls; loops' bodies lie beside it, too."""
        ir = self._mlir.ir
        named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in module.body.operations}
        found, names = [], ["main"]
        for name in names:
            inside = self._operations(named[name].operation)
            found += inside
            calls = [op.operation for op in inside if op.operation.name == "func.call"]
            called = [ir.FlatSymbolRefAttr(op.attributes["callee"]).value for op in calls]
            names += [callee for callee in dict.fromkeys(called) if callee not in names]
        return found

    def _round(self, module: bytes) -> tuple[bytes, int, int]:
        """Round the float32 operands of the products that a TPU computes in one pass.

        Gives the module, the number of products that were changed, and of those that ask for more
        passes and were left alone.
        """
        mlir, hlo = self._mlir, self._hlo
        with mlir.make_ir_context():
            parsed = mlir.ir.Module.parse(module)
            rounded = precise = 0
            for found in self._reachable(parsed):
                operation = found.operation
                if operation.name not in PRODUCTS:
                    continue
                at = [i for i in (0, 1) if _is_float32(mlir.ir, operation.operands[i])]
                if at and "precision_config" in operation.attributes:
                    config = str(operation.attributes["precision_config"])
                    if "HIGH" in config:  # HIGH: three passes; HIGHEST: six, as exact as float32
                        precise += 1
                        continue
                with mlir.ir.Location.unknown(), mlir.ir.InsertionPoint(operation):
                    for i in at:
                        value = operation.operands[i]
                        operation.operands[i] = hlo.ReducePrecisionOp(
                            value, EXPONENT_BITS, MANTISSA_BITS
                        ).result
                rounded += bool(at)
            return mlir.module_to_bytecode(parsed), rounded, precise

    def _seed(self, module: bytes) -> tuple[bytes, bool]:
        """Let draws come from one more parameter; gives the module, and whether it draws."""
        from jax.extend.mlir.dialects import chlo

        mlir = self._mlir
        with mlir.make_ir_context():
            parsed = mlir.ir.Module.parse(module)
            found = self._operations(parsed.operation)
            draws = [op for op in found if op.operation.name == "stablehlo.rng"]
            if draws:
                drawing = Drawing(mlir.ir, self._hlo, chlo)
                drawing.seed(*self._main(parsed), draws)
            return mlir.module_to_bytecode(parsed), bool(draws)

    def _runnable(self, module: bytes, inputs: tuple, results: tuple) -> Any:
        shapes = [self._jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs]
        run = self._calling(module, results)
        return self._jax.jit(run, keep_unused=True).lower(*shapes).compile()

    def answer(self, job: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Run a step on several batches, each with float32 products and with a TPU's.

        In the job: ``program``, the size of the module that the data begin with; ``donated``,
        positions of the parameters that it changes; ``kinds`` of all arrays, which are the
        ``state`` (a number of arrays) that each run begins with, and those of the ``batches``.
        """
        module, inputs, results = self._read(data[: job["program"]])
        module, draws = self._seed(module)
        if draws:
            inputs = (*inputs, self._jax.core.ShapedArray((2,), np.uint64))
        rounded, *counts = self._round(module)
        runs = [self._runnable(each, inputs, results) for each in (module, rounded)]
        arrays = unpack(job["kinds"], data[job["program"] :])
        state, rest = arrays[: job["state"]], arrays[job["state"] :]
        width = len(rest) // job["batches"]
        steps, kept, first = [], [], None
        for number in range(job["batches"]):
            seed = [np.array([number, 0], np.uint64)] * draws
            batch = rest[number * width : (number + 1) * width]
            exact, other = (self._step(run, batch, state, seed, job["donated"]) for run in runs)
            first = first or exact
            small = [
                [i for i, x in enumerate(found) if x.size <= KEPT] for found, _ in (exact, other)
            ]
            steps.append(_compared(exact, other, first) | {"kept": small})
            kept += [x for found, _ in (exact, other) for x in found if x.size <= KEPT]
        kinds, values = pack(kept)
        return {"verdict": "ran", "steps": steps, "kinds": kinds, "counts": counts}, values

    def _step(self, run: Any, batch: list, state: list, seed: list, donated: Sequence[int]) -> Step:
        found = [np.asarray(x) for x in run(*batch, *state, *seed)]
        kept = len(found) - len(donated)
        before = [state[position - len(batch)] for position in donated]
        return found[:kept], list(zip(before, found[kept:], strict=True))


def _is_float32(ir: Any, value: Any) -> bool:
    """Whether a value is float32, and not bfloat16 that was made so for the product."""
    made = getattr(value.owner, "name", "")
    if made == "stablehlo.convert" and _type(ir, value.owner.operands[0]) == "bf16":
        return False
    return _type(ir, value) == "f32"


def _type(ir: Any, value: Any) -> str:
    return str(ir.RankedTensorType(value.type).element_type)


def _compared(exact: Step, rounded: Step, first: Step) -> dict[str, Any]:
    """Compare results, and how variables were changed; all steps began with the same values."""
    pairs = zip(exact[1], rounded[1], first[1], strict=True)
    return {
        "results": [measure(*three) for three in zip(exact[0], rounded[0], first[0], strict=True)],
        # Whole numbers count something: their change is no matter of rounding.
        "updates": [
            None if _counts(a[1]) else measure(*(after - before for before, after in (a, b, c)))
            for a, b, c in pairs
        ],
    }


def _counts(array: np.ndarray) -> bool:
    return array.dtype.kind in "iub"


if __name__ == "__main__":
    main(Runner)
