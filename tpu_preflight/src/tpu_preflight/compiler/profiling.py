"""How long a step would take on a TPU, kernel by kernel, as Google's compiler estimates it.

With full effort, the compiler writes its cost model's ``estimated_cycles`` into each kernel of the
program. Over the clock that is a time: an estimate for one device that computes and nothing else.
The all-reduce, the input and the host are not in it.
"""

import collections
import dataclasses
import re
from collections.abc import Callable

from tpu_preflight.chips import hardware
from tpu_preflight.chips.layout import shape_bytes
from tpu_preflight.compiler.advice import GRADIENT, Advice, Program, advice, hbm_bytes, together
from tpu_preflight.compiler.ask import Compiled
from tpu_preflight.compiler.cost import per_device
from tpu_preflight.compiler.walking import cycles, executed, flops, operation
from tpu_preflight.errors import PreflightError
from tpu_preflight.program.instructions import computations
from tpu_preflight.program.messages import Source, forward_name

# A kernel whose operations (or bytes) at the peak rate take this share of its time is bound by
# them; the rest of the kernels wait for the vector unit, or for memory on the chip.
BOUND = 0.5

# XLA's own names, for what it adds itself.
_OWN = re.compile(r"[a-z\-_]+(?:\.\d+)*")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel of a compiled step, all its runs together.

    Attributes:
        name: TensorFlow's name of the operation that it ends in, which begins with its layers;
            XLA's own name where it has none.
        kind: XLA's name of what it is, such as ``fusion``, ``copy`` or ``all-reduce``.
        runs: How often it runs in a step.
        seconds: What the compiler estimates.
        flops: Floating-point operations of its matrix products and convolutions.
        hbm_bytes: Bytes that it reads from and writes to the device's memory (HBM), without
            padding. A tensor of which it needs only a part counts in full.
        compute_seconds: ``flops`` at the peak rate in bfloat16.
        hbm_seconds: ``hbm_bytes`` at the memory's bandwidth.
        advice: What would help, where the program shows it.
    """

    name: str
    kind: str
    runs: int
    seconds: float
    flops: float
    hbm_bytes: float
    compute_seconds: float
    hbm_seconds: float
    advice: tuple[Advice, ...] = ()

    @property
    def bound(self) -> str:
        """What it waits for: ``compute`` (matrix units), ``HBM``, or ``vector`` (the rest)."""
        return _bound(self.seconds, self.compute_seconds, self.hbm_seconds)


@dataclasses.dataclass(frozen=True)
class Share:
    """Kernels that belong together: those of a layer, of a line, of an operation."""

    name: str  # what they have in common
    seconds: float  # their estimates together
    share: float  # of the whole step, 0 to 1
    kernels: int  # how many there are
    bound: str  # what most of their time waits for, as for `Kernel`
    flops: float = 0.0  # operations of their matrix products and convolutions
    hbm_bytes: float = 0.0  # bytes that they read from and write to the device's memory
    help: str = ""  # what would help them most, where the program shows it; mostly empty


@dataclasses.dataclass(frozen=True)
class AllReduce:
    """Tensors that are added up across the replicas at one place in the program."""

    bytes: float  # of all of them
    # Whether the next kernel waits until that is done. If not, the program goes on with others
    # meanwhile.
    waits: bool
    at: float  # where in the step, by the kernels' time: 0 the beginning, 1 the end


@dataclasses.dataclass(frozen=True)
class Profile:
    """The kernels of a step on one device of a target, the longest first."""

    target: str  # such as ``v5e-8``
    kernels: tuple[Kernel, ...]  # each kernel that the compiler has an estimate for
    # Names of kernels without one. Their time is missing from the sum.
    unknown: tuple[str, ...]
    endless: int  # loops whose number of rounds the compiler doesn't know; they count once
    copied_bytes: float  # bytes copied between HBM and the chip while kernels run
    # Where replicas add up their gradients; the time for it is in no kernel's.
    all_reduces: tuple[AllReduce, ...] = ()

    @property
    def seconds(self) -> float:
        """The kernels' estimates together, one after the other."""
        return sum(k.seconds for k in self.kernels)

    @property
    def flops(self) -> float:
        """Operations of all matrix products and convolutions."""
        return sum(k.flops for k in self.kernels)

    @property
    def compute_share(self) -> float:
        """Share of the time in which the matrix units would be busy at their peak rate."""
        return sum(k.compute_seconds for k in self.kernels) / self.seconds if self.kernels else 0.0

    def by(self, key: Callable[[Kernel], str]) -> tuple[Share, ...]:
        """Group the kernels, the largest group first."""
        groups = collections.defaultdict(list)
        for kernel in self.kernels:
            groups[key(kernel)].append(kernel)
        return tuple(
            sorted(
                (self._share(name, kernels) for name, kernels in groups.items()),
                key=lambda share: (-share.seconds, share.name),
            )
        )

    def _share(self, name: str, kernels: list[Kernel]) -> Share:
        waits = collections.Counter()
        for kernel in kernels:
            waits[kernel.bound] += kernel.seconds
        seconds = sum(k.seconds for k in kernels)
        return Share(
            name,
            seconds,
            seconds / self.seconds,
            len(kernels),
            max(waits, key=waits.get),
            sum(k.flops for k in kernels),
            sum(k.hbm_bytes for k in kernels),
            together([k.advice for k in kernels], seconds),
        )

    def by_operation(self) -> tuple[Share, ...]:
        """Group by the kind of TensorFlow operation: ``MatMul``, ``Softmax``, ``Adam``."""
        return self.by(lambda k: re.sub(r"[_.]\d+$", "", k.name.rpartition("/")[2]))

    def by_layer(self, depth: int = 2) -> tuple[Share, ...]:
        """Group by the first ``depth`` parts of the layer's path, its gradient included."""
        own = re.compile(r"\.\d+$")  # XLA numbers what it adds itself

        def layer(k: Kernel) -> str:
            return "/".join(forward_name(k.name).split("/")[:-1][:depth]) or own.sub("", k.name)

        return self.by(layer)

    def by_line(self, find: Callable[[str], Source | None]) -> tuple[Share, ...]:
        """Group by the line of Python that made the operation, its gradient included.

        ``find`` gives the line of one of TensorFlow's operations (`program.line_finder`).
        """
        return self.by(lambda k: str(source(k.name, find) or "lines of libraries"))

    def __repr__(self) -> str:
        text = f"{self.target}: {self.seconds * 1e3:.3g} ms in {len(self.kernels)} kernels"
        text += f", the matrix units busy {self.compute_share:.0%} of it"
        if self.unknown:
            text += f"; no estimate for {len(self.unknown)}"
        if self.endless:
            text += f"; loops that count once: {self.endless}"
        return text


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
            'Compile it with effort="full".' if compiled.ok else "Mend what the compiler names.",
        )
    chip = hardware.slice_of(compiled.target, jax=True).chip
    peak, bandwidth = per_device(chip)
    text = compiled.hlo
    found, main = computations(text)
    program, steps = Program(found, main), list(executed(text))
    products = (
        program.product(i, shapes)
        for _, _, i, shapes, _ in steps
        if cycles(i) is not None and GRADIENT not in operation(i.attributes)
    )
    most_rows = max((p[0] for p in products if p is not None), default=0)
    kernels, unknown, endless, copied = [], [], 0, 0.0
    reduced: list[tuple[float, bool, float]] = []
    for times, without_end, i, shapes, loop in steps:
        endless += without_end
        if i.opcode == "copy-start":  # of its two tensors the one in HBM is read or written
            copied += times * sum(map(hbm_bytes, i.laid_out))
        if i.opcode in ("all-reduce", "all-reduce-start"):
            before = sum(k.seconds for k in kernels)
            reduced.append((sum(map(shape_bytes, i.shapes)), i.opcode == "all-reduce", before))
        estimated = cycles(i)
        if estimated is None:
            continue
        # A kernel of several operations has all their names; a copy is of the first one's result.
        name = operation(i.attributes).split(";")[0 if i.opcode == "copy" else -1]
        if loop and (not name or _OWN.fullmatch(name)):
            name = loop
        name = name or i.name
        if estimated < 0:
            unknown.append(name)
            continue
        computed = times * flops(i, found, shapes)
        moved = times * sum(map(hbm_bytes, (*i.laid_out, *shapes.reads(i))))
        seconds = times * estimated / (chip.clock_ghz * 1e9)
        kernel = Kernel(
            name, i.opcode, times, seconds, computed, moved, computed / peak, moved / bandwidth
        )
        about = {"seconds": seconds, "bound": kernel.bound, "runs": times, "most_rows": most_rows}
        helps = advice(program, i, shapes, name, **about)
        kernels.append(dataclasses.replace(kernel, advice=helps))
    whole = sum(k.seconds for k in kernels) or 1.0
    all_reduces = tuple(AllReduce(size, waits, at / whole) for size, waits, at in reduced)
    kernels.sort(key=lambda k: (-k.seconds, k.name))
    told = tuple(kernels), tuple(unknown), endless, copied, all_reduces
    return Profile(compiled.target, *told)


def _bound(seconds: float, compute: float, hbm: float) -> str:
    if max(compute, hbm) < BOUND * seconds:
        return "vector"
    return "compute" if compute >= hbm else "HBM"
