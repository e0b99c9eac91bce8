"""A matrix unit, tick by tick: a grid of cells that multiply, add and pass on. Knows no TensorFlow.

Source: Jouppi et al., "In-Datacenter Performance Analysis of a Tensor Processing Unit"
(https://arxiv.org/abs/1704.04760), section 2. The weights stay in the cells ("weight stationary").
A real matrix unit has 128 x 128 cells (256 x 256 on v6e) and loads the next weights meanwhile;
this model has any size and loads them before it starts.
"""

from dataclasses import dataclass

import numpy as np

from helpers.base import html
from helpers.base.errors import CourseError
from helpers.display.figures import Drawing


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
    why = ""
    if x.ndim != 2 or weights.ndim != 2 or not x.size or not weights.size:
        why = "A matrix unit takes two matrices with at least one row and one column each."
    elif x.shape[1] != len(weights):
        why = f"Rows of {x.shape[1]} values meet columns of {len(weights)}."
    if why:
        shapes = f"Arrays of shape {x.shape} and {weights.shape} have no product."
        raise CourseError(shapes, why, "Give it [rows, depth] and [depth, columns].")
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


def _cells(run: Run, tick: int) -> list[dict]:
    """Say what each cell is given, does and gives in one tick, from 1 on, row by row."""
    busy, values, sums = run.busy[tick - 1], run.passing[tick - 1], run.sums[tick - 1]
    above = run.sums[tick - 2] if tick > 1 else np.zeros_like(sums)
    depth, columns = busy.shape
    return [
        {
            "row": k,
            "column": n,
            "busy": busy[k, n],
            "value": values[k, n],
            "above": above[k - 1, n] if k else 0,
            "sum": sums[k, n],
            "last": k == depth - 1,
        }
        for k in range(depth)
        for n in range(columns)
    ]


def _svg(run: Run, ticks: list[int], still: int, alt: str) -> Drawing:
    """Draw some ticks, one after another; where nothing may move, the one that stands still."""
    depth, columns = run.weights.shape
    text = html.render(
        "systolic.svg",
        frames=[(tick, _cells(run, tick)) for tick in ticks],
        weights=run.weights.tolist(),
        columns=columns,
        depth=depth,
        still=still,
        of=run.ticks,
        alt=alt,
    )
    return Drawing(text, alt, 150 * columns + 90)


def draw(run: Run, tick: int) -> Drawing:
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
    busy = run.busy[tick - 1]
    done = tick - (len(busy) - 1) - np.arange(busy.shape[1])
    finished = int(np.clip(done, 0, len(run.product)).sum())
    alt = (
        f"Tick {tick} of {run.ticks}: {int(busy.sum())} of {busy.size} cells multiply (plain), the "
        f"others wait (dashed); {finished} of {run.product.size} results have left at the bottom."
    )
    return _svg(run, [tick], tick, alt)


def wave(run: Run, still: int) -> Drawing:
    """Draw all ticks as an animation, without a script.

    After three rounds it stands still in the tick ``still``; printed, or for a reader who wants no
    motion, from the beginning (in an ``img`` Chromium 156 doesn't hand on either wish, 2026-11).
    """
    depth, columns = run.weights.shape
    alt = (
        f"A grid of {depth} by {columns} cells multiplies two matrices in {run.ticks} ticks. "
        "Values come in from the left and move right, sums move down, and each cell adds its "
        "value times its weight. The work runs through the grid as a wave, from the upper left "
        "to the lower right."
    )
    return _svg(run, list(range(1, run.ticks + 1)), still, alt)
