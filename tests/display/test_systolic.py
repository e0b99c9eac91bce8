"""The matrix unit against NumPy, and against counts made by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.base.errors import CourseError
from helpers.display import systolic
from helpers.display.systolic import draw, multiply

sizes = st.integers(1, 6)


@given(sizes, sizes, sizes, st.integers(0, 2**31))
def test_the_product_is_numpys(rows, depth, columns, seed):
    random = np.random.default_rng(seed)
    x = random.integers(-9, 10, (rows, depth))
    weights = random.integers(-9, 10, (depth, columns))
    run = multiply(x, weights)
    np.testing.assert_array_equal(run.product, x @ weights)
    assert run.multiplications == rows * depth * columns
    assert run.reads == rows * depth + depth * columns
    assert run.ticks == rows + depth + columns - 2
    assert run.utilisation == pytest.approx(rows / run.ticks)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: multiply([[1, 2]], [[1], [2], [3]]), r"\(1, 2\) and \(3, 1\) have no product"),
        (lambda: multiply([1, 2], [[1], [2]]), "takes two matrices"),
        (lambda: draw(multiply([[1]], [[2]]), 2), "There is no tick 2"),
    ],
)
def test_what_has_no_product_and_what_is_no_tick_is_refused(ask, said):
    with pytest.raises(CourseError, match=said):
        ask()


def test_a_tick_shows_what_comes_in_what_is_made_of_it_and_what_leaves(monkeypatch):
    drawn = []
    monkeypatch.setattr(systolic, "figure", lambda fig, alt: drawn.append((fig, alt)))
    draw(multiply([[1, 2], [3, 4]], [[5, 6], [7, 8]]), 2)
    ((fig, alt),) = drawn
    assert alt == (
        "Tick 2 of 4: 3 of 4 cells multiply (plain), the others wait (dashed); 1 of 4 results "
        "have left at the bottom."
    )
    (ax,) = fig.axes
    # By hand: 3 comes in from the left, 1 and 2 have moved on; 5 is the sum from above.
    assert [text.get_text() for text in ax.texts if text.get_text()] == [
        *("weight 5", "3", "0", "0 + 3×5", "= 15"),
        *("weight 6", "1", "0", "0 + 1×6", "= 6"),
        *("weight 7", "2", "5", "5 + 2×7", "= 19", "19"),
        "weight 8",
    ]
