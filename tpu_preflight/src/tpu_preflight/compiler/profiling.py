"""How long a step would take on a TPU, kernel by kernel, as Google's compiler estimates it.

With full effort, the compiler writes its cost model's ``estimated_cycles`` into each kernel of the
program. Over the clock that is a time: an estimate for one device that computes and nothing else.
What devices send each other, the input and the host are not in it, nor what a SparseCore does
meanwhile.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Callable

from tpu_preflight.chips import hardware
from tpu_preflight.chips.layout import hbm_bytes
from tpu_preflight.compiler.advice import Advice, Kernel, Program, best_advice
from tpu_preflight.compiler.client import Compiled
from tpu_preflight.compiler.cost import per_device
from tpu_preflight.compiler.execution import (
    Exchange,
    Module,
    Step,
    exchange,
    flops,
    operation,
    walk,
)
from tpu_preflight.compiler.kernel_time import counted_work, kernel_seconds
from tpu_preflight.compiler.waiting import Schedule
from tpu_preflight.errors import PreflightError
from tpu_preflight.program.instructions import computations
from tpu_preflight.program.messages import Source, forward_name, place

# What is said of a kernel of Pallas, for which the compiler has no estimate.
BOUND = (
    "bound",
    "a bound, no estimate: its products at the peak rate, or its tensors once from memory",
)

# The same, where `program.pallas` counted what it computes.
FITTED = (
    "fitted",
    "an estimate of this tool, not the compiler's: products and vector work at fitted rates",
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
    # Seconds in which no kernel runs, as the program waits for other chips or for the host.
    waiting_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """The kernels' estimates together, one after the other."""
        return sum(kernel.seconds for kernel in self.kernels)

    def _by(self, key: Callable[[Kernel], str]) -> tuple[Share, ...]:
        """Group the kernels, the largest group first."""
        groups = collections.defaultdict(list)
        for kernel in self.kernels:
            groups[key(kernel)].append(kernel)
        shares = [self._share(name, kernels) for name, kernels in groups.items()]
        shares.sort(key=lambda share: (-share.seconds, share.name))
        return tuple(shares)

    def _share(self, name: str, kernels: list[Kernel]) -> Share:
        """Add up the kernels of a group."""
        seconds = sum(kernel.seconds for kernel in kernels)
        seconds_by_bound = collections.Counter()
        for kernel in kernels:
            seconds_by_bound[kernel.bound] += kernel.seconds
        advice = itertools.chain.from_iterable(kernel.advice for kernel in kernels)
        return Share(
            name=name,
            seconds=seconds,
            share=seconds / self.seconds,
            bound=max(seconds_by_bound, key=seconds_by_bound.get),
            help=best_advice(advice, seconds),
        )

    def by_operation(self) -> tuple[Share, ...]:
        """Group by the kind of TensorFlow operation: ``MatMul``, ``Softmax``, ``Adam``."""

        def kind(kernel: Kernel) -> str:
            _, _, name = kernel.name.rpartition("/")
            return re.sub(r"[_.]\d+$", "", name)

        return self._by(kind)

    def by_layer(self, depth: int = 2) -> tuple[Share, ...]:
        """Group by the first ``depth`` parts of the layer's path, its gradient included."""

        def layer(kernel: Kernel) -> str:
            # XLA numbers what it adds itself.
            return _layer(kernel.name, depth) or re.sub(r"\.\d+$", "", kernel.name)

        return self._by(layer)

    def by_line(self, find: Callable[[str], Source | None], depth: int = 0) -> tuple[Share, ...]:
        """Group by the line of Python that made the operation, its gradient included.

        ``find`` gives the line of one of TensorFlow's operations (`program.line_finder`). Lines of
        libraries are one group, or one for each layer, named by ``depth`` parts of its path.
        """

        def line(kernel: Kernel) -> str:
            text = place(source(kernel.name, find), _layer(kernel.name, depth))
            return text or "lines of libraries"

        return self._by(line)


def _layer(name: str, depth: int) -> str:
    """Give the first parts of the path of the layer that an operation belongs to."""
    layers = forward_name(name).split("/")[:-1]
    return "/".join(layers[:depth])


def source(name: str, find: Callable[[str], Source | None]) -> Source | None:
    """Find the line of an operation; a gradient's is that of the operation it belongs to."""
    path = forward_name(name)
    while path:
        line = find(path) or find(re.sub(r"_\d+$", "", path))
        if line:
            return line
        path, _, _ = path.rpartition("/")
    return find(name)


def profile(compiled: Compiled) -> Profile:
    """Read the compiler's own estimates from a program that compiles, with effort ``full``.

    Raises:
        PreflightError: It was compiled with less effort, or it doesn't compile.

    Example:
        >>> compiled = compiler.compile(program, "v5e-8", effort="full")
        >>> for layer in compiler.profile(compiled).by_layer():
        ...     print(layer.name, layer.seconds, layer.help)
    """
    _check(compiled)
    slice_ = hardware.slice_of(compiled.target, jax=True)
    chip = slice_.chip
    module, main = computations(compiled.hlo)
    program = Program(module, main)
    kernels = []
    unknown = []
    exchanges = []
    copied_bytes = 0.0
    endless = 0
    run_seconds = {}  # of one run of each kernel, by the name of its instruction
    for step in walk(module, main):
        instruction = step.instruction
        endless += step.endless
        if instruction.opcode == "copy-start":
            # Of its two tensors the one in HBM is read or written.
            copied_bytes += step.times * sum(map(hbm_bytes, instruction.layouts))
        sent = exchange(instruction, module, chip.replicas)
        if sent is not None:
            size = step.times * sent.bytes
            exchanges.append(sent._replace(bytes=size, sent=step.times * sent.sent))
        if step.cycles is None:
            continue
        kernel = _kernel(step, module, chip)
        run_seconds[instruction.name] = kernel.seconds / max(step.times, 1)
        # A kernel of Pallas has an estimate of ours where its work was counted, a bound where its
        # products are known, else nothing.
        if step.cycles >= 0:
            advice = tuple(program.advice(step, kernel))
            kernels.append(dataclasses.replace(kernel, advice=advice))
        elif kernel.flops:
            basis = FITTED if counted_work(instruction.attributes) else BOUND
            advice = (Advice(*basis, kernel.seconds),)
            kernels.append(dataclasses.replace(kernel, advice=advice))
        else:
            unknown.append(kernel.name)
    kernels.sort(key=lambda kernel: (-kernel.seconds, kernel.name))
    return Profile(
        target=compiled.target,
        kernels=tuple(kernels),
        unknown=tuple(unknown),
        endless=endless,
        copied_bytes=copied_bytes,
        exchanges=tuple(exchanges),
        waiting_seconds=Schedule(module, run_seconds, slice_).run(main).waiting,
    )


def _check(compiled: Compiled) -> None:
    """Raise an error where there are no estimates to read."""
    if compiled.ok and compiled.effort == "full":
        return
    message = compiled.message or "The compiler's estimates need its full effort."
    fix = "Fix what the compiler names."
    if compiled.ok:
        fix = 'Compile it with effort="full".'
    raise PreflightError(
        f"There is no profile of {compiled.name} for {compiled.target}.",
        f"It was compiled with {compiled.effort} effort: {compiled.verdict}. {message}",
        fix,
    )


def _kernel(step: Step, module: Module, chip: hardware.Chip) -> Kernel:
    """Read a kernel's estimate; where the compiler has none, make one or bound its time."""
    instruction = step.instruction
    peak, bandwidth = per_device(chip)
    kernel_flops = step.times * flops(instruction, module, step.shapes)
    moved_bytes = step.times * sum(map(hbm_bytes, step.tensors))
    compute_seconds = kernel_flops / peak
    hbm_seconds = moved_bytes / bandwidth
    work = counted_work(instruction.attributes)
    if step.cycles >= 0:
        seconds = step.times * step.cycles / (chip.clock_ghz * 1e9)
    elif work is not None:
        seconds = step.times * kernel_seconds(work, moved_bytes / max(step.times, 1), chip)
    else:
        seconds = max(compute_seconds, hbm_seconds)
    return Kernel(
        name=_name(step),
        kind=instruction.opcode,
        runs=step.times,
        seconds=seconds,
        flops=kernel_flops,
        hbm_bytes=moved_bytes,
        compute_seconds=compute_seconds,
        hbm_seconds=hbm_seconds,
    )


def _name(step: Step) -> str:
    """Name a kernel after its operation, the loop that it is in, or as XLA does."""
    instruction = step.instruction
    # A kernel of several operations has all their names; a copy is of the first one's result.
    names = operation(instruction.attributes).split(";")
    name = names[0] if instruction.opcode == "copy" else names[-1]
    if step.loop and (not name or _OWN.fullmatch(name)):
        name = step.loop
    return name or instruction.name
