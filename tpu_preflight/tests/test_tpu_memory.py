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

THERE = int(15.75 * 2**30)  # bytes on a v5e

pytestmark = [*programs.COMPILER, pytest.mark.slow]


def test_the_roofline_is_division():
    given = {"argument_bytes": 600 * 10**9, "output_bytes": 300 * 10**9}
    compiled = Compiled("f", "v3-8", "compiles", flops=123e12 / 2, bytes_accessed=9e15, **given)
    bound = compiler.roofline(compiled)
    assert (bound.compute_seconds, bound.hbm_seconds) == pytest.approx((1.0, 2.0))
    assert bound.seconds == bound.hbm_seconds
    whole = compiler.roofline(dataclasses.replace(compiled, target="v5e-8", flops=197e12))
    assert (whole.compute_seconds, whole.hbm_seconds) == pytest.approx((1.0, 900 / 819))
    shared = {"target": "v5e-8", "replicas": 8, "sent_bytes": 700e9}
    third = compiler.roofline(dataclasses.replace(compiled, **shared))
    assert third.seconds == third.link_seconds == pytest.approx(3.5)


def test_padding_of_a_dimension_of_two_is_found_with_its_layer():
    def narrow(x):
        with tf.name_scope("narrow"):
            y = tf.tensordot(x, tf.ones([128, 2]), 1)
        return tf.reduce_sum(tf.sort(y, -1), 0)

    found = compiler.padding(compiler.compile(export(narrow, tf.TensorSpec([64, 32, 128]))))
    assert any("narrow" in entry.name for entry in found)
    assert found == tuple(sorted(found, key=lambda p: -p.bytes))
    for entry in found:
        assert entry.bytes == entry.count * (entry.layout.bytes - entry.layout.unpadded_bytes) > 0
    assert compiler.padding(compiler.compile(product_program(128))) == ()


def fake_compiler(monkeypatch, memory, most=1 << 30):
    """Put a formula in the compiler's place; a program is the number of its rows."""
    asked = []

    def answer(program, target, timeout):
        asked.append(program)
        if program > most:
            return Compiled("f", target, "crashed", "It was stopped.")
        needed = int(memory(program))
        verdict, message = ("compiles", "") if needed <= THERE else ("out of memory", "Too much.")
        return Compiled("f", target, verdict, message, peak_bytes=needed, available_bytes=THERE)

    monkeypatch.setattr(client, "compile", answer)
    monkeypatch.setattr(server_process, "started", contextlib.nullcontext)
    return asked


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
        asked = fake_compiler(monkeypatch, memory)
        found = largest_batch(lambda n: n, "v5e-8", smallest=unit, most=65536)
    assert [*found.tried] == asked and len(asked) <= 12
    assert all(n % unit == 0 for n in asked)
    if found.largest == 0:
        assert memory(unit) > THERE
    else:
        assert memory(found.largest) <= THERE
        above = max(unit, found.largest // 10 // unit * unit) + found.largest
        enough = memory(found.largest) >= 0.85 * THERE or memory(above + unit) > THERE
        assert found.largest >= 65536 // unit * unit or enough


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
    found = largest_batch(lambda n: n, "v5e-8", most=4096)
    assert found.largest == largest
    assert reason in found.reason
