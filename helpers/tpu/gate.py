"""The program between the client and a worker whose network is its own.

TensorFlow's worker listens on every interface and asks nobody who he is. In a network namespace
it is reached through this process alone, which listens on 127.0.0.1 and lets in only the user who
started it. The other way, the worker reaches Google's storage, and the ports of this machine that
it was given.

Arguments: the client's process, the worker's options in JSON, and the command that starts a worker
in namespaces of its own. It prints its port, and ends the worker when the client is gone.
"""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

LOOPBACK = "127.0.0.1"
# As Linux writes it in /proc/net/tcp: 127.0.0.1, and the same at the end of an address of IPv6.
_LOOPBACK_HEX = "0100007F"
_STORAGE = re.compile(rb"CONNECT ([\w-]+\.)*googleapis\.com:443 HTTP/1\.[01]\r\n")
_LONGEST_REQUEST = 2**16
_PIECE = 2**18  # bytes


def copy(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes until there is no more."""
    with contextlib.suppress(OSError):  # one side went away
        while data := source.recv(_PIECE):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def join(first: socket.socket, second: socket.socket) -> None:
    """Connect two sockets with each other until both are closed."""
    with first, second:
        for end in (first, second):
            # Small messages go at once: each step waits for a few.
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = threading.Thread(target=copy, args=(second, first))
        answers.start()
        copy(first, second)
        answers.join()


def accept(listener: socket.socket, handle: Callable[[socket.socket], None]) -> None:
    """Handle each connection in a thread of its own, without end."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_handle, args=(connection, handle), daemon=True).start()


def _handle(connection: socket.socket, handle: Callable[[socket.socket], None]) -> None:
    with connection, contextlib.suppress(OSError):
        handle(connection)


def opened_by_this_user(connection: socket.socket) -> bool:
    """Tell whether the other end of a connection on this machine is this user's."""
    peer = f"{_LOOPBACK_HEX}:{connection.getpeername()[1]:04X}"
    gate = f"{_LOOPBACK_HEX}:{connection.getsockname()[1]:04X}"
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            # Each connection has a line for either end, with the user of that end.
            for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
                _, local, remote, _, _, _, _, user, *_ = line.split()
                if local.endswith(peer) and remote.endswith(gate):
                    return int(user) == os.getuid()
    return False


class Worker:
    """A worker in namespaces of its own, and the socket by which it hands out others."""

    def __init__(self, command: list[str], options: dict) -> None:
        self._channel, worker_end = socket.socketpair()
        self._lock = threading.Lock()
        with worker_end:
            options = options | {"gate": worker_end.fileno()}
            self.process = subprocess.Popen(
                [*command, json.dumps(options)],
                stdin=subprocess.PIPE,  # it ends when nobody holds the other end
                stdout=sys.stderr,  # its log
                pass_fds=[worker_end.fileno()],
            )

    def listeners(self, count: int) -> list[socket.socket]:
        """Wait until it is ready, and take its listening sockets; none if it has died."""
        _, descriptors, _, _ = socket.recv_fds(self._channel, 16, count)
        return [socket.socket(fileno=descriptor) for descriptor in descriptors]

    def connect(self) -> socket.socket:
        """Make a connection to it."""
        with self._lock:
            # One question at a time: two answers on the same channel could be exchanged.
            self._channel.sendall(b"?")
            _, descriptors, _, _ = socket.recv_fds(self._channel, 16, 1)
        if not descriptors:
            raise ConnectionError("the worker is gone")
        return socket.socket(fileno=descriptors[0])

    def let_in(self, connection: socket.socket) -> None:
        """Pass a connection on to it, if it is this user's."""
        if opened_by_this_user(connection):
            join(connection, self.connect())


def reach_storage(connection: socket.socket) -> None:
    """Be a proxy that leads to Google's storage and login alone."""
    request = b""
    # The headers end with an empty line; who never ends them is not read for ever.
    while b"\r\n\r\n" not in request and len(request) < _LONGEST_REQUEST:
        data = connection.recv(_LONGEST_REQUEST)
        if not data:
            return
        request += data
    if not _STORAGE.match(request):
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        return
    host = request.split()[1].decode().removesuffix(":443")
    with socket.create_connection((host, 443)) as storage:
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        join(connection, storage)


def main() -> None:
    """Start the worker, stand between, and end it with the client."""
    client, options, command = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]
    worker = Worker(command, options)
    handlers = [reach_storage]
    for port in options["ports"]:
        handlers.append(_reach(port))
    listeners = worker.listeners(len(handlers))
    if not listeners:
        sys.exit("The worker ended before it was ready.")
    front = socket.create_server((LOOPBACK, 0))
    listeners.append(front)
    handlers.append(worker.let_in)
    for listener, handle in zip(listeners, handlers, strict=True):
        threading.Thread(target=accept, args=(listener, handle), daemon=True).start()
    print(front.getsockname()[1], flush=True)  # noqa: T201
    # Looked up again and again: a kernel that is killed tells nobody.
    while os.getppid() == client and worker.process.poll() is None:
        time.sleep(0.2)
    worker.process.kill()


def _reach(port: int) -> Callable[[socket.socket], None]:
    def reach(connection: socket.socket) -> None:
        join(connection, socket.create_connection((LOOPBACK, port)))

    return reach


if __name__ == "__main__":
    main()
