"""Processes of Python that begin with their imports done: forks of one that does nothing else."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping

from conventions import ROOT

SECONDS = 240  # after which a fork is ended

# Reads a line for each fork. The fork leaves the loop: what follows is its program, and it ends as
# every Python ends.
PARENT = """
import gc, importlib, json, os, signal, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()  # what is imported is not looked through, and copied for it, at the end of each fork
for line in sys.stdin:
    given = json.loads(line)
    if (pid := os.fork()) == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(given["seconds"])
        os.chdir(given["folder"])
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY
            descriptor = os.open(given[name], mode)
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdin = open(0, encoding="utf-8", closefd=False)
        os.environ.clear()
        os.environ.update(given["environment"])
        sys.argv = given["words"]
        sys.path[0] = given["folder"]
        break
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()
exec(given["script"])
"""


class Forks:
    """A process that has imported some modules, and forks; close it with ``with``."""

    def __init__(self, modules: Iterable[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PARENT, *modules],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self._environment = dict(environment)

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def start(
        self,
        script: str,
        *words: str | pathlib.Path,
        kept: pathlib.Path,
        cwd: pathlib.Path = ROOT,
        env: Mapping[str, str] | None = None,
        input: str = "",
    ) -> "Fork":
        """Begin a script in a fork; the next one can begin when it has ended."""
        files = {name: str(kept / name) for name in ("stdin", "stdout", "stderr")}
        for name, path in files.items():
            pathlib.Path(path).write_text(input if name == "stdin" else "", "utf-8")
        given = {"script": script, "words": ["helpers", *map(str, words)], "folder": str(cwd)}
        given |= {"environment": dict(env or self._environment), "seconds": SECONDS}
        self._process.stdin.write(json.dumps(given | files) + "\n")
        self._process.stdin.flush()
        return Fork(self._process, files)


class Fork:
    """A fork at work."""

    def __init__(self, parent: subprocess.Popen, files: dict[str, str]) -> None:
        self.pid = int(parent.stdout.readline())
        self._parent, self._files = parent, files

    def kill(self) -> None:
        """End it with SIGKILL, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> subprocess.CompletedProcess:
        """How it ended, and what it said."""
        status = int(self._parent.stdout.readline())
        said = {n: pathlib.Path(self._files[n]).read_text("utf-8") for n in ("stdout", "stderr")}
        return subprocess.CompletedProcess((), status, **said)
