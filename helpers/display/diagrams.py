"""Diagrams of machines and of the course, drawn by code. Knows no TensorFlow."""

import math
from typing import TYPE_CHECKING

from helpers.display.figures import HATCHES, PALETTE, Figure, figure, subplots
from helpers.tpu.hardware import Slice, slice_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Notebooks by what they are about, in the order of the course.
PARTS = (
    ("Understand", ("00", "01", "02")),
    ("Feed", ("03", "06")),
    ("Connect", ("04", "05")),
    ("Train", ("07",)),
    ("Check", ("08",)),
)


def _box(
    ax: "Axes",
    corner: tuple[float, float],
    size: tuple[float, float],
    text: str = "",
    colour: str = "white",
    hatch: str = "",
    at: str = "center",
) -> None:
    from matplotlib.patches import FancyBboxPatch

    (x, y), (width, height) = corner, size
    ax.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=colour,
            edgecolor="#333333",
            hatch=hatch,
            linewidth=1.0,
        )
    )
    height_of_text = y + height / 2 if at == "center" else y + height - 0.08
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 2} if hatch else None
    ax.text(x + width / 2, height_of_text, text, ha="center", va=at, fontsize=9, bbox=behind)


def _arrow(ax: "Axes", start: tuple[float, float], end: tuple[float, float], text: str) -> None:
    ax.annotate("", end, start, arrowprops={"arrowstyle": "<->", "color": "#333333"})
    middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    ax.text(*middle, text, ha="center", va="bottom", fontsize=8, backgroundcolor="white")


def slices(*types: str) -> Figure:
    """Draw what is in TPUs of several types: hosts, chips, and the devices TensorFlow sees.

    Args:
        *types: Accelerator types such as ``v3-8``.

    Returns:
        The picture, one type per line.

    Raises:
        UnknownAccelerator: A type does not exist.
    """
    found = [slice_of(name) for name in types]
    fig, ax = subplots(8.5, 1.25 * len(found))
    widest = 0.0
    for line, tpu in enumerate(found):
        bottom = 1.3 * (len(found) - 1 - line)
        ax.text(-0.15, bottom + 0.5, f"{tpu.name}", ha="right", va="center", fontsize=12)
        per_host = math.ceil(tpu.chips / tpu.hosts)
        columns = math.ceil(per_host / 2) if per_host > 1 else 1
        width = 0.42 * columns + 0.12
        for host in range(tpu.hosts):
            left = host * (width + 0.15)
            _box(ax, (left, bottom), (width, 1.0), colour="#eeeeee")
            for chip in range(min(per_host, tpu.chips - host * per_host)):
                corner = (
                    left + 0.08 + 0.42 * (chip % columns),
                    bottom + 0.54 - 0.46 * (chip // columns),
                )
                _chip(ax, corner, tpu.replicas // tpu.chips)
        right = tpu.hosts * (width + 0.15)
        widest = max(widest, right)
        ax.text(
            right,
            bottom + 0.5,
            "\n".join(_counts(tpu)),
            va="center",
            fontsize=9,
        )
    ax.set(xlim=(-1.0, widest + 1.3), ylim=(-0.1, 1.3 * len(found)))
    ax.set_axis_off()
    said = "; ".join(f"{tpu.name} has {', '.join(_counts(tpu))}" for tpu in found)
    return figure(fig, f"Hosts (grey) hold chips (white), chips hold replicas (blue): {said}.")


def _counts(tpu: Slice) -> list[str]:
    """Say how many hosts, chips and replicas there are."""
    counts = {"host": tpu.hosts, "chip": tpu.chips, "replica": tpu.replicas}
    return [f"{number} {what}{'s' * (number > 1)}" for what, number in counts.items()]


def _chip(ax: "Axes", corner: tuple[float, float], replicas: int) -> None:
    _box(ax, corner, (0.38, 0.4))
    each = 0.32 / replicas
    for replica in range(replicas):
        _box(
            ax,
            (corner[0] + 0.03 + replica * each, corner[1] + 0.05),
            (each - 0.03, 0.3),
            colour=PALETTE[5],
        )


def node_and_vm() -> Figure:
    """Draw where Python, the disk and the chips are, with a TPU Node and with a TPU VM.

    Returns:
        The picture.
    """
    fig, (node, vm) = subplots(9.0, 3.0, ncols=2)
    _box(node, (0, 1.2), (1.5, 1.2), "your machine", "#eeeeee", at="top")
    _box(node, (0.1, 1.72), (1.3, 0.38), "Python, TensorFlow")
    _box(node, (0.1, 1.27), (1.3, 0.38), "your disk", hatch=HATCHES[2])
    _box(node, (2.6, 1.2), (1.5, 1.2), "TPU host", "#eeeeee", at="top")
    _box(node, (2.7, 1.72), (1.3, 0.38), "worker (no Python)")
    _box(node, (2.7, 1.27), (1.3, 0.38), "TPU chips", PALETTE[5])
    _box(node, (1.3, 0), (1.5, 0.5), "gs:// bucket", hatch=HATCHES[1])
    _arrow(node, (1.5, 1.9), (2.6, 1.9), "gRPC")
    _arrow(node, (0.9, 1.2), (1.7, 0.5), "files")
    _arrow(node, (3.2, 1.2), (2.4, 0.5), "files")
    node.set(title="TPU Node: the TPU is another machine", xlim=(-0.1, 4.2), ylim=(-0.1, 2.5))
    _box(vm, (0.9, 1.2), (2.3, 1.2), "your machine", "#eeeeee", at="top")
    _box(vm, (1.0, 1.72), (2.1, 0.38), "Python, TensorFlow")
    _box(vm, (1.0, 1.27), (1.0, 0.38), "its disk", hatch=HATCHES[2])
    _box(vm, (2.1, 1.27), (1.0, 0.38), "TPU chips", PALETTE[5])
    _box(vm, (1.3, 0), (1.5, 0.5), "gs:// bucket", hatch=HATCHES[1])
    _arrow(vm, (2.05, 1.2), (2.05, 0.5), "files, if you like")
    vm.set(title="TPU VM: the TPU is in your machine", xlim=(-0.1, 4.2), ylim=(-0.1, 2.5))
    for ax in (node, vm):
        ax.set_axis_off()
    return figure(
        fig,
        "With a TPU Node, your Python talks over gRPC to a worker on another machine, which sees "
        "its chips and gs:// but not your disk. With a TPU VM, Python, disk and chips are in one "
        "machine.",
    )


def node_traffic() -> Figure:
    """Draw what reaches a worker in another machine, and what it can't reach.

    Returns:
        The picture.
    """
    fig, ax = subplots(7.5, 3.0)
    _box(ax, (0, 1.2), (1.5, 1.2), "your machine", "#eeeeee", at="top")
    _box(ax, (0.1, 1.72), (1.3, 0.38), "your Python")
    _box(ax, (0.1, 1.27), (1.3, 0.38), "your disk", hatch=HATCHES[2])
    _box(ax, (4.0, 1.2), (1.5, 1.2), "the worker", "#eeeeee", at="top")
    _box(ax, (4.1, 1.72), (1.3, 0.38), "its devices", PALETTE[5])
    _box(ax, (4.1, 1.27), (1.3, 0.38), "a disk of its own", hatch=HATCHES[2])
    _box(ax, (2.0, 0), (1.5, 0.5), "gs:// bucket", hatch=HATCHES[1])
    arrives = {"arrowstyle": "-|>", "color": "#333333", "linewidth": 1.6}
    ax.annotate("", (4.0, 2.25), (1.5, 2.25), arrowprops=arrives)
    ax.text(2.75, 2.29, "graphs and arrays: arrive", ha="center", va="bottom", fontsize=8)
    for height, said in ((1.91, "calls: refused"), (1.46, "opens: not there")):
        refused = arrives | {"linestyle": ":"}
        ax.annotate("", (1.4, height), (4.0, height), arrowprops=refused)
        ax.text(2.75, height + 0.04, said, ha="center", va="bottom", fontsize=8)
    _arrow(ax, (0.9, 1.2), (2.3, 0.5), "files")
    _arrow(ax, (4.6, 1.2), (3.2, 0.5), "files")
    ax.set(xlim=(-0.1, 5.6), ylim=(-0.1, 2.5))
    ax.set_axis_off()
    return figure(
        fig,
        "Graphs and arrays reach the worker; your files and your Python don't. Both machines reach "
        "gs://.",
    )


def course_map(questions: dict[str, str]) -> Figure:
    """Draw the notebooks of the course by what they are about.

    Args:
        questions: Each notebook's question by its number, such as ``"01"``.

    Returns:
        The picture.
    """
    fig, ax = subplots(8.5, 3.6)
    lines = []
    for part, numbers in PARTS:
        for number in (n for n in numbers if n in questions):
            lines.append((part, number, questions[number]))
            part = ""
    for line, (part, number, question) in enumerate(lines):
        bottom = len(lines) - 1 - line
        ax.text(0, bottom + 0.4, part, va="center", fontweight="bold")
        _box(ax, (1.2, bottom + 0.08), (0.6, 0.7), number, PALETTE[5])
        ax.text(2.0, bottom + 0.42, question, va="center")
    ax.set(xlim=(0, 8), ylim=(0, len(lines)))
    ax.set_axis_off()
    said = " ".join(f"{number}: {question}" for _, number, question in lines)
    return figure(fig, f"The course in five parts. {said}")
