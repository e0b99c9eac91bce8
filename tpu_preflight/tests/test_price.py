"""The price of a run: multiplication, and which target is cheapest."""

import pytest

from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate import calibration, price
from tpu_preflight.estimate.step import Estimate, Timing
from tpu_preflight.report import Report


def timing(target, low, high):
    return Timing(target, low, low, high, "", 0.5, 0, (), (), ())


def estimate(target, replicas, rows=4):
    return Estimate(target, replicas, rows, 1.0, 1.0, 1, 2, 1.0, 1.0)


def test_a_measured_step_is_a_row_of_the_table_beside_its_estimate():
    told = calibration.row(timing("v3-8", 360.0, 720.0), [estimate("v3-8", 8)], 480.0)
    assert told.replace("\t", " ") == "? v3-8 8 4 ? ? ? ? 480 ? ? ?   360 1"


def test_a_price_is_steps_times_time_times_chips_times_what_was_typed():
    (found,) = price.prices(  # 31 ms are less than any published run's
        [timing("v3-8", 360.0, 720.0), timing("v3-8", 31.0, 50.0)],
        [estimate("v3-8", 8)],
        10_000,
        {"v3-8": 2.0},
    )
    assert (found.low_hours, found.high_hours) == pytest.approx((1.0, 2.0))
    assert (found.chips, found.rows) == (4, 32)  # a v3-8 has 8 cores on 4 chips
    assert (found.low, found.high) == pytest.approx((8.0, 16.0))
    assert price.table([found])[0]["cost"] == "8.00 to 16.00"
    alone = Report("f", ("v3-8",), (), (estimate("v3-8", 8),), (), (found,))
    assert "All chips of v3-8 are charged, as if each device ran this" in repr(alone)


@pytest.mark.parametrize(
    ("times", "replicas", "typed", "says"),
    [
        ([(40, 48), (40, 48)], [8, 8], ["1", "v6e=2"], "Cheapest: v5e-8."),
        ([(40, 80), (40, 80)], [8, 8], ["1", "v6e=1.1"], "range of v6e-8 overlaps"),
        ([(80, 88), (40, 48)], [8, 8], ["1"], "Cheapest: v6e-8."),
        # With the same price for each step, twice the rows are half the price of a row.
        ([(40, 48), (40, 48)], [4, 8], ["1"], "Cheapest for each row: v6e-8."),
        ([(40, 48), (40, 48)], [8, 8], ["v5e=1"], "10,000 steps; hours of steps alone"),
    ],
)
def test_the_cheapest_is_named_where_the_ranges_tell(times, replicas, typed, says):
    targets = ["v5e-8", "v6e-8"]
    found = price.prices(
        [timing(t, *ends) for t, ends in zip(targets, times, strict=True)],
        [estimate(t, n) for t, n in zip(targets, replicas, strict=True)],
        10_000,
        price.read(typed, targets),
    )
    assert says in price.verdict(found)
    assert ("Cheapest" in price.verdict(found)) == ("Cheapest" in says or "overlaps" in says)


TYPED = ["cheap", "v5e=", "=", "v4=1", "-1", "nan", "1,2", "v5e-8=1", "1 v5e=1 V5E=2"]


@pytest.mark.parametrize("words", TYPED)
def test_what_is_no_price_is_refused_with_the_form_to_write(words):
    with pytest.raises(PreflightError, match=r"no price|not compared|two prices") as told:
        price.read(words.split(), ["v5e-8"])
    assert "v5e=1.20" in told.value.fix
