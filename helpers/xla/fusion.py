"""The kernels of a compiled program: what each computes, reads and writes, as a table.

A kernel is a program that the device runs: it reads its inputs from memory, computes, and writes
its results there. A *fusion* is a kernel that does several operations, so that what lies between
them never reaches memory.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator
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


@dataclasses.dataclass(frozen=True, repr=False)
class Program(Displayable):
    """A compiled program as a list of kernels, in the order in which they run."""

    kernels: tuple[Kernel, ...]

    @property
    def fusions(self) -> tuple[Kernel, ...]:
        """The kernels that do more than one operation."""
        return tuple(k for k in self.kernels if k.fused)

    @property
    def bytes_written(self) -> int:
        """Bytes that all kernels write. A loop counts once, whatever its number of rounds."""
        return sum(b.bytes for k in self.kernels for b in k.writes)

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written: the least memory traffic of one run."""
        return self.bytes_written + sum(b.bytes for k in self.kernels for b in k.reads)

    def blocks(self) -> Iterator[Any]:
        """Give its parts in order; see `Displayable`."""
        yield Table(
            {
                "kernel": f"{number}{' fusion' * k.fused}",
                "operations": ", ".join(k.operations),
                "reads": ", ".join(f"{b.name} {b.shape}" for b in k.reads) or "–",
                "writes": ", ".join(b.shape for b in k.writes),
            }
            for number, k in enumerate(self.kernels, 1)
        )
        kernels, fusions = len(self.kernels), len(self.fusions)
        yield (
            f"{kernels} kernel{'s' * (kernels != 1)}, {fusions} fusion{'s' * (fusions != 1)} among "
            f"them; {self.bytes_moved:,} bytes moved"
        )


def _operations(instruction: Instruction, computations: dict) -> list[str]:
    """List what an instruction computes, looking into fusions and calls."""
    opcode = instruction.opcode
    if opcode in _FREE:
        return []
    inner = instruction.called("calls" if opcode == "fusion" else "to_apply")
    if opcode in ("fusion", "call") and inner:
        constants = {i.name for i in computations[inner] if i.opcode == "constant"}
        return [
            name
            for i in computations[inner]
            if not (i.opcode == "broadcast" and set(i.operands) <= constants)
            for name in _operations(i, computations)
        ]
    if opcode in _APPLYING and inner:
        root = next(i for i in computations[inner] if i.root)
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
    holds: dict[str, tuple[Buffer, ...]] = {}  # what each name stands for in memory
    found = []
    for i in computations[main]:
        inputs = [b for name in i.operands for b in holds[name]]
        if i.opcode.endswith(("-start", "-done")):
            raise CourseError(
                f"The program has an operation that runs in the background ({i.opcode}).",
                "Its kernels overlap, so bytes read and written can't be told kernel by kernel.",
                "Look at a program for one device, with buffers too large for its fast memory.",
            )
        if i.opcode in ("parameter", "constant"):
            name = f"argument {i.inside}" if i.opcode == "parameter" else "constant"
            holds[i.name] = (Buffer(name, i.shapes[0]),)
        elif i.opcode == "get-tuple-element":
            holds[i.name] = (inputs[int(re.search(r"index=(\d+)", i.attributes)[1])],)
        elif i.opcode in _FREE:
            holds[i.name] = tuple(inputs)
        else:
            name = f"kernel {len(found) + 1}"
            several = [f"{name}.{n}" for n in range(len(i.shapes))]
            holds[i.name] = tuple(map(Buffer, several if len(i.shapes) > 1 else [name], i.shapes))
            reads = dict.fromkeys(b for b in inputs if b.name != "constant")
            operations = tuple(_operations(i, computations))
            found.append(Kernel(operations, tuple(reads), holds[i.name]))
    return Program(tuple(found))


def executed(fn: Callable, *args: object) -> tuple[str, ...]:
    """Run a function and list the TensorFlow operations that really ran, in their order.

    Each is a kernel of its own, whose result is a temporary in memory: ``("Exp", "Sum")``. A
    function that XLA compiled shows none: it runs XLA's kernels instead. Call it once before, so
    that tracing is not counted.

    Raises `CourseError`: Another profiler runs already.
    """
    # An eager operation, or a node of a graph; a name with an underscore is TensorFlow's own doing.
    event = r"(?:EagerLocalExecute: |[\w./]+:)([^\W_]\w*)"
    with recording(event) as seen:
        fn(*args)
    return tuple(seen)
