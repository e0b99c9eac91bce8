"""How long a step takes, by operation, layer and line, as the TPU's compiler estimates it."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from tpu_preflight import compiler
from tpu_preflight.chips import hardware
from tpu_preflight.estimate import calibration
from tpu_preflight.estimate.step import Exchange, Row, Timing
from tpu_preflight.program.job import Job
from tpu_preflight.program.messages import Source

SHOWN = 8  # rows of each table; the rest are added up
HELPED = 0.02  # of the step: below it a row needs no help


def estimate(job: Job, say: Callable[[str], None]) -> Timing | None:
    """Compile with full effort, which takes longer, and read the estimate; None if it fails."""
    compiled = compiler.compile(
        job.program,
        job.target,
        effort="full",
        progress=lambda stage, passed: say(f"{job.target}, with full effort, minutes: {stage}"),
    )
    return read(compiled, job.find) if compiled.ok else None


def read(compiled: compiler.Compiled, find: Callable[[str], Source | None]) -> Timing:
    """Read the estimate from a program compiled with full effort; ``find`` gives its lines."""
    found = compiler.profile(compiled)
    depth = _depth(found)
    slice_ = hardware.slice_of(compiled.target, jax=True)
    factor = calibration.factor(slice_.chip.name)
    estimated = found.seconds * 1e3
    waited = sum(one.sent for one in found.exchanges if one.waits)
    everything = sum(one.sent for one in found.exchanges)
    slow, all_slow = (compiler.link_seconds(slice_, x)[1] * 1e3 for x in (waited, everything))
    (low, high), known = factor.range_ms(estimated), calibration.least_ms()
    small = (
        f"Below {known:.3g} ms, the smallest estimate of a published run, the host's dispatch and "
        "input count, too, which are not known: the range ends where that run's does, and there is "
        "no price; ask about a larger batch, or several steps in one program"
    )
    least = compiler.roofline(compiled).seconds * 1e3
    return Timing(
        compiled.target,
        estimated,
        max(low, least),
        max(high, estimated + slow, all_slow, least),
        f"{factor!r};\n{small}" if estimated < known else repr(factor),
        sum(k.compute_seconds for k in found.kernels) / found.seconds if found.kernels else 0.0,
        len(found.unknown) + found.endless,
        rows(found.by_operation()),
        # Layers that are alike would be told the same, one after the other.
        tuple(dataclasses.replace(row, help="") for row in rows(found.by_layer(depth))),
        rows(found.by_line(find, depth)),
        tuple(_exchanges(found, slice_)),
    )


def _exchanges(found: compiler.Profile, slice_: hardware.Slice) -> Iterator[Exchange]:
    """Add up what the devices send each other, by kind."""
    for kind in dict.fromkeys(one.kind for one in found.exchanges):
        each = [one for one in found.exchanges if one.kind == kind]
        seconds = compiler.link_seconds(slice_, sum(one.sent for one in each))
        size, waits = (sum(getattr(one, name) for one in each) for name in ("bytes", "waits"))
        ms = (1e3 * time for time in seconds)
        yield Exchange(kind, size, len(each), waits, *ms, slice_.chip.ici_quoted)


def _depth(found: compiler.Profile) -> int:
    """Go down into the layers until there are enough of them to tell apart."""
    shares = ((d, sum(x.share for x in found.by_layer(d)[:SHOWN])) for d in range(1, 5))
    return next((depth for depth, share in shares if share < 0.9), 5)


def rows(groups: Iterable[compiler.Share]) -> tuple[Row, ...]:
    """Write groups of kernels as rows: the longest, and the others added up."""
    rows = [Row(g.name, g.seconds * 1e3, g.share, g.bound, g.help) for g in groups]
    rows = [r if r.share >= HELPED else dataclasses.replace(r, help="") for r in rows]
    if len(rest := rows[SHOWN:]) > 1:
        ms, share = (sum(getattr(row, name) for row in rest) for name in ("ms", "share"))
        rows[SHOWN:] = [Row(f"{len(rest)} more", ms, share, "")]
    return tuple(rows)
