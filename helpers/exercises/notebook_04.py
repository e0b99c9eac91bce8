"""The exercises of notebook 04, a TPU in another machine."""

import tensorflow as tf

from helpers.exercises import Wrong

# The kernel may still be connected to a worker that has ended.
_HERE = "/job:localhost/replica:0/task:0/device:CPU:0"


def _check_prepare(answer: object) -> str:
    texts = ["  Hello TPU ", "ÉCOLE\n", "한국어 BERT", "", "already clean", "\tTab\t"]
    with tf.device(_HERE):
        traced = tf.function(answer).get_concrete_function(tf.TensorSpec([], tf.string))
        graph = traced.graph.as_graph_def()
        inside = (node for function in graph.library.function for node in function.node_def)
        if any("PyFunc" in node.op for node in (*graph.node, *inside)):
            raise Wrong("The graph still has a PyFunc in it: the worker would call your Python.")
        for text in texts:
            given = traced(tf.constant(text))
            if not isinstance(given, tf.Tensor) or given.dtype != tf.string:
                raise Wrong("Return one string tensor.")
            given = given.numpy().decode(errors="replace")
            if given != text.strip().lower():
                raise Wrong(f"{text!r} must become {text.strip().lower()!r}, not {given!r}.")
    return "The same text for every example, and nothing in the graph but TensorFlow."
