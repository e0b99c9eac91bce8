"""A worker that is really apart from the client, and always gone afterwards."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import psutil
import pytest
from processes import child, printed
from terminal import gone, wait_for

from helpers.base.errors import CourseError
from helpers.tpu import gate
from helpers.tpu import node as nodes
from helpers.tpu.connection import devices_at
from helpers.tpu.node import remote_node

pytestmark = pytest.mark.long

SEES = """
import json, pathlib, sys
import numpy as np
import tensorflow as tf
from helpers.tpu import node as nodes
from helpers.tpu.storage import embedded_gcs

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

def text(path):
    return read(tf.constant(path)).numpy().decode()

way, course, named = sys.argv[1:]
nodes.WAYS = {"root": nodes.WAYS[:1], "user": nodes.WAYS[1:], "none": [["false"]]}[way]
with embedded_gcs() as gcs:
    environment = {"A_FILE": named, "no_grpc_proxy": "127.0.0.1"} | gcs.environment
    with nodes.remote_node(replicas=3, environment=environment) as node:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=node.address)
        tf.config.experimental_connect_to_cluster(resolver)
        strategy = tf.distribute.OneDeviceStrategy("/job:worker/replica:0/task:0/device:CPU:0")
        tf.io.write_file(gcs.url + "/object", "from the bucket")
        pathlib.Path(node.disk, "data").write_text("secret")
        with tf.device("/job:localhost"):
            mine = text(node.disk + "/data")
        print(json.dumps({
            "apart": node.apart,
            "pid": node.process.pid,
            "devices": len([d for d in tf.config.list_logical_devices() if "worker" in d.name]),
            "mine": mine,
            "disk": error(lambda: text(node.disk + "/data")),
            "course": error(lambda: text(course)),
            "named": text(named),
            "change": node.apart and error(lambda: write(tf.constant(named)).numpy()),
            "call back": error(lambda: strategy.run(call_back).numpy()),
            "bucket": text(gcs.url + "/object"),
        }), flush=True)
"""

# What somebody who reaches the worker reads through it: what processes have in their environments,
# and a file by way of their root folders. TensorFlow reads /proc's files, which say that they are
# empty, by lines alone.
ATTACKS = """
import json, os, sys
import tensorflow as tf
from helpers.tpu import node as nodes

way, secret_file = sys.argv[1:]
nodes.WAYS = {"root": nodes.WAYS[:1], "user": nodes.WAYS[1:]}[way]

def lines(path):
    try:
        return b"".join(line.numpy() for line in tf.data.TextLineDataset(path)).decode()
    except tf.errors.OpError:
        return ""

@tf.function
def processes():
    return tf.io.matching_files("/proc/[0-9]*")

with nodes.remote_node(replicas=1) as node:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=node.address)
    tf.config.experimental_connect_to_cluster(resolver)
    with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
        folders = [folder.decode() for folder in processes().numpy()]
        folders += [f"/proc/{process}" for process in ("self", os.getpid(), node.process.pid)]
        environments = [lines(folder + "/environ") for folder in folders]
        files = [lines(folder + "/root" + secret_file) for folder in folders]
        accounts = lines("/etc/shadow")
    print(json.dumps({
        "processes": len(folders),
        "own environment": any("TF_USE_LEGACY_KERAS" in text for text in environments),
        "environment": "".join(environments),
        "files": "".join(files),
        "accounts": accounts,
    }), flush=True)
"""


def skip_without_namespaces(way):
    probe = {"root": nodes.WAYS[0], "user": nodes.WAYS[1]}[way]
    if subprocess.run([*probe, "true"], capture_output=True).returncode:
        pytest.skip(f"this machine permits no namespaces ({way})")


@pytest.mark.parametrize("way", ["root", "user"])
def test_neither_environment_nor_files_can_be_read_through_the_worker(way, tmp_path):
    skip_without_namespaces(way)
    secret_file = tmp_path / "secret.txt"
    secret_file.write_text("the learner's file")
    environment = {"MY_API_KEY": "the learner's key"}
    loot = json.loads(printed(ATTACKS, way, str(secret_file), environment=environment))
    assert loot["processes"] >= 3  # it does read /proc
    assert loot["own environment"]
    assert "the learner's key" not in loot["environment"]
    assert (loot["files"], loot["accounts"]) == ("", "")


def other_addresses():
    """This machine's addresses but for the loopback interface's."""
    addresses = []
    for interface in psutil.net_if_addrs().values():
        for address in interface:
            if address.family == socket.AF_INET and not address.address.startswith("127."):
                addresses.append(address.address)
    return addresses


def answers_another_user(port):
    """Whether a user without rights gets an answer to the first words of HTTP/2."""
    child = os.fork()
    if child == 0:
        os.setuid(65534)  # nobody
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            answer = b""
            with contextlib.suppress(OSError):
                answer = connection.recv(100)
        os._exit(bool(answer))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 1


def test_only_this_machine_and_this_user_reach_the_worker():
    skip_without_namespaces("root" if os.getuid() == 0 else "user")
    with remote_node(replicas=1) as node:
        assert devices_at(node.address, seconds=30) == ["CPU:0"]
        port = int(node.address.rpartition(":")[2])
        for address in other_addresses():
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((address, port), timeout=10)
        if os.getuid() == 0:  # who may be another user
            assert not answers_another_user(port)


def test_the_proxy_of_the_worker_leads_to_googles_storage_alone():
    for target in (b"evil.example:443", b"evilgoogleapis.com:443", b"storage.googleapis.com:22"):
        client, proxy = socket.socketpair()
        with client, proxy:
            client.sendall(b"CONNECT " + target + b" HTTP/1.1\r\n\r\n")
            gate.reach_storage(proxy)
            assert client.recv(100).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize("way", ["root", "user", "none"])  # the last is refused namespaces
def test_the_worker_reads_what_it_is_given_and_no_other_file_and_can_not_call_back(way, tmp_path):
    if way != "none":
        skip_without_namespaces(way)
    file = tmp_path / "named.txt"
    file.write_text("the worker may read this")
    answers = json.loads(printed(SEES, way, __file__, str(file)))
    assert (answers["apart"], answers["devices"]) == (way != "none", 3)
    assert (answers["mine"], answers["named"]) == ("secret", "the worker may read this")
    assert answers["bucket"] == "from the bucket"
    assert answers["disk"].startswith("NotFoundError: ")
    assert "/data; No such file or directory" in answers["disk"]
    assert "failed to connect to all addresses" in answers["call back"]
    assert ("No such file or directory" in answers["course"]) == (way != "none")
    assert way == "none" or "Read-only file system" in answers["change"]
    assert file.read_text() == "the worker may read this"
    assert gone(answers["pid"])


def test_a_second_rehearsal_shares_nothing_with_the_first_and_leaves_nothing(monkeypatch):
    monkeypatch.setenv("COLAB_TPU_ADDR", "before")
    monkeypatch.setenv("no_proxy", "10.0.0.1")
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    with remote_node(replicas=2) as node:
        assert node.address == f"grpc://{os.environ['COLAB_TPU_ADDR']}"  # as in the old Colab
        with remote_node(1) as second:
            direct = os.environ["no_grpc_proxy"]  # noqa: SIM112
            assert direct.startswith("10.0.0.1,127.0.0.1,localhost")
            for attribute in ("address", "disk", "process"):
                assert getattr(second, attribute) != getattr(node, attribute)
            # Jupyter interrupts the kernel's whole process group.
            assert os.getpgid(second.process.pid) != os.getpgrp()
            pathlib.Path(second.disk, "file").write_text("x")
        assert gone(second.process.pid)
        assert not second.log.parent.exists()
        assert node.process.poll() is None
    assert os.environ["COLAB_TPU_ADDR"] == "before"
    assert "no_grpc_proxy" not in os.environ


KERNEL = """
import os, sys, time
from helpers.tpu.node import remote_node
# As in a notebook: nobody closes it.
rehearsal = remote_node(replicas=1)
node = rehearsal.__enter__()
if "fork" in sys.argv[1] and os.fork() == 0:
    time.sleep(600)   # a child that holds every pipe of the kernel, as multiprocessing has
print(node.process.pid, flush=True)
if sys.argv[1] != "ends":
    time.sleep(600)
"""


@pytest.mark.parametrize("how", ["ends", "killed beside a fork"])
def test_a_kernel_leaves_no_worker_however_it_ends(how, tmp_path):
    with child(KERNEL, how, environment={"TMPDIR": str(tmp_path)}) as kernel:
        worker = int(kernel.stdout.readline())
        if how != "ends":
            kernel.kill()
        assert gone(worker)
        if how == "ends":
            assert kernel.wait() == 0
            assert kernel.stderr.read() == ""
    # Who ends in order removes the folder. Nobody else may: below it lies the worker's own root,
    # with this machine's folders in it.
    assert how != "ends" or list(tmp_path.iterdir()) == []


def processes_that_name(folder):
    """The processes whose command has this folder in it."""
    processes = []
    for process in psutil.process_iter(["cmdline"]):
        if str(folder) in " ".join(process.info["cmdline"] or []):
            processes.append(process)
    return processes


@pytest.mark.parametrize(
    ("tensorflow", "seconds", "told"),
    [
        ("raise ImportError('not here')", 60.0, "ImportError: not here"),
        ("import time; time.sleep(600)", 2.0, "not ready within 2 seconds"),
        (
            "import sys, time; print('harmless', file=sys.stderr); time.sleep(600)",
            5.0,
            "not ready within 5 seconds.\nharmless",
        ),
    ],
    ids=["dies", "hangs", "hangs and writes"],
)
def test_a_worker_that_does_not_start_is_told(tensorflow, seconds, told, tmp_path, monkeypatch):
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/tensorflow.py").write_text(tensorflow)
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "work"))
    monkeypatch.setattr(nodes, "START_SECONDS", seconds)
    environment = {"PYTHONPATH": str(tmp_path / "packages")}
    with pytest.raises(CourseError, match=told), remote_node(environment=environment):
        pytest.fail("the block must not run")
    assert list((tmp_path / "work").iterdir()) == []
    assert wait_for(lambda: not processes_that_name(tmp_path))


def test_other_systems_are_told(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(CourseError, match=r"can't run here[\s\S]*WSL 2"), remote_node():
        pass
