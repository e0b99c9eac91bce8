"""Temporary files of a command, and the memory that this machine has left."""

import contextlib
import ctypes
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterator

import psutil

from helpers.base.processes import variables_set
from helpers.base.temporary import leftovers, reserved_folder
from tpu_preflight.processes import family, kill

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


@contextlib.contextmanager
def temporary() -> Iterator[None]:
    """Have a folder for all temporary files, which goes with the block.

    Before, it ends what a killed command left: its folder, and the processes that still use it.
    """
    path = pathlib.Path(tempfile.gettempdir(), "tpu-course")
    # Kernels outlive a command that was killed, and have its folder in their environment.
    for leftover in leftovers(path):
        kill(_users_of(leftover))
        shutil.rmtree(leftover, ignore_errors=True)
    with (
        reserved_folder(path, mode=0o700) as folder,
        variables_set({"TMPDIR": str(folder)}),
        variables_set({"tempdir": None}, vars(tempfile)),  # or tempfile keeps the former
    ):
        yield


@contextlib.contextmanager
def daemons_ended() -> Iterator[None]:
    """End what the block started and left behind: on Linux, daemons too, whatever they hide.

    A daemon's parent has ended. Instead of the machine's first process, this one takes its place.
    """
    before = family(os.getpid())
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0)
        left_behind = [process for process in family(os.getpid()) if process not in before]
        kill(left_behind)
        psutil.wait_procs(left_behind, timeout=5)  # or those that became its children are zombies


def _users_of(folder: pathlib.Path) -> list[psutil.Process]:
    """List the processes that have a folder for their temporary files."""
    users = []
    for process in psutil.process_iter(["environ"]):
        environment = process.info["environ"] or {}
        if environment.get("TMPDIR") == str(folder):
            users.append(process)
    return users


def free_memory(root: str | os.PathLike = "/") -> float:
    """Bytes that programs can still have: the machine's, or the container's if that is less."""
    free = psutil.virtual_memory().available
    folder = pathlib.Path(root, "sys/fs/cgroup")
    # No container, or one without a limit ("max").
    with contextlib.suppress(OSError, ValueError):
        limit = int((folder / "memory.max").read_text())
        free = min(free, limit - int((folder / "memory.current").read_text()))
    return max(0, free)
