"""How long a step takes, by operation, layer and line, as the TPU's compiler estimates it."""

from collections.abc import Callable, Iterable

from helpers.preflight.estimate.step import Row, Timing
from helpers.preflight.job import Job
from helpers.xla import tpu_compiler

SHOWN = 8  # rows of each table; the rest are added up


def estimate(job: Job, say: Callable[[str], None]) -> Timing | None:
    """Compile with full effort, which takes longer, and read the estimate; None if it fails."""
    compiled = tpu_compiler.compile(
        job.program,
        job.target,
        effort="full",
        progress=lambda stage, passed: say(f"{job.target}, with full effort: {stage}"),
    )
    if not compiled.ok:
        return None
    found = tpu_compiler.profile(compiled)
    return Timing(
        job.target,
        found.seconds * 1e3,
        found.compute_share,
        len(found.unknown) + found.endless,
        _rows(found.by_operation()),
        _rows(_layers(found)),
        _rows(found.by_line(job.find)),
    )


def _layers(found: tpu_compiler.Profile) -> tuple[tpu_compiler.Share, ...]:
    """Go down into the layers until there are enough of them to tell apart."""
    groups = found.by_layer(1)
    for depth in range(2, 6):
        if sum(group.share for group in groups[:SHOWN]) < 0.9:
            break
        groups = found.by_layer(depth)
    return groups


def _rows(groups: Iterable[tpu_compiler.Share]) -> tuple[Row, ...]:
    rows = [Row(g.name, g.seconds * 1e3, g.share, g.bound) for g in groups]
    rest = rows[SHOWN:]
    if len(rest) > 1:
        together = sum(row.ms for row in rest), sum(row.share for row in rest)
        rows[SHOWN:] = [Row(f"{len(rest)} more", *together, "")]
    return tuple(rows)
