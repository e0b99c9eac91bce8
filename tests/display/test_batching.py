"""The diagrams of batches draw what they say, and say in words what they draw."""

import pytest
from matplotlib.axes import Axes

from helpers.base.errors import CourseError
from helpers.display import batching


@pytest.fixture
def texts(monkeypatch):
    written = []
    write = Axes.text

    def note(self, x, y, s, **options):
        written.append(s)
        return write(self, x, y, s, **options)

    monkeypatch.setattr(Axes, "text", note)
    return written


def test_only_a_new_shape_is_traced_and_compiled(texts):
    drawn = batching.three_clocks()
    assert [texts.count(step) for step in ("trace", "compile", "run")] == [2, 2, 4]
    assert "only runs" in drawn.alt and drawn.png.startswith(b"\x89PNG")


def test_the_path_of_a_batch_counts_its_padding(texts):
    assert "23 of its 32 positions" in batching.path_of_a_batch().alt
    assert {"7", "3", "8", "5", "yes", "no"} <= set(texts)


def test_a_mask_joins_the_positions_of_a_text(texts):
    drawn = batching.masks({"packed": [1, 1, 2, 0, 0], "one": [1, 1]})
    assert "packed: 5 of 25; one: 4 of 4" in drawn.alt  # two texts: 2 x 2 and 1 x 1
    assert [texts.count(number) for number in "012"] == [4, 8, 1]


@pytest.mark.parametrize("rows", [{}, {"empty": []}])
def test_a_mask_needs_a_row_with_positions(rows):
    with pytest.raises(CourseError, match="nothing to draw"):
        batching.masks(rows)
