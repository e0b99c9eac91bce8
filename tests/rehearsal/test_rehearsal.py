"""A worker that is really apart from the client, and always gone afterwards; real replicas."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import psutil
import pytest
from conventions import ROOT

from helpers.base.settings import ENVIRONMENT
from helpers.rehearsal import node as rehearsal
from helpers.rehearsal.node import remote_node

CONNECT = """
import json, os, pathlib, sys, time
import numpy as np
import tensorflow as tf

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

"""


def python(script: str, arguments: tuple = ()) -> object:
    """Run a script in a process of its own; give what it prints as JSON in its last line."""
    done = subprocess.run(
        [sys.executable, "-c", CONNECT + script, *arguments],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def gone(process: psutil.Process, seconds: float = 10.0) -> bool:
    """Wait until a process has ended (a zombie has)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.05)
                continue
        return True
    return False


def listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((address, port)) == 0


def port_of(node: rehearsal.Node) -> int:
    return int(node.address.rpartition(":")[2])


def own_address() -> str | None:
    """An address of this machine that is not the loopback."""
    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if one.family == socket.AF_INET and not one.address.startswith("127."):
                return one.address
    return None


@pytest.fixture(scope="module")
def node():
    with remote_node(replicas=2) as running:
        yield running


def permitted(way: str) -> bool:
    """Whether this machine lets us make namespaces so, asked of util-linux's own program."""
    flags = {"root": "-mn", "user": "-Urmn"}[way]
    return subprocess.run(["unshare", flags, "true"], capture_output=True).returncode == 0


SEES = """
from helpers import rehearsal

rehearsal.WAYS = (sys.argv[1],)
way, course, named = sys.argv[1:4]

def pull():
    numbers = tf.data.Dataset.from_generator(
        lambda: iter(range(3)), output_signature=tf.TensorSpec([], tf.int32))
    return next(iter(numbers)).numpy()

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

environment = {"A_FILE": named, "no_grpc_proxy": "127.0.0.1"}
with rehearsal.remote_node(replicas=3, environment=environment) as node:
    strategy = connect(node.address)
    pathlib.Path(node.disk, "data").write_text("secret")
    with tf.device("/job:localhost"):
        mine = read(tf.constant(node.disk + "/data")).numpy().decode()
    sees = {
        "way": node.isolation.way,
        "files": node.isolation.files,
        "network": node.isolation.network,
        "devices": len([d for d in tf.config.list_logical_devices() if "worker" in d.name]),
        "mine": mine,
        "disk": error(lambda: read(tf.constant(node.disk + "/data")).numpy()),
        "course": error(lambda: read(tf.constant(course)).numpy()),
        "named": read(tf.constant(named)).numpy().decode(),
        "change": way == "none" or error(lambda: write(tf.constant(named)).numpy()),
        "save": error(lambda: tf.train.Checkpoint(v=tf.Variable(1.0)).write(node.disk + "/c")),
        "call back": error(lambda: strategy.run(call_back).numpy()),
        "generator": error(pull),
        "port": int(node.address.rpartition(":")[2]),
    }
    print(json.dumps(sees), flush=True)
    sys.stdin.read()
    os._exit(0)
"""


@pytest.mark.parametrize("way", ["root", "user", "none"])
def test_the_worker_sees_no_file_of_the_client_and_can_not_call_back(way, tmp_path):
    if way != "none" and not permitted(way):
        pytest.skip(f"this machine permits no namespaces ({way})")
    named = tmp_path / "named.txt"
    named.write_text("the worker may read this")
    client = subprocess.Popen(
        [sys.executable, "-c", CONNECT + SEES, way, __file__, str(named)],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with client:
        sees = json.loads(client.stdout.readline())
        assert (sees["way"], sees["devices"]) == (way, 3)
        assert (sees["mine"], sees["named"]) == ("secret", "the worker may read this")
        assert sees["disk"].startswith("NotFoundError: ")
        assert "/data; No such file or directory" in sees["disk"]
        assert sees["save"].startswith("NotFoundError: ")
        for way_back in ("call back", "generator"):
            assert "failed to connect to all addresses" in sees[way_back]
        assert sees["files"] == sees["network"] == (way != "none")
        if sees["files"]:
            assert "No such file or directory" in sees["course"]
            assert "Read-only file system" in sees["change"]
        # Not on another interface, unless the report says so.
        assert listens("127.0.0.1", sees["port"])
        if address := own_address():
            assert listens(address, sees["port"]) == (not sees["network"])
        client.stdin.close()


def test_the_best_way_that_the_machine_permits_is_taken(node):
    best = next((way for way in ("root", "user") if permitted(way)), "none")
    assert node.isolation.way == best


def test_where_namespaces_are_refused_the_report_says_what_is_open(monkeypatch, tmp_path):
    """A libc whose ``unshare`` refuses, as in a container: found by trying, told in words."""
    program = tmp_path / "worker.py"
    source = (ROOT / "helpers/rehearsal/worker.py").read_text()
    start = 'if __name__ == "__main__":'
    refuse = (
        "def _refused(function, *arguments, call=_call):\n"
        "    if function == 'unshare':\n"
        "        raise OSError(1, 'unshare: Operation not permitted')\n"
        "    call(function, *arguments)\n\n\n_call = _refused\n\n\n"
    )
    assert start in source
    program.write_text(source.replace(start, refuse + start))
    monkeypatch.setattr(rehearsal, "PROGRAM", program)
    with remote_node(replicas=1) as node:
        assert node.isolation == rehearsal.Isolation("none", files=False, network=False)
        text = repr(node.isolation)
        assert "not permitted here" in text and "open on every interface" in text
        assert "yours, except Node.disk" in text
        assert node.log.read_text().count("Operation not permitted") == 2


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.getuid() != 0, reason="only root can give it up"
)
def test_an_ordinary_user_without_user_namespaces_gets_the_rehearsal_too():
    """No fake: an outer namespace whose limit of further ones is 0, and no capability in it."""
    limit = "echo 0 > /proc/sys/user/max_user_namespaces"
    drop = "exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs"
    script = (
        "from helpers.rehearsal.node import remote_node\n"
        "with remote_node(replicas=1) as node:\n"
        "    print(node.isolation.way)\n"
    )
    command = ["unshare", "-Ur", "sh", "-c", f'{limit} && {drop} "$@"', "sh"]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("this machine can't take the permission away")
    done = subprocess.run(
        [*command, sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "none\n", done.stderr


def test_address_stands_in_the_variable_of_the_old_colab_and_is_taken_back(node, monkeypatch):
    assert node.address == f"grpc://{os.environ['COLAB_TPU_ADDR']}"
    monkeypatch.setenv("COLAB_TPU_ADDR", "before")
    monkeypatch.setenv("no_proxy", "10.0.0.1")
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    with remote_node(replicas=1) as other:
        assert os.environ["COLAB_TPU_ADDR"] == other.address.removeprefix("grpc://")
        assert os.environ["no_grpc_proxy"] == "10.0.0.1,127.0.0.1,localhost"  # noqa: SIM112
    assert os.environ["COLAB_TPU_ADDR"] == "before"
    assert "no_grpc_proxy" not in os.environ


def test_two_rehearsals_at_once_have_nothing_in_common(node):
    with remote_node(replicas=1) as other:
        assert other.address != node.address
        assert other.disk != node.disk
        assert other.process.pid != node.process.pid
    assert gone(other.process)
    assert node.process.is_running() and listens("127.0.0.1", port_of(node))


def test_it_can_be_started_from_a_thread_that_ends(tmp_path):
    """Linux ends a process with the *thread* that started it, if it is asked to."""
    stack, nodes = contextlib.ExitStack(), []
    thread = threading.Thread(target=lambda: nodes.append(stack.enter_context(remote_node(1))))
    thread.start()
    thread.join()
    with stack:
        time.sleep(1)
        assert nodes[0].process.is_running() and listens("127.0.0.1", port_of(nodes[0]))
    assert gone(nodes[0].process)


def test_afterwards_worker_and_files_are_gone():
    with remote_node(replicas=1) as node:
        guard = node.process.parent()
        folder = node.log.parent
        assert folder.exists()
        pathlib.Path(node.disk, "file").write_text("x")
    assert gone(node.process) and gone(guard)
    assert not folder.exists()


@pytest.fixture
def logs_kept_here(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.usefixtures("logs_kept_here")
def test_an_error_in_the_block_keeps_the_log_and_shows_its_end():
    with pytest.raises(ZeroDivisionError) as raised, remote_node(replicas=1) as node:
        node.log.write_text("the last words\n")
        raise ZeroDivisionError
    assert "the last words" in raised.value.__notes__[0]
    assert node.log.exists() and gone(node.process)


KERNEL = """
import os, sys, time
from helpers.rehearsal.node import remote_node
with remote_node(replicas=1) as node:
    if sys.argv[1] == "fork" and os.fork() == 0:
        time.sleep(600)   # a child that holds every pipe of the kernel, as multiprocessing has
    print(node.process.pid, node.process.ppid(), node.disk, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("how", ["kernel", "kernel with a forked child", "guard"])
def test_killed_leaves_no_worker(how, tmp_path):
    kernel = subprocess.Popen(
        [sys.executable, "-c", KERNEL, "fork" if "fork" in how else "alone"],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        worker, guard, disk = kernel.stdout.readline().split()
        worker, guard = psutil.Process(int(worker)), psutil.Process(int(guard))
        (guard if how == "guard" else kernel).kill()
        assert gone(worker)
        if how != "guard":
            assert gone(guard)
            assert not pathlib.Path(disk).parent.exists()
    finally:
        os.killpg(kernel.pid, signal.SIGKILL)
        kernel.wait()


def test_interrupting_a_cell_does_not_reach_the_worker(node):
    """Jupyter interrupts the kernel's whole process group."""
    assert os.getpgid(node.process.pid) != os.getpgrp()


ENDS = """
import contextlib, os, sys
from helpers.rehearsal.node import remote_node
stack = contextlib.ExitStack()   # as in a notebook: nobody closes it
node = stack.enter_context(remote_node(replicas=1))
print(node.process.pid, flush=True)
"""


def test_a_kernel_that_ends_leaves_neither_worker_nor_files(tmp_path):
    variables = os.environ | ENVIRONMENT | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", ENDS]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    assert not psutil.pid_exists(int(done.stdout))
    assert not list(tmp_path.iterdir())


BROKEN = "raise ImportError('no TensorFlow here')\n"


@pytest.mark.usefixtures("logs_kept_here")
def test_worker_that_dies_at_start_is_told_with_its_log(tmp_path):
    (tmp_path / "tensorflow.py").write_text(BROKEN)
    start = time.monotonic()
    with (
        pytest.raises(rehearsal.NotStarted, match="ended before it was ready") as raised,
        remote_node(environment={"PYTHONPATH": str(tmp_path)}),
    ):
        pytest.fail("the block must not run")
    assert "ImportError: no TensorFlow here" in str(raised.value)
    assert time.monotonic() - start < 20
    log = pathlib.Path(str(raised.value).rpartition("the whole log is ")[2].rstrip("."))
    assert "no TensorFlow here" in log.read_text()


@pytest.mark.usefixtures("logs_kept_here")
def test_worker_that_hangs_at_start_is_ended(tmp_path, monkeypatch):
    (tmp_path / "tensorflow.py").write_text("import time; time.sleep(600)\n")
    monkeypatch.setattr(rehearsal, "START_SECONDS", 2.0)
    with (
        pytest.raises(rehearsal.NotStarted, match="not ready within 2 seconds"),
        remote_node(environment={"PYTHONPATH": str(tmp_path)}),
    ):
        pytest.fail("the block must not run")
    mine = psutil.Process().children(recursive=True)
    assert not [p for p in mine if str(tmp_path) in p.environ().get("PYTHONPATH", "")]


PORTS = """
import fcntl, pathlib, socket, struct, sys
from helpers import rehearsal

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
        except rehearsal.NotStarted as error:
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


REACHES = """
connect(sys.argv[1])

@tf.function
def fetch(url):
    return tf.io.read_file(url)

print(json.dumps(error(lambda: fetch(tf.constant("gs://bucket/object")).numpy())))
"""


def test_an_address_that_the_environment_names_can_be_reached():
    """As the worker reaches an embedded gs://: through a proxy on this machine."""
    named, calls = socket.create_server(("127.0.0.1", 0)), []

    def answer():
        while True:
            connection, _ = named.accept()
            calls.append(connection.recv(100))
            connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            connection.close()

    threading.Thread(target=answer, daemon=True).start()
    environment = {
        "https_proxy": f"http://127.0.0.1:{named.getsockname()[1]}",
        "NO_GCE_CHECK": "true",
        "GCS_RETRY_CONFIG_MAX_RETRIES": "1",
    }
    with remote_node(replicas=1, environment=environment) as node:
        python(REACHES, (node.address,))
    assert calls and calls[0].startswith(b"CONNECT ")


TRAIN = """
from helpers.rehearsal.node import remote_node

x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
y = x[:, :1] * 2 + 1
BATCHES = [(x[i:i + 8], y[i:i + 8]) for i in range(0, 64, 8)]
HERE = tf.train.CheckpointOptions(experimental_io_device="/job:localhost")

def build(strategy):
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(8, "relu"), tf.keras.layers.Dense(1)])
        model.build((None, 4))
        model.compile(tf.keras.optimizers.Adam(0.1), "mse")
        model.optimizer.build(model.trainable_variables)
    step = tf.Variable(0, dtype=tf.int64)
    return model, tf.train.Checkpoint(model=model, optimizer=model.optimizer, step=step)

def train(model, checkpoint, path, node=None, steps=16):
    while checkpoint.step < steps:
        now = int(checkpoint.step)
        if node and now == 11:                      # in the middle of the second epoch
            node.process.kill()
        model.train_on_batch(*BATCHES[now % 8])
        checkpoint.step.assign_add(1)
        if now % 4 == 3:
            checkpoint.write(path, HERE)

local = build(tf.distribute.OneDeviceStrategy("/cpu:0"))
train(*local, sys.argv[1] + "/local")
expected = [w.tolist() for w in local[0].get_weights()]

with remote_node(replicas=1) as node:
    strategy = connect(node.address)
    start = []
    def lost():
        start.append(time.monotonic())
        train(*build(strategy), sys.argv[1] + "/node", node)
    message = error(lost)
    seconds = time.monotonic() - start[0]

with remote_node(replicas=1) as node:
    model, checkpoint = build(connect(node.address))
    checkpoint.read(sys.argv[1] + "/node", HERE).assert_consumed()
    resumed = int(checkpoint.step)
    train(model, checkpoint, sys.argv[1] + "/node")
    same = all(np.allclose(a, b, atol=1e-6)
               for a, b in zip(expected, model.get_weights(), strict=True))
print(json.dumps([message, seconds, resumed, same]))
sys.stdout.flush()
os._exit(0)
"""


def test_worker_killed_in_mid_epoch_is_told_in_seconds_and_training_resumes(tmp_path):
    message, seconds, resumed, same = python(TRAIN, (str(tmp_path),))
    assert message.startswith("UnavailableError"), message
    assert seconds < 30
    assert resumed == 8  # the newest checkpoint before the end came at step 11
    assert same


REPLICAS = """
from helpers import rehearsal

strategy = rehearsal.replicas(2)
assert rehearsal.replicas(2) is strategy

@tf.function
def total():
    def one():
        context = tf.distribute.get_replica_context()
        mine = tf.cast(context.replica_id_in_sync_group, tf.float32) + 1.0
        return context.all_reduce("SUM", mine)
    return strategy.experimental_local_results(strategy.run(one))

devices = strategy.extended.worker_devices
print(json.dumps([
    [float(x) for x in total()],
    [d.rpartition("/")[2] for d in devices],
    error(lambda: rehearsal.replicas(3)),
]))
"""


def test_replicas_are_devices_with_a_real_all_reduce():
    totals, devices, second = python(REPLICAS)
    assert totals == [3.0, 3.0]
    assert devices == ["device:CPU:0", "device:CPU:1"]
    assert second.startswith("SecondStrategy: This process has a strategy of 2 replicas already")


def test_replicas_after_tensorflow_took_its_devices():
    script = (
        "from helpers import rehearsal\n"
        "tf.constant(1) + 1\n"
        "print(json.dumps(error(lambda: rehearsal.replicas(2))))\n"
    )
    message = python(script)
    assert message.startswith("DevicesInUse: The CPU can't be split into 2 replicas any more.")
    assert "Restart the kernel" in message


@pytest.mark.parametrize("number", [0, -1])
def test_no_replicas(number):
    with pytest.raises(rehearsal.WrongReplicas, match=f"{number} replicas were asked for"):
        rehearsal.replicas(number)
    with (
        pytest.raises(rehearsal.WrongReplicas, match=f"{number} replicas were asked for"),
        remote_node(replicas=number),
    ):
        pytest.fail("the block must not run")


def test_other_systems_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(rehearsal.NotLinux, match="can't run here"), remote_node():
        pytest.fail("the block must not run")


def test_the_module_imports_no_tensorflow():
    script = "import sys; from helpers import rehearsal; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n"
