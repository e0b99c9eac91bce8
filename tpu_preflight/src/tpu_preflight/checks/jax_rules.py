"""Check 1 of a function of JAX: does JAX trace it for a TPU, and what in it is slow there?"""

from tpu_preflight.context import Context
from tpu_preflight.report import Item, finding

LARGE_CONSTANT = 1_000_000  # bytes of arrays that are part of the program


def check(context: Context) -> list[Item]:
    """Say what JAX refused, on which line; or what it took, and what of that is slow."""
    kind = context.subject.kind
    refusal = context.refusal
    if refusal is not None:
        key = "refused_by_jax"
        if "initialize backend" in refusal.why:
            # Without a device for the platform that was set, JAX says nothing of the function.
            key = "no_backend"
        elif refusal.reason == "limit":
            key = "limit"
        what = f"{refusal.what} {refusal.why}"
        return [finding(1, key, kind=kind, what=what, fix=refusal.fix, where=refusal.source)]
    # It is traced; what follows is slow on a TPU, or wrong.
    exported = context.subject.exported
    part = ""
    alone = [job.target for job in context.jobs if job.replicas > 1 and not job.program.mesh]
    if alone and context.subject.model is None:
        part = "; compiled for one device: the arguments have no sharding"
    elif alone:
        targets = ", ".join(alone)
        part = f"; for {targets} compiled for one device: the batch can't be divided"
    items = [finding(1, "traced", kind=kind, part=part)]
    if exported.float64 is not None:
        operation, source = exported.float64
        items.append(finding(1, "wide_inside", operation=operation, where=source))
    if exported.constants > LARGE_CONSTANT:
        items.append(finding(1, "constants", megabytes=f"{exported.constants / 1e6:.0f}"))
    return items
