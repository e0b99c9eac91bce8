"""The time of Pallas' kernels: their work counted by hand, and rates against libtpu's schedules."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from tpu_preflight.chips.hardware import ALL_CHIPS
from tpu_preflight.compiler.kernel_time import counted_work, kernel_seconds
from tpu_preflight.program.pallas import KernelWork, kernel_work

V6E = ALL_CHIPS["v6e"]
BLOCK = 128 * 128


def work_of(kernel, grid, **options):
    """Count a kernel that takes two arrays of 128 x 128 and gives one."""
    shape = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    call = pl.pallas_call(kernel, out_shape=shape, grid=grid, **options)
    jaxpr = jax.make_jaxpr(call)(shape, shape).jaxpr
    (work,) = dict(kernel_work(jaxpr, {})).values()
    return work


def test_products_and_vector_work_are_counted_over_the_grid():
    def kernel(x_ref, y_ref, out_ref):
        product = jnp.dot(x_ref[...], y_ref[...])
        shifted = product - jnp.max(product, axis=1, keepdims=True)
        out_ref[...] = jnp.exp(shifted)

    # Each of 3 x 2 points: a product, and the maximum, the difference and the power of each value.
    expected = KernelWork(flops=6 * 2.0 * 128**3, vector=6 * 3.0 * BLOCK, points=6)
    assert work_of(kernel, (3, 2)) == expected


def test_what_runs_at_some_points_of_the_grid_counts_there():
    def kernel(x_ref, y_ref, out_ref):
        @pl.when(pl.program_id(0) >= pl.program_id(1))
        def _():
            out_ref[...] = jnp.dot(x_ref[...], y_ref[...]) + 1.0

    work = work_of(kernel, (3, 3))
    assert work == KernelWork(flops=6 * 2.0 * 128**3, vector=6.0 * BLOCK, points=9)


# Cycles of a block by libtpu's own schedules for v6e: flops, vector work (as counted), cycles.
SCHEDULES = {
    "forward, 1024 x 1024, heads of 256": (4 * 1024**2 * 256, 9.393e6, 3464),
    "keys' gradient, 1024 x 1024, heads of 256": (8 * 1024**2 * 256, 10.078e6, 4611),
    "queries' gradient, 1024 x 1024, heads of 256": (6 * 1024**2 * 256, 8.826e6, 3793),
    "forward, 2048 x 2048, heads of 128": (4 * 2048**2 * 128, 31.98e6, 13_734),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rates_give_the_compilers_schedules(name):
    flops, vector, cycles = SCHEDULES[name]
    seconds = kernel_seconds(KernelWork(flops, vector, points=0), 0.0, V6E)
    assert seconds * V6E.clock_ghz * 1e9 == pytest.approx(cycles, rel=0.12)


def test_a_kernel_takes_its_points_and_at_least_its_tensors_way_through_memory():
    points = kernel_seconds(KernelWork(points=1000), 0.0, V6E)
    assert points == pytest.approx(1000 * 250 / 1.75e9)
    assert kernel_seconds(KernelWork(points=1000), 1.638e9, V6E) == pytest.approx(1e-3)


def test_what_was_counted_is_read_from_a_kernels_metadata():
    metadata = '"preflight_flops":"8","preflight_points":"2","preflight_vector":"4"'
    assert counted_work(f"kernel_metadata={{{metadata}}}") == KernelWork(8.0, 4.0, 2)
    assert counted_work('kernel_metadata={"preflight_flops":"8"}') is None
