"""A worker that is not in your machine, as behind a TPU Node's address.

No TPU takes part. The worker is TensorFlow's own gRPC server, with CPU devices, in a process that
sees neither your Python nor, where the machine permits that, your disk, your processes and your
network.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from helpers.base.errors import CourseError
from helpers.base.language import translated
from helpers.base.processes import served, variables_set
from helpers.tpu import gate, worker

START_SECONDS = 60.0  # twenty times what it takes on two idle cores
# How a process gets mounts, processes and a network of its own, by util-linux's program: as root,
# or as an ordinary user where user namespaces are allowed. Where neither is, the worker shares this
# machine's, and whoever reaches the machine reaches the worker.
UNSHARE = [
    "unshare",
    "--mount",
    "--propagation=private",
    "--pid",
    "--fork",
    "--kill-child",
    "--net",
]
WAYS = (UNSHARE, [*UNSHARE, "--map-root-user"])
# What TensorFlow needs of this machine: no file of a user's, no device but these.
SYSTEM = (
    *("/usr", "/bin", "/lib", "/lib64", "/sys"),
    *("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/alternatives", "/etc/ld.so.cache"),
    *("/etc/hosts", "/etc/nsswitch.conf", "/etc/passwd", "/etc/localtime"),
)
# The variables that the worker inherits. Others may be keys, and whoever reaches a worker can read
# its environment.
INHERITED = re.compile(
    r"PATH|LANG|LC_\w+|TZ|LD_LIBRARY_PATH|(TF|XLA|CUDA|OMP|KMP|MALLOC)_\w+|PYTHONDONTWRITEBYTECODE"
)
EXPOSED = (
    "This machine permits no namespaces: the rehearsal's worker shares your files, and whoever "
    "reaches this machine over a network can use it."
)
# gRPC in the worker asks this proxy for a way to the client, and nobody listens there (port 9,
# "discard", is privileged and unused), so a call back is refused.
NO_CALL_BACK = {"grpc_proxy": "http://127.0.0.1:9", "no_grpc_proxy": "", "no_proxy": ""}


@dataclasses.dataclass(frozen=True)
class Node:
    """A worker that runs."""

    address: str  # ``grpc://127.0.0.1:PORT``
    # Whether its files, processes and network are its own. If not, only `disk` is hidden from it,
    # and it listens on every interface of this machine.
    apart: bool
    disk: str  # an empty folder of the client's that the worker can't see
    log: pathlib.Path  # what it writes to standard output and error (``tf.print`` does)
    process: subprocess.Popen  # ``process.kill()`` is what a preemption does


def _way(root: pathlib.Path) -> list[str]:
    """Find what to put before a command so that it may mount; empty if the machine permits none."""
    for way in WAYS:
        with contextlib.suppress(FileNotFoundError):  # no util-linux
            probe = [*way, "mount", "-t", "tmpfs", "tmpfs", root]
            if subprocess.run(probe, capture_output=True).returncode == 0:
                return way
    return []


def _visible_paths(environment: Mapping[str, str]) -> list[str]:
    """List the paths of this machine that the worker needs: the system's, Python's, the given."""
    paths = [*SYSTEM, sys.base_prefix, sys.prefix]
    for path in sys.path:
        if path.endswith(("site-packages", "dist-packages")):
            paths.append(path)
    for value in environment.values():
        if value.startswith("/"):
            paths.append(value)
    return paths


def _local_ports(environment: Mapping[str, str]) -> list[int]:
    """List the ports of this machine that variables name, such as an embedded storage's."""
    text = "\n".join(environment.values())
    return sorted({int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)", text)})


def _command(
    folder: pathlib.Path, replicas: int, environment: Mapping[str, str], way: list[str]
) -> list[object]:
    """Write the command that starts a worker: behind a gate if there is a way to shut it off."""
    python = [sys.executable, "-P"]
    options = {"replicas": replicas}
    if not way:
        options["client"] = os.getpid()
        return [*python, worker.__file__, json.dumps(options)]
    options["root"] = str(folder / "root")
    options["paths"] = _visible_paths(environment)
    options["ports"] = _local_ports(environment)
    arguments = [os.getpid(), json.dumps(options)]
    return [*python, gate.__file__, *arguments, *way, *python, worker.__file__]


@contextlib.contextmanager
def remote_node(replicas: int = 8, environment: Mapping[str, str] | None = None) -> Iterator[Node]:
    """Rehearse a TPU Node: a TensorFlow worker in another process, with a file system of its own.

    Its ``replicas`` CPU devices stand in for TPU cores. It can't call the client back and, where
    the machine permits namespaces, sees none of the client's files but those that the variables in
    ``environment`` name, so what fails on a Node for these reasons fails here. It is then reached
    from this machine alone, by this user alone; without namespaces this says on standard error that
    everybody in the network can. While the block runs, its address is in ``COLAB_TPU_ADDR``,
    without the scheme, as in Colab until 2024. Connect inside the block. From then on TensorFlow's
    client listens on every interface; that can't be changed. The worker ends with the block, and
    also when this process is killed.

    Raises `CourseError`: This system is not Linux, or the worker did not start.
    """
    if sys.platform != "linux":
        raise CourseError(
            "The rehearsal's worker can't run here.",
            "It is shut off with namespaces and /proc, which only Linux has.",
            "Use Linux, WSL 2 on Windows, or Colab.",
        )
    environment = dict(environment or {})
    variables = {name: x for name, x in os.environ.items() if INHERITED.fullmatch(name)}
    variables |= environment | NO_CALL_BACK | {"HOME": "/tmp"}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tpu-node-")))
        log, root, disk = folder / "worker.log", folder / "root", folder / "disk"
        root.mkdir()
        disk.mkdir()
        way = _way(root)
        command = _command(folder, replicas, environment, way)
        process, port = stack.enter_context(served(command, variables, log, START_SECONDS))
        if not way:
            sys.stderr.write(translated(EXPOSED) + "\n")
        stack.enter_context(variables_set(_client_variables(port)))
        yield Node(
            address=f"grpc://127.0.0.1:{port}",
            apart=bool(way),
            disk=str(disk) if way else _hidden(disk, stack),
            log=log,
            process=process,
        )


def _client_variables(port: int) -> dict[str, str]:
    direct_hosts = ["127.0.0.1", "localhost"]
    already_direct = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy")  # noqa: SIM112
    if already_direct:
        direct_hosts.insert(0, already_direct)
    return {
        "COLAB_TPU_ADDR": f"127.0.0.1:{port}",
        # gRPC obeys https_proxy, and would wait for ever for one that doesn't know the worker.
        "no_grpc_proxy": ",".join(direct_hosts),
        # Otherwise an operation on the worker may fail after the line that asked for it, or in
        # silence, as one of 32 checkpoints did that the worker could not write.
        "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE": "false",
    }


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
