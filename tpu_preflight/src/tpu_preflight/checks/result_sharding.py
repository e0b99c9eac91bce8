"""Check 6 of a function of JAX: does a result lose the sharding that the arguments like it have?

``jnp.zeros_like(x)`` of a sharded argument takes its shape alone: nothing says where the new array
is to be, and XLA puts all of it on each device. The compiled program tells what each device holds.
"""

import dataclasses
import re
from collections.abc import Sequence

from tpu_preflight.chips.layout import shape_bytes
from tpu_preflight.context import Answer, Context
from tpu_preflight.program.jax_export import Result
from tpu_preflight.report import Item, finding
from tpu_preflight.text import size

MUCH = 1_000_000  # bytes more on each device; less is not worth a change of the step

# The parts of a path in a nest: ['kernel'], [0], .mu
_PART = re.compile(r"\[[^\]]*\]|\.\w+")
_SHAPE = re.compile(r"\w+\[[\d,]*\]")


@dataclasses.dataclass(frozen=True)
class _Array:
    """An argument or a result, as a whole and as one device has it."""

    path: tuple[str, ...]  # in its nest
    name: str
    shape: str  # of the whole, such as ``f32[4096,1024]``
    bytes: int  # on each device

    @property
    def is_sharded(self) -> bool:
        return self.bytes < shape_bytes(self.shape)


@dataclasses.dataclass(frozen=True)
class _Loss:
    """A result that takes more of each device than an argument like it."""

    result: Result
    array: _Array
    peer: _Array

    @property
    def bytes(self) -> int:
        return self.array.bytes - self.peer.bytes


def check(context: Context) -> list[Item]:
    """Compare the results with the arguments of the same shape and place, on each target."""
    items = []
    for answer in context.answers:
        # Without a mesh there is one device, and it has the whole of each array.
        if not answer.compiled.ok or not answer.job.program.mesh:
            continue
        losses = _losses(answer, context.subject.exported.results)
        if losses:
            items.append(_lost(answer.job.target, losses))
    return items


def _losses(answer: Answer, results: Sequence[Result]) -> list[_Loss]:
    """Find the results that are larger on each device than arguments like them, largest first."""
    program = answer.job.program
    # ENTRY %main (param: f32[512,1024]) -> (f32[4096,1024]) {, as one device has them.
    head = re.search(r"^ENTRY .*$", answer.compiled.hlo, re.MULTILINE)
    taken, _, given = head[0].partition(" -> ") if head else ("", "", "")
    taken_shapes = _SHAPE.findall(taken)
    given_shapes = _SHAPE.findall(given)
    # Where arguments were dropped, the order no longer says which is which.
    if len(taken_shapes) != len(program.parameters) or len(given_shapes) != len(results):
        return []
    arguments = []
    for parameter, shape in zip(program.parameters, taken_shapes, strict=True):
        path = tuple(_PART.findall(parameter.name))
        arguments.append(_Array(path, parameter.name, parameter.shape, shape_bytes(shape)))
    losses = []
    for result, whole, shape in zip(results, program.results, given_shapes, strict=True):
        path = tuple(_PART.findall(result.name))
        array = _Array(path, result.name, whole, shape_bytes(shape))
        # Whoever gives a result its place (`out_shardings`, a constraint) has chosen it.
        peer = None if result.is_placed else _peer(array, arguments)
        if peer is not None and array.bytes - peer.bytes > MUCH:
            losses.append(_Loss(result, array, peer))
    # The report names the first and counts the others.
    return sorted(losses, key=lambda loss: -loss.bytes)


def _peer(array: _Array, arguments: Sequence[_Array]) -> _Array | None:
    """Find the sharded argument with a result's shape and the same end of its path.

    None where there is none, or where one of several takes as much of each device as the result.
    """
    alike = [argument for argument in arguments if argument.shape == array.shape]
    longest = max((_common_end(array, argument) for argument in alike), default=0)
    # What is in no nest has its shape alone.
    if not longest and any(argument.path for argument in alike):
        return None
    # Adam's `mu['kernel']` is compared with `['kernel']`, not with another array of its shape.
    peers = [argument for argument in alike if _common_end(array, argument) == longest]
    if not peers or any(peer.bytes >= array.bytes or not peer.is_sharded for peer in peers):
        return None
    return peers[0]


def _common_end(left: _Array, right: _Array) -> int:
    """Count the parts of two paths that are equal, from their ends."""
    count = 0
    for a, b in zip(reversed(left.path), reversed(right.path), strict=False):
        if a != b:
            break
        count += 1
    return count


def _lost(target: str, losses: Sequence[_Loss]) -> Item:
    largest = losses[0]
    more = ""
    if len(losses) > 1:
        total = size(sum(loss.bytes for loss in losses))
        more = f"; with {len(losses) - 1} more, {total} too much on each device"
    return finding(
        6,
        "lost_sharding",
        target=target,
        result=largest.array.name,
        shape=largest.array.shape,
        taken=size(largest.array.bytes),
        peer=largest.peer.name,
        part=size(largest.peer.bytes),
        more=more,
        where=largest.result.source,
    )
