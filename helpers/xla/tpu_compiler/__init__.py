"""Google's TPU compiler without a TPU: does it compile, does it fit, what does it cost?

``export`` turns a TensorFlow function into XLA's program; ``compile`` hands that program to the
compiler inside libtpu, ahead of time, in a process of its own (`tpu_child`). Nothing is run, so
there is no word here about seconds on a TPU, except as bounds (``roofline``).

The route, for who wants to go it by hand: ``experimental_get_compiler_ir`` of a ``tf.function``
gives the HLO module, ``jax.extend.mlir.hlo_to_stablehlo`` translates it, and jax compiles it for
the devices of a described topology (https://docs.jax.dev/en/latest/aot.html).

Imports TensorFlow only inside ``export``.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psutil

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.messages import steady
from helpers.base.settings import ROOT, locked_versions
from helpers.tpu import hardware
from helpers.tpu.layout import Layout
from helpers.xla.program import (
    Bounded,
    NotCompilable,
    Parameter,
    Program,
    Source,
    TracingTooLong,
    export,
    named,
    shape_bytes,
)

__all__ = [
    "Attempt",
    "Bounded",
    "Compiled",
    "LargestBatch",
    "NotCompilable",
    "Padding",
    "Parameter",
    "Program",
    "Roofline",
    "Source",
    "TracingTooLong",
    "UnknownEffort",
    "WrongReplicas",
    "available_bytes",
    "compile",
    "compile_many",
    "export",
    "largest_batch",
    "padding",
    "roofline",
    "started",
    "versions",
]

# The jax with which the route was proved; another is tried, and the result says so.
PROVED_JAX = ("0.10",)

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

# GiB of HBM that a program may use on one device, as the compiler itself says when a program
# needs more (libtpu 0.0.51, 2026-11). Less than the chip has: the rest is the system's.
AVAILABLE_GIB = {"v2": 7.48, "v3": 15.48, "v4": 15.25, "v5e": 15.75, "v5p": 95.73, "v6e": 31.24}

# Where the compiler's device is not TensorFlow's.
_HALVES = {"v4": "compiled for one of the chip's two cores, which TensorFlow uses as one device"}

# Seconds after which a compile is given up. BERT-base takes half a minute on two cores.
TIMEOUT = 600.0

EFFORTS = ("least", "full")

CACHE_BYTES = 256_000_000

# Changes when entries of the cache change their meaning.
_CACHE_FORMAT = 2

Progress = Callable[[str, float], None]


class WrongReplicas(CourseError):
    """A program was exported for another number of replicas than the target has."""


class UnknownEffort(CourseError):
    """The compiler was asked for an effort that it has not."""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What Google's compiler makes of a program, for one device of a target.

    All sizes are for one device (one TensorFlow replica; on v4 half a chip), in bytes. Where
    nothing was compiled they are 0.

    Attributes:
        name: The program's name.
        target: Such as ``v5e-8``.
        verdict: ``compiles``, ``refused``, ``out of memory`` (the TPU's), ``crashed`` (the
            compiler did, or this machine's memory was not enough for it), ``timed out``, or
            ``not available`` (jax or libtpu is missing, or is not one that we know).
        message: What was said, in a line; empty where it compiles.
        whole_message: The same, whole.
        note: What else there is to know, such as another version of jax; mostly empty.
        versions: Versions of jax and libtpu.
        replicas: Devices that the program was compiled for.
        flops: Floating-point operations of one run.
        bytes_accessed: Bytes read from and written to memory in one run, as the compiler counts.
        argument_bytes: Memory of the parameters.
        output_bytes: Memory of the results.
        alias_bytes: The part of the results that lies in the memory of donated parameters.
        temporary_bytes: Memory for what lies between.
        peak_bytes: Parameters, results and temporaries together, shared memory counted once; where
            it is too much for the device, what the compiler says is needed.
        available_bytes: HBM that a program may use.
        all_reduce_bytes: Bytes of all tensors that are added up across the replicas.
        bounded: The program's: where sizes depend on values, with the bound.
        seconds: What the compiler took, without the start of its process.
        cached: Whether this is an earlier answer to the same question.
    """

    name: str
    target: str
    verdict: str
    message: str = ""
    whole_message: str = dataclasses.field(default="", repr=False)
    note: str = ""
    versions: str = ""
    replicas: int = 1
    flops: float = 0.0
    bytes_accessed: float = 0.0
    argument_bytes: int = 0
    output_bytes: int = 0
    alias_bytes: int = 0
    temporary_bytes: int = 0
    peak_bytes: int = 0
    available_bytes: int = 0
    all_reduce_bytes: int = 0
    bounded: tuple[Bounded, ...] = ()
    seconds: float = 0.0
    cached: bool = False
    _text: bytes = dataclasses.field(default=b"", repr=False)
    _names: tuple[str, ...] = dataclasses.field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """Whether it compiles."""
        return self.verdict == "compiles"

    @property
    def hlo(self) -> str:
        """The compiled program in XLA's text form; empty where nothing was compiled."""
        if not self._text:
            return ""
        return named(gzip.decompress(self._text).decode(), self._names)

    def __repr__(self) -> str:
        line = f"{self.name} for {self.target}: {self.verdict}"
        if self.ok:
            line += (
                f"; {self.flops:.3g} flops, {size(self.bytes_accessed)} accessed, "
                f"peak {size(self.peak_bytes)} of {size(self.available_bytes)}"
            )
        if self.message:
            line += f". {self.message}"
        return line + (f" ({self.note})" if self.note else "")


def size(number: float) -> str:
    """Write a number of bytes for people: ``96 KiB``, ``15.75 GiB`` (powers of two).

    Args:
        number: Bytes.

    Returns:
        Number and unit.
    """
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.2f} GiB"


# --- targets --------------------------------------------------------------------------------------


def available_bytes(target: str) -> int:
    """Say how much HBM a program may use on one device of a target.

    Args:
        target: Such as ``v5e-8``.

    Returns:
        Bytes, as the compiler itself counts them.

    Raises:
        hardware.UnknownAccelerator: There is no such target.
    """
    return int(AVAILABLE_GIB[hardware.slice_of(target).chip.name] * 2**30)


def versions() -> dict[str, str]:
    """Find the installed versions of jax and libtpu, without importing either.

    Returns:
        Version by package name, of those that are installed.
    """
    found = {}
    for name in ("jax", "jaxlib", "libtpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _missing(found: dict[str, str]) -> str:
    """Say what is missing and how it is added; empty when nothing is."""
    absent = [name for name in ("jax", "libtpu") if name not in found]
    if not absent:
        return ""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "Google's TPU compiler (libtpu) exists for Linux on x86-64 only."
    locked = locked_versions()
    pins = " ".join(f"{name}=={locked[name]}" for name in ("jax", "libtpu"))
    return (
        f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed. Add Google's "
        f"TPU compiler with: python -m pip install {pins}"
    )


def _note(found: dict[str, str]) -> str:
    if found["jax"].startswith(tuple(f"{v}." for v in PROVED_JAX)):
        return ""
    proved = " and ".join(PROVED_JAX)
    return f"jax {found['jax']} is installed; this route was proved with jax {proved}"


# --- the cache ------------------------------------------------------------------------------------


def cache_folder() -> pathlib.Path:
    """The folder where results are kept, in the user's cache (XDG base directory rules)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = pathlib.Path(base) if base.startswith("/") else pathlib.Path.home() / ".cache"
    return home / "tensorflow-on-tpu" / "tpu-compiler"


def _key(program: Program, job: dict[str, Any], found: dict[str, str]) -> str:
    question = json.dumps([_CACHE_FORMAT, job, found, platform.machine()], sort_keys=True)
    return hashlib.sha256(question.encode() + program.hlo).hexdigest()


def _remembered(key: str) -> tuple[dict[str, Any], bytes] | None:
    """Read an entry; a damaged one is as good as none."""
    path = cache_folder() / key
    try:
        data = path.read_bytes()
        digest, _, rest = data.partition(b"\n")
        if hashlib.sha256(rest).hexdigest().encode() != digest:
            path.unlink(missing_ok=True)
            return None
        told, _, text = rest.partition(b"\n")
        path.touch()  # the oldest go first
        return json.loads(told), text
    except OSError:
        return None


def _remember(key: str, told: dict[str, Any], text: bytes) -> str:
    """Keep an entry and make room; say what prevented it, if anything did."""
    rest = json.dumps(told).encode() + b"\n" + text
    try:
        data = hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest
        files.write(cache_folder() / key, data)
        _make_room(cache_folder())
    except (files.CantWrite, OSError) as error:
        why = error.why if isinstance(error, files.CantWrite) else str(error)
        return f"the result could not be kept for the next time: {why.rstrip('.')}"
    return ""


def _make_room(folder: pathlib.Path) -> None:
    """Remove the entries that were used longest ago, until the rest fits."""
    entries = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process made room, too
            status = path.stat()
            if path.name.startswith(".") and time.time() - status.st_mtime > 3600:
                path.unlink()  # half an entry, from a process that was killed
            elif not path.name.startswith("."):
                entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= CACHE_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= size


# --- the child ------------------------------------------------------------------------------------


class _Child:
    """A process that compiles one job after the other, and is started anew when it has died."""

    def __init__(self, memory_limit: int | None) -> None:
        self.limit = memory_limit
        self._process: subprocess.Popen | None = None
        self._errors: Any = None

    def __enter__(self) -> "_Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> subprocess.Popen:
        """Start the process; it gets ready without waiting for a job."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "helpers.xla.tpu_compiler.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env=os.environ | CHILD_ENVIRONMENT,
            start_new_session=True,  # Ctrl-C is for the parent, which then ends the child
        )
        return self._process

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End the process, at once."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self._errors.close()

    def ask(
        self, job: dict[str, Any], hlo: bytes, timeout: float, progress: Progress | None
    ) -> tuple[dict[str, Any], bytes]:
        """Give a job and wait for the answer; a death, a limit passed are answers, too."""
        start = time.monotonic()
        process = self._process or self.start()
        header = json.dumps(job | {"size": len(hlo)}).encode() + b"\n"

        def send() -> None:
            with contextlib.suppress(OSError, ValueError):  # the reader learns of its death
                process.stdin.write(header + hlo)
                process.stdin.flush()

        # The child may die, or not read: the module must not block this thread.
        threading.Thread(target=send, daemon=True).start()
        answers: list[tuple[dict[str, Any], bytes]] = []
        stages = ["starting"]

        def receive() -> None:
            with contextlib.suppress(OSError, ValueError):
                while line := process.stdout.readline():
                    told = json.loads(line)
                    if "stage" in told:
                        stages.append(told["stage"])
                        continue
                    answers.append((told, process.stdout.read(told["size"])))
                    return

        reader = threading.Thread(target=receive, daemon=True)
        reader.start()
        shown = 0.0
        try:
            while reader.is_alive():
                reader.join(0.05)
                passed = time.monotonic() - start
                if progress is not None and passed - shown >= 0.5:
                    shown = passed
                    progress(stages[-1], passed)
                if passed > timeout:
                    self.stop()
                    limit = f"The compiler was stopped after the time limit of {timeout:g} s."
                    return {"verdict": "timed out", "message": limit}, b""
                if self.limit is not None and self._memory() > self.limit:
                    self.stop()
                    limit = (
                        "The compiler was stopped: it took more of this machine's memory than the "
                        f"limit of {self.limit / 1e9:.1f} GB."
                    )
                    return {"verdict": "crashed", "message": limit}, b""
        except BaseException:  # Ctrl-C, or the caller's progress
            self.stop()
            raise
        if answers:
            return answers[0]
        return {"verdict": "crashed", "message": self._death()}, b""

    def _memory(self) -> int:
        try:
            return psutil.Process(self._process.pid).memory_info().rss
        except psutil.Error:
            return 0

    def _death(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").splitlines()
        told = next((x for x in lines if re.match(r"F\d{4} |.*(?:Check failed|Error:)", x)), "")
        self.stop()
        how = f"with status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
        return f"The compiler's process ended {how}." + (f" {steady(told)[:200]}" if told else "")


# Processes that were started before there was a job for them.
_waiting: list[_Child] = []


@contextlib.contextmanager
def started() -> Iterator[None]:
    """Start a compiler's process now, while TensorFlow is busy; the first compile inside takes it.

    Inside another `started`, or where a package is missing, nothing is started.

    Yields:
        Nothing. What nobody took is ended.
    """
    if _waiting or _missing(versions()):
        yield
        return
    child = _Child(memory_limit())
    child.start()
    _waiting.append(child)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # somebody took it
            _waiting.remove(child)
            child.stop()


def _child(limit: int | None) -> _Child:
    """Take the process that waits, or none that runs yet."""
    limit = limit or memory_limit()
    with contextlib.suppress(IndexError):
        child = _waiting.pop()
        child.limit = limit
        if child.alive:
            return child
        child.stop()
    return _Child(limit)


# --- compile --------------------------------------------------------------------------------------


def _short(verdict: str, message: str) -> str:
    """Cut Google's message to what says it."""
    if verdict == "out of memory":
        found = re.search(r"total memory required.*?available HBM \([^)]*\)", message)
        found = found or re.search(r"(?:Used|Ran out|Attempting).{10,160}?\.(?=\s|$)", message)
        return (
            (found[0][:1].upper() + found[0][1:] + ".").replace("..", ".")
            if found
            else message[:200]
        )
    line = steady(next((x for x in message.splitlines() if x.strip()), ""))
    line = re.sub(r"^(?:JaxRuntimeError: )?(?:INTERNAL|UNKNOWN): ", "", line)
    return line if len(line) <= 240 else f"{line[:239]}…"


_NEEDED = re.compile(r"required for HLO temporaries \(([\d.]+)([MGT])\)")
_REDUCE = re.compile(r" = (\(.*?\)|\S+) all-reduce(?:-start)?\(")


def _all_reduce_bytes(text: str) -> int:
    total = 0
    for line in text.splitlines():
        if (found := _REDUCE.search(line)) is not None:
            total += sum(shape_bytes(s) for s in re.findall(r"\w+\[[\d,<=]*\]", found[1]))
    return total


def _compiled(
    program: Program,
    target: str,
    told: dict[str, Any],
    text: bytes,
    *,
    cached: bool,
    note: str,
    used: str,
) -> Compiled:
    verdict, message = told["verdict"], named(told["message"], program.names)
    if verdict == "error":  # of our own route, so it is no word of Google's
        verdict = "not available"
    fields = {f.name for f in dataclasses.fields(Compiled)} & set(told)
    numbers = {n: told[n] for n in fields - {"verdict", "message"}}
    if verdict == "out of memory" and (found := _NEEDED.search(message)):
        numbers["peak_bytes"] = int(float(found[1]) * 2 ** {"M": 20, "G": 30, "T": 40}[found[2]])
    if verdict == "compiles":
        shown = gzip.decompress(text).decode()
        peak = numbers["peak_bytes"] or (
            numbers["argument_bytes"]
            + numbers["output_bytes"]
            + numbers["temporary_bytes"]
            - numbers["alias_bytes"]
        )
        numbers |= {
            "peak_bytes": peak,
            "all_reduce_bytes": _all_reduce_bytes(shown),
        }
    return Compiled(
        name=program.name,
        target=target,
        verdict=verdict,
        message=_short(verdict, message),
        whole_message=message,
        note=note,
        versions=used,
        replicas=program.replicas,
        bounded=program.bounded,
        available_bytes=available_bytes(target),
        cached=cached,
        _text=text,
        _names=program.names if text else (),
        **numbers,
    )


def _one(
    child: _Child,
    program: Program,
    target: str,
    timeout: float,
    effort: str,
    progress: Progress | None,
) -> Compiled:
    place = hardware.slice_of(target)
    if effort not in EFFORTS:
        raise UnknownEffort(
            f"There is no effort {effort!r}.",
            f"The compiler works with {' or '.join(EFFORTS)} effort.",
            "Leave it out for the least, which is enough for a verdict.",
        )
    if program.replicas not in (1, place.replicas):
        raise WrongReplicas(
            f"{program.name} was exported for {program.replicas} replicas; {target} has "
            f"{place.replicas}.",
            "Gradients are added up across all replicas of a slice.",
            f"Export it with replicas={place.replicas}, or with replicas=1 for one device alone.",
        )
    found = versions()
    if missing := _missing(found):
        told = {"verdict": "not available", "message": missing}
        return _compiled(program, target, told, b"", cached=False, note="", used="")
    job = {
        "topology": place.topology,
        "devices": place.replicas,
        "replicas": program.replicas,
        "sharded": len(program.arguments),
        "donated": list(program.donated),
        "effort": effort,
    }
    used = f"jax {found['jax']}, libtpu {found['libtpu']}"
    note = "; ".join(filter(None, (_note(found), _HALVES.get(place.chip.name))))
    key = _key(program, job, found)
    if (entry := _remembered(key)) is not None:
        return _compiled(program, target, *entry, cached=True, note=note, used=used)
    told, text = child.ask(job, program.hlo, timeout, progress)
    if told["verdict"] in ("compiles", "refused", "out of memory"):
        note = "; ".join(filter(None, (note, _remember(key, told, text))))
    return _compiled(program, target, told, text, cached=False, note=note, used=used)


def memory_limit() -> int:
    """Leave a fifth of this machine's memory to others.

    Returns:
        Bytes.
    """
    return int(psutil.virtual_memory().total * 0.8)


def compile(
    program: Program,
    target: str = "v5e-8",
    *,
    timeout: float = TIMEOUT,
    memory_limit: int | None = None,
    effort: str = "least",
    progress: Progress | None = None,
) -> Compiled:
    """Let Google's TPU compiler compile a program, in a process of its own.

    Args:
        program: From `export`.
        target: What to compile for: ``v2-8``, ``v3-8``, ``v4-8``, ``v5e-1``, ``v5p-8``, ``v6e-4``
            and so on. A program of one replica is compiled for one device of it.
        timeout: Seconds after which the compiler is stopped.
        memory_limit: Bytes of this machine's memory that the compiler may take; four fifths of
            all when None.
        effort: ``least`` (several times as fast; flops the same, peak memory up to a tenth more)
            or ``full``, as on a TPU.
        progress: Called about twice a second with the stage (``starting``, ``compiling``) and
            the seconds passed.

    Returns:
        The verdict and the numbers; a crash, a limit passed or a missing package is a verdict.

    Raises:
        WrongReplicas: The program is for several replicas, but not for the target's number.
        UnknownEffort: ``effort`` is another word.
        hardware.UnknownAccelerator: There is no such target.
    """
    with _child(memory_limit) as child:
        return _one(child, program, target, timeout, effort, progress)


def compile_many(
    programs: Iterable[Program],
    target: str = "v5e-8",
    *,
    timeout: float = TIMEOUT,
    memory_limit: int | None = None,
    effort: str = "least",
    progress: Progress | None = None,
) -> list[Compiled]:
    """Compile one program after the other; the compiler's process starts once.

    Where it dies, the rest goes on in a new one. Arguments as for `compile`.

    Args:
        programs: From `export`; may be made while they are compiled.
        target: As for `compile`, for all of them.
        timeout: Seconds for each.
        memory_limit: As for `compile`.
        effort: As for `compile`.
        progress: As for `compile`.

    Returns:
        A result for each program, in order.
    """
    with _child(memory_limit) as child:
        return [_one(child, p, target, timeout, effort, progress) for p in programs]


# --- bounds, padding, batches ---------------------------------------------------------------------

# Devices that the compiler sees in a chip.
_PARTS = {"v2": 2, "v3": 2, "v4": 2}


@dataclasses.dataclass(frozen=True)
class Roofline:
    """The least time that one run could take on one device: a bound, no prediction.

    Computing and memory are each taken at their peak and as if they overlapped fully
    (Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785). Real steps take longer: see
    the published run in notebook 08.

    Attributes:
        target: Such as ``v5e-8``.
        compute_seconds: Operations over the peak rate in bfloat16, the fastest type.
        hbm_seconds: Bytes accessed over the memory's bandwidth.
    """

    target: str
    compute_seconds: float
    hbm_seconds: float

    @property
    def seconds(self) -> float:
        """The larger of the two."""
        return max(self.compute_seconds, self.hbm_seconds)

    @property
    def limit(self) -> str:
        """What the bound comes from: ``compute`` or ``HBM``."""
        return "compute" if self.compute_seconds >= self.hbm_seconds else "HBM"

    def __repr__(self) -> str:
        return (
            f"{self.target}: at least {self.seconds * 1e3:.3g} ms a step, bound by {self.limit} "
            f"(compute {self.compute_seconds * 1e3:.3g} ms, HBM {self.hbm_seconds * 1e3:.3g} ms)"
        )


def roofline(compiled: Compiled) -> Roofline:
    """Bound the time of one run from below.

    Use a result of least effort: with full effort, the compiler counts bytes that stay on the
    chip.

    Args:
        compiled: A program that compiles.

    Returns:
        The bound, for one device.
    """
    chip = hardware.slice_of(compiled.target).chip
    parts = _PARTS.get(chip.name, 1)
    return Roofline(
        compiled.target,
        compiled.flops / (chip.bf16_tflops * 1e12 / parts),
        compiled.bytes_accessed / (chip.hbm_gb_per_s * 1e9 / parts),
    )


@dataclasses.dataclass(frozen=True)
class Padding:
    """Tensors of one operation that take more memory than their values.

    Attributes:
        name: The operation's name in the graph, which begins with its layers.
        layout: How the tensor lies in memory, as the compiler laid it out.
        count: How many such tensors the program fills.
    """

    name: str
    layout: Layout
    count: int

    @property
    def bytes(self) -> int:
        """Bytes of padding, of all of them."""
        return self.count * (self.layout.bytes - self.layout.unpadded_bytes)

    def __repr__(self) -> str:
        return f"{self.name}: {size(self.bytes)} of padding ({self.count} x {self.layout})"


_NUMPY_TYPES = {"f32": "float32", "s32": "int32", "bf16": "bfloat16", "s8": "int8"}
_TILED = re.compile(r"(\w+)\[([\d,]+)\]\{([\d,]+):T\((\d+)(?:,(\d+))?\)")
_MADE = re.compile(r"^ +(?:ROOT )?%\S+ = (\(.*?\)|\S+) ([\w\-]+)\(")

# Instructions that name a buffer which exists already, or fill one that another names.
_NO_BUFFER = {"bitcast", "tuple", "get-tuple-element", "constant", "while", "conditional"}


def _layout(shape: re.Match) -> Layout | None:
    kind, sizes, order, rows, lanes = shape.groups()
    if kind not in _NUMPY_TYPES:
        return None
    dimensions = tuple(map(int, sizes.split(",")))
    minor = tuple(map(int, order.split(",")))  # the fastest varying first
    padded = [dimensions[i] for i in reversed(minor)]
    tile = [int(n) for n in (rows, lanes) if n]
    for i, n in enumerate(reversed(tile), 1):
        if i <= len(padded):
            padded[-i] = -(-padded[-i] // n) * n
    return Layout(dimensions, _NUMPY_TYPES[kind], tuple(reversed(minor)), tuple(padded))


def padding(compiled: Compiled) -> tuple[Padding, ...]:
    """List where memory goes to padding, the most wasteful first.

    Read from the layouts that the compiler chose, tensors of four types (`layout.ITEM_BYTES`).
    Counts every tensor that a program fills, also those that use the same memory one after the
    other: it tells which dimension to mend, not how much would be saved.

    Args:
        compiled: A program that compiles.

    Returns:
        One entry for each operation and layout with padding.
    """
    found: dict[tuple[str, Layout], int] = {}
    inside = set(re.findall(r"(?:calls|to_apply)=%([\w.\-]+)", compiled.hlo))
    counted = False
    for line in compiled.hlo.splitlines():
        if head := re.match(r"(ENTRY )?%([\w.\-]+) \(.*\{$", line):
            counted, entry = head[2] not in inside, head[1]
        made = _MADE.match(line) if counted else None
        if made is None or made[2] in _NO_BUFFER or (made[2] == "parameter" and not entry):
            continue
        name = re.search(r'op_name="(?:jit\(run\)/)?(?:tensorflow_module/)?([^"]*)"', line)
        for shape in _TILED.finditer(made[1]):
            layout = _layout(shape)
            if layout is not None and layout.bytes > layout.unpadded_bytes:
                key = (name[1] if name else made[2], layout)
                found[key] = found.get(key, 0) + 1
    entries = (Padding(name, layout, count) for (name, layout), count in found.items())
    return tuple(sorted(entries, key=lambda p: -p.bytes))


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One batch size that was compiled.

    Attributes:
        batch: Samples on one device.
        compiled: What the compiler said.
        recomputes: Whether the compiler computes parts twice to save memory: its operations per
            sample are well above those of the smallest batch.
    """

    batch: int
    compiled: Compiled
    recomputes: bool = False

    @property
    def flops_per_sample(self) -> float:
        """Operations for one sample; 0 where it does not compile."""
        return self.compiled.flops / self.batch

    def __repr__(self) -> str:
        text = f"batch {self.batch}: {self.compiled.verdict}"
        if self.compiled.peak_bytes:
            needed, there = self.compiled.peak_bytes, self.compiled.available_bytes
            text += f", {size(needed)} of {size(there)}"
        if self.recomputes:
            text += f", computes parts twice ({self.flops_per_sample:.3g} flops per sample)"
        return text


@dataclasses.dataclass(frozen=True)
class LargestBatch:
    """What a search for the largest batch found.

    Attributes:
        target: Such as ``v5e-8``.
        largest: The largest batch on one device that compiled; 0 when none did.
        without_recomputing: The largest that compiled without parts computed twice.
        reason: Why not more, in a sentence.
        attempts: All that was tried, in order.
    """

    target: str
    largest: int
    without_recomputing: int
    reason: str
    attempts: tuple[Attempt, ...]

    def __repr__(self) -> str:
        lines = [f"{self.target}: largest batch on one device {self.largest}. {self.reason}"]
        return "\n".join([*lines, *(f"  {attempt}" for attempt in self.attempts)])


# Above the smallest batch's operations per sample by more than this: parts are computed twice.
_RECOMPUTED = 1.05

# Shares of the memory that there is. The next batch is chosen to take AIM; one that takes ENOUGH
# ends the search. Just below the limit a compile takes long, and computes parts twice.
_AIM, _ENOUGH = 0.9, 0.85


def largest_batch(
    program_of: Callable[[int], Program],
    target: str = "v5e-8",
    *,
    smallest: int = 8,
    most: int = 65_536,
    timeout: float = TIMEOUT,
    seconds: float = TIMEOUT,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> LargestBatch:
    """Search for the largest batch that fits one device, with the compiler's least effort.

    Memory is nearly linear in the batch, so after two small batches the next one to try is where
    the line meets nine tenths of the memory that there is; mostly that ends the search. What takes
    at least 85 % of the memory, or nine tenths of a batch that doesn't fit, is not exceeded: there
    the compiler begins to compute parts twice. Least effort takes up to a tenth more memory than
    full effort, so somewhat more may fit.

    Args:
        program_of: Exports the program for a batch of that many samples on one device.
        target: As for `compile`.
        smallest: Where to begin; all batches tried are multiples of it.
        most: Where to stop.
        timeout: Seconds for each attempt.
        seconds: Of the whole search; the attempt that is running then is ended.
        memory_limit: As for `compile`.
        progress: As for `compile`; the stage says the attempt and the batch.

    Returns:
        The batch, why not more, and what was tried.

    Raises:
        NotCompilable: The function can't be exported.
    """
    attempts: list[Attempt] = []
    end = time.monotonic() + seconds
    with _child(memory_limit) as child:

        def fits(batch: int) -> Attempt:
            def tell(stage: str, passed: float) -> None:
                if progress is not None:
                    progress(f"attempt {len(attempts) + 1}, batch {batch}: {stage}", passed)

            program = program_of(batch)
            left = min(timeout, end - time.monotonic())
            compiled = _one(child, program, target, left, "least", tell)
            attempt = Attempt(batch, compiled)
            if compiled.ok and attempts and attempts[0].compiled.ok:
                grown = attempt.flops_per_sample / (attempts[0].flops_per_sample or 1.0)
                attempt = dataclasses.replace(attempt, recomputes=grown > _RECOMPUTED)
            attempts.append(attempt)
            return attempt

        low = high = None  # the largest that fits as it is, the smallest that does not
        units: int | None = 1
        while units is not None:
            tried = fits(units * smallest)
            if tried.compiled.ok and not tried.recomputes:
                low = tried
            elif tried.compiled.verdict in ("compiles", "out of memory"):
                high = tried
            else:
                break
            units = _next_units(attempts[0], low, high, smallest, most // smallest)
    return _found(target, attempts, low, high, most)


def _next_units(
    first: Attempt, low: Attempt | None, high: Attempt | None, unit: int, most: int
) -> int | None:
    """Choose the next batch to try, in units; None when the search is over."""
    if low is None or low.compiled.peak_bytes >= _ENOUGH * low.compiled.available_bytes:
        return None
    at = low.batch // unit
    guess = 4 if low is first else _where_memory_ends(first, low, unit)
    if high is None:
        return min(most, max(guess, at + 1)) if at < most else None
    end = high.batch // unit
    if end - at <= max(1, at // 10):
        return None
    margin = max(1, (end - at) // 4)
    return min(max(guess, at + margin), end - margin)


def _where_memory_ends(first: Attempt, second: Attempt, unit: int) -> int:
    """Say where the line through two results meets the memory to be used, in units."""
    growth = (second.compiled.peak_bytes - first.compiled.peak_bytes) / (second.batch - first.batch)
    if growth <= 0:
        return 4 * second.batch // unit
    left = _AIM * second.compiled.available_bytes - second.compiled.peak_bytes
    return int((second.batch + left / growth) // unit)


def _found(
    target: str,
    attempts: list[Attempt],
    low: Attempt | None,
    high: Attempt | None,
    most: int,
) -> LargestBatch:
    last = attempts[-1].compiled
    fitting = [a for a in attempts if a.compiled.ok]
    largest = max(fitting, key=lambda a: a.batch, default=None)
    plain = low.batch if low else 0
    if last.verdict not in ("compiles", "out of memory"):
        reason = f"The search ended at {attempts[-1].batch}: {last.verdict}. {last.message}"
    elif high is not None and not high.compiled.ok:
        reason = f"A batch of {high.batch} does not fit: {high.compiled.message}"
    elif low is not None and low.batch + attempts[0].batch > most:
        reason = f"More than {most} was not tried."
    else:
        taken, there = largest.compiled.peak_bytes, largest.compiled.available_bytes
        reason = f"It takes {size(taken)} of {size(there)}; more was not tried."
    if largest is not None and largest.recomputes:
        reason += (
            f" Near the limit the compiler computes parts twice: {largest.flops_per_sample:.3g} "
            f"flops per sample instead of {attempts[0].flops_per_sample:.3g}. Up to {plain} it "
            "does not."
        )
    return LargestBatch(target, largest.batch if largest else 0, plain, reason, tuple(attempts))
