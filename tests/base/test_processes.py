"""Variables of the environment come and go."""

import os

import pytest

from helpers.base.processes import variables_set


@pytest.mark.parametrize("removed", [[], ["COURSE_OLD", "COURSE_NEW"]])
def test_variables_are_set_and_put_back_after_an_error_and_a_removal(monkeypatch, removed):
    monkeypatch.setenv("COURSE_OLD", "1")
    monkeypatch.delenv("COURSE_NEW", raising=False)
    with pytest.raises(ZeroDivisionError), variables_set({"COURSE_OLD": "2", "COURSE_NEW": "3"}):
        assert (os.environ["COURSE_OLD"], os.environ["COURSE_NEW"]) == ("2", "3")
        for name in removed:
            del os.environ[name]
        raise ZeroDivisionError
    assert os.environ["COURSE_OLD"] == "1" and "COURSE_NEW" not in os.environ
