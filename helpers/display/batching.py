"""Diagrams of how batches become programs, and of who attends to whom. Knows no TensorFlow."""

from collections.abc import Mapping, Sequence

import numpy as np

from helpers.base.errors import CourseError
from helpers.display.diagrams import box, without_axes
from helpers.display.figures import HATCHES, PALETTE, Figure, figure, subplots

_TO = {"arrowstyle": "-|>", "color": "#333333", "linewidth": 1.4}


def three_clocks() -> Figure:
    """Draw what four calls of a compiled function do: trace, compile, run."""
    fig, ax = subplots(8.5, 2.6)
    calls = ("[8, 4], new", "[8, 4], seen", "[16, 4], new", "[8, 4], seen")
    steps = (
        ("trace", "Python, without numbers", HATCHES[1]),
        ("compile", "XLA, graph to program", HATCHES[2]),
        ("run", "the program", ""),
    )
    for line, call in enumerate(calls):
        bottom = 0.6 * (len(calls) - 1 - line)
        ax.text(-0.1, bottom + 0.22, f"call {line + 1}: {call}", ha="right", va="center")
        for column, (name, _, hatch) in enumerate(steps):
            if name == "run" or call.endswith("new"):
                colour = PALETTE[5] if name == "run" else "white"
                box(ax, (2 * column, bottom), (1.8, 0.44), name, colour, hatch)
    for column, (_, who, _) in enumerate(steps):
        ax.text(2 * column + 0.9, 2.45, who, ha="center", va="center")
    without_axes(ax, (-2.1, 6), (-0.1, 2.6))
    return figure(
        fig,
        "A call with a new shape traces, compiles and runs. A call with a shape seen before only "
        "runs: Python's lines and the compiler are not asked again.",
    )


def path_of_a_batch() -> Figure:
    """Draw the way of texts into a batch, and of the batch's shape to a program."""
    fig, ax = subplots(8.5, 2.5)
    lengths, width = (7, 3, 8, 5), 8
    for row, length in enumerate(lengths):
        bottom = 1.5 - 0.4 * row
        box(ax, (0, bottom), (0.2 * length, 0.3), f"{length}", PALETTE[5])
        box(ax, (2.7, bottom), (0.2 * width, 0.3), hatch=HATCHES[1])
        box(ax, (2.7, bottom), (0.2 * length, 0.3), colour=PALETTE[5])
    ax.text(0.8, 2.05, "texts, in tokens", ha="center")
    ax.text(3.5, 2.05, "a batch: 4 × 8 positions", ha="center")
    box(ax, (5.5, 0.75), (1.6, 0.7), "is there a program\nfor 4 × 8?")
    box(ax, (8.2, 1.45), (1.5, 0.5), "run: every step", PALETTE[5])
    box(ax, (8.2, 0.25), (1.5, 0.5), "compile: once", hatch=HATCHES[2])
    arrows = {
        "pad": ((1.75, 1.1), (2.6, 1.1)),
        "shape": ((4.4, 1.1), (5.4, 1.1)),
        "yes": ((7.15, 1.25), (8.15, 1.65)),
        "no": ((7.15, 0.95), (8.15, 0.55)),
        "": ((8.95, 0.8), (8.95, 1.4)),
    }
    for said, (start, end) in arrows.items():
        ax.annotate("", end, start, arrowprops=_TO)
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        ax.text(x, y + 0.12, said, ha="center", va="bottom", fontsize=9)
    without_axes(ax, (-0.1, 9.8), (0.1, 2.3))
    real, all_of_them = sum(lengths), len(lengths) * width
    return figure(
        fig,
        f"Four texts become a batch of 4 × 8. {real} of its {all_of_them} positions hold tokens, "
        "the hatched ones are padding and are computed at every step. A shape without a program is "
        "compiled, once.",
    )


def masks(rows: Mapping[str, Sequence[int]]) -> Figure:
    """Draw which positions of a row attend to which: to those with the same segment number.

    ``rows`` maps a name to the segment of each position; 0 is padding.

    Raises:
        CourseError: There is no row, or one without positions.
    """
    if not rows or not all(len(segments) for segments in rows.values()):
        raise CourseError(
            "There is nothing to draw.",
            "A mask needs a row, and a row needs positions.",
            'Give a name and its segments: masks({"packed": [1, 1, 2]}).',
        )
    fig, axes = subplots(2.9 * len(rows), 3.3, ncols=len(rows), squeeze=False)
    said = []
    for ax, (name, segments) in zip(axes[0], rows.items(), strict=True):
        numbers = np.asarray(segments)
        same = numbers[:, None] == numbers[None, :]
        seen = same & (numbers > 0)
        ax.imshow(np.where(seen, 1.0, 0.0), cmap="Blues", vmin=0, vmax=2.5)
        for (query, key), attends in np.ndenumerate(same):
            if attends:
                ax.text(key, query, f"{numbers[key]}", ha="center", va="center", fontsize=7)
        ax.set(xlabel="to position", ylabel="position", xticks=[], yticks=[])
        ax.set_title(name, fontsize=10)
        said.append(f"{name}: {np.count_nonzero(seen)} of {seen.size}")
    return figure(
        fig,
        "A position attends to the positions with its number; 0 is padding. Pairs of real tokens "
        f"that meet: {'; '.join(said)}.",
    )
