"""A library's error is shown in the same words on every machine."""

import pytest
from cases import cases

from tpu_preflight.text import steady


@pytest.mark.parametrize(("line", "steadied"), cases(__file__, "steady"))
def test_steady_removes_what_changes_and_nothing_else(line, steadied):
    assert steady(line) == steadied
    assert steady(steadied) == steadied
