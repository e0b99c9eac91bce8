"""The exercises of notebook 04, a TPU in another machine."""

import tensorflow as tf

from helpers.exercises import Wrong, check_table, read

_WORKS = {
    "NumPy arrays given to fit": (True, "Arrays are sent along with the graph."),
    "TFRecord in a folder beside the notebook": (
        False,
        "The worker opens the path on its own disk.",
    ),
    "TFRecord on gs://": (True, "Both machines reach the bucket."),
    "from_generator over rows in memory": (
        False,
        "The rows are here, and the Python that gives them, too.",
    ),
    "Hugging Face's to_tf_dataset": (False, "There is a py_function in it."),
    "from_tensor_slices, then map with tf.strings": (
        True,
        "tf.strings is part of the graph, no Python.",
    ),
    "Checkpoint.write to your disk": (False, "The worker holds the weights, so it writes them."),
    "Checkpoint.write to your disk, experimental_io_device='/job:localhost'": (
        True,
        "The weights come home first, and your machine writes.",
    ),
}
# The kernel may still be connected to a worker that has ended.
_HERE = "/job:localhost/replica:0/task:0/device:CPU:0"


def _check_works(answer: object) -> str:
    check_table(answer, _WORKS)
    return (
        "All eight: what is sent or lies on gs:// works; your disk and your Python are not there."
    )


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


EXERCISES = read("04", _check_works, _check_prepare)
