"""The exercises of notebook 04, a TPU in another machine."""

import contextlib
import socket
import time
from collections.abc import Iterator

import tensorflow as tf

from helpers.exercises import Wrong, filled, read, returned

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
    given = filled(answer, _WORKS)
    for case, (truth, why) in _WORKS.items():
        if not isinstance(given[case], bool):
            raise Wrong(f"Say True or False for {case!r}.")
        if given[case] != truth:
            raise Wrong(f"{case}: not {given[case]}. {why}")
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


@contextlib.contextmanager
def _silent() -> Iterator[int]:
    """A port that takes no further connection and refuses none: what a dead host looks like."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # fill the queue; who comes next waits for ever
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def _check_answers(answer: object) -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for address in (f"grpc://127.0.0.1:{port}", f"127.0.0.1:{port}"):
            if returned(answer(address, 2.0)) is not True:
                raise Wrong(f"Somebody listens at {address.replace(str(port), 'PORT')}: True.")
    if answer(f"grpc://127.0.0.1:{port}", 2.0) is not False:
        raise Wrong("Nobody listens there: return False, don't raise.")
    with _silent() as port:
        start = time.monotonic()
        given = answer(f"grpc://127.0.0.1:{port}", 0.5)
        if given is not False:
            raise Wrong("A host that never answers: return False when the seconds are over.")
        if time.monotonic() - start > 5:
            raise Wrong("A host that never answers must cost no more than the given seconds.")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # somebody else listens there, which serves as well
            stack.enter_context(socket.create_server(("127.0.0.1", 8470)))
        if answer("grpc://127.0.0.1", 2.0) is not True:
            raise Wrong("Without a port it is 8470, as the resolver has it.")
    return "Yes, no and silence, each within its seconds; and 8470 where no port is given."


EXERCISES = read("04", _check_works, _check_prepare, _check_answers)
