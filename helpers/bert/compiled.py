"""XLA's compiled step, kept in a run's folder so that resuming doesn't compile it again.

XLA can keep what it compiled for a CPU, and trusts what it finds: a truncated file ends the run
with an error, one with other bytes ends the process (TensorFlow 2.20, 2026-11). So a file is used
only if its checksum was written after it had worked, with the same TensorFlow on the same kind of
processor; any other is deleted before XLA sees it.

It is kept in the run's folder because the step holds the run's own numbers (learning rate, steps,
seed): no other run could use it.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform

from helpers.base import files
from helpers.bert.settings import SETTINGS

FOLDER = "compiled"
SUMS = "checksums.json"
FLAG = "--tf_xla_persistent_cache_directory"


def _machine() -> str:
    """Hash what compiled code depends on, beside the program."""
    described = [importlib.metadata.version("tensorflow"), platform.machine(), platform.processor()]
    described.append(os.environ.get("XLA_FLAGS", ""))
    with contextlib.suppress(OSError):  # Linux alone has it
        first = pathlib.Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        kinds = ("model name", "flags", "Features", "CPU part")
        described += [line for line in first if line.startswith(kinds)]
    return hashlib.sha256("\n".join(described).encode()).hexdigest()


def _sum(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Kept:
    """What XLA compiled for one run; its folder, on this machine, need not be there yet."""

    def __init__(self, output: str | os.PathLike[str]) -> None:
        self.folder = pathlib.Path(output).absolute() / FOLDER
        self._trusted: set[str] = set()

    def _files(self) -> list[pathlib.Path]:
        return [path for path in self.folder.glob("*") if path.name != SUMS]

    def _sums(self) -> dict[str, str]:
        try:
            content = json.loads((self.folder / SUMS).read_text())
            return dict(content["files"]) if content["machine"] == _machine() else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}  # as good as none: nothing is used then

    def environment(self) -> dict[str, str]:
        """Delete what can't be trusted; give the variables TensorFlow must find when imported.

        There are none where the user has named a cache for XLA, the folder can't be named, or it is
        someone else's: without a run's settings or checksums, nothing in it is ours to delete.
        """
        flags = os.environ.get("TF_XLA_FLAGS", "")
        ours = any(path.exists() for path in (self.folder / SUMS, self.folder.parent / SETTINGS))
        if FLAG in flags or "'" in str(self.folder) or (self._files() and not ours):
            return {}
        sums = self._sums()
        for path in self._files():
            if sums.get(path.name) == _sum(path):
                self._trusted.add(path.name)
            else:
                path.unlink(missing_ok=True)
        mine = f"{FLAG}='{self.folder}' --tf_xla_persistent_cache_device_types=CPU"
        return {"TF_XLA_FLAGS": f"{flags} {mine}".strip()}

    def seal(self) -> None:
        """Write checksums after a step has worked; if it was compiled anew, old files go.

        Raises:
            CourseError: The disk is full, or the folder is not writable.
        """
        new = [path for path in self._files() if path.name not in self._trusted]
        if not new:
            return
        content = {"machine": _machine(), "files": {path.name: _sum(path) for path in new}}
        files.write(self.folder / SUMS, json.dumps(content, indent=1) + "\n")
        for name in self._trusted:
            (self.folder / name).unlink(missing_ok=True)
