"""Real parts for what a TPU does: a worker that is not in your machine, and replicas.

No TPU takes part. The worker is TensorFlow's own gRPC server, with CPU devices, in a process that
sees neither your disk nor your Python; the replicas are logical devices of one CPU.
"""

import contextlib
import dataclasses
import fcntl
import json
import logging
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import psutil

from helpers.base.environment import variables_set
from helpers.base.errors import CourseError

if TYPE_CHECKING:
    import tensorflow as tf

# Ways to shut the worker off, best first; each is tried, the first one permitted is taken.
WAYS = ("root", "user", "none")
PROGRAM = pathlib.Path(__file__).with_name("worker.py")
START_SECONDS = 60.0  # twenty times what it takes on two idle cores
ENDED_SECONDS = 5.0

# What must not reach the worker: the client's proxies, and what names the client's own TPU.
PRIVATE = re.compile(r"(?i)(.*_proxy|TPU_.*|COLAB_.*|KUBE_.*|GOOGLE_.*|GCS_.*|PYTHONPATH)")
DIRECT = ("no_grpc_proxy", "no_proxy")  # would let the worker's gRPC past the refusal below
LOOPBACK = re.compile(r"\b(?:127\.0\.0\.1|localhost):(\d{1,5})\b")
# gRPC in the worker asks this address for a way to the client, and nobody listens there (port 9,
# "discard", is privileged and unused). The same refusal in every kind of isolation.
NO_CALL_BACK = {"grpc_proxy": "http://127.0.0.1:9"}


class NotLinux(CourseError):
    """The worker needs Linux."""


class NotStarted(CourseError):
    """The worker ended, or stayed silent, before it was ready."""


class WrongReplicas(CourseError):
    """The number of replicas can't be had."""


class DevicesInUse(CourseError):
    """TensorFlow has its devices already; it can't split the CPU any more."""


class SecondStrategy(CourseError):
    """Another number of replicas was asked for in the same process."""


@dataclasses.dataclass(frozen=True)
class Isolation:
    """What keeps the worker apart from the client. Call-backs are refused in every case.

    Attributes:
        way: ``root`` (namespaces as the superuser), ``user`` (in a user namespace) or ``none``
            (this machine permits neither).
        files: Whether the worker sees a file system of its own, without the client's files. If
            not, only ``Node.disk`` is hidden from it: a name that means nothing outside the client.
        network: Whether the worker's port is reachable from this machine alone. If not, it
            listens on every interface, as TensorFlow's servers do, with no password.
    """

    way: str
    files: bool
    network: bool

    def __repr__(self) -> str:
        ways = {"root": "as root", "user": "in a user namespace", "none": "not permitted here"}
        files = "its own" if self.files else "yours, except Node.disk"
        network = (
            "its own, reached from this machine alone"
            if self.network
            else ("yours: the port is open on every interface, without a password")
        )
        return (
            f"namespaces: {ways[self.way]}\nfiles: {files}\nnetwork: {network}\n"
            "call-backs to your Python: refused"
        )


@dataclasses.dataclass(frozen=True)
class Node:
    """A worker that runs.

    Attributes:
        address: ``grpc://127.0.0.1:PORT``.
        isolation: What keeps it apart from the client.
        disk: An empty folder of the client's that the worker can't see, whatever the isolation.
        environment: The further variables it was given.
        log: What it writes to standard output and error (``tf.print``, too).
        process: The worker itself. ``process.kill()`` is what a preemption does.
    """

    address: str
    isolation: Isolation
    disk: str
    environment: Mapping[str, str]
    log: pathlib.Path
    process: psutil.Process

    def __repr__(self) -> str:
        return f"Node({self.address}, isolation {self.isolation.way})"


@contextlib.contextmanager
def _log_folder() -> Iterator[pathlib.Path]:
    """A folder for a rehearsal; it stays, with the worker's log, when the block fails."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tpu-rehearsal-"))
    keep = False
    try:
        yield folder
    except Exception:  # the end of the kernel and an interrupt are others
        keep = True
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _tail(log: pathlib.Path, lines: int = 12) -> str:
    """The end of a log, for a message."""
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-lines:]) or "(empty)"


def _shown(environment: Mapping[str, str]) -> list[str]:
    """What the worker must see of this machine: Python, its packages, files it is told of."""
    files = [x for x in environment.values() if x.startswith("/") and pathlib.Path(x).is_file()]
    paths = [x for x in environment.get("PYTHONPATH", "").split(os.pathsep) if x]
    packages = [x for x in sys.path if x.endswith(("site-packages", "dist-packages"))]
    return [sys.prefix, sys.base_prefix, *packages, *paths, *files]


@contextlib.contextmanager
def _hidden(folder: pathlib.Path) -> Iterator[str]:
    """Name a folder so that the name means nothing in another process.

    Descriptors are numbered per process, so ``/proc/self/fd/…`` leads there from the client
    alone: no permission needed, and the worker's error is that of a file system without it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 700)  # no worker has so many open
    finally:
        os.close(descriptor)
    try:
        yield f"/proc/self/fd/{high}"
    finally:
        os.close(high)


def _wait(status: int, log: pathlib.Path) -> dict:
    """Read the worker's message that it is ready."""
    end = time.monotonic() + START_SECONDS
    line = b""
    while not line.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0 or not select.select([status], [], [], left)[0]:
            happened = f"was not ready within {START_SECONDS:.0f} seconds"
            break
        if not (part := os.read(status, 4096)):
            happened = "ended before it was ready"
            break
        line += part
    else:
        return json.loads(line)
    raise NotStarted(
        f"The rehearsal's worker {happened}. The end of its log:\n{_tail(log)}",
        "The log above says it; a worker needs about 400 MB of memory and TensorFlow.",
        f"Mend what the log names and start it again; the whole log is {log}.",
    )


def _end(guard: subprocess.Popen) -> None:
    """End guard and worker; the worker can't outlive its guard."""
    with contextlib.suppress(BrokenPipeError):  # somebody killed it
        guard.stdin.write(b".")
        guard.stdin.close()
    try:
        guard.wait(ENDED_SECONDS)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()


def _client_variables(address: str) -> dict[str, str]:
    """What the client needs to speak with the worker, as environment variables."""
    direct = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or ""  # noqa: SIM112
    return {
        "COLAB_TPU_ADDR": address,
        # gRPC obeys https_proxy, and would wait for ever for a proxy that doesn't know the worker.
        "no_grpc_proxy": ",".join(filter(None, [direct, "127.0.0.1", "localhost"])),
        # Otherwise an operation on the worker may fail after the line that asked for it, or in
        # silence: a checkpoint that the worker could not write raised in two of six tries.
        "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE": "false",
    }


@contextlib.contextmanager
def remote_node(
    replicas: int = 8,
    environment: Mapping[str, str] | None = None,
    *,
    internet: bool = False,
) -> Iterator[Node]:
    """Rehearse a TPU Node: a TensorFlow worker in another process, with a file system of its own.

    The worker can't see the client's files and can't call the client back, so what fails on a
    Node for these reasons fails here. It has CPU devices and no TPU. While the block runs, its
    address stands in ``COLAB_TPU_ADDR``, without the scheme, as in Colab until 2024; two further
    variables let TensorFlow reach the worker past a proxy, and make each error of the worker's
    come from the line that caused it. Connect inside the block. TensorFlow's client, in this
    process, listens on every interface from then on; that can't be chosen.

    The worker is gone after the block, and also when this process is killed. When the block ends
    by an error, the worker's log stays and the error gets a note of its last lines.

    Args:
        replicas: Number of CPU devices in the worker, in the place of TPU cores.
        environment: Further variables for the worker. A file or an address on 127.0.0.1 that is
            named in one of them can be reached from the worker; nothing else of this machine can.
        internet: Leave the worker in this machine's network, for a real bucket. Its port is then
            open on every interface, without a password.

    Yields:
        The running worker.

    Raises:
        NotLinux: This is another system.
        WrongReplicas: ``replicas`` is less than 1.
        NotStarted: The worker ended or stayed silent; with the end of its log.
    """
    if sys.platform != "linux":
        raise NotLinux(
            "The rehearsal's worker can't run here.",
            "It is shut off with namespaces and /proc, which only Linux has.",
            "Use Linux, WSL 2 on Windows, or Colab.",
        )
    _check_replicas(replicas)
    given = dict(environment or {})
    variables = {k: v for k, v in os.environ.items() if not PRIVATE.fullmatch(k)} | given
    variables = {k: v for k, v in variables.items() if k.lower() not in DIRECT}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_log_folder())
        log, root, disk = folder / "worker.log", folder / "root", folder / "disk"
        root.mkdir()
        disk.mkdir()
        status, theirs = os.pipe()
        stack.callback(os.close, status)
        settings = {
            "client": os.getpid(),
            "replicas": replicas,
            "ways": WAYS,
            "private_network": not internet,
            "root": str(root),
            "shown": _shown(given),
            "ports": sorted({int(x) for value in given.values() for x in LOOPBACK.findall(value)}),
            "status": theirs,
            "remove_at_end": [str(root), str(disk)],
            "remove_alone": [str(folder)],
        }
        with log.open("wb") as output:
            # A session of its own: interrupting a cell must not reach the worker.
            guard = subprocess.Popen(
                [sys.executable, "-P", PROGRAM, json.dumps(settings)],
                env=variables | NO_CALL_BACK | {"HOME": "/tmp"},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[theirs],
                start_new_session=True,
            )
        stack.callback(_end, guard)
        os.close(theirs)
        ready = _wait(status, log)
        isolation = Isolation(ready["way"], ready["way"] != "none", ready["private_network"])
        name = str(disk) if isolation.files else stack.enter_context(_hidden(disk))
        address = f"127.0.0.1:{ready['port']}"
        stack.enter_context(variables_set(_client_variables(address)))
        try:
            yield Node(
                address=f"grpc://{address}",
                isolation=isolation,
                disk=name,
                environment=given,
                log=log,
                process=psutil.Process(ready["pid"]),
            )
        except Exception as error:
            error.add_note(f"The rehearsal's worker wrote, in {log}:\n{_tail(log)}")
            raise


def _check_replicas(replicas: int) -> None:
    if replicas < 1:
        raise WrongReplicas(
            f"{replicas} replicas were asked for.",
            "A worker or a strategy has at least one device.",
            "Ask for 1 or more; 8 is what a v2-8 or v3-8 has.",
        )


_strategy: "tf.distribute.MirroredStrategy | None" = None


def replicas(n: int) -> "tf.distribute.MirroredStrategy":
    """Split the CPU into logical devices and make each a replica, with a real all-reduce.

    Call it before anything else uses TensorFlow's devices. Asked again for the same number, it
    gives the same strategy, so a cell can run twice.

    Args:
        n: Number of replicas.

    Returns:
        A ``MirroredStrategy`` over ``CPU:0`` to ``CPU:n-1``.

    Raises:
        WrongReplicas: ``n`` is less than 1.
        DevicesInUse: TensorFlow has its devices already, and they are not these.
        SecondStrategy: This process has a strategy of another number of replicas. Two strategies
            would number their collective operations alike and mix them up.
    """
    global _strategy
    import tensorflow as tf

    _check_replicas(n)
    if _strategy is not None:
        if _strategy.num_replicas_in_sync == n:
            return _strategy
        raise SecondStrategy(
            f"This process has a strategy of {_strategy.num_replicas_in_sync} replicas already; "
            f"{n} were asked for.",
            "Both would number their all-reduces from the start, and TensorFlow would mix them up.",
            "Restart the kernel and ask for one number, or use another process.",
        )
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration() for _ in range(n)]
    try:
        tf.config.set_logical_device_configuration(cpu, devices)
    except RuntimeError as error:
        raise DevicesInUse(
            f"The CPU can't be split into {n} replicas any more.",
            "TensorFlow made its devices when it first computed something in this process.",
            "Restart the kernel and ask for the replicas in the first cell after the imports.",
        ) from error
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it reports its devices on standard error
    try:
        _strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(n)])
    finally:
        logger.setLevel(level)
    return _strategy
