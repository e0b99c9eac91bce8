"""Work with limits: a child process that may die, hang or eat memory.

A `Child` is asked by the process that started it; the child itself calls `serve`. A job is a line
of JSON on the child's standard input, followed by bytes; its answer is the same on standard output,
after lines that tell its stages. A child ends with its parent, whatever ends that one.
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
from typing import Any

import psutil

Answer = tuple[dict[str, Any], bytes]  # what is told, as JSON, and the bytes that go with it
Progress = Callable[[str, float], None]  # called at each stage, with the seconds passed

# Before each message: what the learner's code writes to whatever it finds open has none.
MARK = b"\0tpu-preflight "

OWN = "tpu-preflight-"  # what the name of a folder begins with that `own_folder` makes
LAST = 1 << 20  # bytes of what a child wrote that are read again
CODE = pathlib.Path(__file__).resolve().parents[1]  # what a child imports this package from


def family(pid: int) -> list[psutil.Process]:
    """List a process and all that it started, however deep; none when it has ended."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
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
    with contextlib.suppress(subprocess.TimeoutExpired):
        status = process.wait(1)
        known = {-one.value: f"by {one.name}" for one in signal.Signals}
        return known.get(status, f"with status {status}")
    return "its answers, but not itself"


@contextlib.contextmanager
def own_folder() -> Iterator[str]:
    """Make a folder for temporary files, and remove those whose makers were killed.

    While one is in use, a file in it is locked from the moment that it has its name; a folder
    without such a file is not ours.
    """
    for lock in pathlib.Path(tempfile.gettempdir()).glob(f"{OWN}*/.lock"):
        with (
            contextlib.suppress(OSError),  # in use, or not for this user
            os.fdopen(os.open(lock, os.O_RDONLY | os.O_NONBLOCK)) as found,
        ):
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=OWN, ignore_cleanup_errors=True) as own,
        (new := pathlib.Path(own, "new")).open("w") as held,
    ):
        with contextlib.suppress(OSError):  # on a disk without locks it has none
            fcntl.flock(held, fcntl.LOCK_EX)
            new.rename(new.with_name(".lock"))
        yield own


def end(pid: int, folder: str = "") -> None:
    """End a process that leads a session, all that it started in any session, and its folder.

    What left the family (a daemon) still has the folder for its temporary files.
    """
    own = OWN in folder
    others = psutil.process_iter(["environ"]) if own else ()
    left = (each for each in others if (each.info["environ"] or {}).get("TMPDIR") == folder)
    kill(member for member in (*family(pid), *left) if member.pid != os.getpid())
    if own:
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


@dataclasses.dataclass(eq=False)
class NoAnswer(Exception):
    """A child was ended, or has ended, without an answer."""

    cause: str  # the limit that was passed, ``time`` or ``memory``; else how it ended (`ending`)
    stage: str  # what it was doing
    lines: list[str]  # what it wrote
    limits: tuple[float, int]  # seconds, and bytes of memory
    kept: dict[str, Any]  # what it told beside its stages

    def __str__(self) -> str:
        seconds, most = self.limits
        took = f"it took more than {most / 1e9:.1f} GB of this machine's memory"
        return {
            "time": f"it was ended after the time limit of {seconds:g} s, while {self.stage}",
            "memory": f"it was ended because {took}, while {self.stage}",
        }.get(self.cause, f"the process ended {self.cause}, while {self.stage}")


class Child:
    """A process that does one job after the other, and is started anew when it has died.

    Args:
        module: What it runs; it calls `serve`.
        environment: Its variables, all of them.
        own_folder: Its TMPDIR, if no other process has it: goes with it.
        folder: Where it runs; Python doesn't import from there, where a random.py may stand.
    """

    def __init__(
        self,
        module: str,
        environment: Mapping[str, str],
        folder: pathlib.Path = CODE,
        own_folder: str = "",
    ) -> None:
        self._module, self._environment, self._folder = module, environment, folder
        self._own_folder = own_folder
        self._process: subprocess.Popen | None = None
        self._talking: threading.Thread | None = None

    def _start(self) -> None:
        self._owner = os.getpid()
        self._written = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        path = os.pathsep.join(filter(None, (str(CODE), self._environment.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", self._module, str(self._owner)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._written,
            cwd=self._folder,
            env={**self._environment, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the parent, which then ends the child
        )

    def close(self) -> None:
        """End the process and all that it started, at once."""
        if self._process is None or self._owner != os.getpid():  # a fork of the owner ends nothing
            return
        process, self._process = self._process, None
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
        most = most_memory or int(psutil.virtual_memory().total * 0.8)
        start, limits, kept = time.monotonic(), (timeout, most), {}
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            self._start()
        process, told = self._process, queue.SimpleQueue()
        # The child may die, or not read: no pipe may block this thread.
        self._talking = threading.Thread(target=_talk, args=(process, job, data, told), daemon=True)
        self._talking.start()
        try:
            while True:
                with contextlib.suppress(queue.Empty):
                    message, rest = told.get(timeout=0.2)
                    if "stage" not in message:
                        return message, rest
                    stage = message["stage"]
                    kept |= message
                    if progress is not None:
                        progress(stage, time.monotonic() - start)
                if process.poll() is not None or not self._talking.is_alive():
                    self._talking.join(1)
                    if told.empty():  # it told nothing at the last
                        raise NoAnswer(ending(process), stage, self._lines(), limits, kept)
                if time.monotonic() - start > timeout:
                    raise NoAnswer("time", stage, self._lines(), limits, kept)
                if memory(family(process.pid)) > most:
                    raise NoAnswer("memory", stage, self._lines(), limits, kept)
        except BaseException:
            self.close()
            raise

    def _lines(self) -> list[str]:
        self._written.seek(max(0, os.fstat(self._written.fileno()).st_size - LAST))
        lines = self._written.read().decode("utf-8", "replace").splitlines()
        return [line for line in lines if line.strip()]


def _talk(
    process: subprocess.Popen, job: dict[str, Any], data: bytes, told: queue.SimpleQueue
) -> None:
    """Give a job to a child, and pass on what it tells."""
    with contextlib.suppress(Exception):  # it died, was stopped, or is cut off
        process.stdin.write(dumps(job | {"size": len(data)}).encode() + b"\n" + data)
        process.stdin.flush()
        for line in (line for line in process.stdout if line.startswith(MARK)):
            message = loads(line.removeprefix(MARK))
            told.put((message, process.stdout.read(message["size"])))
            if "stage" not in message:
                return


def serve(
    answer: Callable[[dict[str, Any], bytes, Callable[..., None]], Answer],
    own_folder: str = "",
) -> None:
    """Be a child: answer the jobs of the process that started this one, and end with it.

    Whatever is imported or called finds standard input empty, and prints on standard error. A fork
    of this process ends where it would tell something.

    Args:
        answer: Is given a job, its bytes, and what to tell a stage with, and more by name.
        own_folder: Goes with this process where the one that made it was killed.
    """
    parent, own = int(sys.argv.pop()), os.getpid()
    if not os.fork():  # a thread would wait for code that keeps Python's lock
        os.closerange(0, 3)  # whoever reads from this process sees its end
        with contextlib.suppress(psutil.Error):
            while os.getppid() == own and psutil.Process(own).ppid() == parent:
                time.sleep(0.5)
        sys.exit(end(own, own_folder))
    jobs, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with pathlib.Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)

    def tell(told: dict[str, Any], data: bytes = b"") -> None:
        if os.getpid() != own:
            _exit(0)
        answers.write(b"\n" + MARK + dumps(told | {"size": len(data)}).encode() + b"\n" + data)
        answers.flush()

    with contextlib.suppress(BrokenPipeError):
        while line := jobs.readline():
            job = loads(line)
            data = jobs.read(job["size"])
            tell(*answer(job, data, lambda stage, **more: tell({"stage": stage} | more)))
    end(own)
