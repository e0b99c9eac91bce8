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
    huge_program = export(lambda x: x + 1.0, huge)
    small, large = compile_all([product_program(64), huge_program], target)
    assert small.ok
    assert large.verdict == "out of memory"
    available = re.search(r"available HBM \(([\d.]+)G\)", large.whole_message)
    assert large.available_bytes == int(float(available[1]) * 2**30)
    assert large.peak_bytes > 2 * 250_000**2 * 4


def test_what_the_tpu_refuses_is_told_in_googles_words():
    whole_numbers = tf.TensorSpec([8, 8], tf.int64)
    refused = compiler.compile(export(product, whole_numbers, whole_numbers))
    assert (refused.verdict, refused.ok, refused.hlo) == ("refused", False, "")
    assert refused.message.startswith("UNIMPLEMENTED: While rewriting computation to not contain")


def trainable_numbers(model):
    return sum(variable.shape.num_elements() for variable in model.trainable_variables)


def test_eight_replicas_add_up_every_trainable_number_once():
    model = small_model()
    step = train_step(model)
    one_replica = export(step, *STEP_SPECS, replicas=1)
    eight_replicas = export(step, *STEP_SPECS, replicas=8)
    embedding = tf_keras.Sequential([tf_keras.layers.Embedding(50, 8), tf_keras.layers.Dense(1)])
    embedding.compile(tf_keras.optimizers.AdamW(), "mse")
    embedding.build((4, 7))
    specs = tf.TensorSpec([4, 7], tf.int32), tf.TensorSpec([4, 7, 1])
    words = export(train_step(embedding), *specs, replicas=8)
    results = compile_all([one_replica, eight_replicas, words])
    # A single replica has nothing to add up.
    numbers = [0, trainable_numbers(model), trainable_numbers(embedding)]
    for result, replicas, parameters in zip(results, [1, 8, 8], numbers, strict=True):
        assert result.verdict == "compiles"
        assert result.replicas == replicas
        assert result.all_reduce_bytes == 4 * parameters
    # What was changed for the export is as before.
    assert model.train_step((tf.ones([4, 8]), tf.ones([4, 3])))


def test_a_program_for_other_replicas_than_the_targets_is_refused():
    program = dataclasses.replace(product_program(8), replicas=4)
    with pytest.raises(PreflightError, match="over 4 devices; v5e-8 has 8"):
        compiler.compile(program, "v5e-8")


# --- its process ----------------------------------------------------------------------------------


def test_a_limit_of_time_ends_the_compiler(slow):
    result = compiler.compile(slow, timeout=1.5)
    assert result.verdict == "timed out"
    assert result.message.startswith(
        "The compiler gave no answer: it was ended after the time limit of 1.5 s"
    )


@pytest.mark.long
def test_a_block_has_one_process_and_another_where_that_dies_or_is_busy(slow, children):
    with compiler.started():
        pids = set()

        def record(stage, seconds):
            pids.update(process.pid for process in children())

        def compile(program):
            return compiler.compile(program, progress=record)

        # One after the other: the same process.
        for n in (40, 48):
            assert compile(product_program(n)).ok
        (shared,) = children()
        assert pids == {shared.pid}
        # Two at a time: one has a process of its own, which ends.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for result in pool.map(compile, [slow, slow]):
                assert result.ok
        assert len(pids) == 2
        assert children() == [shared]

        def kill(stage, seconds):
            if stage == "compiling":
                shared.kill()

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
    ("versions", "system", "begin", "end"),
    [
        ({}, "linux", "jax and libtpu are not installed", INSTALL),
        ({"jax": "0.10.2", "jaxlib": "0.10.2"}, "linux", "libtpu is not installed", INSTALL),
        ({}, "darwin", LINUX, LINUX),
    ],
)
def test_without_the_packages_the_one_command_is_told(monkeypatch, versions, system, begin, end):
    monkeypatch.setattr(server_process, "versions", lambda: versions)
    monkeypatch.setattr(server_process.sys, "platform", system)
    result = compiler.compile(product_program(8))
    assert result.verdict == "not available"
    assert result.whole_message.startswith(begin)
    assert result.whole_message.endswith(end)


def test_rows_that_a_sparsecore_gathers_are_no_hindrance():
    def step(table, ids, w):  # jaxlib 0.10.2 can't read back what libtpu 0.0.51 makes of it
        return tf.reduce_sum(tf.gather(table, ids) @ w)

    table = tf.TensorSpec([8192, 256])
    ids = tf.TensorSpec([2048], tf.int32)
    w = tf.TensorSpec([256, 256])
    compiled = compiler.compile(export(step, table, ids, w), "v6e-8", effort="full")
    assert compiled.ok
    assert compiled.peak_bytes >= 4 * 8192 * 256
    assert compiled.flops == pytest.approx(2 * 2048 * 256 * 256, rel=0.05)
    assert "async-update(" in compiled.hlo
