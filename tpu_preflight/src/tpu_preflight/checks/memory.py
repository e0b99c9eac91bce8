"""Checks 6 and 7: does a step fit, and what does it cost at least? Google's compiler answers.

It also has the last word on check 1.
"""

from collections.abc import Callable, Sequence

from tpu_preflight import compiler
from tpu_preflight.compiler.client import TIMEOUT
from tpu_preflight.compiler.memory import padding_remedy
from tpu_preflight.errors import unset
from tpu_preflight.estimate import fit
from tpu_preflight.estimate.step import Estimate, flop
from tpu_preflight.program import Program
from tpu_preflight.program.job import Job
from tpu_preflight.report import Item, finding
from tpu_preflight.text import size

NEAR_LIMIT = 0.9  # of the memory: above it the compiler may compute parts twice to save some
MUCH_PADDING = 10_000_000  # bytes; less is not worth a change of the model


def unanswered(targets: Sequence[str], reason: str) -> list[Item]:
    """Leave memory and cost of each target open."""
    return [
        finding(check, "unanswered", target=target, reason=reason)
        for target in targets
        for check in (6, 7)
    ]


def compile_for(job: Job, say: Callable[[str], None]) -> compiler.Compiled:
    """Ask Google's compiler; ``say`` is called with a line at each stage."""
    return compiler.compile(
        job.program, job.target, progress=lambda stage, passed: say(f"{job.target}: {stage}")
    )


def check(
    export: Callable[[Job, int], Program],
    job: Job,
    compiled: compiler.Compiled,
    seconds: float | None,
    say: Callable[[str], None],
) -> tuple[list[Item], Estimate | None]:
    """Read the compiler's answer; there is an estimate of a step's cost where it compiles.

    Args:
        export: Exports the job's program for another number of rows.
        job: What was compiled.
        compiled: The answer.
        seconds: For a search for the largest batch; None where it isn't asked for.
        say: Called with a line before something takes time.
    """
    about = {"program": job.program.name, "target": job.target, "message": compiled.message}
    if compiled.verdict == "refused":
        return [finding(1, "refused_by_google", **about)], None
    full = compiled.verdict == "out of memory"
    if not full and not compiled.ok:
        key = "not_available" if compiled.verdict == "not available" else "unanswered"
        later = unanswered([job.target], "Google's compiler gave no answer")
        return [finding(1, key, **about, unset=unset()), *later], None
    items, rows = [], None  # the most rows that fit, where that was looked for
    if seconds is not None or (full and job.rows and compiled.peak_bytes):
        items, rows = _largest_batch(export, job, compiled, seconds, say)
    if full:
        about["ways"] = fit.remedies(job.program, job.target, compiled.peak_bytes, job.rows, rows)
        return [*items, finding(1, "accepted", **about), finding(6, "too_large", **about)], None
    roof = compiler.roofline(compiled)
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
        roof.link_seconds * 1e3,
        compiled.all_reduce_bytes if compiled.replicas > 1 else None,
        rows or None,
    )
    sent = size(estimate.all_reduce_bytes or 0)
    about |= {
        "used": f"{size(compiled.peak_bytes)} of {size(compiled.available_bytes)} on each replica "
        f"({size(compiled.argument_bytes)} of it variables and batch)",
        "gradients": f"; {sent} of gradients added across replicas"
        * bool(estimate.all_reduce_bytes),
        "flops": flop(estimate.flops),
        "traffic": size(estimate.bytes),
    }
    near = compiled.peak_bytes > NEAR_LIMIT * compiled.available_bytes
    return [
        *items,
        finding(1, "compiled", **about),
        finding(6, "near_limit" if near else "fits", **about),
        finding(7, "cost", **about, limit=estimate.limited_by),
        _padding(compiled),
    ], estimate


def _padding(compiled: compiler.Compiled) -> Item:
    for worst in compiler.padding(compiled):
        if worst.bytes >= MUCH_PADDING and worst.layout.expansion >= 2:
            about = {"tensor": worst.name, "layout": worst.layout, "count": worst.count}
            about["mend"] = padding_remedy(worst.layout).partition(": ")[2]
            return finding(7, "padding", target=compiled.target, **about)
    return finding(7, "no_padding", target=compiled.target)


def _largest_batch(
    export: Callable[[Job, int], Program],
    job: Job,
    compiled: compiler.Compiled,
    seconds: float | None,
    say: Callable[[str], None],
) -> tuple[list[Item], int | None]:
    """Search for the largest batch that fits, in rows on each replica; None if that's not known.

    Not asked for, of a batch that doesn't fit, it is for what would help alone.
    """
    if job.rows is None:
        return [finding(6, "largest_without_rows", target=job.target)], None
    less = {"most": job.rows - 1, "known": {job.rows: compiled}} if job.rows > 1 else {"most": 1}
    found = compiler.largest_batch(
        lambda rows: say(f"{job.target}: a batch of {rows:,}") or export(job, rows),
        job.target,
        smallest=8 if job.rows > 8 else 1,
        seconds=seconds or TIMEOUT,
        **(less if compiled.verdict == "out of memory" else {}),
    )
    if seconds is None:
        return [], found.largest or None
    about = {"target": job.target, "rows": found.largest, "reason": found.reason}
    none = [*found.tried.values()][-1].verdict == "out of memory"
    key = "largest" if found.largest else "largest_none" if none else "largest_unknown"
    return [finding(6, key, **about)], found.largest if found.largest or none else None
