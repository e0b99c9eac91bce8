"""Is this kernel fit for a run, and what is to be done? One look at everything that can be wrong.

Asks TensorFlow for its devices in a process of its own, with a time limit, so it neither waits for
ever nor keeps a TPU. Imports no TensorFlow itself.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Mapping

import psutil

from helpers.base import settings
from helpers.base.language import translated
from helpers.course.explain import explain
from helpers.tpu import connection
from helpers.tpu.place import ATTACHED, LOCAL, UNUSABLE, Place, detect

SECONDS = 60.0  # TensorFlow's import takes 4 to 10 seconds, a TPU's first answer some more
WHEELS = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")
GIB = 2**30
CHIP = re.compile(r"/dev/(accel\d+|vfio/\d+)")
ROOM = 1.0  # GiB of memory: TensorFlow with transformers takes 0.7 when imported (measured, CPU)
ASK = """\
import json
import tensorflow as tf
print("\\n" + json.dumps([device.device_type for device in tf.config.list_logical_devices()]))
"""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str  # what, in a word or two
    said: str  # what was seen
    fix: str = ""  # what to do; empty where all is well


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Everything that was looked at."""

    findings: tuple[Finding, ...]  # in the order of the examination
    place: Place  # where this kernel runs

    def __repr__(self) -> str:
        lines = []
        for finding in self.findings:
            name, said, fix = map(translated, (finding.name, finding.said, finding.fix))
            lines.append(f"{'✗' if fix else '✓'} {name:9} {said}")
            lines += [f"{'':11} {translated('Fix')}: {fix}"] if fix else []
        todo = next((f.fix for f in self.findings if f.fix), self.place.advice)
        return "\n".join([*lines, f"{translated('Next')}: {translated(todo)}"])


def check_versions(found: Mapping[str, str], locked: Mapping[str, str]) -> Finding:
    """Compare packages, version by name, with the lock."""
    if wrong := settings.wrong_packages(dict(found), dict(locked)):
        fix = "make lab, and choose its kernel; in Colab and on Kaggle run the setup cell"
        return Finding("versions", "; ".join(wrong), fix)
    tensorflow = found.get("tensorflow-tpu") or found["tensorflow"]
    said = f"Python {platform.python_version()}, TensorFlow {tensorflow}, "
    return Finding("versions", f"{said}transformers {found['transformers']}: as locked")


def check_wheel(found: Mapping[str, str], place: Place) -> Finding:
    """Look for the wrong build of TensorFlow, or two of them in one folder."""
    wheels = [name for name in WHEELS if name in found]
    here = place.kind in LOCAL
    pinned = f"tensorflow{'-tpu' * here}=={settings.locked_versions()['tensorflow']}"
    pinned += f" {settings.DRIVER}" * here
    mend = f"pip uninstall -y {' '.join(wheels)} && pip install {pinned}, then restart the kernel"
    if not wheels:
        return Finding("wheel", "TensorFlow is not installed", f"pip install {pinned}")
    if len(wheels) > 1:
        said = f"{' and '.join(wheels)} are installed together and overwrite each other's files"
    # Google's machine images ("tpu_vm") have a TensorFlow for TPU under the ordinary name.
    elif here and wheels != ["tensorflow-tpu"] and place.kind != "tpu_vm":
        said = f"{wheels[0]} is the build for CPU and GPU, but a TPU is in this machine"
    else:
        return Finding("wheel", f"{wheels[0]}, alone")
    return Finding("wheel", said, mend)


def check_place(place: Place) -> Finding:
    """Say where this kernel runs; notice a TPU that can't be used."""
    accelerator = f": {place.accelerator}" if place.accelerator else ""
    fix = place.advice if place.kind in UNUSABLE else ""
    return Finding("place", f"{translated(place.name)} ({place.mark}){accelerator}", fix)


def holders() -> dict[int, str]:
    """Find the processes that hold a TPU chip: name by id, of those that may be looked at."""
    found = {}
    for process in psutil.process_iter(["name"]):
        # It ended meanwhile, or it is somebody else's.
        with contextlib.suppress(OSError, psutil.Error):
            files = [*pathlib.Path(f"/proc/{process.pid}/fd").iterdir()]
            if any(CHIP.fullmatch(os.path.realpath(file)) for file in files):
                found[process.pid] = process.info["name"]
    return found


def check_chip(held: Mapping[int, str], own: Collection[int]) -> Finding:
    """Say who holds the chip; ``own`` are this process and those that started it."""
    if others := {pid: name for pid, name in held.items() if pid not in own}:
        listed = ", ".join(f"{name} ({pid})" for pid, name in others.items())
        said = f"held by another process: {listed}; a TPU serves one at a time"
        fix = f"shut the other notebook's kernel down, or: kill {' '.join(map(str, others))}"
        return Finding("chip", said, fix)
    said = "held by this notebook or program" if held else "no other process was seen to hold a TPU"
    return Finding("chip", said)


def check_devices(
    place: Place, *, seconds: float = SECONDS, command: tuple[str, ...] | None = None
) -> Finding:
    """Ask TensorFlow for its devices, in a process of its own.

    The command prints a JSON list of device types in its last line; None: Python with TensorFlow.
    """
    if place.kind == "pod_slice":
        return Finding("devices", "not asked: a slice answers when all its hosts ask together")
    try:
        done = subprocess.run(
            command or (sys.executable, "-c", ASK),
            env=os.environ | settings.ENVIRONMENT | connection.tensorflow_environment(place),
            cwd=settings.ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        said = f"TensorFlow did not list them within {seconds:g} seconds"
        fix = "restart the runtime; if it happens again, another program holds the TPU"
        return Finding("devices", said, fix)
    if done.returncode:
        last = (done.stderr.strip() or f"it ended: {done.returncode}").splitlines()[-1][:200]
        known = explain(done.stderr).matches
        fix = known[0].symptom.fix if known else "mend the installation: make lab"
        return Finding("devices", f"TensorFlow can't be used: {last}", fix)
    counted = Counter(json.loads(done.stdout.splitlines()[-1]))
    listed = ", ".join(f"{kind} × {number}" for kind, number in sorted(counted.items()))
    if place.kind in LOCAL and not counted["TPU"]:
        fix = "see what is said of the wheel above; if that is well, restart the runtime"
        return Finding("devices", f"{listed}: TensorFlow sees no TPU", fix)
    return Finding("devices", listed)


def check_memory(free: float) -> Finding:
    """Judge the memory that is free, in bytes."""
    fix = "make room, close other notebooks and programs" if free < ROOM * GIB else ""
    return Finding("memory", f"{free / GIB:.1f} GiB free", fix)


def free_memory(root: str | os.PathLike = "/") -> float:
    """Bytes that programs can still have: the machine's, or the container's if that is less."""
    free = psutil.virtual_memory().available
    folder = pathlib.Path(root, "sys/fs/cgroup")
    # No container, or one without a limit ("max").
    with contextlib.suppress(OSError, ValueError):
        limit = int((folder / "memory.max").read_text())
        free = min(free, limit - int((folder / "memory.current").read_text()))
    return max(0, free)


def doctor() -> Diagnosis:
    """Look at everything that a run needs; nothing is asked of the network."""
    place, this, found = detect(), psutil.Process(), settings.installed(WHEELS)
    # Elsewhere such files are other devices: a virtual machine with a GPU holds one of /dev/vfio.
    held = holders() if place.kind in ATTACHED else {}
    asked = Finding("devices", "not asked: the TPU is in use")
    findings = (
        check_versions(found, settings.locked_versions()),
        check_wheel(found, place),
        check_place(place),
        # From a notebook's `!` line, the kernel is one of those that started this process.
        check_chip(held, {this.pid, *(parent.pid for parent in this.parents())}),
        asked if place.kind in LOCAL and held else check_devices(place),
        check_memory(free_memory()),
    )
    return Diagnosis(findings, place)
