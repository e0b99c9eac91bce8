"""TensorFlow's TPU bridge, run on a CPU: what it refuses, and what it would leave to the host.

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
# A constant is no work, and the bridge's own words say nothing.
_NO_WORK = {"Const", "IfRegion", "WhileRegion", "Yield"}


@dataclasses.dataclass(frozen=True)
class BridgeAnswer:
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
    depth = 0  # of launches around the line
    for line in module.splitlines():
        if "tf_device.launch" in line:
            depth += 1
        elif depth and re.match(r"\s*}\) ", line):
            depth -= 1
        elif depth:
            operation = re.search(r'"?tf\.([A-Za-z]\w*)"?[(<]', line)
            if operation is not None:
                yield operation[1]


def _module(concrete: Any) -> str:
    """Write a graph as the bridge reads it, with the types of the variables that it holds.

    Without them the bridge doesn't know the state of a ``tf.random.Generator``, and refuses it.
    """
    function = type(concrete.function_def).FromString(concrete.function_def.SerializeToString())
    captured = concrete.captured_inputs  # the last of the graph's inputs
    for i, handle in enumerate(captured, len(concrete.graph.inputs) - len(captured)):
        # Others have their types in the graph itself.
        if handle.dtype != tf.resource:
            continue
        data = handle_data_util.get_handle_data(handle)
        if data is None:
            continue
        attributes = function.arg_attr[i].attr
        for value in data.shape_and_type:
            attributes["_handle_shapes"].list.shape.append(value.shape)
            attributes["_handle_dtypes"].list.type.append(value.dtype)
    # The importer looks a function up by its name, so this copy needs another.
    function.signature.name += "_with_types"
    functions = context.context()
    functions.add_function_def(function)
    try:
        typed = types.SimpleNamespace(function_def=function)
        module = pywrap_mlir.import_function(typed, "", False)
    finally:
        functions.remove_function(function.signature.name)
    devices = f"module attributes {{tf.devices = {{{_DEVICES}}}, "
    return module.replace("module attributes {", devices, 1)


def split(concrete: Any, name: str, *, soft_device_placement: bool = False) -> BridgeAnswer:
    """Let the bridge split a graph that was traced under ``TPUStrategy.run``.

    Args:
        concrete: The graph, a concrete function.
        name: What the answer calls it.
        soft_device_placement: Whether the host may run what the TPU can't, as
            ``tf.config.set_soft_device_placement`` sets it; whatever it was while the graph was
            traced.
    """
    setting = f"allow_soft_placement = {str(soft_device_placement).lower()}"
    try:
        module = re.sub(r"allow_soft_placement = \w+", setting, _module(concrete))
        module = tf.mlir.experimental.run_pass_pipeline(module, _PHASE_1, False)
    except tf.errors.OpError as error:
        return _refusal(name, error)
    operations = set(_on_host(module)) - _NO_WORK
    return BridgeAnswer(name, on_host=tuple(sorted(operations)))


def _refusal(name: str, error: tf.errors.OpError) -> BridgeAnswer:
    line = str(error).splitlines()[0]
    match = re.search(r"'tf\.(\w+)' op (?:.* input check: )?(.*)", line)
    operation = ""
    reason = line
    if match is not None:
        operation, reason = match.groups()
    return BridgeAnswer(name, refused=operation, message=f"{operation}: {reason}".strip(": "))


def _run(fn: Callable, args: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    # Replicate itself is TensorFlow's, where AutoGraph doesn't reach.
    converted = autograph.tf_convert(fn, ag_ctx.control_status_ctx())
    _, outputs = tpu.split_compile_and_replicate(converted, [list(args)])
    return tf.nest.flatten(outputs)


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
    # What a resolver would have learned from a TPU: one host with one core, no topology.
    system = tpu_system_metadata.TPUSystemMetadata(
        num_cores=1, num_hosts=1, num_of_cores_per_host=1, topology=None, devices=[core]
    )
    resolver = types.SimpleNamespace(get_tpu_system_metadata=lambda: system)
    strategy = tf.distribute.TPUStrategy(resolver)
    strategy.extended._tpu_devices[:] = device
    strategy._enable_packed_variable_in_eager_mode = False
    return strategy
