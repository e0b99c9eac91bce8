"""Check 6 of a function of JAX: does an array inside lose the sharding of an argument like it?

Where an array is made inside a step by its shape alone and used with nothing that is sharded, each
device computes all of it. `result_sharding` looks at what the step returns.
"""

import re

from tpu_preflight.chips.layout import shape_bytes
from tpu_preflight.compiler import execution, replication
from tpu_preflight.context import Answer, Context
from tpu_preflight.program.instructions import Instruction
from tpu_preflight.program.jax_export import Exported
from tpu_preflight.program.messages import Source
from tpu_preflight.report import Item, finding
from tpu_preflight.text import size

MUCH = 1_000_000  # bytes more on each device; less is not worth a change of the step


def check(context: Context) -> list[Item]:
    """Compare what each device computes alike with the sharded arguments of the same shape."""
    items = []
    exported = context.subject.exported
    for answer in context.answers:
        # Inside shard_map, shapes are those of one device.
        if not answer.compiled.ok or b"sdy.manual_computation" in answer.job.program.hlo:
            continue
        item = _lost(answer, exported)
        if item is not None:
            items.append(item)
    return items


def _lost(answer: Answer, exported: Exported) -> Item | None:
    """Warn of the largest array that takes more of each device than an argument like it."""
    program = answer.job.program
    peers: dict[str, int] = {}  # the sharded argument of each shape
    parts = replication.sharded_parameters(program)
    for number, part in parts.items():
        shape = program.parameters[number].shape
        if shape_bytes(shape) - part > MUCH:
            peers.setdefault(shape, number)
    for shape in _chosen(answer, exported):
        peers.pop(shape, None)
    if not peers:
        return None
    smallest = min(map(shape_bytes, peers))
    kernels: dict[str, list[Instruction]] = {}
    for kernel in replication.replicated(answer.compiled.hlo, program, smallest):
        for shape in replication.large_arrays(kernel):
            if shape in peers:
                kernels.setdefault(shape, []).append(kernel)
    if not kernels:
        return None
    shape = max(kernels, key=lambda shape: shape_bytes(shape) - parts[peers[shape]])
    return finding(
        6,
        "lost_inside",
        target=answer.job.target,
        shape=shape,
        taken=size(shape_bytes(shape)),
        peer=program.parameters[peers[shape]].name,
        part=size(parts[peers[shape]]),
        where=_line(shape, kernels[shape], exported),
    )


def _chosen(answer: Answer, exported: Exported) -> set[str]:
    """Give the shapes that are whole on each device because the function says so."""
    program = answer.job.program
    parts = replication.sharded_parameters(program)
    chosen = set(exported.replicated)
    for number, parameter in enumerate(program.parameters):
        if number not in parts:
            chosen.add(parameter.shape)
    # Of results, `result_sharding` speaks.
    head = re.search(r"^ENTRY .*$", answer.compiled.hlo, re.MULTILINE)
    if head is not None:
        _, _, given = head[0].partition(" -> ")
        chosen.update(re.findall(r"\w+\[[\d,]*\]", given))
    return chosen


def _line(shape: str, kernels: list[Instruction], exported: Exported) -> Source | None:
    """Find the line that fills an array of this shape, else the one of a kernel that writes it."""
    fills = exported.fills.get(shape, ())
    if len(fills) == 1:
        return fills[0]
    for kernel in kernels:
        source = exported.find(execution.operation(kernel.attributes))
        if source is not None:
            return source
    return None
