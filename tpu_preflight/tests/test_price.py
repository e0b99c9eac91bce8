"""The price of a run: multiplication, and which target is cheapest."""

import pytest

from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate import calibration, price
from tpu_preflight.estimate.step import Estimate, Timing
from tpu_preflight.report import Report


def timing(target, low, high):
    """Make the time of a step whose estimate is the low end of its range, in milliseconds."""
    return Timing(
        target=target,
        ms=low,
        low_ms=low,
        high_ms=high,
        factor="",
        busy=0.5,
        missing=0,
        operations=(),
        layers=(),
        lines=(),
    )


def estimate(target, replicas, rows=4):
    """Make an estimate whose bound is a millisecond."""
    return Estimate(
        target=target,
        replicas=replicas,
        rows=rows,
        flops=1.0,
        bytes=1.0,
        peak_bytes=1,
        available_bytes=2,
        compute_ms=1.0,
        memory_ms=1.0,
    )


def test_a_measured_step_is_a_row_of_the_table_beside_its_estimate():
    row = calibration.row(timing("v3-8", 360.0, 720.0), [estimate("v3-8", 8)], 480.0)
    assert row.replace("\t", " ") == "? v3-8 8 4 ? ? ? ? 480 ? ? ?   360 1"


def test_a_price_is_steps_times_time_times_chips_times_what_was_typed():
    smaller_than_published = timing("v3-8", 31.0, 50.0)
    timings = [timing("v3-8", 360.0, 720.0), smaller_than_published]
    (entry,) = price.prices(timings, [estimate("v3-8", 8)], 10_000, {"v3-8": 2.0})
    assert (entry.low_hours, entry.high_hours) == pytest.approx((1.0, 2.0))
    assert (entry.chips, entry.rows) == (4, 32)  # a v3-8 has 8 cores on 4 chips
    assert (entry.low, entry.high) == pytest.approx((8.0, 16.0))
    assert price.table([entry])[0]["cost"] == "8.00 to 16.00"
    report = Report(
        subject="f",
        targets=("v3-8",),
        items=(),
        estimates=(estimate("v3-8", 8),),
        prices=(entry,),
    )
    assert "All chips of v3-8 are charged, as if each device ran this" in repr(report)


@pytest.mark.parametrize(
    ("times", "replicas", "typed", "sentence"),
    [
        ([(40, 48), (40, 48)], [8, 8], ["1", "v6e=2"], "Cheapest: v5e-8."),
        ([(40, 80), (40, 80)], [8, 8], ["1", "v6e=1.1"], "range of v6e-8 overlaps"),
        ([(80, 88), (40, 48)], [8, 8], ["1"], "Cheapest: v6e-8."),
        # With the same price for each step, twice the rows are half the price of a row.
        ([(40, 48), (40, 48)], [4, 8], ["1"], "Cheapest for each row: v6e-8."),
        ([(40, 48), (40, 48)], [8, 8], ["v5e=1"], "10,000 steps. The hours are of the steps alone"),
    ],
)
def test_the_cheapest_is_named_where_the_ranges_tell(times, replicas, typed, sentence):
    targets = ["v5e-8", "v6e-8"]
    timings = []
    estimates = []
    for i, target in enumerate(targets):
        low, high = times[i]
        timings.append(timing(target, low, high))
        estimates.append(estimate(target, replicas[i]))
    entries = price.prices(timings, estimates, 10_000, price.read(typed, targets))
    verdict = price.verdict(entries)
    assert sentence in verdict
    assert ("Cheapest" in verdict) == ("Cheapest" in sentence or "overlaps" in sentence)


NOT_PRICES = ["cheap", "v5e=", "=", "v4=1", "-1", "nan", "1,2", "v5e-8=1", "1 v5e=1 V5E=2"]


@pytest.mark.parametrize("words", NOT_PRICES)
def test_what_is_no_price_is_refused_with_the_form_to_write(words):
    with pytest.raises(
        PreflightError, match=r"not a price|not among the targets|two prices"
    ) as caught:
        price.read(words.split(), ["v5e-8"])
    assert "v5e=1.20" in caught.value.fix
