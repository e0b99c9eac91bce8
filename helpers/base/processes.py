"""The environment of this process, and the processes that it starts to have something served."""

import contextlib
import glob
import multiprocessing
import os
import pathlib
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import psutil

from helpers.base.errors import CourseError
from helpers.base.settings import ROOT
from tpu_preflight.processes import kill


def beside(path: pathlib.Path) -> pathlib.Path:
    """Name what is on its way to ``path``: hidden, with the number of this process."""
    return path.with_name(f".{path.name}.{os.getpid():08x}{secrets.token_hex(4)}")


def leftovers(path: pathlib.Path) -> list[pathlib.Path]:
    """Find what killed processes left of a file or folder; a backup named by a date isn't ours."""
    named = path.parent.glob(f".{glob.escape(path.name)}." + "[0-9a-f]" * 16)
    return [each for each in named if not psutil.pid_exists(int(each.name[-16:-8], 16))]


@contextlib.contextmanager
def temporary() -> Iterator[None]:
    """Have a folder of one's own for all temporary files, which goes with the block.

    Before, it ends what a command left that was killed: its folder, and who has that for his own.
    """
    path = pathlib.Path(tempfile.gettempdir(), "tpu-course")
    for left in leftovers(path):
        each = psutil.process_iter(["environ"])
        kill(x for x in each if (x.info["environ"] or {}).get("TMPDIR") == str(left))
        shutil.rmtree(left, ignore_errors=True)
    (own := beside(path)).mkdir(0o700)
    try:
        with variables_set({"TMPDIR": str(own)}), variables_set({"tempdir": None}, vars(tempfile)):
            yield
    finally:
        shutil.rmtree(own, ignore_errors=True)


@contextlib.contextmanager
def variables_set(
    new: Mapping[str, Any], of: MutableMapping[str, Any] = os.environ
) -> Iterator[None]:
    """Set values by name, of this process's environment if no other; put back what was there."""
    before = {name: of[name] for name in new if name in of}
    of.update(new)
    try:
        yield
    finally:
        for name in new:
            of.pop(name, None)
        of.update(before)


@contextlib.contextmanager
def served(
    command: Sequence[object], environment: Mapping[str, str], log: pathlib.Path, seconds: float
) -> Iterator[tuple[subprocess.Popen, int]]:
    """Run a program that prints its port as soon as it listens; kill it at the block's end.

    ``environment`` has all its variables, and ``log`` gets what it writes to standard error. If it
    isn't ready within so many ``seconds``, a `CourseError` has the end of the log.
    """
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [str(word) for word in command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,  # a notebook's interrupt goes to the kernel's whole group
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)
        late = threading.Timer(seconds, process.kill)
        late.start()
        port = process.stdout.readline()
        late.cancel()
        if port:
            yield process, int(port)
            return
        said = log.read_text("utf-8", "replace").strip().splitlines()[-12:]
        raise CourseError(
            "A process of the course did not start.",
            "\n".join(said) or f"It was not ready within {seconds:g} seconds.",
            "Run the cell again; if it stays so, restart the kernel.",
        )


def end_with_parent() -> None:
    """Let this process, one of a pool, end with the one that started it, from the call on."""

    def watch() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def free_memory(root: str | os.PathLike = "/") -> float:
    """Bytes that programs can still have: the machine's, or the container's if that is less."""
    free = psutil.virtual_memory().available
    folder = pathlib.Path(root, "sys/fs/cgroup")
    # No container, or one without a limit ("max").
    with contextlib.suppress(OSError, ValueError):
        limit = int((folder / "memory.max").read_text())
        free = min(free, limit - int((folder / "memory.current").read_text()))
    return max(0, free)
