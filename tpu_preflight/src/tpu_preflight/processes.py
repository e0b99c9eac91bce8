"""Work with limits: a child process that may die, hang or eat memory.

A `Child` gets its jobs from the process that started it; the child itself calls `serve`. A job is a
line of JSON on the child's standard input, followed by bytes; its answer is the same on standard
output, after lines that say its stages. A child ends with its parent, whatever ends that one.
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from json import dumps, loads  # whatever the learner's module makes of json's
from os import _exit
from typing import Any, NoReturn

import psutil

Answer = tuple[dict[str, Any], bytes]  # a message, as JSON, and the bytes that go with it
Progress = Callable[[str, float], None]  # called at each stage, with the seconds passed

# Before each message: what the learner's code writes to whatever it finds open has none.
MARK = b"\0tpu-preflight "

FOLDER_PREFIX = "tpu-preflight-"  # what the name of a folder begins with that `own_folder` makes
LAST_BYTES = 1 << 20  # bytes of what a child wrote that are read again
CODE = pathlib.Path(__file__).resolve().parents[1]  # what a child imports this package from
POLL_SECONDS = 0.2  # between two looks at a child's limits
WATCH_SECONDS = 0.5  # between a child's looks at its parent


def family(pid: int) -> list[psutil.Process]:
    """List a process and all that it started, however deep; none when it has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def memory(members: Iterable[psutil.Process]) -> int:
    """Add up resident memory in bytes; what two processes share counts twice, an ended one 0."""
    total = 0
    for member in members:
        with contextlib.suppress(psutil.Error):
            total += member.memory_info().rss
    return total


def kill(members: Iterable[psutil.Process]) -> None:
    """Kill processes at once; one that has ended is no error."""
    for member in members:
        with contextlib.suppress(psutil.Error):
            member.kill()


def ending(process: subprocess.Popen) -> str:
    """Say how a process ended: ``with status 1``, ``by SIGKILL``; or that it lives, but is mute."""
    try:
        status = process.wait(1)
    except subprocess.TimeoutExpired:
        return "its answers, but not itself"
    for number in signal.Signals:
        if status == -number.value:
            return f"by {number.name}"
    return f"with status {status}"


@contextlib.contextmanager
def own_folder() -> Iterator[str]:
    """Make a folder for temporary files, and remove those whose makers were killed.

    While one is in use, a file in it is locked from the moment that it has its name; a folder
    without such a file is not ours.
    """
    _remove_abandoned_folders()
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, ignore_cleanup_errors=True) as folder:
        path = pathlib.Path(folder, "new")
        with path.open("w") as file:
            with contextlib.suppress(OSError):  # on a disk without locks it has none
                fcntl.flock(file, fcntl.LOCK_EX)
                path.rename(path.with_name(".lock"))
            yield folder


def _remove_abandoned_folders() -> None:
    for lock in pathlib.Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*/.lock"):
        with contextlib.suppress(OSError):  # in use, or not for this user
            descriptor = os.open(lock, os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(descriptor) as file:
                # Who has it in use holds the lock: then this fails, and the folder stays.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)


def end(pid: int, folder: str = "") -> None:
    """End a process that leads a session, all that it started in any session, and its folder.

    Args:
        pid: The process. The one that calls this is spared, even where the other started it.
        folder: Its TMPDIR. What left the family (a daemon) still has the folder for its temporary
            files, and is found by it. Ignored if `own_folder` didn't make it.
    """
    kill(_without_this(family(pid)))
    if FOLDER_PREFIX in folder:
        # Looked for after the family's end, which can start no more.
        kill(_without_this(_users_of(folder)))
        shutil.rmtree(folder, ignore_errors=True)
    # A process of the session whose parent had ended was in no family.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _without_this(members: Iterable[psutil.Process]) -> Iterator[psutil.Process]:
    for member in members:
        if member.pid != os.getpid():
            yield member


def _users_of(folder: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter(["environ"]):
        environment = process.info["environ"] or {}
        if environment.get("TMPDIR") == folder:
            yield process


@dataclasses.dataclass(eq=False)
class NoAnswer(Exception):
    """A child was ended, or has ended, without an answer."""

    cause: str  # the limit that was passed, ``time`` or ``memory``; else how it ended (`ending`)
    stage: str  # what it was doing
    lines: list[str]  # what it wrote
    limits: tuple[float, int]  # seconds, and bytes of memory
    details: dict[str, Any]  # what it sent with its stages

    def __str__(self) -> str:
        seconds, memory_limit = self.limits
        if self.cause == "time":
            return f"it was ended after the time limit of {seconds:g} s, while {self.stage}"
        if self.cause == "memory":
            took = f"it took more than {memory_limit / 1e9:.1f} GB of this machine's memory"
            return f"it was ended because {took}, while {self.stage}"
        return f"the process ended {self.cause}, while {self.stage}"


class Child:
    """A process that does one job after the other, and is started again when it has died.

    Args:
        module: What it runs; it calls `serve`.
        environment: Its variables, all of them.
        own_folder: Its TMPDIR, if no other process has it: goes with it.
        folder: Where it runs; Python doesn't import from there, where a random.py may be.

    Example::

        # my_worker.py ends with: serve(lambda job, data, tell: ({"size": len(data)}, b""))
        child = Child("my_worker", dict(os.environ))
        message, data = child.ask({"do": "measure"}, b"some bytes", timeout=60)
        child.close()
    """

    def __init__(
        self,
        module: str,
        environment: Mapping[str, str],
        folder: pathlib.Path = CODE,
        own_folder: str = "",
    ) -> None:
        self._module = module
        self._environment = environment
        self._folder = folder
        self._own_folder = own_folder
        self._process: subprocess.Popen | None = None
        self._talking: threading.Thread | None = None

    def _start(self) -> None:
        self._owner = os.getpid()
        self._written = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        folders = [str(CODE)]
        if self._environment.get("PYTHONPATH"):
            folders.append(self._environment["PYTHONPATH"])
        self._process = subprocess.Popen(
            # -P: no random.py of the folder hides Python's own.
            [sys.executable, "-P", "-m", self._module, str(self._owner)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A file, not a pipe: it isn't read meanwhile, and a full pipe would stop the child.
            stderr=self._written,
            cwd=self._folder,
            env={**self._environment, "PYTHONPATH": os.pathsep.join(folders)},
            start_new_session=True,  # Ctrl-C is for the parent, which then ends the child
        )

    def _running_process(self) -> subprocess.Popen:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            self._start()
        return self._process

    def close(self) -> None:
        """End the process and all that it started, at once."""
        process = self._process
        if process is None or self._owner != os.getpid():  # a fork of the owner ends nothing
            return
        # Forgotten first: where this is interrupted, the next job still gets another process.
        self._process = None
        end(process.pid, self._own_folder)
        process.wait()
        if self._talking is not None:
            self._talking.join(1)
            if self._talking.is_alive():  # what escaped holds a pipe, so closing it would wait
                return
        for pipe in (process.stdin, process.stdout, self._written):
            with contextlib.suppress(OSError):
                pipe.close()

    def ask(
        self,
        job: dict[str, Any],
        data: bytes = b"",
        *,
        timeout: float,
        most_memory: int | None = None,
        progress: Progress | None = None,
        stage: str = "starting",
    ) -> Answer:
        """Give a job and wait for its answer; Ctrl-C and errors of ``progress`` end the process.

        Args:
            job: What to do, for JSON.
            data: Bytes that go with it.
            timeout: Seconds after which the process is ended.
            most_memory: Bytes of this machine's memory that it and all it started may take
                together; all but a fifth of it when None.
            progress: As `Progress` says.
            stage: What it does until it tells another.

        Raises:
            NoAnswer: It has died, or was ended at a limit.
        """
        memory_limit = most_memory or int(psutil.virtual_memory().total * 0.8)
        start = time.monotonic()
        details: dict[str, Any] = {}
        process = self._running_process()
        # The child may die, or not read: no pipe may block this thread.
        messages: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        talking = threading.Thread(target=_talk, args=(process, job, data, messages), daemon=True)
        self._talking = talking
        talking.start()

        def no_answer(cause: str) -> NoAnswer:
            return NoAnswer(
                cause=cause,
                stage=stage,
                lines=self._lines(),
                limits=(timeout, memory_limit),
                details=details,
            )

        try:
            while True:
                # Its answer, a stage, or nothing for a moment.
                with contextlib.suppress(queue.Empty):
                    message, message_data = messages.get(timeout=POLL_SECONDS)
                    if "stage" not in message:
                        return message, message_data
                    stage = message["stage"]
                    details |= message
                    if progress is not None:
                        progress(stage, time.monotonic() - start)
                # It has ended, or its pipe is closed: what it sent last may still be on the way.
                if process.poll() is not None or not talking.is_alive():
                    talking.join(1)
                    if messages.empty():
                        raise no_answer(ending(process))
                # Only this process can see that the limits are kept: the child may hang.
                if time.monotonic() - start > timeout:
                    raise no_answer("time")
                if memory(family(process.pid)) > memory_limit:
                    raise no_answer("memory")
        except BaseException:
            self.close()
            raise

    def _lines(self) -> list[str]:
        # It may have written gigabytes: only the end is read.
        self._written.seek(max(0, os.fstat(self._written.fileno()).st_size - LAST_BYTES))
        lines = self._written.read().decode("utf-8", "replace").splitlines()
        return [line for line in lines if line.strip()]


def _talk(
    process: subprocess.Popen, job: dict[str, Any], data: bytes, messages: queue.SimpleQueue
) -> None:
    """Give a job to a child, and pass on its messages."""
    with contextlib.suppress(Exception):  # it died, was stopped, or is cut off
        process.stdin.write(_message(job, data))
        process.stdin.flush()
        for line in process.stdout:
            if not line.startswith(MARK):
                continue
            message = loads(line.removeprefix(MARK))
            messages.put((message, process.stdout.read(message["size"])))
            if "stage" not in message:
                return


def _message(content: dict[str, Any], data: bytes) -> bytes:
    """Write a line of JSON, which says how many bytes follow it."""
    line = dumps(content | {"size": len(data)})
    return line.encode() + b"\n" + data


def serve(
    answer: Callable[[dict[str, Any], bytes, Callable[..., None]], Answer],
    own_folder: str = "",
) -> None:
    """Be a child: answer the jobs of the process that started this one, and end with it.

    Whatever is imported or called finds standard input empty, and prints on standard error. A fork
    of this process ends where it would send a message.

    Args:
        answer: Takes a job, its bytes, and a function that sends a stage, and more by name.
        own_folder: Goes with this process where the one that made it was killed.
    """
    parent = int(sys.argv.pop())
    this = os.getpid()
    if not os.fork():  # a thread would wait for code that keeps Python's lock
        _end_with_parent(this, parent, own_folder)
    # The pipes get other numbers, and what is printed or read later misses them.
    jobs = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    with pathlib.Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)

    def send(content: dict[str, Any], data: bytes = b"") -> None:
        if os.getpid() != this:
            _exit(0)
        # On a line of its own: what was written before may not have ended its line.
        answers.write(b"\n" + MARK + _message(content, data))
        answers.flush()

    def send_stage(stage: str, **details: Any) -> None:
        send({"stage": stage} | details)

    with contextlib.suppress(BrokenPipeError):
        for line in jobs:
            job = loads(line)
            data = jobs.read(job["size"])
            content, content_data = answer(job, data, send_stage)
            send(content, content_data)
    end(this)


def _end_with_parent(pid: int, parent: int, own_folder: str) -> NoReturn:
    """Wait until a process or its parent has ended; then end what is left of its family."""
    os.closerange(0, 3)  # whoever reads from the process sees its end
    with contextlib.suppress(psutil.Error):
        while os.getppid() == pid and psutil.Process(pid).ppid() == parent:
            time.sleep(WATCH_SECONDS)
    end(pid, own_folder)
    sys.exit()
