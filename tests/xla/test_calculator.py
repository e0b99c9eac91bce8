"""The calculator of layouts follows its fields, and a page shows its first table."""

import pytest

from helpers.display import dials
from helpers.xla.calculator import calculator


@pytest.fixture
def displayed(monkeypatch):
    """Display a calculator: its fields, what it shows, and what is stored."""
    stored = []
    monkeypatch.setattr(dials, "display", lambda data, metadata, raw: stored.append(data))

    def display(shape):
        made = calculator(shape)
        made._ipython_display_()
        return *made.box.children[0].children, made.picture, stored[-1]

    return display


def test_the_calculator_follows_its_fields(displayed):
    text, kind, table, stored = displayed("256, 512, 128, 2")
    assert "8,589,934,592" in table.value and "64.00x" in table.value and "1.00x" in table.value
    assert stored["text/html"] == table.value
    text.value = "[32, 128, 768]"
    assert table.value.count("12,582,912") == 2
    kind.value = "bfloat16"
    assert table.value.count("6,291,456") == 2


@pytest.mark.parametrize("typed", ["32, x", "32, -1", "1.5", "32, 0"])
def test_the_calculator_asks_for_sizes_while_they_are_incomplete(displayed, typed):
    assert displayed(typed)[2].value.startswith("Type sizes")
