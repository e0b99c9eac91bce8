"""What runs when a compiled program runs: loops as often as they go round, and what it computes."""

import collections
import functools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tpu_preflight.chips.layout import shape_bytes
from tpu_preflight.program.instructions import Instruction, computations
from tpu_preflight.program.pallas import PRODUCTS

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_OPERATION = re.compile(r'op_name="(?:jit\(run\)/)?(?:shard_map/)?(?:tensorflow_module/?)?([^"]*)"')
_TOLD = re.compile(rf'"{PRODUCTS}":"(\d+)"|"cost_estimate":\{{[^}}]*"flops":"(\d+)"')
_EXCHANGE = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?"
)
_GROUPS = re.compile(r"replica_groups=(?:\{\{([\d,]+)\}|\[\d+,(\d+)\]<=|mesh\[(.*?)\] \{(.*?)\})")
_UNKNOWN = 2**62  # the compiler's way to say that it doesn't know
# What gives a value as it took it.
SAME_VALUE = ("copy", "bitcast", "copy-done", "copy-start", "reshape")


class Step(NamedTuple):
    """An instruction that runs."""

    times: int  # how often
    endless: bool  # whether it is a loop whose number of rounds can't be told from the text
    instruction: Instruction
    shapes: Mapping[str, Sequence[str]]  # what there is to take: results with their layouts
    # Where it runs in a loop that has no name of its own: TensorFlow's name of what most of the
    # loop's values come from.
    loop: str = ""

    @property
    def cycles(self) -> int | None:
        """The compiler's estimate for one run: None where there is none, -1 if it is unknown."""
        found = _CYCLES.search(self.instruction.attributes)
        if found is None:  # of what takes no time of its own, and of the kernels of Pallas
            return -1 if '"tpu_custom_call"' in self.instruction.attributes else None
        return -1 if int(found[1]) >= _UNKNOWN else int(found[1])

    @property
    def touched(self) -> list[str]:
        """The shapes that it gives and takes."""
        i, shapes = self.instruction, self.shapes
        return [*i.laid_out, *(shape for name in i.operands for shape in shapes.get(name, ()))]


def walk(
    found: Mapping[str, list[Instruction]], name: str, times: int = 1, loop: str = ""
) -> Iterator[Step]:
    """Walk through what runs in the computations of a program, from the one of this name on.

    Of a choice (``conditional``) the branch with the most cycles runs. A loop of unknown length
    goes round once.
    """
    shapes = {i.name: i.laid_out for i in found[name]}
    for i in found[name]:
        rounds = _rounds(i, found, name) if i.opcode == "while" else 1
        yield Step(times, rounds is None, i, shapes, loop)
        if i.opcode == "while":
            inside = operation(i.attributes) or _named_before(i, found[name]) or loop
            again = times * (1 if rounds is None else rounds)
            yield from walk(found, i.called("body"), again, inside)
        elif i.opcode == "call":
            yield from walk(found, i.called("to_apply"), times, loop)
        elif i.opcode == "conditional":
            listed = re.findall(r"(?:branch|true|false)_computations?=(\{.*?\}|\S+)", i.attributes)
            branches = re.findall(r"%?([^\s,(){}]+)", " ".join(listed))
            ways = [list(walk(found, branch, times, loop)) for branch in branches]
            yield from max(
                ways, key=lambda way: sum(s.times * max(s.cycles or 0, 0) for s in way), default=[]
            )


class Exchange(NamedTuple):
    """Tensors that the devices send each other at one place in a program."""

    kind: str  # such as ``all-gather``; ``reduce-scatter`` where each keeps a part of the sum
    bytes: int  # of the whole tensors
    # Bytes that each chip sends: of n chips all but an n-th, and of an all-reduce twice that, first
    # a part of it to be added up, then the sums (Patarasuk and Yuan 2009,
    # doi:10.1016/j.jpdc.2008.09.002). Two cores of one chip have it from each other.
    sent: float
    # Whether the next kernel waits until that is done. If not, the program goes on with others
    # meanwhile.
    waits: bool = True


def exchange(
    i: Instruction, found: Mapping[str, list[Instruction]], cores: int, scatters: bool = False
) -> Exchange | None:
    """Say what an instruction sends; None if nothing, or if an earlier one has begun with it.

    A chip is so many ``cores``, devices of their own. Of an all-reduce in a fusion that
    ``scatters`` each device needs its part of the sum alone.
    """
    if i.opcode == "fusion":
        called = i.called("calls")
        if called.startswith("async_collective_fusion") or "collective-done" in i.name:
            return None
        parts = (exchange(j, found, cores, "reduce-scatter" in called) for j in found[called])
        begun = next(filter(None, parts), None)
        return begun and begun._replace(waits=not i.name.startswith("async-collective-start"))
    if (told := _EXCHANGE.fullmatch(i.opcode)) is None:
        return None
    kind, start = told.groups()
    shapes = [shape for shape in i.shapes if shape != "u32[]"]
    if start and kind != "all-reduce":  # what is sent, and what it becomes
        shapes = shapes[len(shapes) // 2 :]
    size, devices = sum(map(shape_bytes, shapes)), _together(i.attributes)
    size *= devices if kind == "reduce-scatter" else 1
    kind = "reduce-scatter" if scatters else kind
    others = 1 - min(1, cores / devices)
    times = {"all-reduce": 2 * others, "collective-permute": 1}.get(kind, others)
    return Exchange(kind, size, size * times, not start)


def _together(attributes: str) -> int:
    """Count the devices that take part: listed, as a table's width, or as axes of a mesh."""
    if (told := _GROUPS.search(attributes)) is None:
        return 1
    listed, width, mesh, axes = told.groups()
    if axes is None:
        return int(width) if width else listed.count(",") + 1
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", mesh))
    over = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", axes)
    return math.prod(int(part or sizes[axis]) for axis, part in over)


def repeated(text: str, cores: int) -> tuple[float, int, float]:
    """Count what the rounds of loops after their first compute, and what all of them send.

    XLA's own count takes each loop's body once. Gives the operations of products and convolutions,
    the bytes of what is added up across devices, and those that each chip of so many ``cores``
    sends.
    """
    found, main = computations(text)
    steps = [*walk(found, main)]
    pallas = (s for s in steps if s.instruction.opcode == "custom-call")
    # XLA's own count has those kernels of Pallas whose authors tell it.
    untold = [(s, 1) for s in pallas if '"cost_estimate":{' not in s.instruction.attributes]
    again = [*untold, *((s, s.times - 1) for s in steps if s.times > 1)]
    computed = sum(more * flops(s.instruction, found, s.shapes) for s, more in again)
    sent = [(s.times, e) for s in steps if (e := exchange(s.instruction, found, cores))]
    added = sum(times * e.bytes for times, e in sent if "reduce" in e.kind)
    return computed, added, sum(times * e.sent for times, e in sent)


def operation(attributes: str) -> str:
    """Give TensorFlow's name of the operation that an instruction ends in; empty without one."""
    told = _OPERATION.search(attributes)
    return told[1] if told else ""


def _named_before(loop: Instruction, around: list[Instruction]) -> str:
    """Name a loop after the operation that most of its values come from."""
    within = {i.name: i for i in around}
    made = (within[origin(within, name)] for name in within[loop.operands[0]].operands)
    names = collections.Counter(name for i in made if (name := operation(i.attributes)))
    return max(names, key=names.get, default="")


def _rounds(loop: Instruction, found: Mapping[str, list[Instruction]], name: str) -> int | None:
    """Tell how often a loop goes round: a counter that is compared with a number, by steps."""
    outside, condition, body = (
        {i.name: i for i in found[each]}
        for each in (name, loop.called("condition"), loop.called("body"))
    )
    test, result = (next(i for i in part.values() if i.root) for part in (condition, body))
    if test.opcode != "compare" or "direction=LT" not in test.attributes:
        return None
    given = outside[origin(outside, loop.operands[0])].operands

    def value(at: str, within: Mapping[str, Instruction]) -> tuple[int | None, int | None]:
        """Give an element's position in the loop's state, and a constant's value."""
        i = within[origin(within, at)]
        if i.opcode == "constant" and re.fullmatch(r"-?\d+", i.inside):
            return None, int(i.inside)
        if i.opcode == "get-tuple-element":
            return int(re.search(r"index=(\d+)", i.attributes)[1]), None
        return None, None

    (counter, _), (element, limit) = (value(operand, condition) for operand in test.operands)
    if element is not None and value(result.operands[element], body)[0] == element:
        _, limit = value(given[element], outside)  # it goes through the loop unchanged
    if counter is None or limit is None:
        return None
    added = body[origin(body, result.operands[counter])]
    parts = [value(operand, body) for operand in added.operands]
    step = next((step for _, step in parts if step is not None), 0)
    _, start = value(given[counter], outside)
    if added.opcode != "add" or (counter, None) not in parts or start is None or step <= 0:
        return None
    return max(0, -(-(limit - start) // step))


def origin(
    within: Mapping[str, Instruction], name: str, through: Collection[str] = SAME_VALUE
) -> str:
    """Follow a value back through copies of it."""
    while name in within and within[name].opcode in through:
        name = within[name].operands[0]
    return name


def flops(
    i: Instruction, found: Mapping[str, list[Instruction]], shapes: Mapping[str, Sequence[str]]
) -> float:
    """Count the operations of the matrix products and convolutions in an instruction.

    Of a kernel of Pallas what `program.pallas` counted, else what its author tells.
    """
    if i.opcode == "fusion":
        inside = found[i.called("calls")]
        inner = {j.name: j.laid_out for j in inside}
        return sum(flops(j, found, inner) for j in inside)
    if i.opcode == "custom-call" and (told := _TOLD.search(i.attributes)):
        return float(told[1] or told[2])
    if i.opcode not in ("convolution", "dot"):
        return 0.0
    left, right = (sizes(shapes[name][0]) for name in i.operands)
    result = sizes(i.shapes[0])
    if i.opcode == "dot":
        contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", i.attributes)[1]
        return 2.0 * math.prod(result) * math.prod(left[int(d)] for d in contracted.split(",") if d)
    return 2.0 * multiplications(i.attributes, left, right, result)


def sizes(shape: str) -> list[int]:
    """Read the sizes from a shape as XLA writes it: 8 and 16 from ``f32[8,16]{1,0}``."""
    return [int(n) for n in re.findall(r"\d+", shape.partition("[")[2].partition("]")[0])]


def multiplications(
    attributes: str, left: Sequence[int], right: Sequence[int], result: Sequence[int]
) -> float:
    """Count a convolution's products; those with a zero of padding or dilation don't count.

    The compiler writes a batch of matrix products as a convolution with dilated dimensions
    (https://openxla.org/xla/operation_semantics#convwithgeneralpadding_convolution).
    """
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes)
    windows = " ".join(re.findall(r"window=\{([^}]*)\}", attributes))
    window = dict(part.split("=") for part in windows.split())
    total = result[labels[3].index("f")] * right[labels[2].index("i")]
    groups = re.search(r"batch_group_count=(\d+)", attributes)
    total *= left[labels[1].index("b")] // (int(groups[1]) if groups else 1)
    for at, label in enumerate(sorted(filter(str.isdigit, labels[3]))):
        size, stride, spread, apart, low = (
            int(window[key].split("x")[at].split("_")[0]) if key in window else default
            for key, default in _WINDOW.items()
        )
        read, made = left[labels[1].index(label)], result[labels[3].index(label)]
        total *= _valid(read, made, size, stride, spread, apart, low)
    return float(total)


# What a window says of a dimension, and what it means where it doesn't.
_WINDOW = {"size": 1, "stride": 1, "lhs_dilate": 1, "rhs_dilate": 1, "pad": 0}


@functools.lru_cache(maxsize=1024)
def _valid(read: int, made: int, size: int, stride: int, spread: int, apart: int, low: int) -> int:
    """Count the pairs of a result's position and a weight's that meet a value, not a zero."""
    weights = np.arange(size) * apart - low
    last = (read - 1) * spread
    return sum(
        int(np.count_nonzero((at >= 0) & (at <= last) & (at % spread == 0)))
        for at in (weights + m * stride for m in range(made))
    )
