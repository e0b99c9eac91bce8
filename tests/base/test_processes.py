"""Variables of the environment come and go."""

import os

import pytest

from helpers.base.processes import variables_set


def test_variables_are_set_and_put_back_after_an_error_and_a_removal(monkeypatch):
    monkeypatch.setenv("COURSE_OLD", "1")
    with pytest.raises(ZeroDivisionError), variables_set({"COURSE_OLD": "2", "COURSE_NEW": "3"}):
        assert (os.environ["COURSE_OLD"], os.environ.pop("COURSE_NEW")) == ("2", "3")
        raise ZeroDivisionError
    assert os.environ["COURSE_OLD"] == "1" and "COURSE_NEW" not in os.environ
