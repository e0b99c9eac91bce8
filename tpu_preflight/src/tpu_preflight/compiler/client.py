"""Compiling a program with Google's compiler: its verdict, its numbers, its message."""

import dataclasses
import gzip
import re
import tempfile
from collections.abc import Mapping
from typing import Any

from tpu_preflight.chips import hardware
from tpu_preflight.compiler import cache, server_process
from tpu_preflight.compiler.execution import uncounted_work
from tpu_preflight.errors import PreflightError
from tpu_preflight.processes import Answer, NoAnswer, Progress
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
    # Bytes that all kernels read and write in one run, as the compiler counts: a loop's body once,
    # tensors that stay on the chip as well, and a whole tensor where a few of its rows are read.
    bytes_accessed: float = 0.0
    # Bytes of the device's memory that all kernels read and write in one run, as the text tells.
    traffic_bytes: float = 0.0
    argument_bytes: int = 0  # memory of the parameters
    output_bytes: int = 0  # memory of the results, of which donated parameters hold some
    shared_bytes: int = 0  # memory of results that donated parameters hold
    temporary_bytes: int = 0  # memory of what lies between parameters and results
    host_bytes: int = 0  # memory of the host that the program takes, where it offloads
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
    flags: Mapping[str, str] | None = None,
) -> Compiled:
    """Let Google's TPU compiler compile a program, in a process of its own or of `started`.

    A crash, a passed limit and a missing package are verdicts as well.

    Args:
        program: From `export`.
        target: What to compile for: ``v2-8``, ``v3-8``, ``v4-8``, ``v5e-1``, ``v5p-8``, ``v6e-4``
            and so on. A program of one replica is compiled for one device of it.
        timeout: Seconds after which the compiler is stopped.
        effort: ``least`` (faster; peak memory within a tenth of full effort's where we compared)
            or ``full``, as on a TPU.
        progress: Called at each stage (``starting``, ``compiling``), with the seconds passed.
        flags: Options of the compiler by name, such as
            ``{"xla_tpu_scoped_vmem_limit_kib": "65536"}``, which one sets in ``LIBTPU_INIT_ARGS``
            on a TPU.

    Raises:
        PreflightError: There is no such target, or the program is for several replicas, but not for
            the target's number.

    Example:
        >>> program = export(step, tf.TensorSpec([8, 512], tf.int32))
        >>> compiled = compile(program, "v5e-8")
        >>> print(compiled.verdict, compiled.peak_bytes, compiled.message)
    """
    slice_ = hardware.slice_of(target, jax=program.form == "stablehlo")
    if program.replicas not in (1, slice_.replicas):
        raise PreflightError(
            f"{program.name} is divided over {program.replicas} devices; {target} has "
            f"{slice_.replicas}.",
            "Such a program is compiled for all devices of a target together.",
            f"Make the mesh (or replicas=) of {slice_.replicas}, or compile for one device, "
            "without shardings.",
        )
    problem = server_process.installation_problem()
    result = Compiled(
        name=program.name,
        target=target,
        verdict="not available",
        message=problem,
        whole_message=problem,
        replicas=program.replicas,
        available_bytes=int(slice_.chip.available_gib * 2**30),
        effort=effort,
    )
    if problem:
        return result

    # What an answer depends on is in the job; the folder in which libtpu writes is not.
    job = _job(program, slice_) | {"effort": effort}
    if flags:
        job["flags"] = dict(sorted(flags.items()))
    key = cache.key(program.hlo, job, server_process.versions())
    answer = cache.read(key)
    cached = answer is not None
    if not cached:
        try:
            answer = _ask(job, program.hlo, timeout, progress)
        except NoAnswer as error:
            answer = _failure(error)
        else:
            # An error of our own code may be gone with the next version of it.
            if answer[0]["verdict"] != "error":
                cache.write(key, answer)
    report, text = answer
    fields = _fields(program, slice_.chip.replicas, report, text)
    return dataclasses.replace(result, **fields, cached=cached)


def _ask(job: dict[str, Any], hlo: bytes, timeout: float, progress: Progress | None) -> Answer:
    """Let the server compile. Raises `NoAnswer`."""
    with server_process.acquire() as process, tempfile.TemporaryDirectory() as folder:
        job = job | {"folder": folder}
        return process.ask(job, hlo, timeout=timeout, progress=progress)


def _failure(error: NoAnswer) -> Answer:
    """Turn the end of the compiler's process into an answer, with its last words."""
    # The first line that names a fault says more than the traces that follow it.
    last_words = ""
    for line in error.lines:
        if _LAST_WORDS.match(line):
            last_words = steady(line)[:200]
            break
    message = f"The compiler gave no answer: {error}. {last_words}".rstrip()
    verdict = "timed out" if error.cause == "time" else "crashed"
    return {"verdict": verdict, "message": message}, b""


def _job(program: Program, slice_: hardware.Slice) -> dict[str, Any]:
    """Say what the server needs to know (`server.Compiler.compile`)."""
    job = {
        "topology": slice_.topology,
        "devices": slice_.replicas,
        "replicas": program.replicas,
        "mesh": program.mesh or [("replica", program.replicas)],
        "shardings": program.shardings or _batch_shardings(program),
        "donated": program.donated,
        "host_parameters": program.host_parameters,
        "host_results": program.host_results,
        "form": program.form,
    }
    if slice_.chip.cores > slice_.chip.replicas:
        job["chip"] = "megacore"  # libtpu's name for joined cores; its default shows two of a v4
    return job


def _batch_shardings(program: Program) -> list[list[list[str]]]:
    """Give each replica a part of the arguments, and all of the variables."""
    # The arguments come first. A single replica has all of them, a scalar can't be divided.
    arguments = 0
    if program.replicas > 1:
        arguments = sum(parameter.kind == "argument" for parameter in program.parameters)
    shardings = []
    for i, parameter in enumerate(program.parameters):
        is_sharded = i < arguments and "[]" not in parameter.shape
        shardings.append([["replica"]] if is_sharded else [])
    return shardings


def _fields(program: Program, cores: int, report: dict[str, Any], text: bytes) -> dict[str, Any]:
    """Read the server's report, and the program's compressed text, as fields of `Compiled`.

    A chip of the target is so many ``cores``.
    """
    names = {field.name for field in dataclasses.fields(Compiled)}
    fields = {name: value for name, value in report.items() if name in names}
    verdict = report["verdict"]
    message = restore_names(report["message"], program.names)
    if verdict == "error":
        # The error comes from our own code, so it is not Google's verdict.
        verdict = "not available"
    fields["verdict"] = verdict
    fields["message"] = _short(verdict, message)
    fields["whole_message"] = message

    # There is no analysis of what doesn't fit, so its need is read from the message.
    if verdict == "out of memory":
        needed = _NEEDED.search(message)
        if needed:
            fields["peak_bytes"] = int(float(needed[1]) * _UNITS[needed[2]])
    if verdict == "compiles":
        work = uncounted_work(gzip.decompress(text).decode(), cores)
        fields["flops"] += work.flops
        fields["all_reduce_bytes"] = work.all_reduce_bytes
        fields["sent_bytes"] = work.sent_bytes
        fields["traffic_bytes"] = work.traffic_bytes
    if text:
        fields["_text"] = text
        fields["_names"] = program.names
    return fields


def _short(verdict: str, message: str) -> str:
    """Cut Google's message to what says it."""
    if verdict == "out of memory":
        sentence = re.search(r"total memory required.*?available HBM \([^)]*\)", message)
        if sentence is None:
            sentence = re.search(r"(?:Used|Ran out|Attempting).{10,160}?\.(?=\s|$)", message)
        if sentence is None:
            return message[:200]
        return f"{sentence[0][:1].upper()}{sentence[0][1:].rstrip('.')}."
    line = steady(next(filter(str.strip, message.splitlines()), ""))
    line = re.sub(r"^(?:JaxRuntimeError: )?(?:INTERNAL|UNKNOWN): ", "", line)
    if len(line) > 240:
        return f"{line[:239]}…"
    return line


_LAST_WORDS = re.compile(r"F\d{4} |.*(?:Check failed|Error:)|ERROR:")
_NEEDED = re.compile(r"required for HLO temporaries \(([\d.]+)([MGT])\)")
_UNITS = {"M": 2**20, "G": 2**30, "T": 2**40}
