"""The kernels of a compiled program: what each computes, reads and writes, as a table.

A kernel is a program that the device runs: it reads its inputs from memory, computes, and writes
its results there. A *fusion* is a kernel that does several operations, so that what lies between
them never reaches memory.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from helpers.base.errors import CourseError
from helpers.xla.compilations import recording
from tpu_preflight.chips.layout import shape_bytes
from tpu_preflight.display import Displayable, Table
from tpu_preflight.program import instructions
from tpu_preflight.program.instructions import Instruction

# Operations that only name or regroup what is in memory already.
_FREE = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element"}

# Operations whose own computation says what they do to two values at a time.
_APPLYING = {"reduce", "reduce-window", "scatter", "all-reduce", "map"}


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A piece of memory that a kernel reads or writes."""

    # ``argument 0``, ``kernel 1`` (its result), ``kernel 1.0`` (of several), ``constant``
    name: str
    shape: str  # type and shape as XLA writes them: ``f32[1024,1000]``

    @property
    def bytes(self) -> int:
        """Size in bytes, without padding; a bounded dimension such as ``<=8`` counts in full."""
        return shape_bytes(self.shape)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One program of the device."""

    operations: tuple[str, ...]  # what it computes, in XLA's names: ``reduce(add)`` is a sum
    reads: tuple[Buffer, ...]  # each once; constants are part of the kernel and left out
    writes: tuple[Buffer, ...]

    @property
    def fused(self) -> bool:
        """Whether it does more than one operation."""
        return len(self.operations) > 1

    @property
    def bytes_read(self) -> int:
        """Bytes that it reads, each input once."""
        return sum(buffer.bytes for buffer in self.reads)

    @property
    def bytes_written(self) -> int:
        """Bytes that it writes."""
        return sum(buffer.bytes for buffer in self.writes)


@dataclasses.dataclass(frozen=True, repr=False)
class Program(Displayable):
    """A compiled program as a list of kernels, in the order in which they run."""

    kernels: tuple[Kernel, ...]

    @property
    def fusions(self) -> tuple[Kernel, ...]:
        """The kernels that do more than one operation."""
        return tuple(kernel for kernel in self.kernels if kernel.fused)

    @property
    def bytes_written(self) -> int:
        """Bytes that all kernels write. A loop counts once, whatever its number of rounds."""
        return sum(kernel.bytes_written for kernel in self.kernels)

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written: the least memory traffic of one run."""
        return self.bytes_written + sum(kernel.bytes_read for kernel in self.kernels)

    def blocks(self) -> Iterator[Any]:
        """Give its parts in order; see `Displayable`."""
        rows = []
        for number, kernel in enumerate(self.kernels, 1):
            label = f"{number} fusion" if kernel.fused else f"{number}"
            reads = [f"{buffer.name} {buffer.shape}" for buffer in kernel.reads]
            row = {
                "kernel": label,
                "operations": ", ".join(kernel.operations),
                "reads": ", ".join(reads) or "–",
                "writes": ", ".join(buffer.shape for buffer in kernel.writes),
            }
            rows.append(row)
        yield Table(rows)
        kernels = _count(len(self.kernels), "kernel")
        fusions = _count(len(self.fusions), "fusion")
        yield f"{kernels}, {fusions} among them; {self.bytes_moved:,} bytes moved"


def _count(number: int, noun: str) -> str:
    """Write a number with its noun: ``1 kernel``, ``2 kernels``."""
    ending = "" if number == 1 else "s"
    return f"{number} {noun}{ending}"


def _operations(instruction: Instruction, computations: dict) -> list[str]:
    """List what an instruction computes, looking into fusions and calls."""
    opcode = instruction.opcode
    if opcode in _FREE:
        return []
    inner = instruction.called("calls" if opcode == "fusion" else "to_apply")
    if opcode in ("fusion", "call") and inner:
        constants = set()
        names = []
        for part in computations[inner]:
            if part.opcode == "constant":
                constants.add(part.name)
            # A constant that is repeated for each element is no work of its own.
            if part.opcode == "broadcast" and constants.issuperset(part.operands):
                continue
            names += _operations(part, computations)
        return names
    if opcode in _APPLYING and inner:
        root = next(part for part in computations[inner] if part.root)
        return [f"{opcode}({root.opcode})"]
    if opcode == "custom-call":
        return re.findall(r'custom_call_target="([^"]+)"', instruction.attributes)
    return [opcode]


def kernels(optimized: str) -> Program:
    """Read the kernels from the text of a compiled program.

    Wrappers that only split a kernel among a processor's cores are looked through, so the list is
    the same on a machine with one core and with many. ``optimized`` is XLA's program after
    optimisation, as ``experimental_get_compiler_ir(...)(stage="optimized_hlo")`` of a
    ``tf.function`` gives it (https://openxla.org/xla/hlo_dumps).

    Raises `PreflightError`: The text is something else; or (a CourseError) a program with
    operations that run in the background, as programs for several devices have.
    """
    computations, main = instructions.computations(optimized)
    buffers: dict[str, tuple[Buffer, ...]] = {}  # what each name stands for in memory
    kernels = []
    for instruction in computations[main]:
        opcode = instruction.opcode
        if opcode.endswith(("-start", "-done")):
            raise CourseError(
                f"The program has an operation that runs in the background ({opcode}).",
                "Its kernels overlap, so bytes read and written can't be told kernel by kernel.",
                "Look at a program for one device, with buffers too large for its fast memory.",
            )
        inputs = []
        for name in instruction.operands:
            inputs += buffers[name]
        if opcode == "parameter":
            argument = Buffer(f"argument {instruction.inside}", instruction.shapes[0])
            buffers[instruction.name] = (argument,)
        elif opcode == "constant":
            buffers[instruction.name] = (Buffer("constant", instruction.shapes[0]),)
        elif opcode == "get-tuple-element":
            index = int(re.search(r"index=(\d+)", instruction.attributes)[1])
            buffers[instruction.name] = (inputs[index],)
        elif opcode in _FREE:
            buffers[instruction.name] = tuple(inputs)
        else:
            # Whatever is left computes, so it runs as a kernel and writes to memory.
            writes = _results(f"kernel {len(kernels) + 1}", instruction.shapes)
            buffers[instruction.name] = writes
            # Without the constants, and each input once, in order.
            reads = dict.fromkeys(buffer for buffer in inputs if buffer.name != "constant")
            operations = tuple(_operations(instruction, computations))
            kernels.append(Kernel(operations, tuple(reads), writes))
    return Program(tuple(kernels))


def _results(kernel: str, shapes: Sequence[str]) -> tuple[Buffer, ...]:
    """Name what a kernel writes: by the kernel alone if it is one result, else numbered."""
    if len(shapes) == 1:
        return (Buffer(kernel, shapes[0]),)
    return tuple(Buffer(f"{kernel}.{number}", shape) for number, shape in enumerate(shapes))


def executed(fn: Callable, *args: object) -> tuple[str, ...]:
    """Run a function and list the TensorFlow operations that really ran, in their order.

    Each is a separate kernel, whose result is a temporary in memory: ``("Exp", "Sum")``. A
    function that XLA compiled shows none: it runs XLA's kernels instead. Call it once before, so
    that tracing is not counted.

    Raises `CourseError`: Another profiler runs already.
    """
    # An eager operation, or a node of a graph; a name with an underscore is TensorFlow's own doing.
    event = r"(?:EagerLocalExecute: |[\w./]+:)([^\W_]\w*)"
    with recording(event) as operations:
        fn(*args)
    return tuple(operations)
