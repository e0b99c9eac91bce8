"""A worker that is really apart from the client, and always gone afterwards."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading

import psutil
import pytest
from conventions import ROOT
from processes import child, printed
from terminal import gone, wait_for

from helpers.base.errors import CourseError
from helpers.base.settings import ENVIRONMENT
from helpers.rehearsal import node as rehearsal
from helpers.rehearsal.node import remote_node

pytestmark = pytest.mark.slow


def listens(address, port):
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((address, port)) == 0


def port_of(node):
    return int(node.address.rpartition(":")[2])


def open_to_others(node):
    """Whether the worker's port is open on an address of this machine that others can reach."""
    addresses = [one for every in psutil.net_if_addrs().values() for one in every]
    return any(
        listens(one.address, port_of(node))
        for one in addresses
        if one.family == socket.AF_INET and not one.address.startswith("127.")
    )


def permitted(way):
    """Whether this machine lets us make namespaces so, asked of util-linux's own program."""
    flags = {"root": "-mn", "user": "-Urmn", "none": None}[way]
    command = ["unshare", flags, "true"] if flags else ["true"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def node():
    with remote_node(replicas=2) as running:
        yield running


# What the worker can reach


SEES = """
import json, os, pathlib, sys
import numpy as np
import tensorflow as tf
from helpers.rehearsal import node as rehearsal
from helpers.rehearsal.storage import embedded_gcs

def connect(address):
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
    tf.config.experimental_connect_to_cluster(resolver)
    return tf.distribute.OneDeviceStrategy("/job:worker/replica:0/task:0/device:CPU:0")

def error(function):
    try:
        function()
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"
    return "nothing"

@tf.function
def read(path):
    return tf.io.read_file(path)

@tf.function
def write(path):
    tf.io.write_file(path, "x")
    return 1

@tf.function
def call_back():
    return tf.numpy_function(lambda: np.float32(1), [], tf.float32)

def look(node, strategy, course, named, url):
    pathlib.Path(node.disk, "data").write_text("secret")
    with tf.device("/job:localhost"):
        mine = read(tf.constant(node.disk + "/data")).numpy().decode()
    return {
        "way": node.isolation.way,
        "pid": node.process.pid,
        "devices": len([d for d in tf.config.list_logical_devices() if "worker" in d.name]),
        "mine": mine,
        "disk": error(lambda: read(tf.constant(node.disk + "/data")).numpy()),
        "course": error(lambda: read(tf.constant(course)).numpy()),
        "named": read(tf.constant(named)).numpy().decode(),
        "change": node.isolation.way == "none" or error(lambda: write(tf.constant(named)).numpy()),
        "call back": error(lambda: strategy.run(call_back).numpy()),
        "bucket": read(tf.constant(url + "/object")).numpy().decode(),
    }

course, named, *ways = sys.argv[1:]
for way in ways:
    if os.fork():   # a client of its own, from a process that has imported TensorFlow, not used it
        os.wait()
        continue
    rehearsal.WAYS = (way,)
    with embedded_gcs() as gcs:
        environment = {"A_FILE": named, "no_grpc_proxy": "127.0.0.1"} | gcs.environment
        with rehearsal.remote_node(replicas=3, environment=environment) as node:
            strategy = connect(node.address)
            tf.io.write_file(gcs.url + "/object", "from the bucket")
            print(json.dumps(look(node, strategy, course, named, gcs.url)), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def sees(tmp_path_factory):
    """What a worker sees, for each way of isolation that this machine permits."""
    named = tmp_path_factory.mktemp("named") / "named.txt"
    named.write_text("the worker may read this")
    ways = [way for way in rehearsal.WAYS if permitted(way)]
    lines = printed(SEES, __file__, str(named), *ways).splitlines()
    return dict(zip(ways, map(json.loads, lines), strict=True))


@pytest.mark.parametrize("way", rehearsal.WAYS)
def test_the_worker_reads_what_it_is_given_and_no_other_file_and_can_not_call_back(way, sees):
    if way not in sees:
        pytest.skip(f"this machine permits no namespaces ({way})")
    seen = sees[way]
    assert (seen["way"], seen["devices"]) == (way, 3)
    assert (seen["mine"], seen["named"]) == ("secret", "the worker may read this")
    assert seen["bucket"] == "from the bucket"
    assert seen["disk"].startswith("NotFoundError: ")
    assert "/data; No such file or directory" in seen["disk"]
    assert "failed to connect to all addresses" in seen["call back"]
    if way != "none":
        assert "No such file or directory" in seen["course"]
        assert "Read-only file system" in seen["change"]
    assert gone(seen["pid"])


def test_the_best_way_that_the_machine_permits_is_taken(node):
    assert node.isolation.way == next(way for way in rehearsal.WAYS if permitted(way))
    assert listens("127.0.0.1", port_of(node))
    assert open_to_others(node) == (not node.isolation.network)


def test_without_namespaces_the_report_says_what_is_open(monkeypatch):
    monkeypatch.setattr(rehearsal, "WAYS", ("none",))
    with remote_node(replicas=1) as node:
        assert node.isolation == rehearsal.Isolation("none", network=False)
        text = repr(node.isolation)
        assert "not permitted here" in text and "open on every interface" in text
        assert "yours, except Node.disk" in text
        assert listens("127.0.0.1", port_of(node)) and open_to_others(node)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give it up")
def test_an_ordinary_user_without_user_namespaces_gets_the_rehearsal_too():
    """No fake: an outer namespace whose limit of further ones is 0, and no capability in it."""
    limit = "echo 0 > /proc/sys/user/max_user_namespaces"
    drop = "exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs"
    script = (
        "from helpers.rehearsal.node import remote_node\n"
        "with remote_node(replicas=1) as node:\n"
        "    print(node.isolation.way, node.log.read_text().count('No namespaces'))\n"
    )
    command = ["unshare", "-Ur", "sh", "-c", f'{limit} && {drop} "$@"', "sh"]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("this machine can't take the permission away")
    command += [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "none 2\n", done.stderr


PORTS = """
import fcntl, pathlib, socket, struct, sys
from helpers.base.errors import CourseError
from helpers.rehearsal import node as rehearsal

with socket.socket() as any_socket:   # the loopback of this new network, up
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40005")
taken = [socket.socket() for _ in range(5)]
for number, one in enumerate(taken):   # shared, as gRPC's own ports are
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind(("0.0.0.0", 40000 + number))
    one.listen()
rehearsal.WAYS = (sys.argv[1],)
with rehearsal.remote_node(replicas=1) as node:
    print(node.address)
    if sys.argv[1] == "root":   # the last port is the relay's now
        try:
            with rehearsal.remote_node(replicas=1):
                pass
        except CourseError as error:
            print("Address already in use" in str(error))
"""


@pytest.mark.parametrize("way", ["root", "none"])
def test_a_taken_port_is_never_used(way, tmp_path):
    """No check, so no gap: the system hands out a free port at the moment of use.

    The only free one of six, here, in a network of the test's own.
    """
    if not permitted("root"):
        pytest.skip("this machine permits no network of our own")
    command = ["unshare", "-n", sys.executable, "-c", PORTS, way]
    variables = os.environ | ENVIRONMENT | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    expected = "grpc://127.0.0.1:40005\n" + ("True\n" if way == "root" else "")
    assert done.stdout == expected, done.stderr


# From start to end


def test_a_second_rehearsal_shares_nothing_with_the_first_and_leaves_nothing(node, monkeypatch):
    assert node.address == f"grpc://{os.environ['COLAB_TPU_ADDR']}"  # as in the old Colab
    monkeypatch.setenv("COLAB_TPU_ADDR", "before")
    monkeypatch.setenv("no_proxy", "10.0.0.1")
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    stack, nodes = contextlib.ExitStack(), []
    # Linux ends a process with the *thread* that started it, if it is asked to.
    thread = threading.Thread(target=lambda: nodes.append(stack.enter_context(remote_node(1))))
    thread.start()
    thread.join()
    with stack:
        (second,) = nodes
        assert os.environ["COLAB_TPU_ADDR"] == second.address.removeprefix("grpc://")
        assert os.environ["no_grpc_proxy"] == "10.0.0.1,127.0.0.1,localhost"  # noqa: SIM112
        for attribute in ("address", "disk", "process"):
            assert getattr(second, attribute) != getattr(node, attribute)
        # Jupyter interrupts the kernel's whole process group.
        assert os.getpgid(second.process.pid) != os.getpgrp()
        guard, folder = second.process.parent(), second.log.parent
        pathlib.Path(second.disk, "file").write_text("x")
        assert listens("127.0.0.1", port_of(second)) and second.process.is_running()
    assert gone(second.process.pid) and gone(guard.pid)
    assert not folder.exists()
    assert os.environ["COLAB_TPU_ADDR"] == "before" and "no_grpc_proxy" not in os.environ
    assert listens("127.0.0.1", port_of(node)) and node.process.is_running()


@pytest.fixture
def logs_kept_here(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.usefixtures("logs_kept_here")
def test_an_error_in_the_block_keeps_the_log_and_shows_its_end():
    with pytest.raises(ZeroDivisionError) as raised, remote_node(replicas=1) as node:
        node.log.write_text("the last words\n")
        raise ZeroDivisionError
    assert "the last words" in raised.value.__notes__[0]
    assert node.log.exists() and gone(node.process.pid)


KERNEL = """
import os, sys, time
from helpers.rehearsal.node import remote_node
# As in a notebook: nobody closes it.
rehearsal = remote_node(replicas=1)
node = rehearsal.__enter__()
if "fork" in sys.argv[1] and os.fork() == 0:
    time.sleep(600)   # a child that holds every pipe of the kernel, as multiprocessing has
print(node.process.pid, node.process.ppid(), flush=True)
if sys.argv[1] != "ends":
    time.sleep(600)
"""


@pytest.mark.parametrize("how", ["ends", "killed beside a fork", "guard killed"])
def test_a_kernel_leaves_no_worker_however_it_ends(how, tmp_path):
    with child(KERNEL, how, environment={"TMPDIR": str(tmp_path)}) as kernel:
        worker, guard = map(int, kernel.stdout.readline().split())
        if how == "guard killed":
            psutil.Process(guard).kill()
        elif how != "ends":
            kernel.kill()
        assert gone(worker)
        if how != "guard killed":
            assert gone(guard)
            assert wait_for(lambda: not list(tmp_path.iterdir()))
        if how == "ends":
            assert kernel.wait() == 0 and kernel.stderr.read() == ""


@pytest.mark.usefixtures("logs_kept_here")
@pytest.mark.parametrize(
    ("tensorflow", "seconds", "told", "log"),
    [
        ("raise ImportError('not here')", 60.0, "ended before it was ready", "ImportError: not"),
        ("import time; time.sleep(600)", 2.0, "not ready within 2 seconds", ""),
    ],
    ids=["dies", "hangs"],
)
def test_a_worker_that_does_not_start_is_told_with_its_log(
    tensorflow, seconds, told, log, tmp_path, monkeypatch
):
    (tmp_path / "tensorflow.py").write_text(tensorflow)
    monkeypatch.setattr(rehearsal, "START_SECONDS", seconds)
    with (
        pytest.raises(CourseError, match=told) as raised,
        remote_node(environment={"PYTHONPATH": str(tmp_path)}),
    ):
        pytest.fail("the block must not run")
    kept = pathlib.Path(raised.value.fix.rpartition("the whole log is ")[2].rstrip("."))
    assert log in raised.value.what and log in kept.read_text()
    mine = psutil.Process().children(recursive=True)
    assert not [p for p in mine if str(tmp_path) in p.environ().get("PYTHONPATH", "")]


# What can't be had


def test_a_worker_without_a_device_is_refused():
    with pytest.raises(CourseError, match="0 replicas were asked for"):
        remote_node(replicas=0).__enter__()


def test_other_systems_are_told():
    script = """
import sys
from helpers.base.errors import CourseError
sys.modules["fcntl"] = None   # Windows has none
from helpers.rehearsal.node import remote_node
sys.platform = "win32"
try:
    remote_node().__enter__()
except CourseError as error:
    print(error)
"""
    told = printed(script)
    assert "can't run here" in told and "WSL 2" in told
