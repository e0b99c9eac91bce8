"""TensorFlow's TPU bridge, asked on a CPU: what it refuses, and what it would leave to the host.

On a TPU, ``tf.distribute.TPUStrategy.run`` hands its function to ``tpu.replicate``, and a part of
TensorFlow called the TPU bridge splits it between the chips and the host's CPU before XLA sees
anything. Its first phase is in the ordinary package (TensorFlow 2.20), so it runs here. Nothing is
compiled or executed.

Source: ``tensorflow/python/tpu/tpu.py`` of TensorFlow 2.20, "automatic outside compilation".
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.eager import context
from tensorflow.python.tpu import tpu

# The bridge decides for a system: here one host with one TPU.
_DEVICES = ", ".join(
    f'"/job:localhost/replica:0/task:0/device:{kind}"'
    for kind in ("CPU:0", "TPU:0", "TPU_SYSTEM:0")
)
_PHASE_1 = "tf-replicated-clustering-bridge-v2"


@dataclasses.dataclass(frozen=True)
class Bridged:
    """What the bridge says of a function.

    Attributes:
        name: The function's name.
        refused: The operation that it refuses, such as ``PyFunc``; empty if it accepts all.
        message: Its reason, one line; empty if it accepts all.
        on_host: Operations that would run on the host's CPU in each step, sorted.
    """

    name: str
    refused: str = ""
    message: str = ""
    on_host: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if self.message:
            return f"{self.name}: refused, {self.message}"
        if self.on_host:
            return f"{self.name}: accepted; on the host, in each step: {', '.join(self.on_host)}"
        return f"{self.name}: accepted, all of it for the TPU"


@contextlib.contextmanager
def _soft_device_placement(wanted: bool) -> Iterator[None]:
    # The public function can't put back "not set", which means on eagerly and off in functions.
    state = context.context()
    before = state._soft_device_placement
    tf.config.set_soft_device_placement(wanted)
    try:
        yield
    finally:
        state._soft_device_placement = before
        state._thread_local_data.function_call_options = None


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


def _typed(module: str, variables: Sequence[tf.Variable]) -> str:
    """Write the captured variables' type into a module, where all are of one type.

    Without it the bridge doesn't know the state of a ``tf.random.Generator``, and refuses it.
    """
    types = {(v.dtype, tuple(v.shape)) for v in variables}
    if len(types) != 1:
        return module
    ((dtype, shape),) = types
    usual = f"{'f' if dtype.is_floating else 'i'}{dtype.size * 8}"
    element = {"bfloat16": "bf16", "bool": "i1"}.get(dtype.name, usual)
    inner = "x".join([*map(str, shape), element])
    return module.replace(
        "tensor<*x!tf_type.resource>", f"tensor<!tf_type.resource<tensor<{inner}>>>"
    )


def bridge(fn: Callable, *specs: tf.TensorSpec, soft_device_placement: bool = False) -> Bridged:
    """Ask TensorFlow's TPU bridge about a function, as ``TPUStrategy.run`` would.

    Args:
        fn: A function of tensors. Variables that it captures stay as they are.
        *specs: Shape and type of each argument.
        soft_device_placement: Whether operations without a TPU kernel may go to the host, as after
            ``tf.config.set_soft_device_placement(True)``. Inside a ``tf.function``, where
            ``TPUStrategy`` reads the setting, it is off by default.

    Returns:
        What is refused, or what would run on the host. "Accepted" is not yet "compiles": XLA
        decides afterwards, and refuses sizes that depend on values.
    """
    name = getattr(fn, "__name__", type(fn).__name__)

    @tf.function(input_signature=list(specs))
    def replicated(*tensors: tf.Tensor) -> list[tf.Tensor]:
        # As TPUStrategy.run does: replicate itself is TensorFlow's, where AutoGraph doesn't reach.
        converted = autograph.tf_convert(fn, ag_ctx.control_status_ctx())
        return tf.nest.flatten(tpu.split_compile_and_replicate(converted, [list(tensors)])[1])

    with _soft_device_placement(soft_device_placement):
        graph = replicated.get_concrete_function()
        module = tf.mlir.experimental.convert_function(graph, "", False)
        devices = f"module attributes {{tf.devices = {{{_DEVICES}}}, "
        module = _typed(module.replace("module attributes {", devices, 1), graph.graph.variables)
        try:
            split = tf.mlir.experimental.run_pass_pipeline(module, _PHASE_1, False)
        except tf.errors.OpError as error:
            return _refusal(name, str(error))
    return Bridged(name, on_host=tuple(sorted(set(_on_host(split)) - {"Const"})))


def verdict(fn: Callable, *specs: tf.TensorSpec) -> str:
    """Ask the bridge; where it refuses, ask again with soft device placement.

    Returns:
        ``accepted``; ``host:`` and the operations that would run there with soft device placement,
        refused without; ``refused`` with it, too; ``not traced`` where tracing raised an error.
    """
    try:
        if not bridge(fn, *specs).message:
            return "accepted"
        soft = bridge(fn, *specs, soft_device_placement=True)
    except Exception:  # whatever tracing raises, the compilers' verdicts show it
        return "not traced"
    return f"host: {', '.join(soft.on_host)}" if soft.on_host else "refused"


def _refusal(name: str, text: str) -> Bridged:
    line = text.splitlines()[0]
    found = re.search(r"'tf\.(\w+)' op (?:.* input check: )?(.*)", line)
    operation, reason = (found[1], found[2]) if found else ("", line)
    return Bridged(name, operation, f"{operation}: {reason}".strip(": "))
