"""Which arrays of a compiled program each device computes alike, from nothing of its own.

Such an array is stored as a whole on each device, though no device needs the others for it. What a
device computes from its part of an argument, or gathers from the others, is not among them.
"""

import math
import re
from collections.abc import Mapping, Sequence

from tpu_preflight.chips.layout import hbm_bytes, shape_bytes
from tpu_preflight.program import Program
from tpu_preflight.program.instructions import Instruction, computations

# What these give differs from device to device, whatever they take.
_OF_ONE_DEVICE = re.compile(
    r"partition-id|replica-id|reduce-scatter|all-to-all|collective-permute|infeed|recv"
)
_COLLECTIVE = re.compile(r"all-reduce|all-gather")
# What takes no memory of its own.
_NAMES_ONLY = {"parameter", "tuple", "get-tuple-element", "bitcast", "while", "call", "conditional"}

# For each part of a tuple (one for an array), whether it is alike on all devices.
_Alike = tuple[bool, ...]


def sharded_parameters(program: Program) -> dict[int, int]:
    """Give the number of each sharded parameter, and the bytes that a device has of it."""
    sizes = dict(program.mesh)
    bytes_by_number = {}
    for number, dimensions in enumerate(program.shardings):
        parts = 1
        for axes in dimensions:
            parts *= math.prod(sizes[axis] for axis in axes)
        if parts > 1:
            bytes_by_number[number] = shape_bytes(program.parameters[number].shape) // parts
    return bytes_by_number


def replicated(text: str, program: Program, smallest: int) -> list[Instruction]:
    """List the kernels that write an array of this many bytes and more, alike on all devices.

    What comes from an argument that is itself whole on each device, and as large, is left out:
    whoever placed the argument has chosen that.

    Args:
        text: The compiled program, as one device runs it.
        program: What was compiled.
        smallest: Bytes of the smallest array that counts.
    """
    module, main = computations(text)
    walk = _Walk(module, smallest)
    sharded = sharded_parameters(program)
    arguments: list[_Alike] = []
    for number, parameter in enumerate(program.parameters):
        is_large = shape_bytes(parameter.shape) >= smallest
        arguments.append((number not in sharded and not is_large,))
    walk.follow(main, arguments)
    kernels = []
    for instruction, alike in walk.kernels.values():
        if alike:
            kernels.append(instruction)
    return kernels


class _Walk:
    """Follows through a program which of its values are alike."""

    def __init__(self, module: Mapping[str, Sequence[Instruction]], smallest: int) -> None:
        self._module = module
        self._smallest = smallest
        # By name. What is alike in one round of a loop, or one call, need not be in the next.
        self.kernels: dict[str, tuple[Instruction, bool]] = {}

    def follow(self, name: str, arguments: Sequence[_Alike]) -> _Alike:
        """Follow a computation; give what is known of its result."""
        values: dict[str, _Alike] = {}
        result: _Alike = (False,)
        for instruction in self._module[name]:
            value = self._value(instruction, values, arguments)
            values[instruction.name] = value
            if instruction.opcode not in _NAMES_ONLY:
                _, alike = self.kernels.get(instruction.name, (instruction, True))
                self.kernels[instruction.name] = (instruction, alike and all(value))
            if instruction.root:
                result = value
        return result

    def _value(
        self,
        instruction: Instruction,
        values: Mapping[str, _Alike],
        arguments: Sequence[_Alike],
    ) -> _Alike:
        operands = [values.get(operand, (False,)) for operand in instruction.operands]
        match instruction.opcode:
            case "parameter":
                return arguments[int(instruction.inside)]
            case "tuple":
                return tuple(all(operand) for operand in operands)
            case "get-tuple-element":
                return self._part(instruction, operands[0])
            case "while":
                return self._loop(instruction, operands[0])
            case "call":
                return self.follow(instruction.called("to_apply") or "", operands)
        if _OF_ONE_DEVICE.match(instruction.opcode):
            return (False,)
        size = sum(map(shape_bytes, instruction.shapes))
        # All devices have the same sum; of a large array, that is what was asked for.
        if _COLLECTIVE.match(instruction.opcode):
            return (size < self._smallest,)
        called = instruction.called("calls") or instruction.called("to_apply")
        if called is not None and self._is_of_one_device(called):
            return (False,)
        return (all(map(all, operands)),)

    def _part(self, instruction: Instruction, value: _Alike) -> _Alike:
        index = re.search(r"index=(\d+)", instruction.attributes)
        # Of a kernel with several results, one thing is known of all.
        if index is None or len(value) == 1:
            return (all(value),)
        return (value[int(index[1])],)

    def _loop(self, instruction: Instruction, value: _Alike) -> _Alike:
        """Follow a loop until another round changes nothing."""
        body = instruction.called("body") or ""
        while True:
            result = self.follow(body, [value])
            if len(result) != len(value):
                return (False,)
            after = tuple(a and b for a, b in zip(value, result, strict=True))
            if after == value:
                return value
            value = after

    def _is_of_one_device(self, name: str) -> bool:
        for instruction in self._module.get(name, ()):
            if _OF_ONE_DEVICE.match(instruction.opcode):
                return True
            if _COLLECTIVE.match(instruction.opcode):
                return True
        return False


def large_arrays(instruction: Instruction) -> list[str]:
    """Give the shapes that a kernel writes to the device's memory."""
    shapes = []
    for shape, layout in zip(instruction.shapes, instruction.layouts, strict=True):
        if hbm_bytes(layout):
            shapes.append(shape)
    return shapes
