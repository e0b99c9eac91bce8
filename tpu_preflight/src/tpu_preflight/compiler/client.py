"""Asking Google's compiler about a program."""

import dataclasses
import gzip
import re
import tempfile
from typing import Any

from tpu_preflight.chips import hardware
from tpu_preflight.compiler import cache, server_process
from tpu_preflight.compiler.execution import repeated
from tpu_preflight.errors import PreflightError
from tpu_preflight.processes import NoAnswer, Progress
from tpu_preflight.program import Program, restore_names
from tpu_preflight.text import steady

# Seconds after which a compile is given up. BERT-base takes half a minute on two cores.
TIMEOUT = 600.0


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What Google's compiler makes of a program, for one device of a target.

    All sizes are for one device (one TensorFlow replica), in bytes. Where nothing was
    compiled they are 0.
    """

    name: str  # the program's name
    target: str  # such as ``v5e-8``
    # ``compiles``, ``refused``, ``out of memory`` (the TPU's), ``crashed`` (the compiler did, or
    # this machine's memory was not enough for it), ``timed out``, or ``not available`` (jax or
    # libtpu is missing, or is not one that we know).
    verdict: str
    message: str = ""  # what was said, in a line; empty where it compiles
    whole_message: str = dataclasses.field(default="", repr=False)  # the same, whole
    replicas: int = 1  # devices that the program was compiled for
    # Floating-point operations of one run. A loop counts as often as it goes round, where the
    # compiled text tells.
    flops: float = 0.0
    # Bytes that all kernels read and write in one run, as the compiler counts: those of tensors
    # that stay on the chip, too.
    bytes_accessed: float = 0.0
    argument_bytes: int = 0  # memory of the parameters
    output_bytes: int = 0  # memory of the results
    # Parameters, results and what lies between, memory of donated parameters counted once; where it
    # is too much for the device, what the compiler says is needed.
    peak_bytes: int = 0
    available_bytes: int = 0  # HBM that a program may use
    all_reduce_bytes: int = 0  # bytes of all tensors that are added up across the replicas
    sent_bytes: float = 0.0  # bytes that each chip sends to others
    effort: str = "least"  # the compiler's effort, ``least`` or ``full``
    seconds: float = 0.0  # what the compiler took, without the start of its process
    cached: bool = False  # whether this is an earlier answer to the same question
    _text: bytes = dataclasses.field(default=b"", repr=False)
    _names: tuple[str, ...] = dataclasses.field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """Whether it compiles."""
        return self.verdict == "compiles"

    @property
    def hlo(self) -> str:
        """The compiled program in XLA's text form; empty where nothing was compiled."""
        return restore_names(gzip.decompress(self._text).decode(), self._names)


def compile(
    program: Program,
    target: str = "v5e-8",
    *,
    timeout: float = TIMEOUT,
    effort: str = "least",
    progress: Progress | None = None,
) -> Compiled:
    """Let Google's TPU compiler compile a program, in a process of its own or of `started`.

    A crash, a limit passed or a missing package is a verdict, too.

    Args:
        program: From `export`.
        target: What to compile for: ``v2-8``, ``v3-8``, ``v4-8``, ``v5e-1``, ``v5p-8``, ``v6e-4``
            and so on. A program of one replica is compiled for one device of it.
        timeout: Seconds after which the compiler is stopped.
        effort: ``least`` (faster; peak memory within a tenth of full effort's where we compared)
            or ``full``, as on a TPU.
        progress: Called at each stage (``starting``, ``compiling``), with the seconds passed.

    Raises:
        PreflightError: There is no such target, or the program is for several replicas, but not for
            the target's number.
    """
    slice_ = hardware.slice_of(target, jax=program.form == "stablehlo")
    if program.replicas not in (1, slice_.replicas):
        raise PreflightError(
            f"{program.name} lies over {program.replicas} devices; {target} has {slice_.replicas}.",
            "Such a program is compiled for all devices of a target together.",
            f"Make the mesh (or replicas=) of {slice_.replicas}, or ask about one device: without "
            "shardings.",
        )
    missing = server_process.installation_problem()
    result = Compiled(
        program.name,
        target,
        "not available",
        missing,
        missing,
        replicas=program.replicas,
        available_bytes=int(slice_.chip.available_gib * 2**30),
        effort=effort,
    )
    if missing:
        return result
    found, job = server_process.versions(), _job(program, slice_) | {"effort": effort}
    key = cache.key(program.hlo, job, found)
    answer = known = cache.read(key)
    if known is None:
        try:
            with server_process.acquire() as child, tempfile.TemporaryDirectory() as folder:
                asked = job | {"folder": folder}
                answer = child.ask(asked, program.hlo, timeout=timeout, progress=progress)
            if answer[0]["verdict"] != "error":
                cache.write(key, answer)
        except NoAnswer as error:
            told = (x for x in error.lines if _LAST_WORDS.match(x))
            said = f"The compiler gave no answer: {error}. {steady(next(told, ''))[:200]}"
            verdict = "timed out" if error.cause == "time" else "crashed"
            answer = {"verdict": verdict, "message": said.rstrip()}, b""
    return dataclasses.replace(
        result,
        **_numbers(program, slice_.chip.replicas, *answer),
        cached=known is not None,
    )


def _job(program: Program, slice_: hardware.Slice) -> dict[str, Any]:
    """Say what the server needs to know (`server.Compiler.compile`)."""
    shardings = program.shardings
    if not shardings:  # each replica has a part of the arguments
        split = sum(p.kind == "argument" for p in program.parameters) * (program.replicas > 1)
        shardings = [
            [["replica"]] if i < split and "[]" not in p.shape else []
            for i, p in enumerate(program.parameters)
        ]
    job = {
        "topology": slice_.topology,
        "devices": slice_.replicas,
        "replicas": program.replicas,
        "mesh": program.mesh or [("replica", program.replicas)],
        "shardings": shardings,
        "donated": program.donated,
        "form": program.form,
    }
    if slice_.chip.cores > slice_.chip.replicas:
        job["chip"] = "megacore"  # libtpu's name for joined cores; its default shows two of a v4
    return job


def _numbers(program: Program, cores: int, told: dict[str, Any], text: bytes) -> dict[str, Any]:
    """Read what the child told, as fields of `Compiled`."""
    verdict, message = told["verdict"], restore_names(told["message"], program.names)
    if verdict == "error":  # of our own route, so it is no word of Google's
        verdict = "not available"
    known = {f.name for f in dataclasses.fields(Compiled)}
    numbers = {name: value for name, value in told.items() if name in known}
    if verdict == "out of memory" and (found := _NEEDED.search(message)):
        numbers["peak_bytes"] = int(float(found[1]) * 2 ** {"M": 20, "G": 30, "T": 40}[found[2]])
    if verdict == "compiles":
        counted = repeated(gzip.decompress(text).decode(), cores)
        computed, numbers["all_reduce_bytes"], numbers["sent_bytes"] = counted
        numbers["flops"] += computed
    said = {"verdict": verdict, "message": _short(verdict, message), "whole_message": message}
    return numbers | said | {"_text": text, "_names": program.names if text else ()}


def _short(verdict: str, message: str) -> str:
    """Cut Google's message to what says it."""
    if verdict == "out of memory":
        found = re.search(r"total memory required.*?available HBM \([^)]*\)", message)
        found = found or re.search(r"(?:Used|Ran out|Attempting).{10,160}?\.(?=\s|$)", message)
        return f"{found[0][:1].upper()}{found[0][1:].rstrip('.')}." if found else message[:200]
    line = steady(next(filter(str.strip, message.splitlines()), ""))
    line = re.sub(r"^(?:JaxRuntimeError: )?(?:INTERNAL|UNKNOWN): ", "", line)
    return line if len(line) <= 240 else f"{line[:239]}…"


_LAST_WORDS = re.compile(r"F\d{4} |.*(?:Check failed|Error:)|ERROR:")
_NEEDED = re.compile(r"required for HLO temporaries \(([\d.]+)([MGT])\)")
