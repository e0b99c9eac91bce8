"""A report beside an earlier one of the same model."""

import dataclasses
import os

import pytest

from tpu_preflight import baseline
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate.step import Estimate, Row, Timing
from tpu_preflight.report import FAIL, OPEN, PASS, WARN, Item, Report

SETS = "{} sets of shapes in all 9 batches: {} compilations"
ESTIMATE = Estimate("v5e-8", 8, 16, 1e12, 1e9, 4 * 2**30, 15 * 2**30, 10.0, 5.0)
ROWS = (Row("MatMul", 20.0, 1.0, "compute"),)
TIMING = Timing("v5e-8", 20.0, 18.0, 30.0, "", 0.4, 0, ROWS, ROWS, ROWS)


def report(*items, estimate=ESTIMATE, timing=TIMING, targets=("v5e-8",)):
    return Report("m:build", targets, items, (estimate,), (timing,))


def shapes(count, state=WARN):
    return Item(2, "compilations in an epoch", state, SETS.format(count, count))


def bigger(**numbers):
    return report(estimate=dataclasses.replace(ESTIMATE, **numbers))


BIGGER, SLOWER = bigger(peak_bytes=5 * 2**30), bigger(compute_ms=10.6)
FASTER = report(timing=dataclasses.replace(TIMING, ms=15.0))
CASES = {
    "nothing": (report(), report(), []),
    "memory": (report(), BIGGER, ["worse: peak memory {}: 4.00 GiB, now 5.00 GiB"]),
    "4 % more are no change": (report(), bigger(compute_ms=10.4), []),
    "6 % more are": (report(), SLOWER, ["worse: least time {}: 10 ms, now 10.6 ms"]),
    "faster": (report(), FASTER, ["better: estimated time {}: 20 ms, now 15 ms"]),
    "compilations": (report(shapes(3)), report(shapes(5)), ["worse: compilations: 3, now 5"]),
    "a new warning, and one that is gone": (
        report(Item(3, "types", WARN, "")),
        report(Item(3, "types", PASS, ""), Item(1, "sizes", FAIL, ""), Item(1, "sizes", PASS, "")),
        ["worse: sizes: pass, now fail", "better: types: warn, now pass"],
    ),
}


@pytest.mark.parametrize("before, now, expected", CASES.values(), ids=CASES)
def test_what_changed(before, now, expected):
    expected = [line.format("on v5e-8") for line in expected]
    compared = dataclasses.replace(now, changes=baseline.compare(now, before))
    assert list(map(repr, compared.changes)) == expected
    assert Report.from_json(compared.json()) == compared
    assert all(line in repr(compared) and line in compared._repr_html_() for line in expected)


def test_a_baseline_that_does_not_fit_or_cannot_be_read(tmp_path):
    with pytest.raises(PreflightError, match="The baseline is for v6e-8, not for v5e-8"):
        baseline.compare(report(), report(targets=("v6e-8",)))
    with pytest.raises(PreflightError, match="The baseline is of other, not of m:build"):
        baseline.compare(report(), dataclasses.replace(report(), subject="other"))
    path = tmp_path / "kept.json"
    path.write_text(report().json())
    assert baseline.read(path) == report()
    os.truncate(path, 2**31)
    edited = report(shapes(3, "warm")).json()
    others = ("10.0", "NaN"), ("10.0", "true"), ("10.0", "1e999"), ('"pass"', "0")
    wrong = [(report(shapes(3, PASS)).json().replace(*pair), "Error") for pair in others]
    untold = report(Item(1, "the step", OPEN, "", decisive=True)).json(), "it can't tell whether"
    kinds = ("", "over 8 MiB"), (edited, "KeyError"), ("[]", "not of form"), untold
    for text, says in (*kinds, *wrong):
        path.write_text(text) if text else None
        with pytest.raises(PreflightError, match=f"can't be read as a report(.|\\n)*{says}"):
            baseline.read(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PreflightError, match="a pipe, empty"):
        baseline.read(tmp_path / "pipe")
