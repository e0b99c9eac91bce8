"""Variables come, and what was there comes back."""

import os

import pytest

from helpers.base.environment import variables_set


def test_variables_are_set_and_put_back(monkeypatch):
    monkeypatch.setenv("COURSE_OLD", "1")
    monkeypatch.delenv("COURSE_NEW", raising=False)
    with variables_set({"COURSE_OLD": "2", "COURSE_NEW": "3"}):
        assert (os.environ["COURSE_OLD"], os.environ["COURSE_NEW"]) == ("2", "3")
    assert os.environ["COURSE_OLD"] == "1" and "COURSE_NEW" not in os.environ


def test_variables_are_put_back_after_an_error_and_a_removal(monkeypatch):
    monkeypatch.setenv("COURSE_OLD", "1")
    with pytest.raises(ZeroDivisionError), variables_set({"COURSE_OLD": "2", "COURSE_NEW": "3"}):
        del os.environ["COURSE_OLD"], os.environ["COURSE_NEW"]
        1 / 0  # noqa: B018
    assert os.environ["COURSE_OLD"] == "1" and "COURSE_NEW" not in os.environ
