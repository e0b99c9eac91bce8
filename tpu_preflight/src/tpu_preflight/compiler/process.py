"""The compiler's process, from outside: what it needs, how it is started, asked and ended.

The process itself is `child`. Its death, a time limit or a memory limit is an answer like others.
"""

import contextlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from tpu_preflight import processes
from tpu_preflight.text import steady

# What a child needs before it imports jax: no question to a metadata server that isn't there, no
# lock that two compilers would fight for, no log files. The name is any that libtpu accepts; the
# topology that is compiled for comes with each job.
CHILD_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
}

# Called about twice a second with the stage and the seconds passed.
Progress = Callable[[str, float], None]

# What the child tells, and the compressed text of the compiled program.
Answer = tuple[dict[str, Any], bytes]


def versions() -> dict[str, str]:
    """Find the versions of jax, jaxlib and libtpu, where installed, without importing them."""
    found = {}
    for name in ("jax", "jaxlib", "libtpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def missing() -> str:
    """Say which package is missing and how to add it; empty when none is."""
    found = versions()
    absent = [name for name in ("jax", "libtpu") if name not in found]
    if not absent:
        return ""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "Google's TPU compiler (libtpu) exists for Linux on x86-64 only."
    return (
        f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed. Add Google's "
        "TPU compiler with: python -m pip install 'tpu-preflight[jax]'"
    )


def memory_limit() -> int:
    """Compute the bytes of this machine's memory that leave a fifth of it to others."""
    return int(psutil.virtual_memory().total * 0.8)


class Process:
    """A process that does one job after the other, and is started anew when it has died.

    Args:
        child: The module that it runs; its `main` is `child.main`.
        role: What it is to the reader of a message.
    """

    def __init__(self, child: str = f"{__package__}.child", role: str = "compiler") -> None:
        self._child, self._role = child, role
        self.limit = memory_limit()
        self._process: subprocess.Popen | None = None
        self._errors: Any = None

    def start(self) -> subprocess.Popen:
        """Start the process; it gets ready without waiting for a job."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._child],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=pathlib.Path(__file__).parents[2],
            env=os.environ | CHILD_ENVIRONMENT,
            start_new_session=True,  # Ctrl-C is for the parent, which then ends the child
        )
        return self._process

    @property
    def ended(self) -> bool:
        """Whether the process was started and has ended."""
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> None:
        """End the process, at once."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, self._errors):
            with contextlib.suppress(OSError):
                pipe.close()

    def ask(
        self, job: dict[str, Any], data: bytes, timeout: float, progress: Progress | None
    ) -> Answer:
        """Give a job (`child.Compiler.answer`) and wait; a death or a limit is an answer, too."""
        start, shown = time.monotonic(), 0.0
        process = self._process or self.start()
        stages, answers = ["starting"], []

        def talk() -> None:
            with contextlib.suppress(OSError, ValueError):  # the child died, or was stopped
                header = json.dumps(job | {"size": len(data)}).encode()
                process.stdin.write(header + b"\n" + data)
                process.stdin.flush()
                while not answers and (line := process.stdout.readline()):
                    told = json.loads(line)
                    if "stage" in told:
                        stages.append(told["stage"])
                    else:
                        answers.append((told, process.stdout.read(told["size"])))

        # The child may die, or not read: no pipe may block this thread.
        talking = threading.Thread(target=talk, daemon=True)
        talking.start()
        try:
            while talking.is_alive():
                talking.join(0.05)
                passed = time.monotonic() - start
                if progress is not None and passed - shown >= 0.5:
                    shown = passed
                    progress(stages[-1], passed)
                if exceeded := self._exceeded(passed, timeout):
                    self.stop()
                    return exceeded, b""
        except BaseException:  # Ctrl-C, or the caller's progress
            self.stop()
            raise
        return answers[0] if answers else ({"verdict": "crashed", "message": self._death()}, b"")

    def _exceeded(self, passed: float, timeout: float) -> dict[str, str] | None:
        if passed > timeout:
            limit = f"The {self._role} was stopped after the time limit of {timeout:g} s."
            return {"verdict": "timed out", "message": limit}
        with contextlib.suppress(psutil.Error):
            if psutil.Process(self._process.pid).memory_info().rss > self.limit:
                limit = (
                    f"The {self._role} was stopped: it took more of this machine's memory than "
                    f"the limit of {self.limit / 1e9:.1f} GB."
                )
                return {"verdict": "crashed", "message": limit}
        return None

    def _death(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").splitlines()
        told = next((x for x in lines if re.match(r"F\d{4} |.*(?:Check failed|Error:)", x)), "")
        self.stop()
        ended = f"The {self._role}'s process ended {processes.ending(status)}."
        return ended + (f" {steady(told)[:200]}" if told else "")


# Processes that were started before there was a job for them.
_waiting: list[Process] = []


@contextlib.contextmanager
def started() -> Iterator[None]:
    """Start a compiler's process now, while TensorFlow is busy; the first compile inside takes it.

    Inside another `started`, or where a package is missing, nothing is started. What nobody took
    is ended.
    """
    if _waiting or missing():
        yield
        return
    process = Process()
    process.start()
    _waiting.append(process)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # somebody took it
            _waiting.remove(process)
            process.stop()


@contextlib.contextmanager
def taken(limit: int | None) -> Iterator[Process]:
    """Take the process that waits, or a new one, which starts with its first job.

    It may take so many bytes of this machine's memory; `memory_limit` when None.
    """
    process = _waiting.pop() if _waiting else Process()
    process.limit = limit or memory_limit()
    if process.ended:
        process.stop()
    try:
        yield process
    finally:
        process.stop()
