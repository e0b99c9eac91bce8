"""A worker that is not in your machine, as behind a TPU Node's address.

No TPU takes part. The worker is TensorFlow's own gRPC server, with CPU devices, in a process that
sees neither your Python nor, where the machine permits that, your disk.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from helpers.base.errors import CourseError
from helpers.base.processes import served, variables_set

START_SECONDS = 60.0  # twenty times what it takes on two idle cores
# How a process gets mounts of its own, by util-linux's program: as root, or as an ordinary user
# where user namespaces are allowed. Where neither is, the worker shares this machine's files.
UNSHARE = ["unshare", "--mount", "--propagation=private"]
WAYS = (UNSHARE, [*UNSHARE, "--map-root-user"])
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc", "/sys", "/proc", "/dev", "/run/systemd/resolve")
# Variables that the worker must not inherit: proxies, and what names the client's own TPU.
PRIVATE = re.compile(r"(?i)(.*_proxy|TPU_.*|COLAB_.*|KUBE_.*|GOOGLE_.*|GCS_.*|PYTHONPATH)")
# gRPC in the worker asks this proxy for a way to the client, and nobody listens there (port 9,
# "discard", is privileged and unused), so a call back is refused.
NO_CALL_BACK = {"grpc_proxy": "http://127.0.0.1:9", "no_grpc_proxy": "", "no_proxy": ""}


@dataclasses.dataclass(frozen=True)
class Node:
    """A worker that runs."""

    address: str  # ``grpc://127.0.0.1:PORT``
    apart: bool  # whether its root folder is its own; if not, only `disk` is hidden from it
    disk: str  # an empty folder of the client's that the worker can't see
    log: pathlib.Path  # what it writes to standard output and error (``tf.print``, too)
    process: subprocess.Popen  # ``process.kill()`` is what a preemption does


def _way(root: pathlib.Path) -> list[str]:
    """Find what to put before a command so that it may mount; empty if the machine permits none."""
    for way in WAYS:
        with contextlib.suppress(FileNotFoundError):  # no util-linux
            probe = [*way, "mount", "-t", "tmpfs", "tmpfs", root]
            if subprocess.run(probe, capture_output=True).returncode == 0:
                return way
    return []


@contextlib.contextmanager
def remote_node(replicas: int = 8, environment: Mapping[str, str] | None = None) -> Iterator[Node]:
    """Rehearse a TPU Node: a TensorFlow worker in another process, with a file system of its own.

    Its ``replicas`` CPU devices stand in for TPU cores. It can't call the client back and, where
    the machine permits namespaces, sees none of the client's files but those that the variables in
    ``environment`` name, so what fails on a Node for these reasons fails here. While the block
    runs, its address is in ``COLAB_TPU_ADDR``, without the scheme, as in Colab until 2024. Connect
    inside the block. From then on TensorFlow's client listens on every interface, as the worker
    does; that can't be changed. The worker ends with the block, and also when this process is
    killed.

    Raises `CourseError`: This system is not Linux, or the worker did not start.
    """
    if sys.platform != "linux":
        raise CourseError(
            "The rehearsal's worker can't run here.",
            "It is shut off with namespaces and /proc, which only Linux has.",
            "Use Linux, WSL 2 on Windows, or Colab.",
        )
    given = dict(environment or {})
    variables = {k: v for k, v in os.environ.items() if not PRIVATE.fullmatch(k)}
    variables |= given | NO_CALL_BACK | {"HOME": "/tmp"}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tpu-node-")))
        log, root, disk = folder / "worker.log", folder / "root", folder / "disk"
        root.mkdir()
        disk.mkdir()
        seen = [*SYSTEM, sys.base_prefix, sys.prefix]
        seen += [x for x in sys.path if x.endswith(("site-packages", "dist-packages"))]
        seen += [value for value in given.values() if value.startswith("/")]
        way, program = _way(root), pathlib.Path(__file__).with_name("worker.py")
        command = [*way, sys.executable, "-P", program, os.getpid(), replicas, folder]
        command += seen if way else []
        process, port = stack.enter_context(served(command, variables, log, START_SECONDS))
        direct = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy")  # noqa: SIM112
        client = {
            "COLAB_TPU_ADDR": f"127.0.0.1:{port}",
            # gRPC obeys https_proxy, and would wait for ever for one that doesn't know the worker.
            "no_grpc_proxy": ",".join(filter(None, [direct, "127.0.0.1", "localhost"])),
            # Otherwise an operation on the worker may fail after the line that asked for it, or in
            # silence, as one of 32 checkpoints did that the worker could not write.
            "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE": "false",
        }
        stack.enter_context(variables_set(client))
        name = str(disk) if way else _hidden(disk, stack)
        yield Node(f"grpc://127.0.0.1:{port}", bool(way), name, log, process)


def _hidden(folder: pathlib.Path, stack: contextlib.ExitStack) -> str:
    """Name a folder so that the name means nothing in another process.

    Descriptors are numbered per process, so ``/proc/self/fd/…`` leads there from the client
    alone: no permission needed, and the worker's error is that of a file system without it.
    """
    import fcntl  # here: Windows has none, and gets `remote_node`'s message

    low = os.open(folder, os.O_RDONLY)
    stack.callback(os.close, low)
    high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 700)  # no worker has so many open
    stack.callback(os.close, high)
    return f"/proc/self/fd/{high}"
