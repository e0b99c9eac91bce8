"""What would help a kernel of a step, where the compiled program shows that something would.

Each piece of advice names what was seen in the program (a copy into another order, a padded
dimension, float32 on its way through memory, a loop over rows, scores for every position) and how
much of the kernel's time that concerns: no more than that can be saved.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from tpu_preflight.chips.layout import Layout, shape_bytes
from tpu_preflight.compiler.memory import mend, tiled
from tpu_preflight.compiler.walking import SAME_VALUE, Shapes, flops, sizes
from tpu_preflight.program.instructions import Instruction
from tpu_preflight.text import size

# What marks TensorFlow's names of the operations that compute gradients.
GRADIENT = "gradient_tape"

# Padding is worth a word where a tensor takes so many times the memory of its values, so many
# bytes, and is so large a part of what the kernel touches.
EXPANSION, MUCH, PART = 1.5, 100_000, 0.5

# Scores for a vocabulary: so many times more of them than values that go into each.
VOCABULARY = 8

# A loop of so many rounds without a product in it takes its time row by row.
ROUNDS = 64

# A piece of advice is given for a group of kernels where it concerns so much of their time.
WORTH = 0.1

_MOVES = {"parameter", "bitcast", "copy", "transpose", "reshape", "tuple", "constant"}


@dataclasses.dataclass(frozen=True)
class Advice:
    """What would help one kernel."""

    kind: str  # ``layout``, ``padding``, ``float32``, ``rows`` or ``head``
    text: str  # what was seen, and what would help
    seconds: float  # the part of the kernel's time that it concerns


class Program:
    """A compiled program, as far as advice on one of its kernels needs it."""

    def __init__(self, found: Mapping[str, list[Instruction]], main: str) -> None:
        self._found = found
        self._main = {i.name: i for i in found[main]}
        root = next(i for i in found[main] if i.root)
        self._results = {self._origin(name) for name in (*root.operands, root.name)}

    def _origin(self, name: str) -> str:
        """Follow a value of the main computation back through copies of it."""
        while name in self._main and self._main[name].opcode in (*SAME_VALUE, "get-tuple-element"):
            name = self._main[name].operands[0]
        return name

    def inside(self, i: Instruction) -> list[Instruction]:
        """Give what a fusion computes, the fusions within it included; an instruction is itself."""
        if i.opcode != "fusion":
            return [i]
        inner = self._found[i.called("calls")]
        return [k for j in inner for k in self.inside(j)]

    def intermediate(self, i: Instruction, shapes: Shapes) -> Iterator[str]:
        """Give the shapes that other kernels made or will read: no variables, no batch."""
        for name in i.operands:
            made = self._main.get(self._origin(name))
            if made is None or made.opcode not in ("parameter", "constant"):
                yield from shapes.get(name, ())
        if i.name not in self._results:
            yield from i.laid_out

    def product(self, i: Instruction, shapes: Shapes) -> tuple[int, int, int] | None:
        """Give rows, columns and depth of a product with a matrix; None for any other kernel."""
        computed = flops(i, self._found, shapes)
        for j in self.inside(i) if computed else ():
            if j.opcode not in ("convolution", "dot"):
                continue
            made = math.prod(sizes(j.shapes[0]))
            depth = round(computed / 2 / made)
            last = [n for n in sizes(j.shapes[0]) if n > 1][-1:]
            for given in shapes.reads(i):
                if depth > 1 and sorted(n for n in sizes(given) if n > 1) == sorted([depth, *last]):
                    return made // last[0], last[0], depth
        return None


def advice(
    program: Program,
    i: Instruction,
    shapes: Shapes,
    name: str,
    *,
    seconds: float,
    bound: str,
    runs: int,
    most_rows: int,
) -> tuple[Advice, ...]:
    """Say what would help a kernel: the instruction ``i`` with the shapes around it.

    ``name``, ``seconds``, ``bound`` and ``runs`` are as `profiling.Kernel` has them; ``most_rows``
    are the most of all products of the program.
    """
    found = (
        _layout(program, i, shapes, seconds),
        _padding([*i.laid_out, *shapes.reads(i)], seconds),
        _float32(program, i, shapes, seconds) if bound == "HBM" else None,
        _rows(program.inside(i), name, runs, seconds),
        _head(program.product(i, shapes), name, most_rows, seconds),
    )
    return tuple(a for a in found if a is not None)


def together(advised: Sequence[tuple[Advice, ...]], seconds: float) -> str:
    """Choose what helps a group of kernels most, by the time that it concerns; mostly nothing."""
    kinds: dict[str, list[Advice]] = collections.defaultdict(list)
    for one in advised:
        for a in one:
            kinds[a.kind].append(a)
    best = max(kinds.values(), key=lambda a: sum(x.seconds for x in a), default=[])
    concerned = sum(a.seconds for a in best)
    if not best or concerned < WORTH * seconds:
        return ""
    first = max(best, key=lambda a: a.seconds)
    more = f", and {len(best) - 1} more such" if len(best) > 1 else ""
    return f"{first.text} ({concerned / seconds:.0%} of this time{more})"


def _short(shape: str) -> str:
    return shape.partition("{")[0]


def _layout(program: Program, i: Instruction, shapes: Shapes, seconds: float) -> Advice | None:
    """Find a kernel that computes nothing, and writes a tensor in another order."""
    if not {j.opcode for j in program.inside(i)} <= _MOVES:
        return None
    read = [shape for shape in shapes.reads(i) if shape_bytes(shape) == shape_bytes(i.shapes[0])]
    orders = {tuple(re.findall(r"\d+", _order(shape))) for shape in (*read, i.laid_out[0])}
    transposed = any(j.opcode == "transpose" for j in program.inside(i))
    if not read or (len(orders) == 1 and not transposed):
        return None
    text = (
        f"layout copy: {_short(i.laid_out[0])} is written again in another order; "
        "let what reads it take the order that is there"
    )
    return Advice("layout", text, seconds)


def _order(shape: str) -> str:
    return shape.partition("{")[2].partition(":")[0]


def _padding(touched: Sequence[str], seconds: float) -> Advice | None:
    layouts: list[Layout] = [found for shape in touched if (found := tiled(shape)) is not None]
    worst = max(layouts, key=lambda x: x.bytes - x.unpadded_bytes, default=None)
    if worst is None or worst.expansion < EXPANSION or worst.bytes < MUCH:
        return None
    everything = sum(x.bytes for x in layouts)
    if worst.bytes < PART * everything:
        return None
    wasted = 1 - sum(x.unpadded_bytes for x in layouts) / everything
    return Advice("padding", mend(worst), seconds * wasted)


def _float32(program: Program, i: Instruction, shapes: Shapes, seconds: float) -> Advice | None:
    """Find a kernel that waits for HBM, mostly for float32 that other kernels made or will read."""
    moved = sum(map(hbm_bytes, (*i.laid_out, *shapes.reads(i))))
    between = sum(hbm_bytes(x) for x in program.intermediate(i, shapes) if x.startswith("f32["))
    if not moved or between < PART * moved:
        return None
    text = (
        f"float32: {size(between)} of its traffic is float32 that other operations made or will "
        "read; bfloat16 (mixed precision) halves that"
    )
    return Advice("float32", text, seconds * between / moved / 2)


def hbm_bytes(shape: str) -> int:
    """Count a tensor's bytes in HBM: none where its layout says that it lies on the chip."""
    return 0 if re.search(r"S\([1-9]\d*\)", shape) else shape_bytes(shape)


def _rows(inside: Sequence[Instruction], name: str, runs: int, seconds: float) -> Advice | None:
    """Find a loop that takes or changes one row of a tensor in each of its rounds."""
    kinds = {j.opcode for j in inside}
    by_row = kinds & {"dynamic-slice", "dynamic-update-slice"}
    if runs < ROUNDS or not by_row or kinds & {"convolution", "dot"}:
        return None
    text = f"a loop of {runs:,} rounds, one row in each"
    if "Unique" in name:
        text = (
            f"{text}: tf.unique, by which older optimizers add up an embedding's rows; "
            "with a dense gradient (tf.convert_to_tensor) there is no such loop"
        )
    return Advice("rows", text, seconds)


def _head(
    product: tuple[int, int, int] | None, name: str, most_rows: int, seconds: float
) -> Advice | None:
    """Find the scores of a vocabulary for every position."""
    if product is None or GRADIENT in name:
        return None
    rows, columns, depth = product
    if columns < VOCABULARY * depth or rows < most_rows:
        return None
    text = (
        f"{columns:,} scores for each of {rows:,} positions; if the loss counts only some, "
        "gather those before this product"
    )
    return Advice("head", text, seconds)
