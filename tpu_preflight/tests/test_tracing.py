"""Tracing runs the learner's Python, which may go on for ever."""

import contextlib
import signal
import time

import pytest
import tensorflow as tf
from programs import F8

from tpu_preflight.checks.xla_rules import refusal_words
from tpu_preflight.program import NotCompilable, trace

pytestmark = pytest.mark.slow


def never_returns(x):
    while True:
        with contextlib.suppress(Exception):
            time.sleep(0.01)  # here


@pytest.mark.parametrize("convert", [tf.function, tf.autograph.experimental.do_not_convert])
def test_tracing_that_does_not_return_is_stopped_at_its_line(convert):
    with pytest.raises(NotCompilable, match="was not traced within 2 s") as raised:
        trace(convert(never_returns), F8, timeout=2)  # AutoGraph's own work takes a part
    assert raised.value.source.function == "never_returns"
    # A report gives the place a line of its own: the sentence ends without it.
    words = refusal_words(raised.value, is_shared=False)
    assert " was not traced within 2 s. While a graph is built" in words["what"]
    assert "time.sleep(0.01)" in words["where"]
    # Nothing interrupts what comes later, and the next function is traced as usual.
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert trace(lambda x: x + 1, F8).concrete.structured_outputs.shape == [8]


def hides_what_stops_it(x):
    try:
        while True:
            time.sleep(0.01)
    except BaseException:
        raise ValueError("no shape") from None


def test_what_becomes_of_an_interruption_is_no_error_of_the_learners():
    step = tf.autograph.experimental.do_not_convert(hides_what_stops_it)
    with pytest.raises(NotCompilable, match="was not traced within 1 s") as raised:
        trace(step, F8, timeout=1)
    assert raised.value.reason == "late"


def makes_a_variable_in_each_call(x):
    return x + tf.Variable(tf.zeros([8]))


def test_a_variable_that_each_call_makes_has_a_fix_of_its_own():
    with pytest.raises(NotCompilable) as raised:
        trace(makes_a_variable_in_each_call, F8)
    assert "self.add_weight" in raised.value.fix
    assert "tf.Variable(tf.zeros" in raised.value.where
