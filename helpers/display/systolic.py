"""A matrix unit, tick by tick: a grid of cells that multiply, add and pass on. Knows no TensorFlow.

Source: Jouppi et al., "In-Datacenter Performance Analysis of a Tensor Processing Unit"
(https://arxiv.org/abs/1704.04760), section 2. The weights stay in the cells ("weight stationary").
A real matrix unit has 128 x 128 cells (256 x 256 on v6e) and loads the next weights meanwhile;
this model has any size and loads them before it starts.
"""

from dataclasses import dataclass

import numpy as np

from helpers.base.errors import CourseError
from helpers.display.figures import PALETTE, Figure, figure, subplots


@dataclass(frozen=True)
class Run:
    """What a matrix unit did.

    Attributes:
        product: Whole numbers or floats, [rows, columns]: what left the cells at the bottom.
        busy: bool, [ticks, depth, columns]: whether the cell multiplied in that tick.
        passing: [ticks, depth, columns]: the value of ``x`` in the cell; 0 where it is not busy.
        sums: [ticks, depth, columns]: the sum that the cell passes down.
        weights: [depth, columns]: what stays in the cells.
    """

    product: np.ndarray
    busy: np.ndarray
    passing: np.ndarray
    sums: np.ndarray
    weights: np.ndarray

    @property
    def ticks(self) -> int:
        """Number of ticks until the last result leaves."""
        return len(self.busy)

    @property
    def multiplications(self) -> int:
        """Total number of multiplications."""
        return int(self.busy.sum())

    @property
    def reads(self) -> int:
        """Number of values read from memory: each value of both arrays, once."""
        return len(self.product) * len(self.weights) + self.weights.size

    @property
    def utilisation(self) -> float:
        """Share of the cells that multiply, averaged over the ticks."""
        return float(self.busy.mean())

    def __repr__(self) -> str:
        depth, columns = self.weights.shape
        return (
            f"{depth} x {columns} cells, {self.ticks} ticks: {self.multiplications:,} "
            f"multiplications, {self.reads:,} values read, {self.utilisation:.0%} of the cells busy"
        )


def multiply(x: np.ndarray, weights: np.ndarray) -> Run:
    """Multiply two matrices, ``x @ weights``, on a matrix unit as large as the weights.

    In each tick every cell takes the value of ``x`` from its left neighbour and the sum from its
    upper neighbour, adds value times weight, and passes both on: the value to the right, the sum
    downwards. Row k of the cells starts k ticks late, so that values and sums meet.

    Args:
        x: [rows, depth].
        weights: [depth, columns].

    Raises:
        CourseError: One of them is not a matrix or is empty, or the depths differ.
    """
    x, weights = np.asarray(x), np.asarray(weights)
    matrices = x.ndim == weights.ndim == 2 and x.size and weights.size
    if not matrices or x.shape[1] != len(weights):
        raise CourseError(
            f"Arrays of shape {x.shape} and {weights.shape} have no product.",
            "It takes two matrices; rows of the first are as long as columns of the second.",
            "Give it [rows, depth] and [depth, columns].",
        )
    (rows, depth), columns = x.shape, weights.shape[1]
    ticks = rows + depth + columns - 2
    product = np.zeros((rows, columns), np.result_type(x, weights))
    value = np.zeros((depth, columns), product.dtype)
    valid = np.zeros((depth, columns), bool)
    total = np.zeros((depth, columns), product.dtype)
    busy, passing, sums = [], [], []
    for tick in range(ticks):
        row = tick - np.arange(depth)  # of x, that enters each row of cells now
        enters = (row >= 0) & (row < rows)
        first = np.where(enters, x[np.clip(row, 0, rows - 1), np.arange(depth)], 0)
        value = np.column_stack([first, value[:, :-1]])
        valid = np.column_stack([enters, valid[:, :-1]])
        total = np.vstack([np.zeros_like(total[:1]), total[:-1]]) + value * weights
        done = tick - (depth - 1) - np.arange(columns)  # row of the product that leaves below
        leaves = np.flatnonzero((done >= 0) & (done < rows))
        product[done[leaves], leaves] = total[-1, leaves]
        busy.append(valid)
        passing.append(value)
        sums.append(total)
    return Run(product, np.array(busy), np.array(passing), np.array(sums), weights)


def draw(run: Run, tick: int) -> Figure:
    """Draw the cells in one tick, from 1 on: what comes in on the arrows, what each makes of it.

    Raises:
        CourseError: The run has no such tick.
    """
    if not 1 <= tick <= run.ticks:
        raise CourseError(
            f"There is no tick {tick}.",
            f"This run has {run.ticks}, from 1 on.",
            f"Choose one from 1 to {run.ticks}.",
        )
    import matplotlib.patches

    depth, columns = run.weights.shape
    busy, values, sums = run.busy[tick - 1], run.passing[tick - 1], run.sums[tick - 1]
    from_above = np.zeros_like(sums)
    if tick > 1:
        from_above[1:] = run.sums[tick - 2, :-1]
    fig, ax = subplots(1.5 * columns + 1, 1.2 * depth + 1)
    ax.set_axis_off()
    ax.set(
        xlim=(-0.7, columns - 0.3), ylim=(depth - 0.2, -0.8), title=f"tick {tick} of {run.ticks}"
    )
    for (k, n), weight in np.ndenumerate(run.weights):
        ink = PALETTE[0] if busy[k, n] else "#767676"
        looks = {"facecolor": "#d3e9f8"} if busy[k, n] else {"facecolor": "none", "linestyle": "--"}
        ax.add_patch(
            matplotlib.patches.Rectangle((n - 0.33, k - 0.33), 0.66, 0.66, edgecolor=ink, **looks)
        )
        arrows = [((n - 0.62, k), (n - 0.35, k)), ((n, k - 0.65), (n, k - 0.35))]
        arrows += [((n, k + 0.35), (n, k + 0.65))] * (k == depth - 1)
        for start, end in arrows:
            ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": ink})
        ax.text(n, k - 0.22, f"weight {weight}", size=8, ha="center", va="center")
        if busy[k, n]:
            above, value = from_above[k, n], values[k, n]
            ax.text(n - 0.48, k - 0.06, value, ha="center", va="bottom")
            ax.text(n + 0.06, k - 0.5, above, va="center")
            ax.text(n, k + 0.02, f"{above} + {value}×{weight}", ha="center", va="center")
            ax.text(n, k + 0.22, f"= {sums[k, n]}", ha="center", va="center", weight="bold")
            if k == depth - 1:
                ax.text(n + 0.06, k + 0.5, sums[k, n], va="center", weight="bold")
    done = np.clip(tick - (depth - 1) - np.arange(columns), 0, len(run.product))
    return figure(
        fig,
        f"Tick {tick} of {run.ticks}: {busy.sum()} of {busy.size} cells multiply (plain), the "
        f"others wait (dashed); {done.sum()} of {run.product.size} results have left at the "
        "bottom.",
    )
