"""The kernels of a step, and what would help them, where the compiled program shows it.

Advice names what was seen in the program (float32 on its way through memory) and how much of the
kernel's time that concerns: no more than that can be saved.
"""

import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping

from tpu_preflight.chips.layout import shape_bytes
from tpu_preflight.compiler.execution import SAME_VALUE, Step, origin
from tpu_preflight.program.instructions import Instruction
from tpu_preflight.text import size

# A kernel whose operations (or bytes) at the peak rate take this share of its time is bound by
# them; the rest of the kernels wait for the vector unit, or for memory on the chip.
BOUND = 0.5

PART = 0.5  # of a kernel's traffic: with less of it in float32, that is not worth a word
WORTH = 0.1  # of the time of a group of kernels: below it there is no advice


@dataclasses.dataclass(frozen=True)
class Advice:
    """What would help one kernel."""

    kind: str  # ``float32`` or ``bound``
    text: str  # what was seen, and what would help
    seconds: float  # the part of the kernel's time that it concerns


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel of a compiled step, all its runs together."""

    # TensorFlow's name of the operation that it ends in, which begins with its layers; XLA's own
    # name where it has none.
    name: str
    kind: str  # XLA's name of what it is, such as ``fusion``, ``copy`` or ``all-reduce``
    runs: int  # how often it runs in a step
    seconds: float  # what the compiler estimates
    flops: float  # floating-point operations of its matrix products and convolutions
    # Bytes that it reads from and writes to the device's memory (HBM), without padding. A tensor of
    # which it needs only a part counts in full.
    hbm_bytes: float
    compute_seconds: float  # ``flops`` at the peak rate in bfloat16
    hbm_seconds: float  # ``hbm_bytes`` at the memory's bandwidth
    advice: tuple[Advice, ...] = ()  # what would help, where the program shows it

    @property
    def bound(self) -> str:
        """What it waits for: ``compute`` (matrix units), ``HBM``, or ``vector`` (the rest)."""
        if max(self.compute_seconds, self.hbm_seconds) < BOUND * self.seconds:
            return "vector"
        return "compute" if self.compute_seconds >= self.hbm_seconds else "HBM"


class Program:
    """A compiled program, as far as advice on one of its kernels needs it."""

    def __init__(self, found: Mapping[str, list[Instruction]], main: str) -> None:
        self._main = {i.name: i for i in found[main]}
        root = next(i for i in found[main] if i.root)
        self._results = {self._origin(name) for name in (*root.operands, root.name)}

    def _origin(self, name: str) -> str:
        return origin(self._main, name, (*SAME_VALUE, "get-tuple-element"))

    def advice(self, step: Step, kernel: Kernel) -> Iterator[Advice]:
        """Find float32 that other kernels made or will read: no variables, no batch."""
        if kernel.bound != "HBM":
            return
        i, shapes = step.instruction, step.shapes
        moved = sum(map(hbm_bytes, step.touched))
        between = list(i.laid_out) if i.name not in self._results else []
        for name in i.operands:
            made = self._main.get(self._origin(name))
            if made is None or made.opcode not in ("parameter", "constant"):
                between += shapes.get(name, ())
        part = sum(hbm_bytes(shape) for shape in between if shape.startswith("f32["))
        if moved and part >= PART * moved:
            text = (
                f"float32: {size(part)} of its traffic is float32 that other operations made or "
                "will read; bfloat16 (mixed precision) halves that"
            )
            yield Advice("float32", text, kernel.seconds * part / moved / 2)


def together(advised: Iterable[Advice], seconds: float) -> str:
    """Choose what helps a group of kernels most, by the time that it concerns; mostly nothing."""
    kinds: dict[str, list[Advice]] = collections.defaultdict(list)
    for advice in advised:
        kinds[advice.kind].append(advice)
    best = max(kinds.values(), key=lambda each: sum(a.seconds for a in each), default=[])
    concerned = sum(a.seconds for a in best)
    if not best or concerned < WORTH * seconds:
        return ""
    first = max(best, key=lambda a: a.seconds)
    more = f", and {len(best) - 1} more such" if len(best) > 1 else ""
    return f"{first.text} ({concerned / seconds:.0%} of this time{more})"


def hbm_bytes(shape: str) -> int:
    """Count a tensor's bytes in HBM: none where its layout says that it lies on the chip."""
    return 0 if re.search(r"S\([1-9]\d*\)", shape) else shape_bytes(shape)
