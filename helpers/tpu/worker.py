"""The program of `node.remote_node`: a TensorFlow worker, shut off as far as the machine permits.

Its one argument is JSON. With a ``gate`` (a socket's descriptor, of `gate.main`) it must be in
namespaces of its own for mounts, processes and network; then it gets a root folder, a /proc and a
loopback interface of its own, and ends with the gate. Without one it stays in this machine's root
folder and network, prints its port, and ends with its ``client``.
"""

import contextlib
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any

# Linux's requests to read and to set a network interface's flags (netdevice(7)).
_READ_FLAGS, _SET_FLAGS = 0x8913, 0x8914
_INTERFACE = struct.Struct("16sh14x")
_UP = 1


def mount(*arguments: object) -> None:
    """Run ``mount``, which fails where this process may not."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


def change_root(root: pathlib.Path, paths: list[str]) -> None:
    """Change to a root folder that is empty but for ``paths``, read-only, and a new /proc."""
    mount("-t", "tmpfs", "tmpfs", root)
    for path in map(pathlib.Path, paths):
        inside = root / path.relative_to("/")
        if not path.exists() or inside.exists():  # it is there with its folder
            continue
        if path.is_dir():
            inside.mkdir(parents=True)
        else:
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.touch()
        mount("--rbind", path, inside)
        # These are the machine's own files: no program in here may change them.
        mount("--options", "remount,bind,ro", inside)
    # The machine's /proc would show every process's environment, and its root folder.
    (root / "proc").mkdir()
    with contextlib.suppress(subprocess.CalledProcessError):  # empty, where a container forbids it
        mount("-t", "proc", "proc", root / "proc")
    (root / "tmp").mkdir(exist_ok=True)
    os.chroot(root)
    os.chdir("/tmp")


def start_loopback() -> None:
    """Switch on 127.0.0.1, which is off in a new network namespace."""
    import fcntl  # here: Windows has none, and gets `remote_node`'s message

    with socket.socket() as any_socket:
        request = _INTERFACE.pack(b"lo", 0)
        name, flags = _INTERFACE.unpack(fcntl.ioctl(any_socket, _READ_FLAGS, request))
        fcntl.ioctl(any_socket, _SET_FLAGS, _INTERFACE.pack(name, flags | _UP))


def end_with_gate() -> None:
    """End this process when its standard input does, whatever it is doing: the gate holds it."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def serve(replicas: int) -> int:
    """Start a TensorFlow worker with so many CPU devices in this process; give its port."""
    import tensorflow as tf

    # Port 0: the system finds a free one at the moment of use, so nothing can take it before.
    config = tf.compat.v1.ConfigProto(device_count={"CPU": replicas})
    server = tf.distribute.Server({"worker": ["127.0.0.1:0"]}, task_index=0, config=config)
    return int(server.target.rpartition(":")[2])


def serve_behind_gate(options: dict[str, Any]) -> None:
    """Serve until the gate is gone, whose every request is for one more connection.

    A socket belongs to the network that it was made in, wherever it is used. So the gate is handed
    listening sockets, by which this worker reaches what it may, and connections to this worker.
    """
    gate = socket.socket(fileno=options["gate"])
    start_loopback()
    listeners = [socket.create_server(("127.0.0.1", 0))]  # for Google's storage
    listeners += [socket.create_server(("127.0.0.1", port)) for port in options["ports"]]
    os.environ.setdefault("https_proxy", f"http://127.0.0.1:{listeners[0].getsockname()[1]}")
    port = serve(options["replicas"])
    socket.send_fds(gate, [b"ready"], [listener.fileno() for listener in listeners])
    while gate.recv(1):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            socket.send_fds(gate, [b"here"], [connection.fileno()])


def main() -> None:
    """Serve until the gate, or the client, is gone."""
    options = json.loads(sys.argv[1])
    if "gate" in options:
        end_with_gate()
        change_root(pathlib.Path(options["root"]), options["paths"])
        serve_behind_gate(options)
    else:
        port = serve(options["replicas"])
        print(port, flush=True)  # noqa: T201
        os.dup2(2, 1)  # from here on what the worker prints is in its log
        while os.getppid() == options["client"]:
            time.sleep(0.2)
    os._exit(0)  # the server has no end of its own


if __name__ == "__main__":
    main()
