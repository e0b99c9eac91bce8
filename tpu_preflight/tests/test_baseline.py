"""A report next to an earlier one of the same model."""

import dataclasses
import os

import pytest

from tpu_preflight import baseline
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate.step import Estimate, Row, Timing
from tpu_preflight.report import FAIL, OPEN, PASS, WARN, Item, Report

GIB = 2**30
ESTIMATE = Estimate(
    target="v5e-8",
    replicas=8,
    rows=16,
    flops=1e12,
    bytes=1e9,
    peak_bytes=4 * GIB,
    available_bytes=15 * GIB,
    compute_ms=10.0,
    memory_ms=5.0,
)
ROWS = (Row("MatMul", 20.0, 1.0, "compute"),)
TIMING = Timing(
    target="v5e-8",
    ms=20.0,
    low_ms=18.0,
    high_ms=30.0,
    factor="",
    busy=0.4,
    missing=0,
    operations=ROWS,
    layers=ROWS,
    lines=ROWS,
)


def report(*items, estimate=ESTIMATE, timing=TIMING, targets=("v5e-8",)):
    return Report("m:build", targets, items, (estimate,), (timing,))


def report_with_compilations(count, state=WARN):
    finding = f"{count} sets of shapes in all 9 batches: {count} compilations"
    return report(Item(2, "compilations in an epoch", state, finding))


def report_with_estimate(**numbers):
    return report(estimate=dataclasses.replace(ESTIMATE, **numbers))


def changes(earlier, now):
    """Compare two reports; gives the lines that say what changed, which each form shows."""
    compared = dataclasses.replace(now, changes=baseline.compare(now, earlier))
    assert Report.from_json(compared.json()) == compared
    lines = [repr(change) for change in compared.changes]
    for line in lines:
        assert line in repr(compared)
        assert line in compared._repr_html_()
    return lines


def test_the_same_report_has_no_change():
    assert changes(report(), report()) == []


def test_more_memory_is_worse():
    more = report_with_estimate(peak_bytes=5 * GIB)
    assert changes(report(), more) == ["worse: peak memory on v5e-8: 4.00 GiB, now 5.00 GiB"]


def test_four_percent_more_are_no_change_and_six_are():
    assert changes(report(), report_with_estimate(compute_ms=10.4)) == []
    slower = report_with_estimate(compute_ms=10.6)
    assert changes(report(), slower) == ["worse: least time on v5e-8: 10 ms, now 10.6 ms"]


def test_a_faster_step_is_better():
    faster = report(timing=dataclasses.replace(TIMING, ms=15.0))
    assert changes(report(), faster) == ["better: estimated time on v5e-8: 20 ms, now 15 ms"]


def test_more_compilations_are_worse():
    three = report_with_compilations(3)
    five = report_with_compilations(5)
    assert changes(three, five) == ["worse: compilations: 3, now 5"]


def test_a_new_failure_comes_before_a_warning_that_is_gone():
    earlier = report(Item(3, "types", WARN, ""))
    passing = Item(1, "sizes", PASS, "")
    failing = Item(1, "sizes", FAIL, "")
    now = report(Item(3, "types", PASS, ""), failing, passing)
    lines = ["worse: sizes: pass, now fail", "better: types: warn, now pass"]
    assert changes(earlier, now) == lines


def test_a_baseline_of_another_target_or_subject_does_not_fit():
    with pytest.raises(PreflightError, match="The baseline is for v6e-8, not for v5e-8"):
        baseline.compare(report(), report(targets=("v6e-8",)))
    with pytest.raises(PreflightError, match="The baseline is of other, not of m:build"):
        baseline.compare(report(), dataclasses.replace(report(), subject="other"))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "kept.json"
    path.write_text(report().json())
    return path


def refuses(path, reason):
    with pytest.raises(PreflightError, match=f"can't be read as a report(.|\\n)*{reason}"):
        baseline.read(path)
    return True


def test_a_report_is_read_as_it_was_written(path):
    assert baseline.read(path) == report()


UNKNOWN_STATE = report_with_compilations(3, "warm").json()
UNDECIDED = report(Item(1, "the step", OPEN, "", decisive=True)).json()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "over 8 MiB"),
        ("[]", "not of form"),
        (UNKNOWN_STATE, "KeyError"),
        (UNDECIDED, "it can't tell whether"),
    ],
    ids=["empty", "a list", "unknown state", "undecided"],
)
def test_another_text_cannot_be_read(text, reason, path):
    path.write_text(text)
    assert refuses(path, reason)


@pytest.mark.parametrize(
    ("value", "other"), [("10.0", "NaN"), ("10.0", "true"), ("10.0", "1e999"), ('"pass"', "0")]
)
def test_another_value_cannot_be_read(value, other, path):
    text = report_with_compilations(3, PASS).json()
    assert value in text
    path.write_text(text.replace(value, other))
    assert refuses(path, "Error")


def test_a_huge_file_and_a_pipe_are_not_read(path):
    os.truncate(path, 2**31)
    assert refuses(path, "over 8 MiB")
    path.unlink()
    os.mkfifo(path)
    assert refuses(path, "a pipe, empty")
