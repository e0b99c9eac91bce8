"""A late task is given up; results and errors are passed on."""

import threading

import pytest

from helpers.base.limits import TooLate, within


def exits() -> None:
    raise SystemExit("mine")


def test_a_late_task_is_given_up_and_an_error_is_passed_on():
    assert within(10, lambda: 3) == 3
    with pytest.raises(TooLate, match=r"^No answer in 0\.01 seconds\.$"):
        within(0.01, threading.Event().wait)
    with pytest.raises(ZeroDivisionError):
        within(10, lambda: 1 / 0)
    with pytest.raises(SystemExit, match="mine"):  # or it would wait for a thread that has ended
        within(10, exits)
