"""The kernels of a step, and what would help them, where the compiled program shows it.

Advice names what was seen in the program (float32 on its way through memory) and how much of the
kernel's time that concerns: no more than that can be saved.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator

from tpu_preflight.chips.layout import hbm_bytes
from tpu_preflight.compiler.execution import SAME_VALUE, Module, Step, origin
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
        if self.compute_seconds >= self.hbm_seconds:
            return "compute"
        return "HBM"


class Program:
    """A compiled program, as far as advice on one of its kernels needs it."""

    def __init__(self, module: Module, main: str) -> None:
        self._main = {instruction.name: instruction for instruction in module[main]}
        root = next(instruction for instruction in module[main] if instruction.root)
        self._results = {self._origin(name) for name in (root.name, *root.operands)}

    def _origin(self, name: str) -> str:
        return origin(self._main, name, (*SAME_VALUE, "get-tuple-element"))

    def advice(self, step: Step, kernel: Kernel) -> Iterator[Advice]:
        """Find float32 that other kernels made or will read: no variables, no batch."""
        if kernel.bound != "HBM":
            return
        traffic = sum(map(hbm_bytes, step.tensors))
        float32_bytes = 0
        for shape in self._intermediate_tensors(step):
            if shape.startswith("f32["):
                float32_bytes += hbm_bytes(shape)
        if traffic and float32_bytes >= PART * traffic:
            text = (
                f"float32: {size(float32_bytes)} of its traffic is float32 that other operations "
                "made or will read; bfloat16 (mixed precision) halves that"
            )
            yield Advice("float32", text, kernel.seconds * float32_bytes / traffic / 2)

    def _intermediate_tensors(self, step: Step) -> list[str]:
        """Give the shapes of what it has from other kernels, or makes for them."""
        instruction = step.instruction
        tensors = []
        if instruction.name not in self._results:
            tensors += instruction.layouts
        for name in instruction.operands:
            source = self._main.get(self._origin(name))
            if source is None or source.opcode not in ("parameter", "constant"):
                tensors += step.shapes.get(name, ())
        return tensors


def best_advice(items: Iterable[Advice], seconds: float) -> str:
    """Choose what helps a group of kernels most, by the time that it concerns; mostly nothing.

    ``seconds`` is the time of the group. Advice on less than `WORTH` of it is left out.
    """
    by_kind: dict[str, list[Advice]] = collections.defaultdict(list)
    for advice in items:
        by_kind[advice.kind].append(advice)
    best = max(by_kind.values(), key=_total_seconds, default=[])
    concerned_seconds = _total_seconds(best)
    if not best or concerned_seconds < WORTH * seconds:
        return ""

    longest = max(best, key=lambda advice: advice.seconds)
    similar = len(best) - 1
    share = concerned_seconds / seconds
    if similar:
        return f"{longest.text} ({share:.0%} of this time, and {similar} more such)"
    return f"{longest.text} ({share:.0%} of this time)"


def _total_seconds(items: Iterable[Advice]) -> float:
    return sum(advice.seconds for advice in items)
