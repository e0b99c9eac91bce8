"""Commands as a person at a terminal starts them."""

import contextlib
import os
import pathlib
import subprocess
import time

import psutil
from conventions import ROOT


def call(*words: str | pathlib.Path, **options) -> subprocess.CompletedProcess:
    """Run a command to its end, in the course's folder if no other is named; keep what it says."""
    defaults = {"cwd": ROOT, "capture_output": True, "text": True}
    return subprocess.run(words, **defaults | options)


def without(*prefixes: str) -> dict[str, str]:
    """The environment without the variables that begin so."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def wait_for(condition, seconds=30):
    """Whether a condition comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def gone(pid):
    """Whether a process ends; a zombie has."""

    def ended():
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        return True

    return wait_for(ended)
