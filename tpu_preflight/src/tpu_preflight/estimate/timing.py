"""How long a step takes, by operation, layer and line, as the TPU's compiler estimates it.

The estimate is `measured.step_seconds`: the kernels, corrected where some were measured, and what
the program waits for.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable

from tpu_preflight import compiler
from tpu_preflight.chips import hardware
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate import calibration, measured
from tpu_preflight.estimate.step import Exchange, Row, Timing
from tpu_preflight.program.job import Job
from tpu_preflight.program.messages import Source

SHOWN = 8  # rows of each table; the rest are added up
WAITING = "waiting for other chips or the host"  # a row
HELPED = 0.02  # of the step: below it a row needs no help
_COVERED = 0.9  # of the step: where the rows shown are less, they tell the layers apart
_DEEPEST = 5  # parts of a layer's path


def estimate(job: Job, say: Callable[[str], None]) -> Timing:
    """Compile with full effort, which takes longer, and read the estimate.

    Raises:
        PreflightError: With full effort it doesn't compile.
    """

    def report_stage(stage: str, seconds: float) -> None:
        say(f"{job.target}, with full effort (minutes): {stage}")

    compiled = compiler.compile(job.program, job.target, effort="full", progress=report_stage)
    if not compiled.ok:
        raise PreflightError(
            f"There is no estimate for {job.target}.",
            f"with full effort the compiler's answer is {compiled.verdict!r}: {compiled.message}",
            "Ask without --profile.",
        )
    return read(compiled, job.find)


def read(compiled: compiler.Compiled, find: Callable[[str], Source | None]) -> Timing:
    """Read the estimate from a program compiled with full effort; ``find`` gives its lines."""
    profile = measured.corrected(compiler.profile(compiled))
    slice_ = hardware.slice_of(compiled.target, jax=True)
    kernels_ms = profile.seconds * 1e3
    estimate_ms = kernels_ms + profile.waiting_seconds * 1e3
    bound_ms = compiler.roofline(compiled).seconds * 1e3

    # At the range's end the chips are one ring. What the program waits for comes on top of the
    # kernels' time; during other exchanges it computes, but no step is shorter than all of them.
    total_bytes = 0.0
    waiting_bytes = 0.0
    for exchange in profile.exchanges:
        total_bytes += exchange.sent
        if exchange.waits:
            waiting_bytes += exchange.sent
    _, total_seconds = compiler.link_seconds(slice_, total_bytes)
    _, waiting_seconds = compiler.link_seconds(slice_, waiting_bytes)

    factor = calibration.factor(slice_.chip.name)
    low_ms, high_ms = factor.range_ms(estimate_ms)
    basis = repr(factor)
    if calibration.is_short(compiled.target, estimate_ms):
        basis = calibration.why_no_range(slice_.chip.name)

    busy = 0.0
    if profile.kernels:
        compute_seconds = sum(kernel.compute_seconds for kernel in profile.kernels)
        busy = compute_seconds * 1e3 / estimate_ms
    depth = _depth(profile)
    layers = []
    for row in rows(profile.by_layer(depth), profile.waiting_seconds):
        # Layers that are alike would have the same advice, one after the other.
        layers.append(dataclasses.replace(row, help=""))
    return Timing(
        target=compiled.target,
        ms=estimate_ms,
        low_ms=max(low_ms, bound_ms),
        high_ms=max(high_ms, kernels_ms + waiting_seconds * 1e3, total_seconds * 1e3, bound_ms),
        factor=basis,
        busy=busy,
        missing=len(profile.unknown) + profile.endless,
        operations=rows(profile.by_operation(), profile.waiting_seconds),
        layers=tuple(layers),
        lines=rows(profile.by_line(find, depth), profile.waiting_seconds),
        exchanges=_by_kind(profile, slice_),
    )


def _by_kind(profile: compiler.Profile, slice_: hardware.Slice) -> tuple[Exchange, ...]:
    """Add up what the devices send each other, by kind, in the order of the program."""
    kinds = collections.defaultdict(list)
    for exchange in profile.exchanges:
        kinds[exchange.kind].append(exchange)

    totals = []
    for kind, exchanges in kinds.items():
        size = 0
        sent_bytes = 0.0
        waits = 0
        for exchange in exchanges:
            size += exchange.bytes
            sent_bytes += exchange.sent
            waits += exchange.waits
        # A torus uses all links of a chip, a ring only two: the truth lies between.
        all_links_seconds, ring_seconds = compiler.link_seconds(slice_, sent_bytes)
        total = Exchange(
            kind=kind,
            bytes=size,
            parts=len(exchanges),
            waits=waits,
            low_ms=1e3 * all_links_seconds,
            high_ms=1e3 * ring_seconds,
            quoted=slice_.chip.ici_quoted,
        )
        totals.append(total)
    return tuple(totals)


def _depth(profile: compiler.Profile) -> int:
    """Go down into the layers until there are enough of them to tell apart."""
    for depth in range(1, _DEEPEST):
        share = sum(group.share for group in profile.by_layer(depth)[:SHOWN])
        if share < _COVERED:
            return depth
    return _DEEPEST


def rows(groups: Iterable[compiler.Share], waiting_seconds: float = 0.0) -> tuple[Row, ...]:
    """Write groups of kernels as rows: the longest, and the others added up.

    What the program waits for is a row of its own, where it waits.
    """
    groups = list(groups)
    step_seconds = sum(group.seconds for group in groups) + waiting_seconds
    table = []
    for group in groups:
        share = group.seconds / step_seconds
        advice = group.help if share >= HELPED else ""
        row = Row(
            name=group.name,
            ms=group.seconds * 1e3,
            share=share,
            bound=group.bound,
            help=advice,
        )
        table.append(row)
    if waiting_seconds:
        waiting = Row(
            name=WAITING,
            ms=waiting_seconds * 1e3,
            share=waiting_seconds / step_seconds,
            bound="",
        )
        table.append(waiting)
        table.sort(key=lambda row: -row.ms)

    # A single row more needs no summary: it takes the same place.
    remaining = table[SHOWN:]
    if len(remaining) > 1:
        summary = Row(
            name=f"{len(remaining)} more",
            ms=sum(row.ms for row in remaining),
            share=sum(row.share for row in remaining),
            bound="",
        )
        table[SHOWN:] = [summary]
    return tuple(table)
