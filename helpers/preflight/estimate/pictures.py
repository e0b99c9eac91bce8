"""Pictures of a step: its operations under the chip's roofs, and where its time goes."""

from collections.abc import Sequence

from helpers.display.figures import HATCHES, MARKERS, PALETTE, Figure, figure, subplots
from helpers.preflight.estimate.step import Row, Timing
from helpers.tpu import hardware
from helpers.xla.tpu_compiler import per_device

_BOUNDS = ("compute", "HBM", "vector", "")


def roofline_plot(timing: Timing) -> Figure:
    """Draw each kind of operation as a point: operations for each byte of HBM, and a second.

    No point can lie above the roofs: the matrix units' peak, and the memory's bandwidth times the
    operations for each byte (Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785).
    Where gradients are added up, a third roof is what the whole step could compute in the least
    time that they need. Only matrix products and convolutions are counted, so what has none is no
    point here; `bars` shows it.
    """
    peak, bandwidth = per_device(hardware.slice_of(timing.target, jax=True).chip)
    points = [r for r in timing.operations if r.flops and r.bytes and r.ms and r.bound]
    fig, ax = subplots(7.0, 3.8)
    reached = [(r.flops / r.bytes, r.flops / r.ms * 1e3) for r in points]
    edge = peak / bandwidth
    low = min([x for x, _ in reached] + [edge / 30]) / 2
    high = max([x for x, _ in reached] + [edge * 10]) * 2
    ax.loglog([low, edge], [low * bandwidth, peak], color="black", label="memory", marker="")
    ax.loglog([edge, high], [peak, peak], color="black", ls="--", label="compute", marker="")
    flops = sum(r.flops for r in timing.operations)
    if timing.all_reduce and flops:
        roof = flops / timing.all_reduce.low_ms * 1e3
        ax.axhline(roof, color="black", ls=":", label="interconnect", marker="")
    for at, (row, (x, y)) in enumerate(zip(points, reached, strict=True)):
        style = {"color": PALETTE[at % len(PALETTE)], "marker": MARKERS[at % len(MARKERS)]}
        label = f"{row.name[-28:]} ({row.share:.0%})"
        ax.loglog([x], [y], ls="", ms=4 + 8 * row.share**0.5, label=label, **style)
    ax.set_xlabel("operations for each byte of HBM")
    ax.set_ylabel("operations a second")
    ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure(fig, _told(timing, points, peak, bandwidth))


def _told(timing: Timing, points: Sequence[Row], peak: float, bandwidth: float) -> str:
    text = f"{timing.target}: the matrix units reach at most {peak / 1e12:.0f} TFLOP/s, from "
    text += f"{peak / bandwidth:.0f} operations for each byte of memory on."
    if not points:
        return f"{text} This step has no products of matrices, so there is no point."
    first = points[0]
    text += f" {first.name}, {first.share:.0%} of the step, reaches "
    text += f"{first.flops / first.ms / 1e9:.3g} TFLOP/s at {first.flops / first.bytes:.3g}."
    return text


def bars(timing: Timing, title: str = "layers") -> Figure:
    """Draw the ``operations``, ``layers`` or ``lines`` of a step as bars, the longest first.

    The hatch says what they wait for.
    """
    rows: tuple[Row, ...] = getattr(timing, title)
    fig, ax = subplots(7.0, 0.9 + 0.28 * len(rows))
    for at, bound in enumerate(_BOUNDS):
        chosen = [i for i, row in enumerate(rows) if row.bound == bound]
        if chosen:
            style = {"color": PALETTE[at], "hatch": HATCHES[at], "edgecolor": "black"}
            widths = [rows[i].ms for i in chosen]
            ax.barh(chosen, widths, label=bound or "several", **style)
    ax.set_yticks(range(len(rows)), [row.name.strip()[-44:] for row in rows])
    ax.invert_yaxis()
    ax.set_xlabel("estimated milliseconds of a step")
    ax.legend(title="bound by", fontsize=8)
    first = rows[0]
    alt = f"{timing.target}: of {timing.ms:.3g} ms by the estimate, {first.ms:.3g} are "
    return figure(fig, f"{alt}{first.name} ({first.share:.0%}), the longest of the {title}.")
