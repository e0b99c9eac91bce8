"""A function before TensorFlow's TPU bridge: what is refused, and what the host would run."""

from collections.abc import Callable

import tensorflow as tf

from tpu_preflight.program.bridge import REPLICAS, BridgeAnswer, split


def bridge(
    fn: Callable, *specs: tf.TensorSpec, soft_device_placement: bool = False
) -> BridgeAnswer:
    """Ask TensorFlow's TPU bridge about a function, as ``TPUStrategy.run`` would.

    Gives what is refused, or what would run on the host. "Accepted" is not yet "compiles": XLA
    decides afterwards, and refuses sizes that depend on values.

    Args:
        fn: A function of tensors. Variables that it captures stay as they are.
        *specs: Shape and type of each argument.
        soft_device_placement: Whether operations without a TPU kernel may go to the host, as after
            ``tf.config.set_soft_device_placement(True)``. Inside a ``tf.function``, where
            ``TPUStrategy`` reads the setting, it is off by default.
    """

    @tf.function(input_signature=list(specs))
    def replicated(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return REPLICAS.run(fn, tensors)

    graph = replicated.get_concrete_function()
    name = getattr(fn, "__name__", type(fn).__name__)
    return split(graph, name, soft_device_placement=soft_device_placement)
