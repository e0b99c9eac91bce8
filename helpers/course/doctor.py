"""Is this kernel fit for a run, and what is to be done? One look at everything that can be wrong.

Asks TensorFlow for its devices in a process of its own, with a time limit, so it neither waits for
ever nor keeps a TPU. Imports no TensorFlow itself.
"""

import contextlib
import dataclasses
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping

import psutil

from helpers.base.errors import CourseError
from helpers.base.language import translated
from helpers.base.settings import (
    DRIVER,
    ENVIRONMENT,
    ROOT,
    installed,
    locked_versions,
    wrong_packages,
)
from helpers.course.explain import explain
from helpers.tpu import bucket as buckets
from helpers.tpu import connection
from helpers.tpu.place import ATTACHED, LOCAL, UNUSABLE, Place, detect

WELL, WARN, ILL = "well", "look at it", "must be mended"
SIGNS = {WELL: "✓", WARN: "!", ILL: "✗"}

SECONDS = 60.0  # TensorFlow's import takes 4 to 10 seconds, a TPU's first answer some more
WHEELS = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")
PYTHONS = ((3, 11), (3, 13))
GIB = 2**30
CHIP = re.compile(r"/dev/(accel\d+|vfio/\d+)")
# GiB, least and little. TensorFlow with transformers takes 0.7 when imported (measured, CPU);
# models and data come on top. A small run writes some megabytes.
ROOM = {"disk": (0.2, 2.0), "memory": (1.0, 3.0)}
ASK = """\
import json
import tensorflow as tf
print("\\n" + json.dumps([device.device_type for device in tf.config.list_logical_devices()]))
"""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str  # what, in a word or two
    state: str  # ``well``, ``look at it`` or ``must be mended``
    said: str  # what was seen
    fix: str = ""  # what to do; empty where nothing is to be done


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Everything that was looked at."""

    findings: tuple[Finding, ...]  # in the order of the examination
    place: Place  # where this kernel runs

    @property
    def exit_status(self) -> int:
        """For a shell: 1 when something must be mended, else 0."""
        return int(ILL in {finding.state for finding in self.findings})

    @property
    def next(self) -> str:
        """What to do next: the first thing to mend, or else the place's advice."""
        fixes = [f.fix for s in (ILL, WARN) for f in self.findings if f.state == s and f.fix]
        return fixes[0] if fixes else self.place.advice

    def json(self) -> str:
        """Write it as JSON."""
        findings = [dataclasses.asdict(finding) for finding in self.findings]
        plain = {"place": self.place.kind, "findings": findings, "next": self.next}
        return json.dumps(plain, indent=1)  # ASCII: any output takes it without loss

    def __repr__(self) -> str:
        lines = []
        for finding in self.findings:
            name, said, fix = map(translated, (finding.name, finding.said, finding.fix))
            lines.append(f"{SIGNS[finding.state]} {name:9} {said}")
            lines += [f"{'':11} {translated('Fix')}: {fix}"] if fix else []
        return "\n".join([*lines, f"{translated('Next')}: {translated(self.next)}"])


def check_versions(
    found: Mapping[str, str], locked: Mapping[str, str], python: tuple[int, int]
) -> Finding:
    """Compare Python (major, minor) and packages (version by name) with the lock."""
    wrong = wrong_packages(dict(found), dict(locked))
    if not PYTHONS[0] <= python <= PYTHONS[1]:
        low, high = (".".join(map(str, x)) for x in PYTHONS)
        wrong.append(f"Python is {python[0]}.{python[1]} (the course needs {low} to {high})")
    if wrong:
        fix = "make lab, and choose its kernel; in Colab and on Kaggle run the setup cell"
        return Finding("versions", ILL, "; ".join(wrong), fix)
    tensorflow = found.get("tensorflow-tpu") or found["tensorflow"]
    said = f"Python {'.'.join(map(str, python))}, TensorFlow {tensorflow}, "
    return Finding("versions", WELL, f"{said}transformers {found['transformers']}: as locked")


def check_wheel(found: Mapping[str, str], place: Place) -> Finding:
    """Look for the wrong build of TensorFlow, or two of them in one folder."""
    wheels = [name for name in WHEELS if name in found]
    here = place.kind in LOCAL
    right = "tensorflow-tpu" if here else "tensorflow"
    pinned = f"{right}=={locked_versions()['tensorflow']}" + f" {DRIVER}" * here
    mend = f"pip uninstall -y {' '.join(wheels)} && pip install {pinned}, then restart the kernel"
    if not wheels:
        return Finding("wheel", ILL, "TensorFlow is not installed", f"pip install {pinned}")
    if len(wheels) > 1:
        said = f"{' and '.join(wheels)} are installed together and overwrite each other's files"
        return Finding("wheel", ILL, said, mend)
    if here and wheels != [right]:
        # Google's machine images have a TensorFlow for TPU under the ordinary name.
        state = WARN if place.kind == "tpu_vm" else ILL
        said = f"{wheels[0]} is the build for CPU and GPU, but a TPU is in this machine"
        return Finding("wheel", state, said, mend)
    return Finding("wheel", WELL, f"{wheels[0]}, alone")


def check_place(place: Place, environment: Mapping[str, str] = os.environ) -> Finding:
    """Say where this kernel runs; notice a TPU that is only announced, or can't be used."""
    said = f"{translated(place.name)} ({place.mark})"
    if place.kind in UNUSABLE:
        return Finding("place", WARN, said, place.advice)
    said += f": {place.accelerator}" if place.accelerator else ""
    stray = [x for x in ("TPU_NAME", "TPU_ACCELERATOR_TYPE", "ISTPUVM") if environment.get(x)]
    if place.kind in ("cpu", "gpu") and stray:
        said += f"; {stray[0]} is set, but no TPU is attached"
        return Finding("place", WARN, said, f"unset {stray[0]}, or start where the TPU is")
    return Finding("place", WELL, said)


def holders(root: str | os.PathLike = "/") -> dict[int, str]:
    """Find the processes that hold a TPU chip: name by id, of those that may be looked at."""
    found = {}
    # pathlib's own glob fails where a process ends meanwhile.
    for name in glob.iglob("proc/[0-9]*/fd/*", root_dir=root):  # noqa: PTH207
        link = pathlib.Path(root, name)
        process = link.parents[1]
        with contextlib.suppress(OSError):  # closed or ended meanwhile, or it is somebody else's
            if CHIP.fullmatch(str(link.readlink())):
                found[int(process.name)] = (process / "comm").read_text("utf-8", "replace").strip()
    return dict(sorted(found.items()))


def check_chip(held: Mapping[int, str], own: Collection[int]) -> Finding:
    """Say who holds the chip; ``own`` are this process and those that started it."""
    if others := {pid: name for pid, name in held.items() if pid not in own}:
        listed = ", ".join(f"{name} ({pid})" for pid, name in others.items())
        said = f"held by another process: {listed}; a TPU serves one at a time"
        fix = f"shut the other notebook's kernel down, or: kill {' '.join(map(str, others))}"
        return Finding("chip", ILL, said, fix)
    said = "held by this notebook or program" if held else "no other process was seen to hold a TPU"
    return Finding("chip", WELL, said)


def check_devices(
    place: Place, *, seconds: float = SECONDS, command: tuple[str, ...] | None = None
) -> Finding:
    """Ask TensorFlow, in a process of its own, or the worker at the address, for devices.

    The command prints a JSON list of device types in its last line; None: Python with TensorFlow.
    """
    if place.tpu and place.tpu.startswith("grpc://"):
        return _asked("devices", lambda: _worker(place.tpu))
    if place.kind in ("node", "pod_slice"):
        said = "not asked: a slice answers when all its hosts ask together"
        return Finding("devices", WELL, said)
    try:
        done = subprocess.run(
            command or (sys.executable, "-c", ASK),
            env=os.environ | ENVIRONMENT | connection.tensorflow_environment(place),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        said = f"TensorFlow did not list them within {seconds:g} seconds"
        fix = "restart the runtime; if it happens again, another program holds the TPU"
        return Finding("devices", ILL, said, fix)
    if done.returncode:
        lines = done.stderr.split("\n") if done.stderr.strip() else [f"it ended: {done.returncode}"]
        last = next(line for line in reversed(lines) if line.strip()).strip()[:200]
        known = explain(done.stderr).matches
        fix = known[0].symptom.fix if known else "mend the installation: make lab"
        return Finding("devices", ILL, f"TensorFlow can't be used: {last}", fix)
    counted = Counter(json.loads(done.stdout.splitlines()[-1]))
    if place.kind in LOCAL and not counted["TPU"]:
        fix = "see what is said of the wheel above; if that is well, restart the runtime"
        return Finding("devices", ILL, f"{_listed(counted)}: TensorFlow sees no TPU", fix)
    return Finding("devices", WELL, _listed(counted))


def _asked(name: str, question: Callable[[], str]) -> Finding:
    """Make an answer a finding, and an error of the course, too."""
    try:
        return Finding(name, WELL, question())
    except CourseError as error:
        return Finding(name, ILL, f"{error.what} {error.why}", error.fix)


def _worker(target: str) -> str:
    names = [x for part in target.split(",") for x in connection.devices_at(part)]
    return f"{_listed(Counter(name.partition(':')[0] for name in names))} in another machine"


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{kind} × {number}" for kind, number in sorted(counted.items()))


def check_room(free: Mapping[str, float]) -> list[Finding]:
    """Judge the disk that is free where the course lies, and the memory, both in GiB."""
    found = []
    for name, (least, little) in ROOM.items():
        state = ILL if free[name] < least else WARN if free[name] < little else WELL
        fix = "make room, close other notebooks and programs" if state != WELL else ""
        found.append(Finding(name, state, f"{free[name]:.1f} GiB free", fix))
    return found


def free_memory(root: str | os.PathLike = "/") -> float:
    """Bytes that programs can still have: the machine's, or the container's if that is less."""
    free = psutil.virtual_memory().available
    folder = pathlib.Path(root, "sys/fs/cgroup")
    # No container, or one without a limit ("max").
    with contextlib.suppress(OSError, ValueError):
        limit = int((folder / "memory.max").read_text())
        free = min(free, limit - int((folder / "memory.current").read_text()))
    return max(0, free)


def doctor(bucket: str | None = None, *, region: str | None = None) -> Diagnosis:
    """Look at everything that a run needs.

    A ``bucket``, ``gs://…``, is examined, too, and compared with the TPU's region or zone; nothing
    is asked of the network without it, except of a TPU's address.

    Raises:
        CourseError: ``bucket`` has no ``gs://``.
    """
    if bucket is not None and "://" not in bucket:
        name = bucket.removeprefix("gs:").lstrip("/") or "BUCKET"
        why = "Without gs:// it would be a folder of this machine."
        raise CourseError(f"{bucket[:60]!r} is no bucket.", why, f"Write gs://{name[:60]}.")
    place = detect()
    # Elsewhere such files are other devices: a virtual machine with a GPU holds one of /dev/vfio.
    held = holders() if place.kind in ATTACHED else {}
    found, this = installed(WHEELS), psutil.Process()
    # From a notebook's `!` line, the kernel is one of those that started this process.
    chip = check_chip(held, {this.pid, *(parent.pid for parent in this.parents())})
    findings = [check_versions(found, locked_versions(), sys.version_info[:2])]
    findings += [check_wheel(found, place), check_place(place), chip]
    if place.kind in LOCAL and held:
        findings.append(Finding("devices", WELL, "not asked: the TPU is in use"))
    else:
        findings.append(check_devices(place))
    if bucket:
        asked = _asked("bucket", lambda: buckets.check_bucket(bucket) or f"{bucket}: writable")
        findings.append(asked)
    free = {"disk": shutil.disk_usage(ROOT).free / GIB, "memory": free_memory() / GIB}
    return Diagnosis((*findings, *check_room(free)), place)
