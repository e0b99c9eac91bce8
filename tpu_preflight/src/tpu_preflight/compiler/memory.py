"""Memory on a TPU: what padding takes, and the largest batch that fits."""

import collections
import dataclasses
import math
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

    Example:
        >>> tiled("f32[4096,1]{1,0:T(8,128)}").padded
        (4096, 128)
    """
    match = _TILED.match(shape)
    if match is None or match[1] not in _NUMPY_TYPES:
        return None
    kind, sizes, order, *tile = match.groups()
    dimensions = tuple(map(int, sizes.split(",")))
    # XLA lists the fastest varying dimension first; a `Layout` lists it last.
    order = tuple(map(int, order.split(",")))[::-1]
    padded = [dimensions[i] for i in order]
    # A tile covers the last dimensions. The text has one size or two, of which a tensor with one
    # dimension needs the last.
    tile_sizes = [int(size) for size in tile if size]
    for i, tile_size in enumerate(reversed(tile_sizes), start=1):
        if i <= len(padded):
            padded[-i] = math.ceil(padded[-i] / tile_size) * tile_size
    return Layout(shape=dimensions, dtype=_NUMPY_TYPES[kind], order=order, padded=tuple(padded))


def padding_remedy(layout: Layout) -> str:
    """Say which dimension of a padded tensor wastes most of its tile, and what to do about it."""
    expansions = []
    for dimension, padded_size in zip(layout.order, layout.padded, strict=True):
        expansions.append(padded_size / layout.shape[dimension])
    position = expansions.index(max(expansions))
    dimension = layout.order[position]
    size_ = layout.shape[dimension]
    places = layout.padded[position]

    if size_ == 1:
        remedy = "drop that dimension before (squeeze), or put a longer one in its place"
    elif dimension == 0:
        remedy = f"a larger batch fills it (its first dimension, up to {places})"
    elif size_ <= 4 and len(layout.shape) == 4:
        remedy = "an image has no more channels: fold pixels into them (space_to_depth)"
    elif places < 2 * size_:
        remedy = f"{places} instead of {size_} would cost the same"
    else:
        remedy = "merge it with a neighbor (reshape), or keep a longer dimension last"
    return (
        f"padding: dimension {dimension} of {layout.dtype} {list(layout.shape)} fills {size_} of "
        f"{places} places, {1 - size_ / places:.0%} of the tile is empty; {remedy}"
    )


def padding(compiled: Compiled) -> tuple[Padding, ...]:
    """List where the memory of a program that compiles goes to padding, the most wasteful first.

    Read from the layouts that the compiler chose, tensors of four types (`layout.ITEM_BYTES`).
    Counts every tensor that a program fills, also those that use the same memory one after the
    other: it tells which dimension to change, not how much would be saved.
    """
    if not compiled.hlo:
        return ()
    module, main = computations(compiled.hlo)
    # What runs inside a fusion or a reduction fills no buffer.
    inner = set(re.findall(r"(?:calls|to_apply)=%([\w.\-]+)", compiled.hlo))
    counts: collections.Counter[tuple[str, Layout]] = collections.Counter()
    for computation, instructions in module.items():
        if computation in inner:
            continue
        for instruction in instructions:
            # Only the program's own parameters are buffers; those of a loop are its state.
            is_state = instruction.opcode == "parameter" and computation != main
            if instruction.opcode in _NO_BUFFER or is_state:
                continue
            name = operation(instruction.attributes) or instruction.opcode
            for layout in map(tiled, instruction.layouts):
                if layout is not None and layout.bytes > layout.unpadded_bytes:
                    counts[name, layout] += 1

    entries = []
    for (name, layout), count in counts.items():
        entries.append(Padding(name, layout, count))
    entries.sort(key=lambda entry: -entry.bytes)
    return tuple(entries)


@dataclasses.dataclass(frozen=True)
class LargestBatch:
    """What a search for the largest batch found."""

    largest: int  # the largest batch on one device that compiled; 0 when none did
    reason: str  # why not more, in a sentence
    tried: dict[int, Compiled]  # what the compiler said of each batch, in order


# Shares of the memory that there is. The next batch is chosen to take _AIM; one that takes _ENOUGH
# ends the search. Just below the limit a compile takes long, and computes parts twice.
_AIM = 0.9
_ENOUGH = 0.85


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

    Example:
        >>> search = largest_batch(lambda rows: export(step, tf.TensorSpec([rows, 512])), "v5e-8")
        >>> print(search.largest, search.reason)
    """
    deadline = time.monotonic() + seconds
    tried = dict(known or {})

    # In units of the smallest batch: what the largest that fits is, and what is too many.
    low = 0
    high = most // smallest + 1
    units = 1
    with server_process.started():
        while low < units < high:
            batch = units * smallest
            program = program_of(batch)
            remaining = deadline - time.monotonic()
            compiled = client.compile(program, target, timeout=remaining)
            tried[batch] = compiled
            if compiled.verdict == "out of memory":
                high = units
            elif compiled.ok:
                low = units
                if compiled.peak_bytes >= _ENOUGH * compiled.available_bytes:
                    break
            else:
                break
            units = _next_units(tried, low, high, smallest)

    # Why the search ended; a batch that doesn't fit says more than the limit of the search.
    too_large = high * smallest
    if compiled.verdict not in ("compiles", "out of memory"):
        reason = f"The search ended at {batch}: {compiled.verdict}. {compiled.message}"
    elif too_large in tried:
        reason = f"A batch of {too_large} does not fit: {tried[too_large].message}"
    elif low == most // smallest:
        reason = f"The search ends at {most}; more may fit."
    else:
        needed = size(compiled.peak_bytes)
        reason = f"It takes {needed} of {size(compiled.available_bytes)}; more was not tried."
    return LargestBatch(largest=low * smallest, reason=reason, tried=tried)


def _next_units(tried: Mapping[int, Compiled], low: int, high: int, unit: int) -> int:
    """Choose the next batch to try, in units; ``low`` or ``high`` when the search is over."""
    some_failed = not all(compiled.ok for compiled in tried.values())
    margin = 1
    tolerance = 1
    if some_failed:
        margin = max(1, (high - low) // 4)
        tolerance = max(1, low // 10)
    if high - low <= tolerance:
        return low

    # Where the line through the smallest and the largest batch meets the memory to aim for.
    # As long as only one size is known, there is no line: four times as many.
    guess = 4 * low
    needs = {rows: compiled for rows, compiled in tried.items() if compiled.peak_bytes}
    fewest_rows = min(needs)
    most_rows = max(needs)
    largest = needs[most_rows]
    growth = largest.peak_bytes - needs[fewest_rows].peak_bytes
    if growth > 0:
        remaining_bytes = _AIM * largest.available_bytes - largest.peak_bytes
        guess = int((most_rows + remaining_bytes / growth * (most_rows - fewest_rows)) // unit)
    # Once a batch didn't fit, stay a quarter of the range away from both of its ends.
    return min(max(guess, low + margin), high - margin)
