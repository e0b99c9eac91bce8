"""Commands as a person at a terminal starts them."""

import os
import pathlib
import subprocess

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
