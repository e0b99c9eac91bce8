"""The table of published runs, and the arithmetic of the factor that comes from it."""

import dataclasses
import re
import statistics

import pytest

from tpu_preflight.chips.hardware import slice_of
from tpu_preflight.estimate import calibration, price
from tpu_preflight.estimate.calibration import (
    Runs,
    factor,
    least_ms,
    prediction_error,
    published,
)
from tpu_preflight.estimate.step import Timing

GENERATIONS = ("v2", "v3", "v4", "v5e", "v5p", "v6e")


def test_a_rate_that_its_authors_expect_is_not_shown_as_measured():
    names = {run.run for run in published() if run.expected}
    assert names == {run.run for run in published() if run.run.startswith("MaxText")}
    shown = repr(published())
    assert "MaxText, 16B on v5e-256 (2023-11, expected)" in shown
    assert shown.count(", expected)") == len(names) == 7


def test_every_run_has_its_source_and_month_and_numbers_that_can_be():
    runs = published()
    names = {run.run for run in runs}
    assert len(names) == len(runs) >= 8
    for run in runs:
        assert run.computed, run.run
        months = [run.month, run.checked]
        if run.source == "named with the reveal":
            months = [run.checked]
        else:
            assert re.match(r"https://\w", run.source), run.run
        for month in months:
            assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", month), run.run
        assert run.month <= run.checked, run.run
        assert run.precision in ("float32", "bfloat16"), run.run
        assert slice_of(run.target, jax=True).name == run.target, run.run
        assert 0 < run.roofline_ms <= run.estimate_ms, run.run
        assert run.published_ms > run.roofline_ms, run.run


def run(target, ratio, rows=1):
    """Make a published run that took so many times its estimate."""
    template = published()[0]
    return dataclasses.replace(
        template, target=target, rows=rows, published_ms=100 * ratio, estimate_ms=100.0
    )


# By hand, in geometric means. v2 has three runs, two of them of one program; v3 has one.
RUNS = Runs([run("v2-8", 1.0), run("v2-8", 4.0), run("v2-8", 2.0, 9), run("v3-8", 8.0)])


def test_a_run_is_predicted_from_the_others_alone():
    # Without the first two, v2 has one run left, so all others count: (2 · 8)^½ = 4.
    # The third has two of one program left, so all count: (1 · 4 · 8)^⅓. v3: (1 · 4 · 2)^⅓ = 2.
    third = 2 / 32 ** (1 / 3) - 1
    errors = [prediction_error(run, RUNS) for run in RUNS]
    assert errors == pytest.approx([-0.75, 0.0, third, 3.0])


def test_a_generation_with_too_few_runs_takes_all_and_says_so(monkeypatch):
    monkeypatch.setattr(calibration, "published", lambda: RUNS)
    v2 = factor("v2")
    assert (v2.runs, v2.basis) == (3, "v2")
    assert [v2.low, v2.middle, v2.high] == pytest.approx([1.0, 2.0, 4.0])
    assert v2.error == pytest.approx((0.75 + 0.37) / 3, 0.01)
    assert "(from v2)" in repr(v2)

    v3 = factor("v3")
    assert (v3.runs, v3.basis[:4]) == (4, "all ")
    assert [v3.low, v3.high] == pytest.approx([1.0, 8.0])
    # From the other generation: 1/8, 4/8 and 2/8 of v3's, and 8/2 of v2's.
    assert v3.error == pytest.approx((7 / 8 + 4 / 8 + 6 / 8 + 3) / 4)
    assert "from all TPU generations" in repr(v3)
    assert "from other TPU generations" in repr(factor("v5e"))


def test_maxtexts_runs_are_excluded_and_without_their_mark_would_narrow_the_range(monkeypatch):
    def factors(runs):
        """Compute the factor of each generation from these runs alone, and the least estimate."""
        table = Runs(runs)
        monkeypatch.setattr(calibration, "published", lambda: table)
        return {generation: factor(generation) for generation in GENERATIONS}, least_ms("v3")

    runs = published()
    counted = [run for run in runs if not run.excluded]
    excluded = [run for run in runs if run.excluded]
    others = [run.run for run in excluded if not run.expected]
    assert others == ["Product of 8192 x 8192", "Qwen3-0.6B, copies", "Qwen3-0.6B, FSDP"]
    assert len(excluded) == 7 + 3
    assert factors(runs) == factors(counted)
    unmarked, _ = factors(dataclasses.replace(run, excluded="") for run in runs)
    assert unmarked["v5e"].basis == "v5e"
    assert unmarked["v5e"].high < 1.1
    assert unmarked["v5p"].basis == "v5p"
    assert unmarked["v5p"].low > 1.0


def test_v6e_has_its_own_range_from_steps_that_are_described_one_by_one():
    v6e = factor("v6e")
    assert (v6e.runs, v6e.basis) == (6, "v6e")
    errors = []
    for run in published():
        if run.generation == "v6e" and not run.excluded:
            errors.append(abs(prediction_error(run, published())))
    # Each predicted from the other five: all but K6 within a fifth, half within a tenth.
    assert sum(error > 0.2 for error in errors) == 1
    assert statistics.median(errors) <= 0.1
    assert least_ms("v6e") < 20 < least_ms("v5e")


def test_one_model_on_tpu7x_is_shown_and_makes_no_range_there():
    rows = [run for run in published() if run.generation == "tpu7x"]
    assert [run.model for run in rows] == ["blind Q1", "blind Q2"]
    assert factor("tpu7x").basis == "other TPU generations: too few for this one"
    for row in rows:
        assert not row.general and row.devices * row.rows == 8
        # With what a SparseCore sends; without it they took 2.2 times the kernels.
        assert 1.1 < row.ratio < 1.2


# Published runs that were read after the table was made: generation, estimate and what the run
# took, in ms.
LATER = {
    "flax, ResNet-50": ("v3", 43.3, [60.4]),
    "flax, ResNet-50 on v2": ("v2", 76.1, [71.9]),
    "Hugging Face, BERT-base on GLUE": ("v3", 19.6, [38, 41]),
    "ViT-B/16, forward": ("v3", 195, [149]),
    "ResNet-RS-101": ("v3", 155, [120]),
    "ResNet-RS-152": ("v3", 535, [410]),
}


@pytest.mark.parametrize("run", LATER)
def test_later_runs_lie_in_the_range_and_the_small_one_has_no_price(run):
    generation, estimate_ms, measured = LATER[run]
    low_ms, high_ms = factor(generation).range_ms(estimate_ms)
    for measured_ms in measured:
        assert low_ms <= measured_ms <= high_ms
    timing = Timing(
        target=f"{generation}-8",
        ms=estimate_ms,
        low_ms=low_ms,
        high_ms=high_ms,
        factor="",
        busy=0.5,
        missing=0,
        operations=(),
        layers=(),
        lines=(),
    )
    has_price = len(price.prices([timing], [], 1000, {})) == 1
    assert has_price == (estimate_ms > 31.7)
    general = [run.estimate_ms for run in published() if run.general]
    assert least_ms(generation) == min(general) == 31.7
