"""A worker that is not in your machine, as behind a TPU Node's address.

No TPU takes part. The worker is TensorFlow's own gRPC server, with CPU devices, in a process that
sees neither your disk nor your Python.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

import psutil

from helpers.base.errors import CourseError
from helpers.base.processes import variables_set
from helpers.rehearsal.replicas import check_number

# Ways to isolate the worker, best first: the first one that the machine permits is taken.
WAYS = ("root", "user", "none")
PROGRAM = pathlib.Path(__file__).with_name("worker.py")
START_SECONDS = 60.0  # twenty times what it takes on two idle cores

# Variables that the worker must not inherit: proxies, and what names the client's own TPU.
PRIVATE = re.compile(r"(?i)(.*_proxy|TPU_.*|COLAB_.*|KUBE_.*|GOOGLE_.*|GCS_.*|PYTHONPATH)")
DIRECT = ("no_grpc_proxy", "no_proxy")  # would let the worker's gRPC past the refusal below
LOOPBACK = re.compile(r"\b(?:127\.0\.0\.1|localhost):(\d{1,5})\b")
# gRPC in the worker asks this proxy for a way to the client, and nobody listens there (port 9,
# "discard", is privileged and unused), so a call back is refused in every kind of isolation.
NO_CALL_BACK = {"grpc_proxy": "http://127.0.0.1:9"}


@dataclasses.dataclass(frozen=True)
class Isolation:
    """What keeps the worker apart from the client. Call-backs are refused in every case.

    Attributes:
        way: ``root`` (namespaces as the superuser) or ``user`` (in a user namespace): the worker
            sees a file system of its own. ``none`` (this machine permits neither): only
            ``Node.disk`` is hidden from it, by a name that means nothing outside the client.
        network: Whether the worker's port is reachable from this machine alone. If not, it
            listens on every interface, as TensorFlow's servers do, with no password.
    """

    way: str
    network: bool

    def __repr__(self) -> str:
        ways = {"root": "as root", "user": "in a user namespace", "none": "not permitted here"}
        files = "yours, except Node.disk" if self.way == "none" else "its own"
        network = "yours: the port is open on every interface, without a password"
        if self.network:
            network = "its own, reached from this machine alone"
        return (
            f"namespaces: {ways[self.way]}\nfiles: {files}\nnetwork: {network}\n"
            "call-backs to your Python: refused"
        )


@dataclasses.dataclass(frozen=True)
class Node:
    """A worker that runs."""

    address: str  # ``grpc://127.0.0.1:PORT``
    isolation: Isolation  # what keeps it apart from the client
    disk: str  # an empty folder of the client's that the worker can't see, whatever the isolation
    log: pathlib.Path  # what it writes to standard output and error (``tf.print``, too)
    # The worker itself. ``process.kill()`` is what a preemption does.
    process: psutil.Process

    def __repr__(self) -> str:
        return f"Node({self.address}, isolation {self.isolation.way})"


@contextlib.contextmanager
def _log_folder() -> Iterator[pathlib.Path]:
    """Make a folder that is removed after the block, unless an error leaves the worker's log."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tpu-rehearsal-"))
    keep = False
    try:
        yield folder
    except Exception:  # an interrupt and the kernel's end are no Exception
        keep = True
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _tail(log: pathlib.Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-12:]) or "(empty)"


def _shown(environment: Mapping[str, str]) -> list[str]:
    """Paths of this machine that the worker must see: Python, its packages, files it is given."""
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
    import fcntl  # here: Windows has none, and gets `remote_node`'s message

    low = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 700)  # no worker has so many open
    os.close(low)
    try:
        yield f"/proc/self/fd/{high}"
    finally:
        os.close(high)


def _wait(status: int, log: pathlib.Path) -> dict:
    """Read the worker's message that it is ready."""
    said = select.select([status], [], [], START_SECONDS)[0]
    if said and (line := os.read(status, 4096)):  # so few bytes come as one
        return json.loads(line)
    late = f"was not ready within {START_SECONDS:.0f} seconds"
    happened = "ended before it was ready" if said else late
    raise CourseError(
        f"The rehearsal's worker {happened}. The end of its log:\n{_tail(log)}",
        "The log above says it; a worker needs about 400 MB of memory and TensorFlow.",
        f"Mend what the log names and start it again; the whole log is {log}.",
    )


def _client_variables(address: str) -> dict[str, str]:
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
    replicas: int = 8, environment: Mapping[str, str] | None = None, *, internet: bool = False
) -> Iterator[Node]:
    """Rehearse a TPU Node: a TensorFlow worker in another process, with a file system of its own.

    The worker can't see the client's files and can't call the client back, so what fails on a
    Node for these reasons fails here. It has CPU devices and no TPU. While the block runs, its
    address is in ``COLAB_TPU_ADDR``, without the scheme, as in Colab until 2024; two further
    variables let TensorFlow reach the worker past a proxy and raise each of the worker's errors
    at the line that caused it. Connect inside the block. From then on TensorFlow's client, in this
    process, listens on every interface; that can't be changed.

    The worker ends with the block, and also when this process is killed. If the block raises, the
    worker's log stays and the error gets a note with its last lines.

    Args:
        replicas: Number of CPU devices in the worker, which stand in for TPU cores.
        environment: More variables for the worker. It can reach the files, and the addresses on
            127.0.0.1, that they name, and nothing else of this machine.
        internet: Leave the worker in this machine's network, for a real bucket. Its port is then
            open on every interface, without a password.

    Raises:
        CourseError: This system is not Linux, ``replicas`` is less than 1, or the worker did not
            start (with the end of its log).
    """
    if sys.platform != "linux":
        raise CourseError(
            "The rehearsal's worker can't run here.",
            "It is shut off with namespaces and /proc, which only Linux has.",
            "Use Linux, WSL 2 on Windows, or Colab.",
        )
    check_number(replicas)
    given = dict(environment or {})
    variables = {k: v for k, v in os.environ.items() if not PRIVATE.fullmatch(k)} | given
    variables = {k: v for k, v in variables.items() if k.lower() not in DIRECT}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_log_folder())
        log, root, disk = folder / "worker.log", folder / "root", folder / "disk"
        for inside in (root, disk):
            inside.mkdir()
            stack.callback(shutil.rmtree, inside, ignore_errors=True)
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
            "folder": str(folder),
        }
        with log.open("wb") as output:
            # A session of its own: interrupting a cell must not reach the worker.
            guard = subprocess.Popen(
                [sys.executable, "-P", PROGRAM, json.dumps(settings)],
                env=variables | NO_CALL_BACK | {"HOME": "/tmp"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs],
                start_new_session=True,
            )
        stack.callback(guard.wait)
        stack.callback(guard.kill)  # the worker can't outlive its guard
        os.close(theirs)
        ready = _wait(status, log)
        shared = ready["way"] == "none"
        name = stack.enter_context(_hidden(disk)) if shared else str(disk)
        address = f"127.0.0.1:{ready['port']}"
        stack.enter_context(variables_set(_client_variables(address)))
        try:
            isolation = Isolation(ready["way"], ready["private_network"])
            worker = psutil.Process(ready["pid"])
            yield Node(f"grpc://{address}", isolation, name, log, worker)
        except Exception as error:
            error.add_note(f"The rehearsal's worker wrote, in {log}:\n{_tail(log)}")
            raise
