"""The compiler against hand counts and known refusals, and what can go wrong with its process."""

import concurrent.futures
import dataclasses
import re

import programs
import pytest
import tensorflow as tf
import tf_keras
from programs import STEP_SPECS, compile_all, product, product_program, small_model, train_step

from tpu_preflight import compiler
from tpu_preflight.compiler import export, server_process
from tpu_preflight.errors import PreflightError

pytestmark = [*programs.COMPILER, pytest.mark.slow]


@pytest.fixture(scope="module")
def slow():
    """Make a program that takes the compiler long enough for something to happen to it."""

    def deep(x):
        for _ in range(6):
            x = tf.linalg.svd(x)[1] @ tf.linalg.inv(x)
        return x

    return export(tf.autograph.experimental.do_not_convert(deep), tf.TensorSpec([64, 64]))


# --- what it says ---------------------------------------------------------------------------------


def test_a_products_numbers_are_those_of_a_hand_count():
    compiled = compiler.compile(product_program(256))
    assert compiled.verdict == "compiles"
    assert compiled.flops == pytest.approx(2 * 256**3, rel=0.02)
    assert compiled.argument_bytes == 2 * 256 * 256 * 4
    assert compiled.output_bytes == 256 * 256 * 4
    assert compiled.bytes_accessed >= 3 * 256 * 256 * 4
    assert compiled.peak_bytes >= compiled.argument_bytes + compiled.output_bytes


@pytest.mark.parametrize("target", ["v2-8", "v3-8", "v4-8", "v5e-1", "v5e-4", "v5p-8", "v6e-1"])
def test_every_target_says_how_much_memory_it_has(target):
    huge = tf.TensorSpec([250_000, 250_000])
    small, large = compile_all([product_program(64), export(lambda x: x + 1.0, huge)], target)
    assert small.ok
    assert large.verdict == "out of memory"
    said = re.search(r"available HBM \(([\d.]+)G\)", large.whole_message)
    assert large.available_bytes == int(float(said[1]) * 2**30)
    assert large.peak_bytes > 2 * 250_000**2 * 4


def test_what_the_tpu_refuses_is_told_in_googles_words():
    refused = compiler.compile(export(product, *[tf.TensorSpec([8, 8], tf.int64)] * 2))
    assert (refused.verdict, refused.ok, refused.hlo) == ("refused", False, "")
    assert refused.message.startswith("UNIMPLEMENTED: While rewriting computation to not contain")


def test_eight_replicas_add_up_every_trainable_number_once():
    model = small_model()
    alone, together = (export(train_step(model), *STEP_SPECS, replicas=n) for n in (1, 8))
    embedding = tf_keras.Sequential([tf_keras.layers.Embedding(50, 8), tf_keras.layers.Dense(1)])
    embedding.compile(tf_keras.optimizers.AdamW(), "mse")
    embedding.build((4, 7))
    specs = tf.TensorSpec([4, 7], tf.int32), tf.TensorSpec([4, 7, 1])
    words = export(train_step(embedding), *specs, replicas=8)
    results = compile_all([alone, together, words])
    numbers = [
        sum(v.shape.num_elements() for v in m.trainable_variables) for m in (model, embedding)
    ]
    assert [r.verdict for r in results] == ["compiles"] * 3
    assert [r.all_reduce_bytes for r in results] == [0, 4 * numbers[0], 4 * numbers[1]]
    assert [r.replicas for r in results] == [1, 8, 8]
    # What was changed for the export is as before.
    assert model.train_step((tf.ones([4, 8]), tf.ones([4, 3])))


def test_a_program_for_other_replicas_than_the_targets_is_refused():
    program = dataclasses.replace(product_program(8), replicas=4)
    with pytest.raises(PreflightError, match="over 4 devices; v5e-8 has 8"):
        compiler.compile(program, "v5e-8")


# --- its process ----------------------------------------------------------------------------------


def test_a_limit_of_time_ends_the_compiler(slow):
    result, told = compiler.compile(slow, timeout=1.5), "was ended after the time limit of 1.5 s"
    assert result.verdict == "timed out"
    assert result.message.startswith(f"The compiler gave no answer: it {told}")


@pytest.mark.long
def test_a_block_has_one_process_and_another_where_that_dies_or_is_busy(slow, children):
    with compiler.started():
        seen = set()

        def count(stage, seconds):
            seen.update(p.pid for p in children())

        assert all(compiler.compile(product_program(n), progress=count).ok for n in (40, 48))
        (ahead,) = children()
        assert seen == {ahead.pid}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            both = pool.map(lambda p: compiler.compile(p, progress=count), [slow, slow])
            assert all(result.ok for result in both)
        assert len(seen) == 2 and children() == [ahead]

        def kill(stage, seconds):
            if stage == "compiling":
                ahead.kill()

        killed = compiler.compile(slow, "v5e-1", progress=kill)
        assert killed.verdict == "crashed"
        assert "gave no answer: the process ended by SIGKILL" in killed.message
        assert children() == []
        assert compiler.compile(product_program(41)).ok
    assert children() == []
    with pytest.raises(KeyError), compiler.started():
        raise KeyError


INSTALL = "python -m pip install 'tpu-preflight[jax]'"
LINUX = "Google's TPU compiler (libtpu) exists for Linux on x86-64 only."


@pytest.mark.parametrize(
    ("found", "system", "begin", "end"),
    [
        ({}, "linux", "jax and libtpu are not installed", INSTALL),
        ({"jax": "0.10.2", "jaxlib": "0.10.2"}, "linux", "libtpu is not installed", INSTALL),
        ({}, "darwin", LINUX, LINUX),
    ],
)
def test_without_the_packages_the_one_command_is_told(monkeypatch, found, system, begin, end):
    monkeypatch.setattr(server_process, "versions", lambda: found)
    monkeypatch.setattr(server_process.sys, "platform", system)
    result = compiler.compile(product_program(8))
    assert result.verdict == "not available"
    assert result.whole_message.startswith(begin)
    assert result.whole_message.endswith(end)


def test_rows_that_a_sparsecore_gathers_are_no_hindrance():
    def step(table, ids, w):  # jaxlib 0.10.2 can't read back what libtpu 0.0.51 makes of it
        return tf.reduce_sum(tf.gather(table, ids) @ w)

    specs = tf.TensorSpec([8192, 256]), tf.TensorSpec([2048], tf.int32), tf.TensorSpec([256, 256])
    found = compiler.compile(export(step, *specs), "v6e-8", effort="full")
    assert found.ok and found.peak_bytes >= 4 * 8192 * 256
    assert found.flops == pytest.approx(2 * 2048 * 256 * 256, rel=0.05)
    assert "async-update(" in found.hlo
