"""Checks 6 and 7: does a step fit, and what does it cost at least? Google's compiler answers.

It also has the last word on check 1.
"""

from collections.abc import Callable, Sequence

from helpers.preflight.report import FAIL, OPEN, PASS, WARN, Estimate, Item, flop
from helpers.preflight.subject import Job, Subject, with_rows
from helpers.xla import tpu_compiler
from helpers.xla.program import export
from helpers.xla.tpu_compiler import size

NEAR_LIMIT = 0.9  # of the memory: above it the compiler may compute parts twice to save some
MUCH_PADDING = 10_000_000  # bytes; less is not worth a change of the model


def unanswered(targets: Sequence[str], reason: str) -> list[Item]:
    """Leave memory and cost of each target open."""
    checks = {6: "memory", 7: "cost"}
    return [
        Item(check, f"{what} for {target}", OPEN, reason)
        for target in targets
        for check, what in checks.items()
    ]


def compile_for(job: Job, say: Callable[[str], None]) -> tpu_compiler.Compiled:
    """Ask Google's compiler; ``say`` is called with a line at each stage."""
    return tpu_compiler.compile(
        job.program, job.target, progress=lambda stage, passed: say(f"{job.target}: {stage}")
    )


def check(job: Job, compiled: tpu_compiler.Compiled) -> tuple[list[Item], Estimate | None]:
    """Read the compiler's answer; there is an estimate of a step's cost where it compiles."""
    name = f"{job.program.name} for {job.target}"
    if compiled.verdict == "refused":
        fix = "Google's compiler refuses what XLA's own accepts: look for 64-bit types first."
        return [Item(1, name, FAIL, compiled.message, fix)], None
    if compiled.verdict == "out of memory":
        accepted = Item(1, name, PASS, "Google's compiler accepts every operation")
        fix = "Make the batch smaller, compute in bfloat16, or take a target with more memory."
        return [accepted, Item(6, f"memory of {job.target}", FAIL, compiled.message, fix)], None
    if not compiled.ok:
        fix = "" if compiled.verdict == "not available" else "Try a smaller model, then halve it."
        item = Item(1, name, OPEN, compiled.message, fix, decisive=True)
        return [item, *unanswered([job.target], "Google's compiler gave no answer")], None
    roof = tpu_compiler.roofline(compiled)
    estimate = Estimate(
        job.target,
        job.replicas,
        job.rows,
        compiled.flops,
        compiled.bytes_accessed,
        compiled.peak_bytes,
        compiled.available_bytes,
        roof.compute_seconds * 1e3,
        roof.hbm_seconds * 1e3,
        compiled.all_reduce_bytes if compiled.replicas > 1 else None,
    )
    note = f" ({compiled.note})" if compiled.note else ""
    accepted = Item(1, name, PASS, f"Google's compiler makes a program of it{note}")
    return [accepted, _memory(compiled), _cost(estimate), _padding(compiled)], estimate


def _memory(compiled: tpu_compiler.Compiled) -> Item:
    name = f"memory of {compiled.target}"
    said = (
        f"{size(compiled.peak_bytes)} of {size(compiled.available_bytes)} on each replica "
        f"({size(compiled.argument_bytes)} of it variables and batch)"
    )
    if compiled.peak_bytes > NEAR_LIMIT * compiled.available_bytes:
        fix = "Look at the flops per row against a smaller batch: largest_batch=True does."
        return Item(6, name, WARN, f"{said}: parts may be computed twice to make it fit", fix)
    return Item(6, name, PASS, said)


def _cost(estimate: Estimate) -> Item:
    said = (
        f"{flop(estimate.flops)} and {size(estimate.bytes)} of memory traffic a step on "
        f"each replica: bound by {estimate.limited_by}"
    )
    if estimate.all_reduce_bytes:
        said += f"; {size(estimate.all_reduce_bytes)} of gradients added across replicas"
    return Item(7, f"cost on {estimate.target}", PASS, said)


def _padding(compiled: tpu_compiler.Compiled) -> Item:
    name = f"padding on {compiled.target}"
    for worst in tpu_compiler.padding(compiled):
        if worst.bytes >= MUCH_PADDING and worst.layout.expansion >= 2:
            said = f"{worst.name}: {worst.layout}, {worst.count} times"
            fix = "Make the last dimension a multiple of 128 and the one before a multiple of 8."
            return Item(7, name, WARN, said, fix)
    return Item(7, name, PASS, "no tensor wastes much memory")


def largest_batch(
    subject: Subject, job: Job, seconds: float, say: Callable[[str], None]
) -> tuple[Item, int | None]:
    """Search for the largest batch that fits, in rows on each replica; None if none was found."""
    name = f"largest batch on {job.target}"
    if job.rows is None:
        return Item(6, name, OPEN, "the tensors of a batch have no common first size"), None
    found = tpu_compiler.largest_batch(
        lambda rows: export(subject.step, *with_rows(job.specs, job.rows, rows)),
        job.target,
        seconds=seconds,
        progress=lambda stage, passed: say(f"{job.target}: {stage}"),
    )
    if found.largest:
        said = f"{found.largest} rows on each replica. {found.reason}"
        return Item(6, name, PASS, said), found.largest
    if found.attempts[-1].compiled.verdict != "out of memory":
        return Item(6, name, OPEN, found.reason, "Give it more time: search_seconds."), None
    return Item(6, name, FAIL, found.reason, "Take a target with more memory."), None
