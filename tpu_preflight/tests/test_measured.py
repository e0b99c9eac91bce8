"""A step's time, corrected by kernels that somebody measured: sums done by hand."""

import dataclasses

import pytest

from tpu_preflight import compiler
from tpu_preflight.chips.hardware import ALL_CHIPS
from tpu_preflight.compiler.advice import Kernel
from tpu_preflight.compiler.profiling import Profile
from tpu_preflight.estimate import calibration, timing
from tpu_preflight.estimate.measured import overlapped_seconds, step_seconds
from tpu_preflight.estimate.step import Row, Timing, parts

V6E = ALL_CHIPS["v6e"]
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


# On v6e a copy runs at 1360 GB/s: the product's transfers take 1e8 / 1360e9 seconds.
PRODUCT_SECONDS = 2e-3 - 1e8 / 1360e9
COPY_SECONDS = 1e-3 - 1e8 / 1360e9


def test_a_kernels_transfers_run_beside_its_computing():
    expected = PRODUCT_SECONDS + COPY_SECONDS + 5e-4
    assert step_seconds(PROFILE) == pytest.approx(expected)


def kernel_seconds(**changes):
    """Correct a kernel of 2 ms that differs from the product in this."""
    return overlapped_seconds(dataclasses.replace(PRODUCT, **changes), V6E)


def test_the_longer_of_computing_and_transfers_is_what_a_kernel_takes():
    # Of 2 ms, transfers of 1.5 ms hide the computing but for the products, those of 0.1 are hidden.
    assert kernel_seconds(hbm_bytes=1.5e-3 * 1360e9) == pytest.approx(1.8e-3)
    assert kernel_seconds(hbm_bytes=1.5e-3 * 1360e9, compute_seconds=0.1e-3) == pytest.approx(
        1.5e-3
    )
    assert kernel_seconds(hbm_bytes=0.1e-3 * 1360e9) == pytest.approx(1.9e-3)


def test_a_kernel_that_reads_a_part_of_a_tensor_and_a_kernel_of_pallas_keep_their_estimate():
    assert kernel_seconds(hbm_bytes=9e-3 * 1360e9) == 2e-3
    assert kernel_seconds(kind="custom-call") == 2e-3


def test_no_kernel_becomes_shorter_than_half_of_its_estimate():
    for share in (0.0, 0.3, 0.5, 0.7, 1.0, 2.0):
        seconds = kernel_seconds(hbm_bytes=share * 2e-3 * 1360e9, compute_seconds=0.0)
        assert 1e-3 <= seconds <= 2e-3


def test_where_no_published_step_told_the_compilers_estimates_stay():
    profile = dataclasses.replace(PROFILE, target="v5e-8")
    assert step_seconds(profile) == pytest.approx(3.5e-3)
    profile = dataclasses.replace(PROFILE, target="tpu7x-8")
    assert step_seconds(profile) == pytest.approx(3.5e-3)


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
    assert calibration.summary(step).startswith("v6e-8: 3.35 ms a step on the device, by the ")
    assert calibration.summary(step).endswith("what the host adds is unknown")
    run = calibration.shortest_run("v6e")
    for figure in (f"took {run.published_ms:g} ms", f"an estimate of {run.estimate_ms:g} ms"):
        assert figure in step.factor
    assert "no published figure says how much" in step.factor

    _, long_step = read(monkeypatch, times=100)
    assert calibration.summary(long_step).startswith("v6e-8: 362 to 581 ms a step; the estimate")
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
