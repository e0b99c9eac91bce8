"""A strategy, or a clear word in time: dead, silent, slow, garbage-speaking and wrong addresses."""

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from processes import printed

from helpers import runtime
from helpers.base.errors import CourseError
from helpers.tpu import connection, place
from helpers.tpu.node import remote_node

pytestmark = pytest.mark.slow

PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy")
START = "from helpers import runtime\nruntime.setup()\nimport tensorflow as tf\n"


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """No proxy and no TPU, whatever the machine has."""
    for name in (*PROXIES, *(x for x in os.environ if "TPU" in x)):
        monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def server(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    """Listen on a free port; do something with each connection."""
    clients = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    clients.append(client)
                    speak(client)

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    for client in clients:
        client.close()


def says(words: bytes) -> Callable[[socket.socket], None]:
    return lambda client: client.sendall(words)


@pytest.mark.parametrize(
    "speak",
    [
        says(b""),  # accepts, then stays silent: half-open
        says(b"SSH-2.0-OpenSSH_9.6\r\n" * 20),
        says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        socket.socket.close,
    ],
)
def test_what_is_no_worker_is_told_in_time(speak):
    with server(speak) as reached, pytest.raises(CourseError, match=f"answers at {reached}"):
        connection.devices_at(f"grpc://{reached}", seconds=0.5)


def test_a_dead_address_is_told_and_tensorflow_is_never_asked(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = f"127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # importing it would raise
    with pytest.raises(CourseError, match=rf"answers at {dead}[\s\S]*no_grpc_proxy"):
        runtime.connect(dead)
    monkeypatch.setenv("COLAB_TPU_ADDR", dead)
    with pytest.raises(CourseError, match=dead):
        runtime.connect()


@pytest.mark.parametrize("target", ["my-tpu", "grpc:", None])
def test_what_is_no_address_is_refused(monkeypatch, target):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    message = "is no address" if target else "kernel has no TPU"
    with pytest.raises(CourseError, match=rf"{message}[\s\S]*grpc://IP:8470[\s\S]*get_strategy"):
        runtime.connect(target)


def test_the_plug_in_is_named_to_the_build_for_tpu_alone(monkeypatch, tmp_path):
    libtpu = pytest.importorskip("libtpu")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/accel0").touch()
    newer = place.detect({"TPU_ACCELERATOR_TYPE": "v6e-1"}, tmp_path)
    older = place.detect({"TPU_ACCELERATOR_TYPE": "v3-8"}, tmp_path)
    assert "PJRT_DEVICE" in newer.environment
    assert connection.tensorflow_environment(newer) == {}

    def distributions(name):
        return ["installed"] if name == "tensorflow-tpu" else []

    monkeypatch.setattr(connection.importlib.metadata, "distributions", distributions)
    path = {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": libtpu.get_library_path()}
    assert connection.tensorflow_environment(newer) == {**newer.environment, **path}
    assert connection.tensorflow_environment(older) == {}


@pytest.mark.long
def test_a_tpu_that_does_not_start_is_told():
    script = "try: runtime.connect('local')\nexcept Exception as error: print(error.what)"
    assert printed(START + script).splitlines()[1:] == ["The TPU did not start."]


@pytest.mark.long
def test_a_rehearsals_worker_is_connected_and_trains_and_its_end_is_told():
    with remote_node(2) as node:
        assert connection.devices_at(node.address, seconds=30) == ["CPU:0", "CPU:1"]
        script = (
            "assert runtime.detect().kind == 'node'\n"
            "with runtime.connect().scope():\n"
            "    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n"
            "    model.compile('sgd', 'mse')\n"
            "model.fit(tf.ones([8, 1]), tf.ones([8, 1]), batch_size=4, verbose=0)\n"
            "print(model.layers[0].kernel.device)\n"
        )
        lines = printed(START + script).splitlines()[1:]
        node.process.kill()
        node.process.wait(10)
        with pytest.raises(CourseError, match="answers at"):
            connection.devices_at(node.address, seconds=30)
    device = "/job:worker/replica:0/task:0/device:CPU:0"
    assert lines == ["OneDeviceStrategy with 1 replica", device]
