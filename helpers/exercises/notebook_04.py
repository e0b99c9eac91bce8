"""The exercises of notebook 04, a TPU in another machine."""

import tensorflow as tf

from helpers.exercises import Wrong

# The kernel may still be connected to a worker that has ended.
_HERE = "/job:localhost/replica:0/task:0/device:CPU:0"

TEXTS = ["  Hello TPU ", "ÉCOLE\n", "한국어 BERT", "", "already clean", "\tTab\t"]


def _check_prepare(answer: object) -> str:
    with tf.device(_HERE):
        traced = tf.function(answer).get_concrete_function(tf.TensorSpec([], tf.string))
        graph = traced.graph.as_graph_def()
        # What a map or a loop calls is in the library of the graph.
        nodes = list(graph.node)
        for function in graph.library.function:
            nodes += function.node_def
        if any("PyFunc" in node.op for node in nodes):
            raise Wrong("The graph still has a PyFunc in it: the worker would call your Python.")
        for text in TEXTS:
            result = traced(tf.constant(text))
            if not isinstance(result, tf.Tensor) or result.dtype != tf.string:
                raise Wrong("Return one string tensor.")
            prepared = result.numpy().decode(errors="replace")
            expected = text.strip().lower()
            if prepared != expected:
                raise Wrong(f"{text!r} must become {expected!r}, not {prepared!r}.")
    return "The same text for every example, and nothing in the graph but TensorFlow."
