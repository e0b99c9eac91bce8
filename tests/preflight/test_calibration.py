"""The table of published runs, and the arithmetic of the factor that comes from it."""

import dataclasses
import re

import pytest

from helpers.preflight.estimate import calibration
from helpers.preflight.estimate.calibration import factor, left_out, published
from helpers.tpu.hardware import slice_of


def test_every_run_has_its_source_and_month_and_numbers_that_can_be():
    runs = published()
    assert len({run.run for run in runs}) == len(runs) >= 2
    for run in runs:
        assert re.match(r"https://\w", run.source) and run.computed, run.run
        assert all(re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", m) for m in (run.month, run.checked))
        assert slice_of(run.target).name == run.target and run.precision in ("float32", "bfloat16")
        assert 0 < run.roofline_ms < run.estimate_ms, run.run


def test_a_run_is_foretold_from_the_others_alone():
    # By hand: 2 from 1 and 4 is 2 exactly; 1 from 2 and 4 (√8), 4 from 1 and 2 (√2).
    assert left_out([1.0, 2.0, 4.0]) == pytest.approx([8**-0.5, 1.0, 8**0.5])


def run(target, ratio):
    first = published()[0]
    return dataclasses.replace(first, target=target, published_ms=ratio * first.estimate_ms)


def test_a_generation_with_too_few_runs_takes_all(monkeypatch):
    runs = tuple(run(*x) for x in (("v2-8", 1.0), ("v2-8", 4.0), ("v3-8", 2.0)))
    monkeypatch.setattr(calibration, "published", lambda: runs)
    v2, v3 = factor("v2"), factor("v3")
    assert (v2.runs, v2.own) == (2, True) and [v2.low, v2.high] == pytest.approx([1.0, 4.0])
    assert v2.middle == pytest.approx(2.0) and v2.error == pytest.approx((0.75 + 3.0) / 2)
    assert (v3.runs, v3.own) == (3, False) and [v3.low, v3.high] == pytest.approx([1.0, 4.0])
    assert "too few on v3" in repr(v3) and "2 runs on v2" in repr(v2)
