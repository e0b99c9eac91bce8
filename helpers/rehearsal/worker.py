"""The far end of a rehearsal: a TensorFlow worker without the client's disk and Python.

A program of two processes, which ``helpers.rehearsal.node`` starts. The **guard** stays in the
client's world: it relays what the worker may reach, and the worker ends when the guard does. The
**worker** first isolates itself from that world and then imports TensorFlow.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import sys
import threading
import time
import traceback

HERE = "127.0.0.1"
SEEN = ("/usr", "/bin", "/lib", "/lib64", "/etc", "/sys", "/proc", "/run/systemd/resolve")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")

# <linux/sched.h>, <linux/mount.h>, <linux/prctl.h>, <linux/sockios.h>
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MS_REC, MS_PRIVATE, MS_RELATIME = 16384, 1 << 18, 1 << 21
PR_SET_PDEATHSIG, SIOCSIFFLAGS, IFF_UP_RUNNING = 1, 0x8914, 0x41


def _call(function: str, *arguments: object) -> None:
    """Call libc; raise the error it reports."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    names = (os.fsencode(name) for name in (source, target, kind))
    _call("mount", *names, ctypes.c_ulong(flags), None)


def _show(path: str, root: str) -> None:
    """Let a path of the machine appear below the worker's root, read-only."""
    original, shown = pathlib.Path(path), pathlib.Path(root + path)
    shown.parent.mkdir(parents=True, exist_ok=True)
    if original.is_symlink() and path in SEEN:
        shown.symlink_to(original.readlink())
        return
    if original.is_dir():
        shown.mkdir(exist_ok=True)
    else:
        shown.touch()
    _mount(path, str(shown), "none", MS_BIND | MS_REC)
    if path in ("/proc", "/sys") or original.is_char_device():
        return
    # A user namespace may not take away the flags that the mount already has.
    flags = os.statvfs(path).f_flag
    keep = flags & 0b1110 | flags & 0xC00 | (MS_RELATIME if flags & 4096 else 0)
    _mount("none", str(shown), "none", MS_REMOUNT | MS_BIND | MS_RDONLY | keep)


def isolate(way: str, root: str, shown: list[str], private_network: bool) -> None:
    """Isolate this process: its own root, in an empty folder, with ``shown`` in it, read-only.

    ``way`` is ``root`` (namespaces as the superuser) or ``user`` (in a user namespace). Raises
    OSError where the machine does not permit it; the process may be half-way then, and must end.
    """
    user, group = os.getuid(), os.getgid()
    network = CLONE_NEWNET if private_network else 0
    _call("unshare", CLONE_NEWNS | network | (CLONE_NEWUSER if way == "user" else 0))
    if way == "user":
        pathlib.Path("/proc/self/setgroups").write_text("deny")
        pathlib.Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        pathlib.Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _mount("none", "/", "none", MS_REC | MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV)
    done: list[str] = []
    for path in sorted({*SEEN, *DEVICES, *shown}):
        inside = any(path == other or path.startswith(other + "/") for other in done)
        if pathlib.Path(path).exists() and not inside:
            _show(path, root)
            done.append(path)
    pathlib.Path(root, "tmp").mkdir(exist_ok=True)
    os.chroot(root)
    os.chdir("/tmp")
    if private_network:
        with socket.socket() as any_socket:
            request = struct.pack("16sh14x", b"lo", IFF_UP_RUNNING)
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes one way until either end closes, then close both."""
    with contextlib.suppress(OSError):  # an end went away: what remains is to tell the other
        while data := source.recv(1 << 18):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):  # closed already
            end.shutdown(socket.SHUT_RDWR)


def _relay(listener: socket.socket, port: int) -> None:
    """Connect every caller of the listener to a port of this process's own network."""
    while True:
        outer, _ = listener.accept()
        try:
            inner = socket.create_connection((HERE, port))
        except OSError:
            outer.close()  # nobody there: the caller hears the same as without a relay
            continue
        for end in (outer, inner):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for pair in ((outer, inner), (inner, outer)):
            threading.Thread(target=_pump, args=pair, daemon=True).start()


def serve(
    settings: dict, way: str, front: socket.socket | None, guard: socket.socket, pid: int
) -> None:
    """Be the worker: isolate, send the guard (``pid``) its listeners, serve for ever.

    ``front`` listens on the machine's loopback for a worker that leaves the machine's network.
    """
    outlets = []
    if way != "none":
        try:
            isolate(way, settings["root"], settings["shown"], bool(front))
        except OSError as error:
            print(f"No namespaces ({way}): {error}", file=sys.stderr)  # noqa: T201 - the log
            return
    if front:
        outlets = [socket.create_server((HERE, port)) for port in settings["ports"]]
    # After the namespaces: entering a user namespace clears this signal.
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != pid:
        os._exit(1)
    socket.send_fds(guard, [b"isolated"], [outlet.fileno() for outlet in outlets])

    import tensorflow as tf

    # Port 0: the system finds a free one at the moment of use, so nothing can take it before.
    server = tf.distribute.Server(
        tf.train.ClusterSpec({"worker": [f"{HERE}:0"]}),
        job_name="worker",
        task_index=0,
        protocol="grpc",
        config=tf.compat.v1.ConfigProto(device_count={"CPU": settings["replicas"]}),
    )
    port = int(server.target.rpartition(":")[2])
    if front:
        threading.Thread(target=_relay, args=(front, port), daemon=True).start()
        port = front.getsockname()[1]
    ready = {"port": port, "pid": os.getpid(), "way": way, "private_network": bool(front)}
    os.write(settings["status"], json.dumps(ready).encode() + b"\n")
    server.join()


def main() -> None:
    """Be the guard: start the worker, relay, end with the client."""
    settings = json.loads(sys.argv[1])
    for way in settings["ways"]:
        mine, worker_end = socket.socketpair()
        private = way != "none" and settings["private_network"]
        # It stays the machine's when the worker leaves the machine's network.
        front = socket.create_server((HERE, 0)) if private else None
        guard = os.getpid()
        worker = os.fork()
        if worker == 0:
            mine.close()
            try:
                serve(settings, way, front, worker_end, guard)
            except Exception:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(1)  # never on into the guard's part
        worker_end.close()
        greeting, outlets, *_ = socket.recv_fds(mine, 16, len(settings["ports"]) or 1)
        if front:
            front.close()
        if greeting:
            break
        os.waitpid(worker, 0)  # not permitted here: its log says why
    os.close(settings["status"])
    for outlet, port in zip(outlets, settings["ports"], strict=False):
        listener = socket.socket(fileno=outlet)
        threading.Thread(target=_relay, args=(listener, port), daemon=True).start()

    # A client that ends the rehearsal kills this process, and the worker with it. If the client
    # itself is gone, nobody else is left to remove the folder.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # a worker that ends leaves no zombie
    while os.getppid() == settings["client"]:
        time.sleep(0.2)
    shutil.rmtree(settings["folder"], ignore_errors=True)


if __name__ == "__main__":
    main()
