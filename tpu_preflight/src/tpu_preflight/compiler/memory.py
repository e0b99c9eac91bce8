"""Memory on a TPU: what padding takes, and the largest batch that fits."""

import collections
import dataclasses
import re
import time
from collections.abc import Callable, Mapping

from tpu_preflight.chips.layout import Layout
from tpu_preflight.compiler import client, server_process
from tpu_preflight.compiler.client import TIMEOUT, Compiled
from tpu_preflight.compiler.execution import operation
from tpu_preflight.program import Program
from tpu_preflight.program.instructions import computations
from tpu_preflight.text import size


@dataclasses.dataclass(frozen=True)
class Padding:
    """Tensors of one operation that take more memory than their values."""

    name: str  # the operation's name in the graph, which begins with its layers
    layout: Layout  # how the tensor lies in memory, as the compiler laid it out
    count: int  # how many such tensors the program fills

    @property
    def bytes(self) -> int:
        """Bytes of padding, of all of them."""
        return self.count * (self.layout.bytes - self.layout.unpadded_bytes)


_NUMPY_TYPES = {"f32": "float32", "s32": "int32", "bf16": "bfloat16", "s8": "int8"}
_TILED = re.compile(r"(\w+)\[([\d,]+)\]\{([\d,]+):T\((\d+)(?:,(\d+))?\)")

# Instructions that name a buffer which exists already, or fill one that another names.
_NO_BUFFER = {"bitcast", "tuple", "get-tuple-element", "constant", "while", "conditional"}


def tiled(shape: str) -> Layout | None:
    """Read how a tensor lies in memory from its shape as the compiled program writes it.

    None where it has no tiles of rows, or values of a type whose size is not known here.
    """
    found = _TILED.match(shape)
    if found is None or found[1] not in _NUMPY_TYPES:
        return None
    kind, sizes, order, rows, lanes = found.groups()
    dimensions = tuple(map(int, sizes.split(",")))
    slowest_first = tuple(map(int, order.split(",")))[::-1]
    padded = [dimensions[i] for i in slowest_first]
    tile = [int(n) for n in (lanes, rows) if n]
    for i, n in enumerate(tile[: len(padded)], 1):
        padded[-i] = -(-padded[-i] // n) * n
    return Layout(dimensions, _NUMPY_TYPES[kind], slowest_first, tuple(padded))


def padding_remedy(layout: Layout) -> str:
    """Say which dimension of a padded tensor wastes most of its tile, and what to do about it."""
    sizes = [layout.shape[dimension] for dimension in layout.order]
    at = max(range(len(sizes)), key=lambda i: layout.padded[i] / sizes[i])
    given, there = sizes[at], layout.padded[at]
    ways = (
        (given == 1, "drop that dimension before (squeeze), or put a longer one in its place"),
        (layout.order[at] == 0, f"a larger batch fills it (its first dimension, up to {there})"),
        (
            given <= 4 and len(layout.shape) == 4,
            "an image has no more channels: fold pixels into them (space_to_depth)",
        ),
        (there < 2 * given, f"{there} instead of {given} would cost the same"),
        (True, "merge it with a neighbor (reshape), or keep a longer dimension last"),
    )
    way = next(way for fits, way in ways if fits)
    return "padding: " + (
        f"dimension {layout.order[at]} of {layout.dtype} {list(layout.shape)} fills {given} of "
        f"{there} places, {1 - given / there:.0%} of the tile is empty; {way}"
    )


def padding(compiled: Compiled) -> tuple[Padding, ...]:
    """List where the memory of a program that compiles goes to padding, the most wasteful first.

    Read from the layouts that the compiler chose, tensors of four types (`layout.ITEM_BYTES`).
    Counts every tensor that a program fills, also those that use the same memory one after the
    other: it tells which dimension to mend, not how much would be saved.
    """
    if not compiled.hlo:
        return ()
    parts, main = computations(compiled.hlo)
    called = set(re.findall(r"(?:calls|to_apply)=%([\w.\-]+)", compiled.hlo))
    found: collections.Counter[tuple[str, Layout]] = collections.Counter()
    for part, i in ((name, i) for name in parts if name not in called for i in parts[name]):
        if i.opcode in _NO_BUFFER or (i.opcode == "parameter" and part != main):
            continue
        for layout in map(tiled, i.laid_out):
            if layout is not None and layout.bytes > layout.unpadded_bytes:
                found[operation(i.attributes) or i.opcode, layout] += 1
    entries = (Padding(*what, count) for what, count in found.items())
    return tuple(sorted(entries, key=lambda p: -p.bytes))


@dataclasses.dataclass(frozen=True)
class LargestBatch:
    """What a search for the largest batch found."""

    largest: int  # the largest batch on one device that compiled; 0 when none did
    reason: str  # why not more, in a sentence
    tried: dict[int, Compiled]  # what the compiler said of each batch, in order


# Shares of the memory that there is. The next batch is chosen to take AIM; one that takes ENOUGH
# ends the search. Just below the limit a compile takes long, and computes parts twice.
_AIM, _ENOUGH = 0.9, 0.85


def largest_batch(
    program_of: Callable[[int], Program],
    target: str = "v5e-8",
    *,
    smallest: int = 8,
    most: int = 65_536,
    known: Mapping[int, Compiled] | None = None,
    seconds: float = TIMEOUT,
) -> LargestBatch:
    """Search for the largest batch that fits one device, with the compiler's least effort.

    Memory is nearly linear in the batch, so the next one to try is where the line through two of
    them meets nine tenths of the memory that there is; mostly that ends the search. What takes at
    least 85 % of the memory, or nine tenths of a batch that doesn't fit, is not exceeded: there the
    compiler begins to compute parts twice. With full effort the memory differs by some percent.

    Args:
        program_of: Exports the program for a batch of that many samples on one device.
        target: As for `compile`.
        smallest: Where to begin; all batches tried are multiples of it.
        most: Where to stop.
        known: A batch of more than ``most`` that doesn't fit, and what the compiler said of it.
        seconds: Time limit of the whole search; the attempt that is running then is ended.

    Raises:
        NotCompilable: The function can't be exported.
    """
    tried, deadline = dict(known or {}), time.monotonic() + seconds

    # In units of the smallest batch: what the largest that fits is, and what is too many.
    units, low, high = 1, 0, most // smallest + 1
    with server_process.started():
        while low < units < high:
            batch = units * smallest
            program, left = program_of(batch), deadline - time.monotonic()
            tried[batch] = last = client.compile(program, target, timeout=left)
            if last.ok:
                low = units
                if last.peak_bytes >= _ENOUGH * last.available_bytes:
                    break
            elif last.verdict == "out of memory":
                high = units
            else:
                break
            units = _next_units(tried, low, high, smallest)
    if last.verdict not in ("compiles", "out of memory"):
        reason = f"The search ended at {batch}: {last.verdict}. {last.message}"
    elif full := tried.get(high * smallest):
        reason = f"A batch of {high * smallest} does not fit: {full.message}"
    elif low == most // smallest:
        reason = f"The search ends at {most}; more may fit."
    else:
        taken, there = last.peak_bytes, last.available_bytes
        reason = f"It takes {size(taken)} of {size(there)}; more was not tried."
    return LargestBatch(low * smallest, reason, tried)


def _next_units(tried: Mapping[int, Compiled], low: int, high: int, unit: int) -> int:
    """Choose the next batch to try, in units; ``low`` or ``high`` when the search is over."""
    failed = not all(answer.ok for answer in tried.values())
    if high - low <= max(1, low // 10 * failed):
        return low
    guess = 4 * low
    told = sorted((rows, answer) for rows, answer in tried.items() if answer.peak_bytes)
    (fewest, first), (most, last) = told[0], told[-1]
    if (growth := last.peak_bytes - first.peak_bytes) > 0:
        left = _AIM * last.available_bytes - last.peak_bytes
        guess = int((most + left / growth * (most - fewest)) // unit)
    margin = max(1, (high - low) // 4) if failed else 1
    return min(max(guess, low + margin), high - margin)
