"""How long a step would take on a TPU, kernel by kernel, as Google's compiler estimates it.

With full effort, the compiler writes its cost model's ``estimated_cycles`` into each kernel of the
program. Over the clock that is a time: an estimate for one device that computes and nothing else.
What devices send each other, the input and the host are not in it, nor what a SparseCore does
meanwhile.
"""

import collections
import dataclasses
import re
from collections.abc import Callable

from tpu_preflight.chips import hardware
from tpu_preflight.compiler.advice import Advice, Kernel, Program, hbm_bytes, together
from tpu_preflight.compiler.client import Compiled
from tpu_preflight.compiler.cost import per_device
from tpu_preflight.compiler.execution import Exchange, exchange, flops, operation, walk
from tpu_preflight.errors import PreflightError
from tpu_preflight.program.instructions import computations
from tpu_preflight.program.messages import Source, forward_name, place

# What is told of a kernel of Pallas, for which the compiler has no estimate.
BOUND = (
    "bound",
    "a bound, no estimate: its products at the peak rate, or its tensors once from memory",
)

# XLA's own names, for what it adds itself.
_OWN = re.compile(r"[a-z\-_]+(?:\.\d+)*")


@dataclasses.dataclass(frozen=True)
class Share:
    """Kernels that belong together: those of a layer, of a line, of an operation."""

    name: str  # what they have in common
    seconds: float  # their estimates together
    share: float  # of the whole step, 0 to 1
    bound: str  # what most of their time waits for, as for `Kernel`
    help: str = ""  # what would help them most, where the program shows it; mostly empty


@dataclasses.dataclass(frozen=True)
class Profile:
    """The kernels of a step on one device of a target, the longest first."""

    target: str  # such as ``v5e-8``
    # Each kernel that the compiler has an estimate for, and those of Pallas whose operations are
    # known, with a bound.
    kernels: tuple[Kernel, ...]
    # Names of kernels without one. Their time is missing from the sum.
    unknown: tuple[str, ...]
    endless: int  # loops whose number of rounds the compiler doesn't know; they count once
    copied_bytes: float  # bytes copied between HBM and the chip while kernels run
    # What the devices send each other, a loop's rounds together; it is in no kernel's time.
    exchanges: tuple[Exchange, ...] = ()

    @property
    def seconds(self) -> float:
        """The kernels' estimates together, one after the other."""
        return sum(k.seconds for k in self.kernels)

    def _by(self, key: Callable[[Kernel], str]) -> tuple[Share, ...]:
        """Group the kernels, the largest group first."""
        groups = collections.defaultdict(list)
        for kernel in self.kernels:
            groups[key(kernel)].append(kernel)
        shares = []
        for name, kernels in groups.items():
            waits = collections.Counter()
            for kernel in kernels:
                waits[kernel.bound] += kernel.seconds
            seconds = sum(k.seconds for k in kernels)
            shares.append(
                Share(
                    name,
                    seconds,
                    seconds / self.seconds,
                    max(waits, key=waits.get),
                    together((advice for k in kernels for advice in k.advice), seconds),
                )
            )
        return tuple(sorted(shares, key=lambda share: (-share.seconds, share.name)))

    def by_operation(self) -> tuple[Share, ...]:
        """Group by the kind of TensorFlow operation: ``MatMul``, ``Softmax``, ``Adam``."""
        return self._by(lambda k: re.sub(r"[_.]\d+$", "", k.name.rpartition("/")[2]))

    def by_layer(self, depth: int = 2) -> tuple[Share, ...]:
        """Group by the first ``depth`` parts of the layer's path, its gradient included."""
        # XLA numbers what it adds itself.
        return self._by(lambda k: _layer(k.name, depth) or re.sub(r"\.\d+$", "", k.name))

    def by_line(self, find: Callable[[str], Source | None], depth: int = 0) -> tuple[Share, ...]:
        """Group by the line of Python that made the operation, its gradient included.

        ``find`` gives the line of one of TensorFlow's operations (`program.line_finder`). Lines of
        libraries are one group, or one for each layer, named by ``depth`` parts of its path.
        """
        return self._by(
            lambda k: place(source(k.name, find), _layer(k.name, depth)) or "lines of libraries"
        )


def _layer(name: str, depth: int) -> str:
    """Give the first parts of the path of the layer that an operation belongs to."""
    return "/".join(forward_name(name).split("/")[:-1][:depth])


def source(name: str, find: Callable[[str], Source | None]) -> Source | None:
    """Find the line of an operation; a gradient's is that of the operation it belongs to."""
    tried = forward_name(name)
    while tried:
        if found := find(tried) or find(re.sub(r"_\d+$", "", tried)):
            return found
        tried = tried.rpartition("/")[0]
    return find(name)


def profile(compiled: Compiled) -> Profile:
    """Read the compiler's own estimates from a program that compiles, with effort ``full``.

    Raises:
        PreflightError: It was compiled with less effort, or it doesn't compile.
    """
    if not compiled.ok or compiled.effort != "full":
        raise PreflightError(
            f"There is no profile of {compiled.name} for {compiled.target}.",
            f"It was compiled with {compiled.effort} effort: {compiled.verdict}. "
            + (
                compiled.message or "The compiler's estimates are worth something with full effort."
            ),
            'Compile it with effort="full".' if compiled.ok else "Fix what the compiler names.",
        )
    chip = hardware.slice_of(compiled.target, jax=True).chip
    peak, bandwidth = per_device(chip)
    found, main = computations(compiled.hlo)
    steps = list(walk(found, main))
    program = Program(found, main)
    kernels, unknown, exchanges, copied = [], [], [], 0.0
    for step in steps:
        i = step.instruction
        if i.opcode == "copy-start":  # of its two tensors the one in HBM is read or written
            copied += step.times * sum(map(hbm_bytes, i.laid_out))
        if sent := exchange(i, found, chip.replicas):
            size, each = step.times * sent.bytes, step.times * sent.sent
            exchanges.append(sent._replace(bytes=size, sent=each))
        if step.cycles is None:
            continue
        # A kernel of several operations has all their names; a copy is of the first one's result.
        name = operation(i.attributes).split(";")[0 if i.opcode == "copy" else -1]
        if step.loop and (not name or _OWN.fullmatch(name)):
            name = step.loop
        name = name or i.name
        computed = step.times * flops(i, found, step.shapes)
        if step.cycles < 0 and not computed:
            unknown.append(name)
            continue
        moved = step.times * sum(map(hbm_bytes, step.touched))
        least = computed / peak, moved / bandwidth
        told = step.cycles >= 0
        seconds = step.times * step.cycles / (chip.clock_ghz * 1e9) if told else max(least)
        kernel = Kernel(name, i.opcode, step.times, seconds, computed, moved, *least)
        helps = tuple(program.advice(step, kernel)) if told else (Advice(*BOUND, seconds),)
        kernels.append(dataclasses.replace(kernel, advice=helps))
    kernels.sort(key=lambda k: (-k.seconds, k.name))
    endless = sum(step.endless for step in steps)
    told = tuple(kernels), tuple(unknown), endless, copied, tuple(exchanges)
    return Profile(compiled.target, *told)
