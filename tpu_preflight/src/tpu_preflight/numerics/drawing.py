"""Random numbers that two programs draw alike; imported by the child, knows jax's MLIR only.

XLA gives each program that it compiles a seed of its own, so the same dropout would drop other
values in the program with a TPU's products. Here ``stablehlo.rng`` becomes a generator whose state
is a parameter of the program.
"""

from typing import Any

import numpy as np

from tpu_preflight.compiler.child import RefusedError


class Drawing:
    """Rewrites the draws of a parsed module; to be used inside its context.

    Args:
        ir: jax's ``mlir.ir``.
        hlo: The StableHLO dialect.
        chlo: The CHLO dialect.
    """

    def __init__(self, ir: Any, hlo: Any, chlo: Any) -> None:
        self._ir, self._hlo, self._chlo = ir, hlo, chlo

    def seed(self, main: Any, kind: Any, draws: list[Any]) -> None:
        """Give ``main`` one more parameter, ``ui64[2]``, and let all draws come from it."""
        ir = self._ir
        with ir.Location.unknown():
            state = ir.RankedTensorType.get([2], ir.IntegerType.get_unsigned(64))
            seed = main.regions[0].blocks[0].add_argument(state, ir.Location.unknown())
            changed = ir.FunctionType.get([*kind.inputs, state], list(kind.results))
            main.attributes["function_type"] = ir.TypeAttr.get(changed)
            if "arg_attrs" in main.attributes:
                known = list(ir.ArrayAttr(main.attributes["arg_attrs"]))
                main.attributes["arg_attrs"] = ir.ArrayAttr.get([*known, ir.DictAttr.get()])
            for number, draw in enumerate(draws):
                operation = draw.operation
                with ir.InsertionPoint(operation):
                    if self._function_of(operation) != main.operation:
                        raise RefusedError("It draws random numbers in a function of their own.")
                    own = self._constant(np.array([0, number], np.uint64))
                    drawn = self._draw(operation, self._hlo.AddOp(seed, own).result)
                operation.results[0].replace_all_uses_with(drawn)
                operation.erase()

    def _function_of(self, operation: Any) -> Any:
        while operation.name != "func.func":
            operation = getattr(operation.parent, "operation", operation.parent)
        return operation

    def _constant(self, value: np.ndarray) -> Any:
        made = self._ir.DenseElementsAttr.get(value, signless=False)
        return self._hlo.ConstantOp(made).result

    def _draw(self, draw: Any, state: Any) -> Any:
        """Draw from 24 random bits each, between two numbers or around a mean."""
        ir, hlo = self._ir, self._hlo
        kind = ir.RankedTensorType(draw.results[0].type)
        if str(kind.element_type) != "f32" or not kind.has_static_shape:
            raise RefusedError(f"It draws random numbers of type {kind}.")
        bits = ir.RankedTensorType.get(list(kind.shape), ir.IntegerType.get_unsigned(32))
        algorithm = ir.Attribute.parse("#stablehlo<rng_algorithm THREE_FRY>")
        drawn = hlo.RngBitGeneratorOp(state.type, bits, algorithm, state).results[1]

        def full(value: Any, shape: Any = kind) -> Any:
            scalar = value if isinstance(value, ir.Value) else self._constant(value)
            return hlo.BroadcastInDimOp(shape, scalar, ir.DenseI64ArrayAttr.get([])).result

        high = hlo.ShiftRightLogicalOp(drawn, full(np.array(8, np.uint32), bits)).result
        # In the middle of each of 2 ** 24 intervals: neither 0 nor 1.
        middle = hlo.AddOp(hlo.ConvertOp(kind, high).result, full(np.array(0.5, np.float32))).result
        unit = hlo.MulOp(middle, full(np.array(2.0**-24, np.float32))).result
        first, second = (full(value) for value in list(draw.operands)[:2])
        if "UNIFORM" in str(draw.attributes["rng_distribution"]):
            width = hlo.SubtractOp(second, first).result
            return hlo.AddOp(first, hlo.MulOp(unit, width).result).result
        both = hlo.SubtractOp(hlo.AddOp(unit, unit).result, full(np.array(1, np.float32))).result
        normal = hlo.MulOp(self._chlo.ErfInvOp(both).result, full(np.array(2**0.5, np.float32)))
        return hlo.AddOp(first, hlo.MulOp(second, normal.result).result).result
