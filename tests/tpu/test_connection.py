"""A strategy, or a clear word in time: dead, silent, slow, garbage-speaking and wrong addresses."""

import concurrent.futures
import contextlib
import os
import pathlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from terminal import call

from helpers import runtime
from helpers.base.errors import CourseError
from helpers.rehearsal.node import remote_node
from helpers.tpu import connection, place
from helpers.tpu.connection import CantConnect, NobodyThere

pytestmark = pytest.mark.slow

PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """No proxy and no TPU, whatever the machine has."""
    for name in (*PROXIES, *(x for x in os.environ if "TPU" in x)):
        monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def server(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    """Listen on a free port; do something with each connection."""
    kept = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    kept.append(listener.accept()[0])
                    threading.Thread(target=speak, args=(kept[-1],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    for end in kept:
        end.close()


@pytest.fixture
def dead() -> str:
    """An address where nobody listens any more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def says(words: bytes) -> Callable[[socket.socket], None]:
    return lambda client: client.sendall(words)


nothing = says(b"")  # accepts, then stays silent: half-open
garbage = says(b"SSH-2.0-OpenSSH_9.6\r\n" * 20)
web = says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def drip(client: socket.socket) -> None:
    """Speak HTTP/2 correctly, one byte a fifth of a second: too slow to be of use."""
    with contextlib.suppress(OSError):
        for byte in b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * 10:
            client.sendall(bytes([byte]))
            time.sleep(0.2)


@pytest.mark.parametrize(
    ("speak", "error", "told"),
    [
        (nothing, CantConnect, r"did not answer within 0\.5 seconds[\s\S]*firewall[\s\S]*READY"),
        (drip, CantConnect, r"did not answer within 0\.5 seconds"),
        (garbage, CantConnect, r"is no TensorFlow worker[\s\S]*its port is 8470"),
        (web, CantConnect, r"is no TensorFlow worker"),
        (socket.socket.close, NobodyThere, r"Nobody answers at 127\.0\.0\.1"),
    ],
)
def test_what_is_no_worker_is_told_in_time(speak, error, told):
    with server(speak) as reached, pytest.raises(error, match=told):
        connection.devices_at(f"grpc://{reached}", seconds=0.5)


def test_dead_address_is_told_and_tensorflow_is_never_asked(monkeypatch, dead):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # importing it would raise
    with pytest.raises(NobodyThere, match=rf"Nobody answers at {dead}[\s\S]*tpu-vm list"):
        runtime.connect(dead)
    monkeypatch.setenv("COLAB_TPU_ADDR", dead)
    with pytest.raises(NobodyThere, match=dead):
        runtime.connect()


@pytest.mark.parametrize(
    "wrong",
    ["grpc://", "grpc://:8470", "grpc://a:", "a:0", "a:65536", "1.2.3.4:99999999", "a b:1", "ü:1"],
)
def test_what_can_not_be_an_address_is_refused(wrong):
    with pytest.raises(CantConnect, match=r"is no address[\s\S]*grpc://10\.0\.0\.2:8470"):
        runtime.connect(wrong)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("grpc://10.0.0.2", "10.0.0.2:8470"),
        ("grpc://tpu-host.example:1", "tpu-host.example:1"),
        ("[::1]:65535", "[::1]:65535"),
    ],
)
def test_an_address_gets_the_port_that_tensorflow_gives_it(given, expected):
    assert connection._with_port(given) == expected


def test_another_grpc_server_is_no_worker():
    other = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    try:
        with pytest.raises(CantConnect, match="no TensorFlow worker"):
            connection.devices_at(f"grpc://127.0.0.1:{port}")
    finally:
        other.stop(None).wait()


def test_a_proxy_in_the_way_is_named(monkeypatch, dead):
    with server(web) as proxy:
        monkeypatch.setenv("https_proxy", f"http://user:secret@{proxy}")
        with pytest.raises(CantConnect, match="through the proxy in https_proxy") as caught:
            connection.devices_at(f"grpc://{dead}")
        assert "add 127.0.0.1 to no_grpc_proxy" in str(caught.value).lower()
        assert "secret" not in str(caught.value)
        monkeypatch.setenv("no_grpc_proxy", "127.0.0.1,localhost")
        with pytest.raises(NobodyThere) as caught:
            connection.devices_at(f"grpc://{dead}")
        assert "proxy" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ""),
        ({"https_proxy": "http://p"}, "https_proxy"),
        ({"http_proxy": "http://p", "grpc_proxy": "http://p"}, "grpc_proxy"),
        ({"https_proxy": "http://p", "no_proxy": "x,.2"}, ""),
        ({"https_proxy": "http://p", "no_proxy": ",x"}, "https_proxy"),
        ({"https_proxy": "http://p", "no_proxy": "10.0.0.2", "no_grpc_proxy": "x"}, "https_proxy"),
    ],
)
def test_proxies_are_those_that_grpc_obeys(environment, expected):
    assert connection._proxy("10.0.0.2", environment) == expected


def test_without_tpu_connect_says_where_it_runs():
    with pytest.raises(CantConnect, match=r"kernel has no TPU[\s\S]*\([\s\S]*fallback=True"):
        runtime.connect()
    with pytest.raises(CantConnect, match="kernel has no TPU"):
        runtime.connect("  ")


def test_a_name_is_not_looked_up_where_that_could_hang(monkeypatch):
    monkeypatch.setattr(connection, "on_google_cloud", lambda: False)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(CantConnect, match=r"'my-tpu' is a name[\s\S]*grpc://IP:8470"):
        runtime.connect("my-tpu")
    monkeypatch.setenv("TPU_NAME", "my-other-tpu")
    with pytest.raises(CantConnect, match="no sign of a TPU, TPU_NAME=my-other-tpu"):
        runtime.connect()


@pytest.mark.parametrize(
    ("product", "expected"), [("Google Compute Engine\n", True), ("Standard PC", False)]
)
def test_google_cloud_is_told_by_the_firmware(product, expected, tmp_path):
    file = tmp_path / "sys/class/dmi/id/product_name"
    assert not connection.on_google_cloud(tmp_path)
    file.parent.mkdir(parents=True)
    file.write_text(product)
    assert connection.on_google_cloud(tmp_path) == expected


def test_on_google_cloud_a_silent_or_refusing_metadata_server_is_given_up(monkeypatch):
    monkeypatch.setattr(connection, "on_google_cloud", lambda: True)
    for speak, told in ((nothing, r"No answer in 0\.5 seconds"), (web, "HTTP Error 400")):
        with server(speak) as metadata:
            monkeypatch.setenv("GCE_METADATA_HOST", metadata)
            with pytest.raises(CantConnect, match=rf"'my-tpu'[\s\S]*{told}[\s\S]*cloud-tpu-client"):
                connection._look_up("my-tpu", seconds=0.5)


def at(tmp_path, **environment: str) -> place.Place:
    (tmp_path / "dev").mkdir(exist_ok=True)
    (tmp_path / "dev/accel0").touch()
    return place.detect(environment, tmp_path)


def test_variables_for_a_tpu_are_set_or_refused(monkeypatch, tmp_path):
    here = at(tmp_path, TPU_NAME="my-tpu", TPU_LOAD_LIBRARY="0")
    monkeypatch.setenv("TPU_LOAD_LIBRARY", "1")
    monkeypatch.setitem(sys.modules, "tensorflow", object())
    with pytest.raises(CourseError, match=r"without TPU_LOAD_LIBRARY=0[\s\S]*Restart") as caught:
        connection._check_environment(here)
    assert not isinstance(caught.value, CantConnect)  # no fallback helps: restart
    monkeypatch.delitem(sys.modules, "tensorflow")
    connection._check_environment(here)
    assert os.environ["TPU_LOAD_LIBRARY"] == "0"
    monkeypatch.setitem(sys.modules, "tensorflow", object())
    connection._check_environment(here)


def test_the_plug_in_is_named_to_the_build_for_tpu_alone(monkeypatch, tmp_path):
    libtpu = pytest.importorskip("libtpu")
    here = at(tmp_path, TPU_ACCELERATOR_TYPE="v6e-1")
    assert "PJRT_DEVICE" in here.environment
    assert connection.tensorflow_environment(here) == {}
    monkeypatch.setattr(connection, "_is_installed", lambda package: package == "tensorflow-tpu")
    path = {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": libtpu.get_library_path()}
    assert connection.tensorflow_environment(here) == here.environment | path
    assert connection.tensorflow_environment(at(tmp_path, TPU_ACCELERATOR_TYPE="v3-8")) == {}


def python(name: str, *noise: str) -> list[str]:
    """Run one of the scripts in a process of its own, set up as a notebook is; give its lines."""
    scripts = pathlib.Path(__file__).with_name("scripts")
    start, script = ((scripts / file).read_text() for file in ("start.txt", name))
    done = call(sys.executable, "-c", start + script, timeout=200)
    assert done.returncode == 0, done.stderr
    assert [x for x in done.stderr.splitlines() if not any(word in x for word in noise)] == []
    return done.stdout.splitlines()[1:]


def test_local_without_tpu_and_the_wrong_wheel_are_told_apart_and_the_cpu_is_taken_when_asked():
    assert python("without_tpu.txt") == [
        "TensorFlow found no TPU in this machine.",
        "pip uninstall -y tensorflow && pip install tensorflow-tpu, then restart the kernel; "
        "never keep both.",
        "OneDeviceStrategy with 1 replica on this CPU (TensorFlow found no TPU in this machine.)",
        "/job:localhost/replica:0/task:0/device:CPU:0",
        "OneDeviceStrategy with 1 replica on this CPU (Nobody answers at 127.0.0.1:9.)",
        "OneDeviceStrategy with 1 replica on this CPU (This kernel has no TPU.)",
        "1",
    ]


def test_a_rehearsals_worker_is_connected_twice_and_trains_and_has_no_tpu_to_start():
    with remote_node(2) as node:
        assert connection.devices_at(node.address, seconds=30) == ["CPU:0", "CPU:1"]
        # TensorFlow's C++ code reports its own server before its log level counts; nothing else.
        lines = python("rehearsal.txt", "absl", "Started server")
        node.process.kill()
        node.process.wait(10)
        with pytest.raises(NobodyThere, match="Nobody answers"):
            connection.devices_at(node.address, seconds=30)
    line = "OneDeviceStrategy with 1 replica on a worker without TPU, its first CPU device"
    assert lines[:3] == [line, line, "/job:worker/replica:0/task:0/device:CPU:0"]
    assert lines[3].startswith("The TPU did not start. TPUs not found in the cluster.")
