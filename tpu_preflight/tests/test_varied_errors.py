"""What a factory raises for a value that is tried, with the error's type."""

import pytest

from tpu_preflight.checks import variations
from tpu_preflight.context import Context
from tpu_preflight.errors import PreflightError
from tpu_preflight.report import OPEN


def by_name(rows):
    return {"4": 1}[rows]


def refused(rows):
    raise PreflightError("These rows can't be had.", "They are too many.", "Take fewer.")


@pytest.mark.parametrize(
    ("factory", "words"), [(by_name, "KeyError: '6'"), (refused, "These rows can't be had.")]
)
def test_an_error_of_a_value_is_told_with_its_type(factory, words):
    context = Context(subject=None, targets=(), say=len, factory=factory, vary={"rows": ["6"]})
    (item,) = variations.check(context)
    assert item.state == OPEN
    assert item.finding == words
