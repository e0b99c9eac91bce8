"""A step's time, corrected by kernels that somebody measured: sums done by hand."""

import dataclasses

import pytest

from tpu_preflight import compiler
from tpu_preflight.compiler.advice import Kernel
from tpu_preflight.compiler.profiling import Profile
from tpu_preflight.estimate import calibration, timing
from tpu_preflight.estimate.measured import corrected, step_seconds
from tpu_preflight.estimate.step import Row, Timing, parts

PRODUCT = Kernel(
    name="product",
    kind="fusion",
    runs=1,
    seconds=2e-3,
    flops=1.6e12,
    hbm_bytes=1e8,
    compute_seconds=1.8e-3,
    hbm_seconds=6e-5,
)
COPY = dataclasses.replace(PRODUCT, name="copy", seconds=1e-3, compute_seconds=0, hbm_seconds=9e-4)
PROFILE = Profile(
    target="v6e-8",
    kernels=(PRODUCT, COPY),
    unknown=(),
    endless=0,
    copied_bytes=0.0,
    waiting_seconds=5e-4,
)


def test_what_computes_and_what_waits_for_memory_have_their_own_corrections():
    assert step_seconds(PROFILE) == pytest.approx(2e-3 * 0.905 + 1e-3 * 0.974 + 5e-4)


def test_without_measured_kernels_the_compilers_estimates_stay():
    profile = dataclasses.replace(PROFILE, target="v5e-8")
    assert step_seconds(profile) == pytest.approx(3.5e-3)


def test_each_kernel_is_corrected_by_what_it_waits_for():
    product, copy = corrected(PROFILE).kernels
    assert (product.seconds, copy.seconds) == pytest.approx((2e-3 * 0.905, 1e-3 * 0.974))


def read(monkeypatch, times=1.0, target="v6e-8"):
    """Read the time of a step from the profile above, each part so many times as long."""
    kernels = []
    for kernel in PROFILE.kernels:
        longer = dataclasses.replace(
            kernel,
            seconds=kernel.seconds * times,
            compute_seconds=kernel.compute_seconds * times,
            hbm_seconds=kernel.hbm_seconds * times,
        )
        kernels.append(longer)
    profile = dataclasses.replace(
        PROFILE, target=target, kernels=tuple(kernels), waiting_seconds=5e-4 * times
    )
    monkeypatch.setattr(compiler, "profile", lambda compiled: profile)
    compiled = compiler.Compiled("step", target, "compiles")
    return profile, timing.read(compiled, lambda name: None)


def test_the_report_has_the_same_number_as_the_table_of_published_runs(monkeypatch):
    profile, step = read(monkeypatch)
    assert step.ms == pytest.approx(step_seconds(profile) * 1e3)
    for table in (step.operations, step.layers, step.lines):
        assert sum(row.ms for row in table) == pytest.approx(step.ms)
        assert sum(row.share for row in table) == pytest.approx(1)
        assert [row.name for row in table if row.ms == pytest.approx(0.5)] == [timing.WAITING]
    assert step.busy == pytest.approx(1.8 / step.ms)


def test_a_step_shorter_than_all_published_ones_has_no_range_and_says_why(monkeypatch):
    _, step = read(monkeypatch)
    assert calibration.summary(step).startswith("v6e-8: 3.28 ms a step on the device, by the ")
    assert calibration.summary(step).endswith("what the host adds is unknown")
    run = calibration.shortest_run("v6e")
    for figure in (f"took {run.published_ms:g} ms", f"an estimate of {run.estimate_ms:g} ms"):
        assert figure in step.factor
    assert "no published figure says how much" in step.factor

    _, long_step = read(monkeypatch, times=100)
    assert calibration.summary(long_step).startswith("v6e-8: 300 to 317 ms a step; the estimate")
    assert long_step.factor == repr(calibration.factor("v6e"))


@pytest.mark.parametrize(
    ("ms", "written"), [(0.0123, "0.0123"), (99.94, "99.9"), (999.4, "999"), (1234.5, "1,234")]
)
def test_a_time_is_written_without_an_exponent(ms, written):
    step = Timing(
        target="v6e-8",
        ms=ms,
        low_ms=ms,
        high_ms=2000.0,
        factor="",
        busy=0.5,
        missing=0,
        operations=(Row("dot", ms, 1.0, "compute"),),
        layers=(),
        lines=(),
    )
    assert f" {written} ms" in calibration.summary(step)
    assert "e+" not in calibration.summary(step)
    assert parts(step, "operations")[0]["ms"] == written
