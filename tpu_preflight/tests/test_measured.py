"""A step's time, corrected by kernels that somebody measured: sums done by hand."""

import dataclasses

import pytest

from tpu_preflight.compiler.advice import Kernel
from tpu_preflight.compiler.profiling import Profile
from tpu_preflight.estimate.measured import step_seconds

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
