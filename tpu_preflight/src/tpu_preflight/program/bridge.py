"""TensorFlow's TPU bridge, asked on a CPU: what it refuses, and what it would leave to the host.

On a TPU, ``tf.distribute.TPUStrategy.run`` hands its function to ``tpu.replicate``, and a part of
TensorFlow called the TPU bridge splits it between the chips and the host's CPU before XLA sees
anything. Its first phase is in the ordinary package (TensorFlow 2.20), so it runs here. Nothing is
compiled or executed.

Source: ``tensorflow/python/tpu/tpu.py`` of TensorFlow 2.20, "automatic outside compilation".
"""

import dataclasses
import re
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_mlir
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.eager import context
from tensorflow.python.ops import handle_data_util
from tensorflow.python.tpu import tpu, tpu_system_metadata

# The bridge decides for a system: here one host with one TPU.
_DEVICES = ", ".join(
    f'"/job:localhost/replica:0/task:0/device:{kind}"'
    for kind in ("CPU:0", "TPU:0", "TPU_SYSTEM:0")
)
_PHASE_1 = "tf-replicated-clustering-bridge-v2"


@dataclasses.dataclass(frozen=True)
class Bridged:
    """What the bridge says of a function."""

    name: str  # the function's name
    refused: str = ""  # the operation that it refuses, such as ``PyFunc``; empty if it accepts all
    message: str = ""  # its reason, one line; empty if it accepts all
    # Operations that would run on the host's CPU in each step, sorted.
    on_host: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if self.message:
            return f"{self.name}: refused, {self.message}"
        if self.on_host:
            return f"{self.name}: accepted; on the host, in each step: {', '.join(self.on_host)}"
        return f"{self.name}: accepted, all of it for the TPU"


def _on_host(module: str) -> Iterator[str]:
    """Name the operations that a module launches on a CPU, without the transfers around them."""
    inside = 0
    for line in module.splitlines():
        if "tf_device.launch" in line:
            inside += 1
        elif inside and re.match(r"\s*}\) ", line):
            inside -= 1
        elif inside and (found := re.search(r'"?tf\.([A-Za-z]\w*)"?[(<]', line)):
            yield found[1]


def _module(concrete: Any) -> str:
    """Write a graph as the bridge reads it, with the types of the variables that it holds.

    Without them the bridge doesn't know the state of a ``tf.random.Generator``, and refuses it.
    """
    function = type(concrete.function_def).FromString(concrete.function_def.SerializeToString())
    held = concrete.captured_inputs
    for i, handle in enumerate(held, len(concrete.graph.inputs) - len(held)):
        if handle.dtype == tf.resource:
            known = handle_data_util.get_handle_data(handle)
            for one in known.shape_and_type if known is not None else ():
                attributes = function.arg_attr[i].attr
                attributes["_handle_shapes"].list.shape.append(one.shape)
                attributes["_handle_dtypes"].list.type.append(one.dtype)
    function.signature.name += "_with_types"
    known_functions = context.context()
    known_functions.add_function_def(function)
    try:
        typed = types.SimpleNamespace(function_def=function)
        module = pywrap_mlir.import_function(typed, "", False)
    finally:
        known_functions.remove_function(function.signature.name)
    devices = f"module attributes {{tf.devices = {{{_DEVICES}}}, "
    return module.replace("module attributes {", devices, 1)


def split(concrete: Any, name: str, *, soft_device_placement: bool = False) -> Bridged:
    """Let the bridge split a graph that was traced under ``TPUStrategy.run``.

    ``name`` is for the answer; ``soft_device_placement`` as for `bridge`, whatever it was while the
    graph was traced.
    """
    setting = f"allow_soft_placement = {str(soft_device_placement).lower()}"
    try:
        module = re.sub(r"allow_soft_placement = \w+", setting, _module(concrete))
        module = tf.mlir.experimental.run_pass_pipeline(module, _PHASE_1, False)
    except tf.errors.OpError as error:
        line = str(error).splitlines()[0]
        found = re.search(r"'tf\.(\w+)' op (?:.* input check: )?(.*)", line)
        operation, reason = (found[1], found[2]) if found else ("", line)
        return Bridged(name, operation, f"{operation}: {reason}".strip(": "))
    # A constant is no work, and the bridge's own words say nothing.
    return Bridged(
        name,
        on_host=tuple(sorted({*_on_host(module)} - {"Const", "IfRegion", "WhileRegion", "Yield"})),
    )


def _run(fn: Callable, args: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    # Replicate itself is TensorFlow's, where AutoGraph doesn't reach.
    converted = autograph.tf_convert(fn, ag_ctx.control_status_ctx())
    return tf.nest.flatten(tpu.split_compile_and_replicate(converted, [list(args)])[1])


# Runs a function as ``TPUStrategy`` does, for variables that were made under no strategy.
REPLICAS = types.SimpleNamespace(run=_run)


def pretended_strategy() -> tf.distribute.TPUStrategy:
    """Make a ``TPUStrategy`` without a TPU: for its scope, and for tracing its ``run``.

    Variables that are made in its scope are those of a TPU with one core, on this machine's CPU.
    What would raise an error while a step is traced on a TPU raises the same one here. Nothing
    that it has traced can be executed.
    """
    device = "/job:localhost/replica:0/task:0/device:CPU:0"
    core = types.SimpleNamespace(name=device.replace("CPU", "TPU"))
    system = tpu_system_metadata.TPUSystemMetadata(1, 1, 1, None, [core])
    resolver = types.SimpleNamespace(get_tpu_system_metadata=lambda: system)
    strategy = tf.distribute.TPUStrategy(resolver)
    strategy.extended._tpu_devices[:] = device
    strategy._enable_packed_variable_in_eager_mode = False
    return strategy
