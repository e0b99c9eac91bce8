"""Diagrams of machines and of the course, drawn by code. Knows no TensorFlow."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from helpers.display.figures import HATCHES, PALETTE, Figure, figure, subplots
from tpu_preflight.chips.hardware import Slice, slice_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Notebooks by what they are about, in the order of the course.
PARTS = (
    ("Understand", ("00", "01", "02")),
    ("Feed", ("03", "06")),
    ("Connect", ("04", "05")),
    ("Train", ("07", "10")),
    ("Check", ("08", "09")),
    ("Go on", ("11",)),
)


def box(
    ax: "Axes",
    corner: tuple[float, float],
    size: tuple[float, float],
    text: str = "",
    colour: str = "white",
    hatch: str = "",
    at: str = "center",
) -> None:
    """Draw a rounded box with its text in the middle, or at its top."""
    from matplotlib.patches import FancyBboxPatch

    (x, y), (width, height) = corner, size
    looks = {"facecolor": colour, "edgecolor": "#333333", "hatch": hatch, "linewidth": 1.0}
    rounded = "round,pad=0,rounding_size=0.06"
    ax.add_patch(FancyBboxPatch(corner, width, height, boxstyle=rounded, **looks))
    height_of_text = y + height / 2 if at == "center" else y + height - 0.08
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 2} if hatch else None
    ax.text(x + width / 2, height_of_text, text, ha="center", va=at, fontsize=9, bbox=behind)


def without_axes(ax: "Axes", x: tuple[float, float], y: tuple[float, float], **frame: str) -> None:
    """Show a diagram from ``x`` to ``y`` of its own coordinates, without lines or numbers there."""
    ax.set(xlim=x, ylim=y, **frame)
    ax.set_axis_off()


def arrow(ax: "Axes", start: tuple[float, float], end: tuple[float, float], text: str) -> None:
    """Draw an arrow with two heads, and its text above its middle."""
    ax.annotate("", end, start, arrowprops={"arrowstyle": "<->", "color": "#333333"})
    middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    ax.text(*middle, text, ha="center", va="bottom", fontsize=8, backgroundcolor="white")


def slices(*types: str) -> Figure:
    """Draw what is in TPUs such as ``v3-8``: hosts, chips, and the devices TensorFlow sees.

    Raises:
        UnknownAccelerator: A type does not exist.
    """
    found = [slice_of(name) for name in types]
    fig, ax = subplots(8.5, 1.25 * len(found))
    widest = 0.0
    for line, tpu in enumerate(found):
        bottom = 1.3 * (len(found) - 1 - line)
        ax.text(-0.15, bottom + 0.5, f"{tpu.name}", ha="right", va="center", fontsize=12)
        per_host = tpu.chips // tpu.hosts
        columns = math.ceil(per_host / 2)
        width = 0.42 * columns + 0.12
        for host in range(tpu.hosts):
            left = host * (width + 0.15)
            box(ax, (left, bottom), (width, 1.0), colour="#eeeeee")
            for chip in range(per_host):
                row, column = divmod(chip, columns)
                _chip(ax, left + 0.08 + 0.42 * column, bottom + 0.54 - 0.46 * row, tpu)
        right = tpu.hosts * (width + 0.15)
        widest = max(widest, right)
        ax.text(right, bottom + 0.5, "\n".join(_counts(tpu)), va="center", fontsize=9)
    without_axes(ax, (-1.0, widest + 1.3), (-0.1, 1.3 * len(found)))
    said = "; ".join(f"{tpu.name} has {', '.join(_counts(tpu))}" for tpu in found)
    return figure(fig, f"Hosts (grey) hold chips (white), chips hold replicas (blue): {said}.")


def _counts(tpu: Slice) -> list[str]:
    """Count hosts, chips and replicas, in words."""
    counts = {"host": tpu.hosts, "chip": tpu.chips, "replica": tpu.replicas}
    return [f"{number} {what}{'s' * (number > 1)}" for what, number in counts.items()]


def _chip(ax: "Axes", left: float, bottom: float, tpu: Slice) -> None:
    box(ax, (left, bottom), (0.38, 0.4))
    each = 0.32 / tpu.chip.replicas
    for replica in range(tpu.chip.replicas):
        inner = (left + 0.03 + replica * each, bottom + 0.05)
        box(ax, inner, (each - 0.03, 0.3), colour=PALETTE[5])


_LOOKS = {"software": {}, "disk": {"hatch": HATCHES[2]}, "devices": {"colour": PALETTE[5]}}


def _machine(
    ax: "Axes", left: float, name: str, *rows: Mapping[str, str], width: float = 1.5
) -> None:
    """Draw a machine with its parts in two rows, the parts of a row side by side."""
    box(ax, (left, 1.2), (width, 1.2), name, "#eeeeee", at="top")
    for bottom, row in zip((1.72, 1.27), rows, strict=True):
        each = (width - 0.1) / len(row)
        for column, (kind, text) in enumerate(row.items()):
            corner = (left + 0.1 + column * each, bottom)
            box(ax, corner, (each - 0.1, 0.38), text, **_LOOKS[kind])


def _bucket(ax: "Axes", left: float, right: float, **frame: str) -> None:
    """Draw the bucket below the machines, and end the picture."""
    box(ax, (left, 0), (1.5, 0.5), "gs:// bucket", hatch=HATCHES[1])
    without_axes(ax, (-0.1, right), (-0.1, 2.5), **frame)


def node_and_vm() -> Figure:
    """Draw where Python, the disk and the chips are, with a TPU Node and with a TPU VM."""
    fig, (node, vm) = subplots(9.0, 3.0, ncols=2)
    python, chips = {"software": "Python, TensorFlow"}, {"devices": "TPU chips"}
    _machine(node, 0, "your machine", python, {"disk": "your disk"})
    _machine(node, 2.6, "TPU host", {"software": "worker (no Python)"}, chips)
    _bucket(node, 1.3, 4.2, title="TPU Node: the TPU is another machine")
    arrow(node, (1.5, 1.9), (2.6, 1.9), "gRPC")
    arrow(node, (0.9, 1.2), (1.7, 0.5), "files")
    arrow(node, (3.2, 1.2), (2.4, 0.5), "files")
    _machine(vm, 0.9, "your machine", python, {"disk": "its disk"} | chips, width=2.3)
    _bucket(vm, 1.3, 4.2, title="TPU VM: the TPU is in your machine")
    arrow(vm, (2.05, 1.2), (2.05, 0.5), "files, if you like")
    return figure(
        fig,
        "With a TPU Node, your Python talks over gRPC to a worker on another machine, which sees "
        "its chips and gs:// but not your disk. With a TPU VM, Python, disk and chips are in one "
        "machine.",
    )


def host_and_device() -> Figure:
    """Draw what runs in your machine, on a TPU's host and on its devices, and what can't pass."""
    fig, ax = subplots(8.5, 3.0)
    _machine(ax, 0, "your machine", {"software": "your Python"}, {"disk": "your disk"})
    box(ax, (3.9, 1.2), (3.6, 1.2), "the TPU's machine", "#eeeeee", at="top")
    box(ax, (4.0, 1.72), (1.6, 0.38), "host: input pipeline")
    box(ax, (4.0, 1.27), (1.6, 0.38), "the host's disk", hatch=HATCHES[2])
    box(ax, (6.1, 1.27), (1.3, 0.83), "devices:\nweights,\nthe step", PALETTE[5])
    _bucket(ax, 2.1, 7.6)
    arrives = {"arrowstyle": "-|>", "color": "#333333", "linewidth": 1.6}
    refused = arrives | {"linestyle": ":"}
    for start, end, height, said, looks in (
        (1.5, 3.9, 2.25, "graphs and arrays: arrive", arrives),
        (3.9, 1.4, 1.91, "calls: refused", refused),
        (3.9, 1.4, 1.46, "opens: not there", refused),
        (5.6, 6.1, 1.91, "batches", arrives),
    ):
        ax.annotate("", (end, height), (start, height), arrowprops=looks)
        ax.text((start + end) / 2, height + 0.04, said, ha="center", va="bottom", fontsize=8)
    arrow(ax, (0.9, 1.2), (2.4, 0.5), "files")
    arrow(ax, (4.7, 1.2), (3.3, 0.5), "files")
    return figure(
        fig,
        "Graphs and arrays reach the TPU's machine; your files and your Python don't. Its host "
        "runs the input pipeline and hands batches to the devices, which hold the weights and run "
        "the step. Both machines reach gs://.",
    )


def bounded_shape(values: Sequence[float]) -> Figure:
    """Draw what picking the positive ``values`` takes: eagerly, as a bounded shape, and masked."""
    kept = [f"{value:g}" for value in values if value > 0]
    size = len(values)
    reserved = [*kept, *[""] * (size - len(kept))]
    masked = [f"{max(value, 0):g}" for value in values]
    rows = (
        ("x", [f"{value:g}" for value in values], f"f32[{size}]"),
        ("x[x > 0], eager", kept, f"f32[{len(kept)}], counted"),
        ("x[x > 0], XLA", reserved, f"f32[<={size}], and beside it: {len(kept)} used"),
        ("x with a mask", masked, f"f32[{size}], 0 does not count"),
    )
    fig, ax = subplots(7.0, 2.2)
    for bottom, (name, boxes, said) in enumerate(reversed(rows)):
        ax.text(-0.2, bottom + 0.4, name, ha="right", va="center")
        for left, text in enumerate(boxes):
            looks = {"colour": PALETTE[5]} if text else {"hatch": HATCHES[1]}
            box(ax, (left, bottom + 0.05), (0.92, 0.7), text, **looks)
        ax.text(size + 0.15, bottom + 0.4, said, va="center")
    without_axes(ax, (-2.2, size + 4.5), (0, len(rows)))
    return figure(
        fig,
        f"Eager TensorFlow counts {len(kept)} positive numbers and makes room for them. XLA "
        f"reserves room for {size} (the hatched part stays unused) and keeps the true length "
        f"beside it. With a mask the size is {size}, known beforehand.",
    )


def course_map(questions: dict[str, str]) -> Figure:
    """Draw the notebooks by what they are about; each question by its number (``"01"``)."""
    fig, ax = subplots(8.5, 4.4)
    lines = []
    for part, numbers in PARTS:
        for number in (n for n in numbers if n in questions):
            lines.append((part, number, questions[number]))
            part = ""
    for bottom, (part, number, question) in enumerate(reversed(lines)):
        ax.text(0, bottom + 0.4, part, va="center", fontweight="bold")
        box(ax, (1.2, bottom + 0.08), (0.6, 0.7), number, PALETTE[5])
        ax.text(2.0, bottom + 0.42, question, va="center")
    without_axes(ax, (0, 8), (0, len(lines)))
    said = " ".join(f"{number}: {question}" for _, number, question in lines)
    return figure(fig, f"The course in six parts. {said}")
