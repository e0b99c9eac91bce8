"""Commands as a person at a terminal starts them."""

import os
import pathlib
import subprocess
import time

import psutil
from conventions import ROOT


def call(*words: str | pathlib.Path, **options) -> subprocess.CompletedProcess:
    """Run a command to its end, in the course's folder if no other is named; keep what it says."""
    kept = {"cwd": ROOT, "capture_output": True, "text": True}
    return subprocess.run(words, **kept | options)


def without(*prefixes: str) -> dict[str, str]:
    """The environment without the variables that begin so."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def git(folder: pathlib.Path, *words: str) -> None:
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.invalid"]
    subprocess.run(["git", *who, *words], cwd=folder, env=without("GIT_"), check=True)


def commit(folder: pathlib.Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "All")


def wait_for(condition, seconds=30):
    """Whether a condition comes true in time."""
    end = time.monotonic() + seconds
    while not (true := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return true


def gone(pid):
    """Whether a process ends; a zombie has."""

    def ended():
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return wait_for(ended)
