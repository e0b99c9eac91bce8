"""Memory on a TPU: what padding takes, and the largest batch that fits."""

import collections
import dataclasses
import re
import time
from collections.abc import Callable

from tpu_preflight.chips.layout import Layout
from tpu_preflight.compiler import ask, process
from tpu_preflight.compiler.ask import TIMEOUT, Compiled
from tpu_preflight.compiler.process import Progress
from tpu_preflight.compiler.walking import operation
from tpu_preflight.program import Program
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

    def __repr__(self) -> str:
        return f"{self.name}: {size(self.bytes)} of padding ({self.count} x {self.layout})"


_NUMPY_TYPES = {"f32": "float32", "s32": "int32", "bf16": "bfloat16", "s8": "int8"}
_TILED = re.compile(r"(\w+)\[([\d,]+)\]\{([\d,]+):T\((\d+)(?:,(\d+))?\)")
_MADE = re.compile(r"^ +(?:ROOT )?%\S+ = (\(.*?\)|\S+) ([\w\-]+)\(")

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


def mend(layout: Layout) -> str:
    """Say which dimension of a padded tensor wastes most of its tile, and what to do about it."""
    at = max(range(len(layout.padded)), key=lambda i: layout.padded[i] / _size(layout, i))
    given, there = _size(layout, at), layout.padded[at]
    way = "merge it with a neighbour (reshape), or keep a longer dimension last"
    if given == 1:
        way = "drop that dimension before (squeeze), or put a longer one in its place"
    elif layout.order[at] == 0:
        way = f"a larger batch fills it (its first dimension, up to {there})"
    elif given <= 4 and len(layout.shape) == 4:
        way = "an image has no more channels: fold pixels into them (space_to_depth)"
    elif there < 2 * given:
        way = f"{there} instead of {given} would cost the same"
    return "padding: " + (
        f"dimension {layout.order[at]} of {layout.dtype} {list(layout.shape)} fills {given} of "
        f"{there} places, {1 - given / there:.0%} of the tile is empty; {way}"
    )


def _size(layout: Layout, at: int) -> int:
    """Size of the dimension that lies at this place in memory."""
    return layout.shape[layout.order[at]]


def padding(compiled: Compiled) -> tuple[Padding, ...]:
    """List where the memory of a program that compiles goes to padding, the most wasteful first.

    Read from the layouts that the compiler chose, tensors of four types (`layout.ITEM_BYTES`).
    Counts every tensor that a program fills, also those that use the same memory one after the
    other: it tells which dimension to mend, not how much would be saved.
    """
    found: collections.Counter[tuple[str, Layout]] = collections.Counter()
    inside = set(re.findall(r"(?:calls|to_apply)=%([\w.\-]+)", compiled.hlo))
    counted = False
    for line in compiled.hlo.splitlines():
        if head := re.match(r"(ENTRY )?%([\w.\-]+) \(.*\{$", line):
            counted, entry = head[2] not in inside, head[1]
        made = _MADE.match(line) if counted else None
        if made is None or made[2] in _NO_BUFFER or (made[2] == "parameter" and not entry):
            continue
        for shape in _TILED.finditer(made[1]):
            layout = tiled(shape[0])
            if layout is not None and layout.bytes > layout.unpadded_bytes:
                found[operation(line) or made[2], layout] += 1
    entries = (Padding(*what, count) for what, count in found.items())
    return tuple(sorted(entries, key=lambda p: -p.bytes))


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One batch size that was compiled."""

    batch: int  # samples on one device
    compiled: Compiled  # what the compiler said
    # Whether the compiler computes parts twice to save memory: its operations per sample are well
    # above those of the smallest batch.
    recomputes: bool = False

    @property
    def flops_per_sample(self) -> float:
        """Operations for one sample; 0 where it does not compile."""
        return self.compiled.flops / self.batch

    def __repr__(self) -> str:
        text = f"batch {self.batch}: {self.compiled.verdict}"
        if needed := self.compiled.peak_bytes:
            text += f", {size(needed)} of {size(self.compiled.available_bytes)}"
        if self.recomputes:
            text += f", computes parts twice ({self.flops_per_sample:.3g} flops per sample)"
        return text


@dataclasses.dataclass(frozen=True)
class LargestBatch:
    """What a search for the largest batch found."""

    target: str  # such as ``v5e-8``
    largest: int  # the largest batch on one device that compiled; 0 when none did
    without_recomputing: int  # the largest that compiled without parts computed twice
    reason: str  # why not more, in a sentence
    attempts: tuple[Attempt, ...]  # all that was tried, in order

    def __repr__(self) -> str:
        lines = [f"{self.target}: largest batch on one device {self.largest}. {self.reason}"]
        return "\n".join([*lines, *(f"  {attempt}" for attempt in self.attempts)])


# Above the smallest batch's operations per sample by more than this: parts are computed twice.
_RECOMPUTED = 1.05

# Shares of the memory that there is. The next batch is chosen to take AIM; one that takes ENOUGH
# ends the search. Just below the limit a compile takes long, and computes parts twice.
_AIM, _ENOUGH = 0.9, 0.85


def largest_batch(
    program_of: Callable[[int], Program],
    target: str = "v5e-8",
    *,
    smallest: int = 8,
    most: int = 65_536,
    seconds: float = TIMEOUT,
    progress: Progress | None = None,
) -> LargestBatch:
    """Search for the largest batch that fits one device, with the compiler's least effort.

    Memory is nearly linear in the batch, so after two small batches the next one to try is where
    the line meets nine tenths of the memory that there is; mostly that ends the search. What takes
    at least 85 % of the memory, or nine tenths of a batch that doesn't fit, is not exceeded: there
    the compiler begins to compute parts twice. With full effort the memory is somewhat different:
    8 % less for BERT-base on a v3, 6 % more for a small BERT on a v5e (2026-11).

    Args:
        program_of: Exports the program for a batch of that many samples on one device.
        target: As for `compile`.
        smallest: Where to begin; all batches tried are multiples of it.
        most: Where to stop.
        seconds: Time limit of the whole search; the attempt that is running then is ended.
        progress: As for `compile`; the stage says the attempt and the batch.

    Raises:
        NotCompilable: The function can't be exported.
    """
    attempts: list[Attempt] = []
    end = time.monotonic() + seconds

    def tried(batch: int, compiler: process.Process) -> Attempt:
        def tell(stage: str, passed: float) -> None:
            if progress is not None:
                progress(f"attempt {len(attempts) + 1}, batch {batch}: {stage}", passed)

        program = program_of(batch)
        left = end - time.monotonic()
        compiled = ask.one(compiler, program, target, left, "least", tell)
        first = attempts[0].flops_per_sample if attempts else 0.0
        again = compiled.ok and 0 < first * _RECOMPUTED < compiled.flops / batch
        attempts.append(Attempt(batch, compiled, again))
        return attempts[-1]

    low = high = None  # the largest that fits as it is, the smallest that does not
    units: int | None = 1
    with process.taken(None) as compiler:
        while units is not None:
            attempt = tried(units * smallest, compiler)
            if attempt.compiled.ok and not attempt.recomputes:
                low = attempt
            elif attempt.compiled.verdict in ("compiles", "out of memory"):
                high = attempt
            else:
                break
            units = _next_units(attempts[0], low, high, smallest, most // smallest)
    return _found(target, attempts, low, high, most)


def _next_units(
    first: Attempt, low: Attempt | None, high: Attempt | None, unit: int, most: int
) -> int | None:
    """Choose the next batch to try, in units; None when the search is over."""
    if low is None or low.compiled.peak_bytes >= _ENOUGH * low.compiled.available_bytes:
        return None
    at = low.batch // unit
    guess = 4 if low is first else _where_memory_ends(first, low, unit)
    if high is None:
        return min(most, max(guess, at + 1)) if at < most else None
    end = high.batch // unit
    if end - at <= max(1, at // 10):
        return None
    margin = max(1, (end - at) // 4)
    return min(max(guess, at + margin), end - margin)


def _where_memory_ends(first: Attempt, second: Attempt, unit: int) -> int:
    """Say where the line through two results meets the memory to be used, in units."""
    growth = (second.compiled.peak_bytes - first.compiled.peak_bytes) / (second.batch - first.batch)
    if growth <= 0:
        return 4 * second.batch // unit
    left = _AIM * second.compiled.available_bytes - second.compiled.peak_bytes
    return int((second.batch + left / growth) // unit)


def _found(
    target: str, attempts: list[Attempt], low: Attempt | None, high: Attempt | None, most: int
) -> LargestBatch:
    last = attempts[-1].compiled
    fitting = [a for a in attempts if a.compiled.ok]
    largest = max(fitting, key=lambda a: a.batch, default=None)
    plain = low.batch if low else 0
    if last.verdict not in ("compiles", "out of memory"):
        reason = f"The search ended at {attempts[-1].batch}: {last.verdict}. {last.message}"
    elif high is not None and not high.compiled.ok:
        reason = f"A batch of {high.batch} does not fit: {high.compiled.message}"
    elif low is not None and low.batch + attempts[0].batch > most:
        reason = f"More than {most} was not tried."
    else:
        taken, there = largest.compiled.peak_bytes, largest.compiled.available_bytes
        reason = f"It takes {size(taken)} of {size(there)}; more was not tried."
    if largest is not None and largest.recomputes:
        reason += (
            f" Near the limit the compiler computes parts twice: {largest.flops_per_sample:.3g} "
            f"flops per sample instead of {attempts[0].flops_per_sample:.3g}. Up to {plain} it "
            "does not."
        )
    return LargestBatch(target, largest.batch if largest else 0, plain, reason, tuple(attempts))
