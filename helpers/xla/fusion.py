"""The kernels of a compiled program: what each computes, reads and writes, as a table or picture.

A kernel is one pass of the machine over memory: it reads its inputs, computes, and writes its
results. A *fusion* is a kernel that does several operations in one pass, so that what lies
between them never reaches memory.
"""

import dataclasses
import re
import textwrap
from collections.abc import Callable

from helpers.base import html
from helpers.base.errors import CourseError
from helpers.display.figures import subplots
from helpers.xla.profiler import recording
from tpu_preflight.chips.layout import shape_bytes
from tpu_preflight.program import instructions
from tpu_preflight.program.instructions import Instruction
from tpu_preflight.text import aligned

# Operations that only name or regroup what is in memory already.
_FREE = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element"}

# Operations whose own computation says what they do to two values at a time.
_APPLYING = {"reduce", "reduce-window", "scatter", "all-reduce", "map"}


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A piece of memory that a kernel reads or writes."""

    # ``argument 0`` (the first), ``kernel 1`` (the first kernel's result), ``kernel 1.0`` (the
    # first of several), or ``constant``.
    name: str
    shape: str  # type and shape as XLA writes them: ``f32[1024,1000]``

    @property
    def bytes(self) -> int:
        """Size in bytes, without padding; a bounded dimension such as ``<=8`` counts in full."""
        return shape_bytes(self.shape)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One pass over memory."""

    number: int  # position in the program, from 1
    operations: tuple[str, ...]  # what it computes, in XLA's names: ``reduce(add)`` is a sum
    # The buffers it reads, each once; constants are part of the kernel and left out.
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]  # the buffers it writes

    @property
    def fused(self) -> bool:
        """Whether it does more than one operation."""
        return len(self.operations) > 1


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled program as a list of kernels, in the order in which they run."""

    arguments: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    results: tuple[Buffer, ...]

    @property
    def fusions(self) -> tuple[Kernel, ...]:
        """The kernels that do more than one operation."""
        return tuple(k for k in self.kernels if k.fused)

    @property
    def temporaries(self) -> tuple[Buffer, ...]:
        """The buffers that a kernel writes and only other kernels read."""
        return tuple(b for k in self.kernels for b in k.writes if b not in self.results)

    @property
    def bytes_written(self) -> int:
        """Bytes that all kernels write. A loop counts once, whatever its number of rounds."""
        return sum(b.bytes for k in self.kernels for b in k.writes)

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written: the least memory traffic of one run."""
        return self.bytes_written + sum(b.bytes for k in self.kernels for b in k.reads)

    def _rows(self) -> list[tuple[str, str, str, str]]:
        rows = [("kernel", "operations", "reads", "writes")]
        for k in self.kernels:
            name = f"{k.number}{' fusion' * k.fused}"
            reads = ", ".join(f"{b.name} {b.shape}" for b in k.reads) or "–"
            rows.append(
                (name, ", ".join(k.operations), reads, ", ".join(b.shape for b in k.writes))
            )
        return rows

    def _summary(self) -> str:
        kernels, fusions = len(self.kernels), len(self.fusions)
        return (
            f"{kernels} kernel{'s' * (kernels != 1)}, {fusions} fusion{'s' * (fusions != 1)} among "
            f"them; {self.bytes_moved:,} bytes moved"
        )

    def __repr__(self) -> str:
        return "\n".join([*aligned(self._rows()), self._summary()])

    def _repr_html_(self) -> str:
        return html.render("kernels.html", rows=self._rows(), summary=self._summary())


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
        target = re.search(r'custom_call_target="([^"]+)"', instruction.attributes)
        return [target[1] if target else opcode]
    return [opcode]


def kernels(optimized: str) -> Program:
    """Read the kernels from the text of a compiled program.

    Wrappers that only split a kernel among a processor's cores are looked through, so the list is
    the same on a machine with one core and with many.

    Args:
        optimized: XLA's program after optimisation, as
            ``experimental_get_compiler_ir(...)(stage="optimized_hlo")`` or
            ``hlo(...).optimized`` give it (https://openxla.org/xla/hlo_dumps).

    Raises:
        CourseError: The text is something else, or a program with operations that run in the
            background, as programs for several devices have.
    """
    computations, main = instructions.computations(optimized)
    holds: dict[str, tuple[Buffer, ...]] = {}  # what each name stands for in memory
    arguments, found, results = {}, [], ()
    for i in computations[main]:
        inputs = [b for name in i.operands for b in holds[name]]
        if i.opcode.endswith(("-start", "-done")):
            raise CourseError(
                f"The program has an operation that runs in the background ({i.opcode}).",
                "Its kernels overlap, so bytes read and written can't be told kernel by kernel.",
                "Look at a program for one device, with buffers too large for its fast memory.",
            )
        if i.opcode == "parameter":
            arguments[int(i.inside)] = Buffer(f"argument {i.inside}", i.shapes[0])
            holds[i.name] = (arguments[int(i.inside)],)
        elif i.opcode == "constant":
            holds[i.name] = (Buffer("constant", i.shapes[0]),)
        elif i.opcode == "get-tuple-element":
            index = int(re.search(r"index=(\d+)", i.attributes)[1])
            holds[i.name] = (inputs[index],)
        elif i.opcode in _FREE:
            holds[i.name] = tuple(inputs)
        else:
            name = f"kernel {len(found) + 1}"
            several = [f"{name}.{n}" for n in range(len(i.shapes))]
            holds[i.name] = tuple(map(Buffer, several if len(i.shapes) > 1 else [name], i.shapes))
            reads = dict.fromkeys(b for b in inputs if b.name != "constant")
            operations = tuple(_operations(i, computations))
            found.append(Kernel(len(found) + 1, operations, tuple(reads), holds[i.name]))
        if i.root:
            results = holds[i.name]
    return Program(tuple(arguments[n] for n in sorted(arguments)), tuple(found), tuple(results))


def executed(fn: Callable, *args: object) -> tuple[str, ...]:
    """Run a function and list the TensorFlow operations that really ran, in their order.

    They are read from TensorFlow's profiler: ``("Exp", "Sum", "RealDiv")``. Each is a kernel of its
    own, whose result is a temporary in memory. A function that XLA compiled shows none: it runs
    XLA's kernels instead. Call the function once before, so that tracing is not counted.

    Raises:
        CourseError: Another profiler runs already.
    """
    # An eager operation, or a node of a graph; a name with an underscore is TensorFlow's own doing.
    event = r"(?:EagerLocalExecute: |[\w./]+:)([^\W_]\w*)"
    with recording("Operations", event) as seen:
        fn(*args)
    return tuple(seen)


def draw(program: Program, width: float = 7.0) -> object:
    """Draw a program: a box for each kernel, an arrow for each pass through memory.

    Gives a matplotlib figure, ``width`` inches wide, for ``display.figure(fig, alt=...)``.
    """
    import matplotlib.patches

    boxes = [(b.name, "memory", ()) for b in program.arguments]
    boxes += [
        (f"{'fusion: ' * k.fused}{' · '.join(k.operations)}", "kernel", k.reads)
        for k in program.kernels
    ]
    boxes += [("result", "memory", (b,)) for b in program.results]
    made = [(b,) for b in program.arguments] + [k.writes for k in program.kernels]
    row_of = {b.name: row for row, buffers in enumerate(made) for b in buffers}
    fig, ax = subplots(width, 0.2 + 0.62 * len(boxes))
    ax.set_axis_off()
    lane = 0  # right of the boxes, one for each arrow over more than one row
    for row, (text, kind, reads) in enumerate(boxes):
        looks = {"linestyle": "--"} if kind == "memory" else {}
        fused = text.startswith("fusion: ")
        looks |= {"facecolor": "#CFE8F7" if fused else "white", "linewidth": 2.5 if fused else 1}
        ax.add_patch(matplotlib.patches.Rectangle((-1, row - 0.26), 2, 0.52, ec="black", **looks))
        short = textwrap.shorten(text, 64, placeholder=" …")
        ax.text(0, row, short, ha="center", va="center", size=9)
        for b in reads:
            above = row_of.get(b.name, row)
            x, path = 0.0, [(0.0, above + 0.26), (0.0, row - 0.26)]
            if above < row - 1:
                lane += 1
                x, start, end = 0.8 + 0.3 * lane, above + 0.08 * lane, row - 0.08 * lane
                path = [(1.0, start), (x, start), (x, end), (1.0, end)]
            if above < row:
                ax.plot(*zip(*path[:-1], strict=True), color="black", marker="", linewidth=1)
                ax.annotate("", path[-1], path[-2], arrowprops={"arrowstyle": "-|>"})
                said = f"{b.bytes / 1e6:,.2f} MB" if b.bytes >= 1e4 else f"{b.bytes:,} bytes"
                ax.text(x + 0.02, row - 0.5 if x == 0 else above + 0.5, said, size=8, va="center")
    ax.set(xlim=(-1.02, max(1.95, 1.35 + 0.3 * lane)), ylim=(len(boxes) - 0.6, -0.4))
    return fig
