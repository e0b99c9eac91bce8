"""A worker that is really apart from the client, and always gone afterwards."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest
from processes import child, printed
from terminal import gone

from helpers.base.errors import CourseError
from helpers.tpu import node as nodes
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


@pytest.mark.parametrize("way", ["root", "user", "none"])  # the last is refused namespaces
def test_the_worker_reads_what_it_is_given_and_no_other_file_and_can_not_call_back(way, tmp_path):
    probe = {"root": ["-m"], "user": ["-m", "-r"], "none": None}[way]
    if probe and subprocess.run(["unshare", *probe, "true"], capture_output=True).returncode:
        pytest.skip(f"this machine permits no namespaces ({way})")
    named = tmp_path / "named.txt"
    named.write_text("the worker may read this")
    seen = json.loads(printed(SEES, way, __file__, str(named)))
    assert (seen["apart"], seen["devices"]) == (way != "none", 3)
    assert (seen["mine"], seen["named"]) == ("secret", "the worker may read this")
    assert seen["bucket"] == "from the bucket"
    assert seen["disk"].startswith("NotFoundError: ")
    assert "/data; No such file or directory" in seen["disk"]
    assert "failed to connect to all addresses" in seen["call back"]
    assert ("No such file or directory" in seen["course"]) == (way != "none")
    assert way == "none" or "Read-only file system" in seen["change"]
    assert named.read_text() == "the worker may read this"
    assert gone(seen["pid"])


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
        assert gone(second.process.pid) and not second.log.parent.exists()
        assert node.process.poll() is None
    assert os.environ["COLAB_TPU_ADDR"] == "before" and "no_grpc_proxy" not in os.environ


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
            assert kernel.wait() == 0 and kernel.stderr.read() == ""
    # Who ends in order removes the folder. Nobody else may: below it lies the worker's own root,
    # with this machine's folders in it.
    assert how != "ends" or list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tensorflow", "seconds", "told"),
    [
        ("raise ImportError('not here')", 60.0, "ImportError: not here"),
        ("import time; time.sleep(600)", 2.0, "not ready within 2 seconds"),
    ],
    ids=["dies", "hangs"],
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


def test_other_systems_are_told(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(CourseError, match=r"can't run here[\s\S]*WSL 2"), remote_node():
        pass
