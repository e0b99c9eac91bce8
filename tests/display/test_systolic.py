"""The matrix unit against NumPy, and against counts made by hand."""

import numpy as np
import pytest
from bs4 import BeautifulSoup
from conventions import ROOT
from hypothesis import given
from hypothesis import strategies as st

from helpers.base.errors import CourseError
from helpers.display.systolic import draw, multiply, wave

sizes = st.integers(1, 6)


@pytest.fixture
def run():
    return multiply([[1, 2], [3, 4]], [[5, 6], [7, 8]])


@given(sizes, sizes, sizes, st.integers(0, 2**31))
def test_the_product_is_numpys(rows, depth, columns, seed):
    random = np.random.default_rng(seed)
    x = random.integers(-9, 10, (rows, depth))
    weights = random.integers(-9, 10, (depth, columns))
    run = multiply(x, weights)
    np.testing.assert_array_equal(run.product, x @ weights)
    assert run.multiplications == rows * depth * columns
    assert run.ticks == rows + depth + columns - 2
    assert run.utilisation == pytest.approx(rows / run.ticks)


def test_a_run_of_two_by_two_by_hand(run):
    assert run.ticks == 4
    np.testing.assert_array_equal(
        run.busy.astype(int),
        [[[1, 0], [0, 0]], [[1, 1], [1, 0]], [[0, 1], [1, 1]], [[0, 0], [0, 1]]],
    )
    some = (1, [0, 0, 1], [0, 1, 0])  # of the second tick, three cells
    assert (run.passing[some].tolist(), run.sums[some].tolist()) == ([3, 1, 2], [15, 6, 19])
    said = "2 x 2 cells, 4 ticks: 8 multiplications, 8 values read, 50% of the cells busy"
    assert (run.reads, repr(run)) == (8, said)


@pytest.mark.parametrize(
    ("x", "weights", "said"),
    [
        ([[1, 2]], [[1], [2], [3]], "Rows of 2 values meet columns of 3."),
        ([1, 2], [[1], [2]], "takes two matrices"),
    ],
)
def test_what_has_no_product_is_refused(x, weights, said):
    with pytest.raises(CourseError, match=said):
        multiply(x, weights)


def test_the_picture_says_what_it_shows(run):
    assert draw(run, 2).alt == (
        "Tick 2 of 4: 3 of 4 cells multiply (plain), the others wait (dashed); 1 of 4 results "
        "have left at the bottom."
    )
    assert "4 of 4 results" in draw(run, 4).alt
    for tick in (0, 5, -1):
        with pytest.raises(CourseError, match=f"There is no tick {tick}"):
            draw(run, tick)


def texts(svg, group):
    return [text.get_text() for text in BeautifulSoup(svg, "html.parser").select(f"{group} text")]


def test_a_tick_shows_what_comes_in_what_is_made_of_it_and_what_leaves(run):
    # By hand: 3 comes in from the left, 1 and 2 have moved on; 5 is the sum from above.
    assert texts(draw(run, 2).svg, ".tick") == [
        *("tick 2 of 4", "3", "0", "weight 5", "0 + 3×5", "= 15"),
        *("1", "0", "weight 6", "0 + 1×6", "= 6"),
        *("2", "5", "weight 7", "5 + 2×7", "= 19", "19"),
    ]


def test_the_wave_has_all_ticks_one_stands_still_and_the_stored_picture_is_it():
    run = multiply(np.arange(1, 13).reshape(4, 3), np.arange(1, 10).reshape(3, 3))
    svg = wave(run, 4).svg
    assert [text for text in texts(svg, ".tick") if "tick" in text] == [
        f"tick {n} of 8" for n in range(1, 9)
    ]
    assert "tick 4 of 8" in texts(svg, ".still") and "tick 5 of 8" not in texts(svg, ".still")
    assert "prefers-reduced-motion: no-preference" in svg and "<script" not in svg
    assert (ROOT / "notebooks/images/systolic.svg").read_text("utf-8") == svg + "\n"
