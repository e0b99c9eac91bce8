"""What runs when a compiled program runs: loops as often as they go round, and what it computes."""

import collections
import functools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tpu_preflight.chips.layout import hbm_bytes, shape_bytes
from tpu_preflight.program.instructions import Instruction, computations
from tpu_preflight.program.pallas import FLOPS_KEY

Module = Mapping[str, Sequence[Instruction]]  # the computations of a program, by name

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_OPERATION = re.compile(r'op_name="(?:jit\(run\)/)?(?:shard_map/)?(?:tensorflow_module/?)?([^"]*)"')
_KERNEL_FLOPS = re.compile(
    rf'"{FLOPS_KEY}":"(\d+)"|"cost_estimate":\{{[^}}]*"flops":"(\d+)"'  # ours, or its author's
)
_EXCHANGE = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?"
)
_GROUPS = re.compile(r"replica_groups=(?:\{\{([\d,]+)\}|\[\d+,(\d+)\]<=|mesh\[(.*?)\] \{(.*?)\})")
_BRANCHES = re.compile(r"(?:branch|true|false)_computations?=(\{.*?\}|\S+)")
_UNKNOWN = 2**62  # the compiler's way to say that it doesn't know
# What reads and writes memory; the rest is a part of these, or only a name.
_KERNELS = {"fusion", "copy", "gather", "reduce", "reduce-window", "sort", "transpose"}
# What gives a value as it took it.
SAME_VALUE = ("copy", "bitcast", "copy-done", "copy-start", "reshape")


class Step(NamedTuple):
    """An instruction that runs."""

    times: int  # how often
    endless: bool  # whether it is a loop whose number of rounds isn't known from the text
    instruction: Instruction
    shapes: Mapping[str, Sequence[str]]  # what there is to take: results with their layouts
    # Where it runs in a loop that has no name of its own: TensorFlow's name of what most of the
    # loop's values come from.
    loop: str = ""

    @property
    def cycles(self) -> int | None:
        """The compiler's estimate for one run: None where there is none, -1 if it is unknown."""
        estimate = _CYCLES.search(self.instruction.attributes)
        if estimate is None:
            # Kernels of Pallas take time without an estimate; all else here takes none of its own.
            return -1 if '"tpu_custom_call"' in self.instruction.attributes else None
        cycles = int(estimate[1])
        if cycles >= _UNKNOWN:
            return -1
        return cycles

    @property
    def tensors(self) -> list[str]:
        """The shapes of its results and operands, with their layouts."""
        tensors = list(self.instruction.layouts)
        for name in self.instruction.operands:
            tensors += self.shapes.get(name, ())
        return tensors


def walk(module: Module, name: str, times: int = 1, loop: str = "") -> Iterator[Step]:
    """Walk through what runs in the computations of a program, from the one of this name on.

    Of a choice (``conditional``) the branch with the most cycles runs. A loop of unknown length
    goes round once.

    Args:
        module: The program's computations.
        name: Where to begin: mostly the main computation.
        times: How often that runs.
        loop: The name of the loop that it is in; see `Step`.
    """
    computation = module[name]
    shapes = _layouts(computation)
    for instruction in computation:
        rounds = 1
        if instruction.opcode == "while":
            rounds = loop_rounds(instruction, module, name)
        yield Step(
            times=times,
            endless=rounds is None,
            instruction=instruction,
            shapes=shapes,
            loop=loop,
        )
        match instruction.opcode:
            case "while":
                loop_name = operation(instruction.attributes)
                loop_name = loop_name or _most_common_source(instruction, computation) or loop
                if rounds is None:
                    rounds = 1
                yield from walk(module, instruction.called("body"), times * rounds, loop_name)
            case "call":
                yield from walk(module, instruction.called("to_apply"), times, loop)
            case "conditional":
                # Which branch runs isn't known, so the slowest is taken.
                branches = []
                for branch in _branches(instruction):
                    branches.append(list(walk(module, branch, times, loop)))
                yield from max(branches, key=_total_cycles, default=[])


def _layouts(computation: Sequence[Instruction]) -> dict[str, Sequence[str]]:
    """Give the shapes of all results of a computation, with their layouts."""
    return {instruction.name: instruction.layouts for instruction in computation}


def _branches(conditional: Instruction) -> list[str]:
    """Name the computations of which a choice runs one."""
    attributes = " ".join(_BRANCHES.findall(conditional.attributes))
    return re.findall(r"%?([^\s,(){}]+)", attributes)


def _total_cycles(steps: Sequence[Step]) -> int:
    """Add up the estimates, as far as there are any."""
    total = 0
    for step in steps:
        total += step.times * max(step.cycles or 0, 0)
    return total


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
    instruction: Instruction, module: Module, cores: int, scatters: bool = False
) -> Exchange | None:
    """Say what an instruction sends; None if nothing, or if an earlier one has begun with it.

    A chip is so many ``cores``, devices of their own. Of an all-reduce in a fusion that
    ``scatters`` each device needs its part of the sum alone.
    """
    if instruction.opcode == "fusion":
        return _exchange_in_fusion(instruction, module, cores)
    if instruction.opcode == "async-start":
        return _exchange_of_sparsecore(instruction, module, cores)
    match = _EXCHANGE.fullmatch(instruction.opcode)
    if match is None:
        return None

    kind, start = match.groups()
    shapes = [shape for shape in instruction.shapes if shape != "u32[]"]
    if start and kind != "all-reduce":
        # It lists what is sent, then what that becomes.
        shapes = shapes[len(shapes) // 2 :]
    devices = _participants(instruction.attributes)
    size = sum(map(shape_bytes, shapes))
    if kind == "reduce-scatter":
        size *= devices
    if scatters:
        kind = "reduce-scatter"

    share = 1 - min(1, cores / devices)  # that goes to other chips
    if kind == "all-reduce":
        share *= 2
    elif kind == "collective-permute":
        share = 1
    return Exchange(kind=kind, bytes=size, sent=size * share, waits=not start)


def _exchange_in_fusion(fusion: Instruction, module: Module, cores: int) -> Exchange | None:
    """Say what a fusion sends: the first exchange in it."""
    called = fusion.called("calls")
    if called.startswith("async_collective_fusion") or "collective-done" in fusion.name:
        return None
    scatters = "reduce-scatter" in called
    for instruction in module[called]:
        part = exchange(instruction, module, cores, scatters)
        if part is not None:
            return part._replace(waits=not fusion.name.startswith("async-collective-start"))
    return None


def _exchange_of_sparsecore(start: Instruction, module: Module, cores: int) -> Exchange | None:
    """Say what a SparseCore sends while the kernels go on; None if it computes something else."""
    for outer in module.get(start.called("calls"), ()):
        for instruction in module.get(outer.called("called_computations"), ()):
            part = exchange(instruction, module, cores)
            if part is not None:
                return part._replace(waits=False)
    return None


def _participants(attributes: str) -> int:
    """Count the devices that take part: listed, as a table's width, or as axes of a mesh."""
    groups = _GROUPS.search(attributes)
    if groups is None:
        return 1
    devices, width, mesh, axes = groups.groups()
    if width:
        return int(width)
    if axes is None:
        return devices.count(",") + 1
    # An axis may be divided: then the size of the part follows its name.
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", mesh))
    count = 1
    for axis, part in re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", axes):
        count *= int(part or sizes[axis])
    return count


class Work(NamedTuple):
    """What a program does that XLA's own count of its costs lacks."""

    flops: float  # operations of products and convolutions, in rounds of loops and in Pallas
    all_reduce_bytes: int  # of what is added up across devices
    sent_bytes: float  # that each chip sends
    traffic_bytes: float  # that all kernels read from and write to the device's memory


def uncounted_work(text: str, cores: int) -> Work:
    """Count what loops compute after their first round, what is sent, read and written.

    XLA's own count takes each loop's body once, and has those kernels of Pallas whose authors
    tell it. A chip is so many ``cores``.
    """
    module, main = computations(text)
    total_flops = 0.0
    all_reduce_bytes = 0
    sent_bytes = 0.0
    traffic_bytes = 0.0
    for step in walk(module, main):
        instruction = step.instruction
        traffic_bytes += step.times * _traffic(step, module)
        # The first round of a loop is in XLA's count already.
        rounds = step.times - 1
        is_kernel = instruction.opcode == "custom-call"
        if is_kernel and '"cost_estimate":{' not in instruction.attributes:
            rounds += 1
        if rounds > 0:
            total_flops += rounds * flops(instruction, module, step.shapes)
        transfer = exchange(instruction, module, cores)
        if transfer is not None:
            sent_bytes += step.times * transfer.sent
            if "reduce" in transfer.kind:
                all_reduce_bytes += step.times * transfer.bytes
    return Work(
        flops=total_flops,
        all_reduce_bytes=all_reduce_bytes,
        sent_bytes=sent_bytes,
        traffic_bytes=traffic_bytes,
    )


class Elsewhere(NamedTuple):
    """What a program does apart from products of matrices, which its least time leaves out."""

    rounds: float  # of its longest loop, nested ones multiplied; infinite where that is unknown
    # Bytes in the device's memory that kernels without a product write, in all rounds of loops.
    written_bytes: int


def without_products(text: str) -> Elsewhere:
    """Count what a compiled program's loops and its kernels without a product do."""
    module, main = computations(text)
    rounds = 1.0
    written_bytes = 0
    for step in walk(module, main):
        instruction = step.instruction
        rounds = max(rounds, math.inf if step.endless else step.times)
        if instruction.opcode not in _KERNELS or _writes_in_place(instruction, module):
            continue
        if flops(instruction, module, step.shapes):
            continue
        for layout in instruction.layouts:
            if "S(" not in layout:  # in no memory on the chip
                written_bytes += step.times * shape_bytes(layout)
    return Elsewhere(rounds=rounds, written_bytes=written_bytes)


# What takes no time: names of values, and ends of what an earlier instruction began.
_NOTHING = re.compile(
    r"parameter|constant|tuple|get-tuple-element|bitcast|while|call|conditional|after-all|.*-done"
)
_PARTS = ("dynamic-slice", "gather")  # read only what they give of their first operand
_IN_PLACE = {"dynamic-update-slice": 1, "scatter": -1}  # write this operand into their first one


def _traffic(step: Step, module: Module) -> int:
    """Count the bytes of the device's memory that one run of an instruction reads and writes.

    Of a tensor that a kernel picks rows from, or writes rows into, those rows count.
    """
    instruction = step.instruction
    if _NOTHING.fullmatch(instruction.opcode):
        return 0
    # The results of a transfer that begins list both what is read and what is written.
    if instruction.opcode.endswith("-start"):
        return sum(map(hbm_bytes, instruction.layouts))
    total = sum(_written_bytes(instruction, module, step.shapes))
    for i, name in enumerate(instruction.operands):
        whole = sum(map(hbm_bytes, step.shapes.get(name, ())))
        total += _read_bytes(instruction, i, module, whole)
    return total


def _written_bytes(
    instruction: Instruction, module: Module, shapes: Mapping[str, Sequence[str]]
) -> list[int]:
    """Count what an instruction writes of each of its results."""
    whole = [hbm_bytes(layout) for layout in instruction.layouts]
    if instruction.opcode in _IN_PLACE:
        update = instruction.operands[_IN_PLACE[instruction.opcode]]
        return [min(whole[0], sum(map(shape_bytes, shapes[update])))]
    called = instruction.called("calls")
    if instruction.opcode != "fusion" or called is None:
        return whole
    # A kernel of several operations writes what its last ones do.
    parts = _by_name(module[called])
    root = _root(parts)
    results = [root.name]
    if root.opcode == "tuple":
        results = root.operands
    part_shapes = _layouts(module[called])
    written = []
    for size, name in zip(whole, results, strict=False):
        source = parts[origin(parts, name, ("bitcast",))]
        written.append(min(size, *_written_bytes(source, module, part_shapes)))
    return written


def _read_bytes(instruction: Instruction, operand: int, module: Module, whole: int) -> int:
    """Count what an instruction reads of one of its operands, which has so many bytes."""
    if instruction.opcode in _PARTS and operand == 0:
        return min(whole, sum(map(shape_bytes, instruction.layouts)))
    if instruction.opcode in _IN_PLACE and operand == 0:
        return 0
    called = instruction.called("calls")
    if instruction.opcode != "fusion" or called is None:
        return whole
    # What the kernel's operations read of it; none reads more than all of it.
    names = []
    for part in module[called]:
        if part.opcode == "parameter" and part.inside == str(operand):
            names.append(part.name)
    total = 0
    while names:
        name = names.pop()
        for part in module[called]:
            for i, taken in enumerate(part.operands):
                if taken == name and part.opcode == "bitcast":
                    names.append(part.name)
                elif taken == name:
                    total += _read_bytes(part, i, module, whole)
    return min(whole, total)


def _writes_in_place(instruction: Instruction, module: Module) -> bool:
    """Say whether a kernel writes a part of its result only, and leaves the rest as it is."""
    if instruction.opcode != "fusion":
        return False
    opcodes = {part.opcode for part in module[instruction.called("calls")]}
    return bool(opcodes & {"dynamic-update-slice", "scatter"})


def operation(attributes: str) -> str:
    """Give TensorFlow's name of the operation that an instruction ends in; empty without one."""
    match = _OPERATION.search(attributes)
    return match[1] if match else ""


def _most_common_source(loop: Instruction, computation: Sequence[Instruction]) -> str:
    """Name a loop after the operation that most of its values come from."""
    by_name = _by_name(computation)
    counts = collections.Counter()
    for value in by_name[loop.operands[0]].operands:
        source = by_name[origin(by_name, value)]
        name = operation(source.attributes)
        if name:
            counts[name] += 1
    return max(counts, key=counts.get, default="")


def loop_rounds(loop: Instruction, module: Module, name: str) -> int | None:
    """Tell how often a loop goes round: a counter that is compared with a number, by steps.

    ``name`` is that of the computation with the loop. None for a loop of another kind.
    """
    outside = _by_name(module[name])
    condition = _by_name(module[loop.called("condition")])
    body = _by_name(module[loop.called("body")])
    test = _root(condition)
    if test.opcode != "compare" or "direction=LT" not in test.attributes:
        return None

    # The loop's state is a tuple: what each element is before the first round, and after one.
    initial = outside[origin(outside, loop.operands[0])].operands
    updated = _root(body).operands

    # The counter is an element of the state, the limit a constant or an element that goes through
    # the loop unchanged.
    counter_name, limit_name = test.operands
    counter = _element(counter_name, condition)
    limit = _constant(limit_name, condition)
    limit_element = _element(limit_name, condition)
    if limit_element is not None and _element(updated[limit_element], body) == limit_element:
        limit = _constant(initial[limit_element], outside)
    if counter is None or limit is None:
        return None

    # A round adds a constant to the counter, and to nothing else.
    start = _constant(initial[counter], outside)
    addition = body[origin(body, updated[counter])]
    if addition.opcode != "add" or start is None:
        return None
    adds_to_counter = False
    increments = []
    for operand in addition.operands:
        if _element(operand, body) == counter:
            adds_to_counter = True
        increment = _constant(operand, body)
        if increment is not None:
            increments.append(increment)
    if not adds_to_counter or not increments or increments[0] <= 0:
        return None
    return max(0, _divide_upwards(limit - start, increments[0]))


def _by_name(computation: Sequence[Instruction]) -> dict[str, Instruction]:
    return {instruction.name: instruction for instruction in computation}


def _root(by_name: Mapping[str, Instruction]) -> Instruction:
    """Find the instruction whose result is the computation's."""
    return next(instruction for instruction in by_name.values() if instruction.root)


def _element(name: str, by_name: Mapping[str, Instruction]) -> int | None:
    """Give the position of a value in the loop's state; None if it is no element of that."""
    source = by_name[origin(by_name, name)]
    if source.opcode != "get-tuple-element":
        return None
    return int(re.search(r"index=(\d+)", source.attributes)[1])


def _constant(name: str, by_name: Mapping[str, Instruction]) -> int | None:
    """Give the value of a whole number; None if it is no constant."""
    source = by_name[origin(by_name, name)]
    if source.opcode != "constant" or not re.fullmatch(r"-?\d+", source.inside):
        return None
    return int(source.inside)


def _divide_upwards(number: int, divisor: int) -> int:
    return -(-number // divisor)


def origin(
    by_name: Mapping[str, Instruction], name: str, through: Collection[str] = SAME_VALUE
) -> str:
    """Follow a value back through copies of it: to the instruction that made it.

    ``through`` are the operations that count as copies.
    """
    while name in by_name and by_name[name].opcode in through:
        name = by_name[name].operands[0]
    return name


def flops(instruction: Instruction, module: Module, shapes: Mapping[str, Sequence[str]]) -> float:
    """Count the operations of the matrix products and convolutions in an instruction.

    Of a kernel of Pallas what `program.pallas` counted, else what its author tells. ``shapes`` are
    those of the values that the instruction can take.
    """
    if instruction.opcode == "fusion":
        parts = module[instruction.called("calls")]
        part_shapes = _layouts(parts)
        return sum(flops(part, module, part_shapes) for part in parts)
    if instruction.opcode == "custom-call":
        count = _KERNEL_FLOPS.search(instruction.attributes)
        return float(count[1] or count[2]) if count else 0.0
    if instruction.opcode not in ("convolution", "dot"):
        return 0.0

    left_name, right_name = instruction.operands
    lhs = sizes(shapes[left_name][0])
    rhs = sizes(shapes[right_name][0])
    result = sizes(instruction.shapes[0])
    # A multiplication and an addition are two operations.
    if instruction.opcode == "convolution":
        return 2.0 * multiplications(instruction.attributes, lhs, rhs, result)
    contracting = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.attributes)[1]
    products = math.prod(result)
    for dimension in filter(None, contracting.split(",")):
        products *= lhs[int(dimension)]
    return 2.0 * products


def sizes(shape: str) -> list[int]:
    """Read the sizes from a shape as XLA writes it: 8 and 16 from ``f32[8,16]{1,0}``."""
    _, _, dimensions = shape.partition("[")
    dimensions, _, _ = dimensions.partition("]")
    return [int(size) for size in re.findall(r"\d+", dimensions)]


class _Window(NamedTuple):
    """How a convolution's kernel moves along one dimension, with XLA's names of the fields."""

    size: int = 1  # of the kernel
    stride: int = 1  # of the kernel, from one result to the next
    lhs_dilate: int = 1  # distance of two values of the input; between them are zeros
    rhs_dilate: int = 1  # distance of two weights of the kernel
    pad: int = 0  # zeros before the input


def multiplications(
    attributes: str, left: Sequence[int], right: Sequence[int], result: Sequence[int]
) -> float:
    """Count a convolution's products; those with a zero of padding or dilation don't count.

    The compiler writes a batch of matrix products as a convolution with dilated dimensions
    (https://openxla.org/xla/operation_semantics#convwithgeneralpadding_convolution).

    Args:
        attributes: The instruction's, as text.
        left: Sizes of the input.
        right: Sizes of the kernel.
        result: Sizes of the result.
    """
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes)
    input_labels, kernel_labels, result_labels = labels.groups()
    windows = _windows(attributes)

    batch_groups = re.search(r"batch_group_count=(\d+)", attributes)
    total = result[result_labels.index("f")] * right[kernel_labels.index("i")]
    total *= left[input_labels.index("b")] // int(batch_groups[1] if batch_groups else 1)
    spatial_labels = sorted(filter(str.isdigit, result_labels))
    for i, label in enumerate(spatial_labels):
        window = _Window(**{name: values[i] for name, values in windows.items()})
        input_size = left[input_labels.index(label)]
        result_size = result[result_labels.index(label)]
        total *= _pairs(input_size, result_size, window)
    return float(total)


def _windows(attributes: str) -> dict[str, list[int]]:
    """Read what a convolution says of its windows: a number for each dimension, by field.

    Of padding the zeros before the input, as those after it change no product.
    """
    windows = {}
    for text in re.findall(r"window=\{([^}]*)\}", attributes):
        for field in text.split():
            name, _, values = field.partition("=")
            if name in _Window._fields:
                windows[name] = [int(value.split("_")[0]) for value in values.split("x")]
    return windows


@functools.lru_cache(maxsize=1024)
def _pairs(input_size: int, result_size: int, window: _Window) -> int:
    """Count the pairs of a result's position and a weight's that meet a value, not a zero."""
    weights = np.arange(window.size) * window.rhs_dilate - window.pad
    end = (input_size - 1) * window.lhs_dilate
    count = 0
    for position in range(result_size):
        places = weights + position * window.stride
        values = (places >= 0) & (places <= end) & (places % window.lhs_dilate == 0)
        count += int(np.count_nonzero(values))
    return count
