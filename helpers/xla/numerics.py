"""Numbers as on a TPU, on this CPU: matrix products of bfloat16 numbers, added up in float32.

A TPU multiplies so by default, in programs of float32, too: "matrix multiplication operations with
bfloat16 values and accumulations with IEEE float32 values", rounded to nearest, ties to even
(https://cloud.google.com/tpu/docs/bfloat16; https://docs.jax.dev/en/latest/201/precision.html;
2026-11). Here both operands of every such product are rounded in TensorFlow's own graph, and XLA
compiles it for this CPU.

That is one pass, the default. TensorFlow asks for more passes after
``tf.config.experimental.enable_tensor_float_32_execution(False)``; such products are left alone.
What else a TPU computes in its own way (exponentials, the order of a sum) is not imitated, and
nothing here was compared with a TPU.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from helpers.base.errors import CourseError
from helpers.xla.compare import written
from tpu_preflight.program import Tracing, trace
from tpu_preflight.shown import Shown, Table

# TensorFlow's operations that XLA makes matrix products or convolutions of, and their operands.
_OPERANDS = {
    **dict.fromkeys(("MatMul", "BatchMatMulV2", "Einsum", "Conv2D", "Conv3D"), (0, 1)),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), (1, 2)),
    **dict.fromkeys(("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"), (0, 2)),
    "DepthwiseConv2dNative": (0, 1),
    "DepthwiseConv2dNativeBackpropInput": (1, 2),
    "DepthwiseConv2dNativeBackpropFilter": (0, 2),
}
_RANDOM = ("Random", "TruncatedNormal", "Multinomial", "StatefulUniform", "StatefulStandardNormal")
# bfloat16's. https://openxla.org/stablehlo/spec#reduce_precision rounds to nearest, ties to even.
# (A cast to bfloat16 and back is what XLA may leave out.)
_BITS = {"exponent_bits": 8, "mantissa_bits": 7}


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
        apart = np.linalg.norm(self.exact.ravel() - self.rounded.ravel())
        return float(apart / np.linalg.norm(self.exact.ravel())) if apart else 0.0


@dataclasses.dataclass(frozen=True, repr=False)
class Numbers(Shown):
    """The results of one run, with float32 products and with a TPU's."""

    name: str  # the function's name
    products: int  # matrix products that are rounded; one in a loop counts once
    results: tuple[Value, ...]  # what the function returned, flat

    @property
    def summary(self) -> str:
        """One line: how much was rounded."""
        products = f"{self.products} product{'s' * (self.products != 1)}"
        return f"{self.name}: the operands of {products} are rounded"

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
        NotCompilable: TensorFlow refuses the function.
        CourseError: It draws random numbers.
        tf.errors.OpError: XLA refuses it.
    """
    traced = trace(fn, *arguments)
    tensors = [tf.convert_to_tensor(x) for x in tf.nest.flatten(arguments)]
    graph = traced.graph.as_graph_def()
    exact = _run(graph, traced, tensors)
    products = 0
    if tf.config.experimental.tensor_float_32_execution_enabled():
        products = _round(graph, traced.name)
    rounded = _run(graph, traced, tensors)
    shapes = [written(x) for x in traced.concrete.outputs]
    names = [f"result {i}" for i in range(len(shapes))] if len(shapes) > 1 else ["result"]
    results = tuple(map(Value, names, shapes, exact, rounded))
    return Numbers(traced.name, products, results)


def _where_most(value: Value) -> tuple[str, str]:
    """Write both numbers where they differ most."""
    distance = np.abs(value.exact.astype(np.complex128) - value.rounded)
    at = np.unravel_index(np.nan_to_num(distance).argmax(), distance.shape)
    where = f"[{', '.join(map(str, at))}] " if at else ""
    return f"{where}{value.exact[at]:.5g}", f"{where}{value.rounded[at]:.5g}"


def _round(graph: Any, name: str) -> int:
    """Round the operands of a graph's products, in place; give the number of these products."""
    bodies = {function.signature.name: function for function in graph.library.function}
    found, seen, count = [(graph.node, "")], set(), 0
    while found:
        nodes, port = found.pop()
        for node in list(nodes):
            if node.op.startswith(_RANDOM):
                raise CourseError(
                    f"{name} draws random numbers ({node.op}).",
                    "They would differ between the two runs.",
                    "Give it the seed, as in tf.random.stateless_normal, or leave dropout out.",
                )
            two = node.op in _OPERANDS and len(node.input) > 1  # an Einsum may have one operand
            if two and node.attr["T"].type == tf.float32.as_datatype_enum:
                count += 1
                for at in _OPERANDS[node.op]:
                    operand = nodes.add(op="XlaReducePrecision", name=f"{node.name}/rounded_{at}")
                    operand.input.append(node.input[at])
                    operand.attr["T"].type = node.attr["T"].type
                    for bits, number in _BITS.items():
                        operand.attr[bits].i = number
                    node.input[at] = operand.name + port
            for value in node.attr.values():  # what it calls: the bodies of loops and branches
                for called in [*value.list.func, *[value.func] * value.HasField("func")]:
                    if called.name not in seen:
                        seen.add(called.name)
                        found.append((bodies[called.name].node_def, ":output:0"))
                    called.name += "_rounded"
    for function in bodies.values():
        function.signature.name += "_rounded"
        context.context().add_function_def(function)
    return count


def _run(graph: Any, traced: Tracing, tensors: list[tf.Tensor]) -> list[np.ndarray]:
    """Run a graph by XLA, on copies of the variables that it takes after its arguments."""
    concrete, copies = traced.concrete, []
    for node in [node for node in graph.node if node.op == "Placeholder"]:
        graph.node.remove(node)
    for held in concrete.captured_inputs:
        if held.dtype == tf.resource:
            kind = held._handle_data.shape_and_type[0].dtype
            held = tf.Variable(tf.raw_ops.ReadVariableOp(resource=held, dtype=kind))
        copies.append(held)

    @tf.function(jit_compile=True, autograph=False)
    def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
        inside = tf.compat.v1.get_default_graph()
        captured = [inside.capture(getattr(copy, "handle", copy)) for copy in copies]
        given = dict(zip([x.name for x in concrete.inputs], [*tensors, *captured], strict=True))
        return tf.graph_util.import_graph_def(graph, given, [x.name for x in concrete.outputs])

    return [x.numpy() for x in run.get_concrete_function(*tensors)(*tensors)]
