"""How long a step waits for other chips and for the host, beyond what its kernels hide.

The compiled text is a schedule: a transfer begins at one instruction and is awaited at a later one,
and what runs between them hides it, but on a kind of TPU that was seen not to
(`Chip.hides_exchanges`). Transfers over the same links follow each other.
"""

import dataclasses
import re
from collections.abc import Mapping

from tpu_preflight.chips.hardware import Slice
from tpu_preflight.chips.layout import shape_bytes
from tpu_preflight.compiler.execution import Exchange, Module, exchange, loop_rounds
from tpu_preflight.program.instructions import Instruction

_HOST = re.compile(r"S\(5\)")  # the host's memory, in a layout
# A torus needs links that lead from one end to the other, which slices of this width have.
_TORUS_WIDTH = {2: 16, 3: 4}
# What passes a transfer on to the instruction that awaits it.
_PASSES_ON = ("get-tuple-element", "bitcast", "tuple", "async-update")


@dataclasses.dataclass(frozen=True)
class Transfer:
    """A transfer that begins at an instruction."""

    link: str  # ``chips``, ``to host`` or ``from host``
    seconds: float
    awaited: bool  # whether the next instruction waits until it is done


@dataclasses.dataclass(frozen=True)
class Passage:
    """One run of a computation."""

    seconds: float  # with what it waits
    waiting: float  # seconds of them in which no kernel runs


class Schedule:
    """A compiled program, with the time of its kernels."""

    def __init__(
        self,
        module: Module,
        kernel_seconds: Mapping[str, float],
        slice_: Slice,
    ) -> None:
        """Take a program, the time of one run of each kernel by its name, and where it runs."""
        self._module = module
        self._kernel_seconds = kernel_seconds
        self._slice = slice_

    def run(self, name: str) -> Passage:
        """Go through a computation in its order, with a clock."""
        now = waiting = 0.0
        free: dict[str, float] = {}  # when each link is free again
        ends: dict[str, float] = {}  # when the transfer is done that an instruction stands for
        asked: dict[str, Transfer] = {}  # what a SparseCore is to send once it has been handed it
        # In the program's order: what an instruction waits for, its own time, what it begins.
        for instruction in self._module[name]:
            awaited = self._awaited(instruction, ends)
            if awaited is not None and awaited > now:
                waiting += awaited - now
                now = awaited
            passage = self._inner(instruction, name)
            now += passage.seconds
            waiting += passage.waiting
            transfer = self._begun(instruction, asked)
            if transfer is None:
                continue
            # A link carries one transfer after the other.
            end = max(now, free.get(transfer.link, 0.0)) + transfer.seconds
            free[transfer.link] = end
            if transfer.awaited:
                waiting += end - now
                now = end
            else:
                ends[instruction.name] = end
        return Passage(now, waiting)

    def _inner(self, instruction: Instruction, name: str) -> Passage:
        """Run the kernel of an instruction, or the rounds of its loop."""
        if instruction.opcode == "while":
            body = self.run(instruction.called("body"))
            # A loop whose rounds aren't known counts once; the report says that it is not whole.
            count = loop_rounds(instruction, self._module, name) or 1
            return Passage(count * body.seconds, count * body.waiting)
        if instruction.opcode == "call":
            return self.run(instruction.called("to_apply"))
        return Passage(self._kernel_seconds.get(instruction.name, 0.0), 0.0)

    def _awaited(self, instruction: Instruction, ends: dict[str, float]) -> float | None:
        """Give the end of the transfer that an instruction awaits; None if it awaits none."""
        begun = [ends[operand] for operand in instruction.operands if operand in ends]
        if not begun:
            return None
        called = instruction.called("calls") or ""
        # It doesn't wait itself: what uses its result does, and may come much later.
        if instruction.opcode in _PASSES_ON or called.startswith("async_collective_fusion"):
            ends[instruction.name] = max(begun)
            return None
        return max(begun)

    def _begun(self, instruction: Instruction, asked: dict[str, Transfer]) -> Transfer | None:
        """Give the transfer that begins at an instruction; None if there is none.

        A SparseCore is asked before there is anything to send: a later instruction hands it over.
        """
        if instruction.opcode == "async-update":
            for operand in instruction.operands:
                if operand in asked:
                    return asked.pop(operand)
            return None
        transfer = self._transfer(instruction)
        if transfer is not None and not instruction.operands:
            asked[instruction.name] = transfer
            return None
        return transfer

    def _transfer(self, instruction: Instruction) -> Transfer | None:
        sent = exchange(instruction, self._module, self._slice.chip.replicas)
        if sent is not None:
            waits = sent.waits or not self._slice.chip.hides_exchanges
            return Transfer("chips", exchange_seconds(sent, self._slice), waits)
        return self._host_transfer(instruction)

    def _host_transfer(self, instruction: Instruction) -> Transfer | None:
        """Find a copy to or from the host's memory, of all or of one layer's part."""
        if instruction.opcode not in ("copy-start", "async-start"):
            return None
        on_host = [bool(_HOST.search(shape)) for shape in instruction.layouts]
        if not any(on_host):
            return None
        # Of a copy, what isn't on the host is its other end and a small flag: the larger counts.
        sizes = []
        for shape, is_on_host in zip(instruction.layouts, on_host, strict=True):
            if not is_on_host:
                sizes.append(shape_bytes(shape))
        # A copy's tuple begins with its result; a part is written into the host's or read from it.
        to_host = on_host[0]
        if instruction.opcode == "async-start":
            called = self._module[instruction.called("calls")]
            to_host = any(inner.opcode == "dynamic-update-slice" for inner in called)
        link = "to host" if to_host else "from host"
        rate = self._slice.chip.pcie_gb_per_s * 1e9
        return Transfer(link, max(sizes, default=0) / rate if rate else 0.0, awaited=False)


def exchange_seconds(sent: Exchange, slice_: Slice) -> float:
    """Estimate an exchange that nothing hides: hops, and bytes over the links of a chip.

    A permutation takes one link. Others take all links of a torus, and two of what is none.
    """
    chip = slice_.chip
    link_rate = chip.hop_gb_per_s * 1e9
    if not link_rate:  # not measured: what the page says
        link_rate = chip.ici_gb_per_s * 1e9 / 2 / chip.ici_links
    latency = chip.hop_us / 1e6
    if sent.kind == "collective-permute":
        return latency + sent.sent / link_rate
    width = round(slice_.chips ** (1 / chip.dimensions))
    is_torus = width >= _TORUS_WIDTH[chip.dimensions]
    if is_torus:
        hops = chip.dimensions * width // 2
        links = chip.ici_links
    else:
        hops = slice_.chips // 2
        links = 2
    return hops * latency + sent.sent / (links * link_rate)
