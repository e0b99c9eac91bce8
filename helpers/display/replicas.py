"""Diagrams of replicas: the scope, an all-reduce, runs that are stopped. Knows no TensorFlow."""

from helpers.display.diagrams import box, without_axes
from helpers.display.figures import HATCHES, PALETTE, Figure, figure, subplots

_ARROW = {"arrowstyle": "-|>", "color": "#333333"}


def scope() -> Figure:
    """Draw a variable made in the scope and one made outside, and how a batch is shared out."""
    fig, ax = subplots(8.5, 3.2)
    box(ax, (0, 2.6), (8, 0.4), "global batch: 32 rows")
    box(ax, (-0.15, 0.15), (8.2, 1.4), "", "#eeeeee")
    for replica in range(8):
        middle = replica + 0.5
        ax.annotate("", (middle, 2.2), (middle, 2.6), arrowprops=_ARROW)
        box(ax, (replica + 0.05, 1.8), (0.85, 0.4), "4 rows")
        box(ax, (replica + 0.05, 0.75), (0.85, 0.65), "weight", PALETTE[5], HATCHES[2])
        ax.text(middle - 0.03, 0.55, f"replica {replica}", ha="center", va="center", fontsize=8)
    ax.text(3.95, 0.3, "made in the scope: a copy on every replica", ha="center", va="center")
    box(ax, (8.6, 0.75), (0.85, 0.65), "weight", PALETTE[5], HATCHES[2])
    ax.text(9.02, 0.3, "made outside:\none variable", ha="center", va="center")
    without_axes(ax, (-0.2, 9.9), (0, 3.05))
    return figure(
        fig,
        "Eight replicas share a global batch of 32 rows, four each. A weight made in the scope has "
        "a copy on every replica; one made outside is a single variable on one device.",
    )


def all_reduce() -> Figure:
    """Draw how two replicas get the mean over all labels of a batch."""
    fig, ax = subplots(8.5, 2.4)
    for replica, (labels, total) in enumerate(((20, 20), (2, 8))):
        bottom = 1.1 * (1 - replica)
        said = f"replica {replica}\nsum of losses {total}\nlabels {labels}"
        box(ax, (0, bottom), (2.2, 0.95), said, PALETTE[5])
        box(ax, (6.8, bottom), (2.2, 0.95), f"replica {replica}\n28 / 22 = 1.27", PALETTE[5])
        ax.annotate("", (3.2, 1.02), (2.2, bottom + 0.47), arrowprops=_ARROW)
        ax.annotate("", (6.8, bottom + 0.47), (5.8, 1.02), arrowprops=_ARROW)
    box(ax, (3.2, 0.55), (2.6, 0.95), "all-reduce: add up\nlosses 20 + 8 = 28\nlabels 20 + 2 = 22")
    without_axes(ax, (-0.1, 9.1), (-0.05, 2.15))
    return figure(
        fig,
        "One replica brings 20 labels with losses that add up to 20, the other 2 labels with "
        "losses that add up to 8. The all-reduce gives both the same two sums, 28 and 22, so both "
        "divide by the number of all labels: 1.27.",
    )


def preemption() -> Figure:
    """Draw a run of 100 steps that is stopped twice, once with a warning and once without."""
    fig, ax = subplots(8.5, 2.4)
    runs = (
        (0, 30, "SIGTERM at 30: saved"),
        (30, 70, "SIGKILL at 70: not saved"),
        (60, 100, "to the end"),
    )
    for line, (start, end, said) in enumerate(runs):
        ax.barh(-line, end - start, left=start, height=0.5, color=PALETTE[5], edgecolor="#333333")
        left = end > 80
        ax.text(
            start - 2 if left else end + 2, -line, said, va="center", ha="right" if left else "left"
        )
    for line in (1, 2):
        looks = {"color": "white", "edgecolor": "#333333", "hatch": HATCHES[1]}
        ax.barh(-line, 10, left=60, height=0.5, **looks)
    saved = ((20, 0), (30, 0), (40, -1), (60, -1), (80, -2), (100, -2))
    ax.plot(*zip(*saved, strict=True), "o", color=PALETTE[6], label="checkpoint")
    ax.set(xlabel="step", ylim=(-2.5, 0.5), yticks=(0, -1, -2), xlim=(-1, 106))
    ax.set_yticklabels([f"start {number}" for number in (1, 2, 3)])
    ax.legend(loc="lower left", frameon=False)
    return figure(
        fig,
        "A run of 100 steps that saves at every 20th. A warning at step 30 lets it save there, and "
        "the next start goes on at 30. Killed at step 70 without a warning, it goes on at its last "
        "checkpoint, 60: ten steps (hatched) are run twice.",
    )


def resuming(stopped: int, steps: int) -> Figure:
    """Draw a run that is stopped after a step and resumed, below one that is not stopped."""
    fig, ax = subplots(8.5, 2.5)
    calls = (
        (2.1, 0.0, 8.0, "a run that is not stopped"),
        (0.7, 0.0, 2.0, "the call"),
        (0.7, 4.9, 8.0, "the same call again"),
    )
    for height, start, end, said in calls:
        ax.annotate("", (end, height), (start, height), arrowprops=_ARROW)
        ax.text((start + end) / 2, height + 0.08, said, ha="center", va="bottom", fontsize=9)
    box(ax, (2.1, 0.3), (2.6, 0.8), "checkpoint\nweights, optimizer's state", hatch=HATCHES[2])
    ax.text(3.4, 1.18, f"SIGTERM: saved after step {stopped}", ha="center", va="bottom", fontsize=9)
    ax.text(3.4, 0.0, "order and masks: from seed and step", ha="center", fontsize=9)
    ax.annotate("", (7.2, 2.05), (7.2, 1.1), arrowprops=_ARROW | {"arrowstyle": "<->"})
    ax.text(7.1, 1.55, "the same losses?", ha="right", va="center", fontsize=9)
    for height in (0.7, 2.1):
        ax.text(8.1, height, f"step {steps}", va="center", fontsize=9)
    without_axes(ax, (-0.1, 9.0), (-0.1, 2.5))
    return figure(
        fig,
        f"A run is stopped after step {stopped}. Its checkpoint holds the weights and the "
        "optimizer's state; order and masks are computed from seed and step. The same call goes on "
        f"to step {steps}. Does it get the losses of a run that is not stopped?",
    )
