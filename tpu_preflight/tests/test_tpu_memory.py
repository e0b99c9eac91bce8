"""Padding, the largest batch, and the bound on time."""

import contextlib
import dataclasses

import programs
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import product_program

from tpu_preflight import compiler
from tpu_preflight.compiler import Compiled, client, export, largest_batch, server_process

AVAILABLE = int(15.75 * 2**30)  # bytes on a v5e

pytestmark = [*programs.COMPILER, pytest.mark.slow]


def test_the_roofline_is_division():
    compiled = Compiled(
        name="f",
        target="v3-8",
        verdict="compiles",
        flops=123e12 / 2,
        bytes_accessed=9e15,
        argument_bytes=600 * 10**9,
        output_bytes=300 * 10**9,
    )
    bound = compiler.roofline(compiled)
    assert (bound.compute_seconds, bound.hbm_seconds) == pytest.approx((1.0, 2.0))
    assert bound.seconds == bound.hbm_seconds
    # A v5e chip is one device, so that has all of its rates.
    one_device = dataclasses.replace(compiled, target="v5e-8", flops=197e12)
    bound = compiler.roofline(one_device)
    assert (bound.compute_seconds, bound.hbm_seconds) == pytest.approx((1.0, 900 / 819))
    sending = dataclasses.replace(compiled, target="v5e-8", replicas=8, sent_bytes=700e9)
    bound = compiler.roofline(sending)
    assert bound.seconds == bound.link_seconds == pytest.approx(3.5)


def test_padding_of_a_dimension_of_two_is_found_with_its_layer():
    def narrow(x):
        with tf.name_scope("narrow"):
            y = tf.tensordot(x, tf.ones([128, 2]), 1)
        return tf.reduce_sum(tf.sort(y, -1), 0)

    program = export(narrow, tf.TensorSpec([64, 32, 128]))
    entries = compiler.padding(compiler.compile(program))
    assert any("narrow" in entry.name for entry in entries)
    assert entries == tuple(sorted(entries, key=lambda entry: -entry.bytes))
    for entry in entries:
        assert entry.bytes == entry.count * (entry.layout.bytes - entry.layout.unpadded_bytes) > 0
    assert compiler.padding(compiler.compile(product_program(128))) == ()


def fake_compiler(monkeypatch, memory, most=1 << 30):
    """Put a formula in the compiler's place; a program is the number of its rows."""
    programs = []

    def compile(program, target, timeout):
        programs.append(program)
        if program > most:
            return Compiled("f", target, "crashed", "It was stopped.")
        peak_bytes = int(memory(program))
        if peak_bytes <= AVAILABLE:
            verdict, message = "compiles", ""
        else:
            verdict, message = "out of memory", "Too much."
        return Compiled(
            name="f",
            target=target,
            verdict=verdict,
            message=message,
            peak_bytes=peak_bytes,
            available_bytes=AVAILABLE,
        )

    monkeypatch.setattr(client, "compile", compile)
    monkeypatch.setattr(server_process, "started", contextlib.nullcontext)
    return programs


@settings(max_examples=200, deadline=None)
@given(
    fixed=st.integers(0, 20 * 2**30),
    each=st.integers(1_000, 2**31),
    bend=st.floats(0.5, 1.5),
    unit=st.sampled_from([1, 2, 8, 32]),
)
def test_the_largest_batch_is_found_within_a_few_attempts(fixed, each, bend, unit):
    def memory(n):  # a little concave or convex, as the compiler's is
        return fixed + each * n * (1 + (bend - 1) * n / (n + 1000))

    with pytest.MonkeyPatch.context() as monkeypatch:
        batches = fake_compiler(monkeypatch, memory)
        search = largest_batch(lambda n: n, "v5e-8", smallest=unit, most=65536)
    assert list(search.tried) == batches
    assert len(batches) <= 12
    assert all(batch % unit == 0 for batch in batches)
    largest = search.largest
    if largest == 0:
        assert memory(unit) > AVAILABLE
        return
    assert memory(largest) <= AVAILABLE
    # Not more than a tenth larger would fit, or most of the memory is taken.
    larger = largest + max(unit, largest // 10 // unit * unit)
    is_enough = memory(largest) >= 0.85 * AVAILABLE or memory(larger + unit) > AVAILABLE
    assert largest >= 65536 // unit * unit or is_enough


@pytest.mark.parametrize(
    ("memory", "most", "largest", "reason"),
    [
        (lambda n: 1e12, 1 << 30, 0, "A batch of 8 does not fit: Too much."),
        (lambda n: 1.0 * n, 1 << 30, 4096, "ends at 4096; more may fit."),
        (lambda n: 1e6 * n, 1000, 32, "crashed. It was stopped."),
    ],
)
def test_the_reason_why_a_search_ends(monkeypatch, memory, most, largest, reason):
    fake_compiler(monkeypatch, memory, most=most)
    search = largest_batch(lambda n: n, "v5e-8", most=4096)
    assert search.largest == largest
    assert reason in search.reason
