"""The compile engine against hand counts, known refusals, and everything that can go wrong."""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import os
import pickle
import re
import signal
import subprocess
import sys
import time

import model_fuzz
import numpy as np
import psutil
import pytest
import tensorflow as tf
import tf_keras
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.base import files
from helpers.base.settings import ROOT, locked_versions
from helpers.tpu import hardware, layout
from helpers.xla import tpu_compiler
from helpers.xla.tpu_compiler import (
    Compiled,
    NotCompilable,
    Parameter,
    Program,
    TracingTooLong,
    WrongReplicas,
    compile_many,
    export,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="Google's compiler exists for Linux only"
)

# As many as fit in a minute. Of the first 200 (2026-11: TensorFlow 2.20, libtpu 0.0.51) 150
# compiled, TensorFlow refused 42 and the TPU's compiler 8; nothing crashed or hung.
FUZZED = 40

F8, N = tf.TensorSpec([8]), tf.TensorSpec([], tf.int32)

CHILD = "helpers.xla.tpu_compiler.child"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Each test asks the compiler itself, and leaves the user's cache alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tensorflow-on-tpu" / "tpu-compiler"


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    left = [p for p in psutil.Process().children() if CHILD in p.cmdline()]
    assert left == []


def product(x, y):
    return x @ y


def product_program(n=256):
    return export(product, tf.TensorSpec([n, n]), tf.TensorSpec([n, n]))


def small_model():
    model = tf_keras.Sequential([tf_keras.layers.Dense(16, "relu"), tf_keras.layers.Dense(3)])
    model.compile(tf_keras.optimizers.Adam(), "mse", metrics=["mae"])
    model.build((4, 8))
    return model


def train_step(model):
    return lambda x, y: model.train_step((x, y))


STEP_SPECS = tf.TensorSpec([4, 8]), tf.TensorSpec([4, 3])


# --- from TensorFlow to a program -----------------------------------------------------------------


def test_a_function_becomes_a_program_with_its_parameters():
    offset = tf.constant([1.0, 2, 3])
    weights = tf.Variable(tf.ones([8, 3]), name="weights")

    def f(batch, scale):
        return {"y": (batch["x"] @ weights + offset) * scale, "n": tf.shape(batch["x"])[0]}

    program = export(f, {"x": tf.TensorSpec([4, 8])}, tf.TensorSpec([]))
    assert program.name == "f"
    assert [p.kind for p in program.arguments] == ["argument", "argument"]
    assert Parameter("weights", "variable", "f32[8,3]") in program.parameters
    assert [p.shape for p in program.arguments] == ["f32[4,8]", "f32[]"]
    assert sorted(program.results) == ["f32[4,3]", "s32[]"]
    assert program.donated == ()
    assert sum(p.bytes for p in program.arguments) == 4 * 8 * 4 + 4
    assert repr(program).startswith("f(f32[4,8], f32[]) with 1 variables → ")


def test_a_training_step_gives_its_variables_memory_to_their_new_values():
    model = small_model()
    before = [v.numpy() for v in model.variables]
    program = export(train_step(model), *STEP_SPECS)
    variables = [i for i, p in enumerate(program.parameters) if p.kind == "variable"]
    # The learning rate is read only; weights, two moments each, step and metrics are written.
    written = {program.parameters[i].name for i in program.donated}
    assert set(program.donated) <= set(variables)
    assert {program.parameters[i].name for i in set(variables) - set(program.donated)} == {
        "learning_rate"
    }
    assert {v.name.partition(":")[0] for v in model.trainable_variables} <= written
    for old, new in zip(before, model.variables, strict=False):
        np.testing.assert_array_equal(old, new.numpy())


def test_tensors_and_arrays_stand_for_their_shape_and_type_alone():
    described = export(product, tf.TensorSpec([2, 3]), tf.TensorSpec([3, 4]))
    given_ = export(product, tf.ones([2, 3]), np.ones([3, 4], "float32"))
    assert described.hlo == given_.hlo
    with pytest.raises(NotCompilable, match="The size that Range makes"):
        export(lambda n: tf.range(n), tf.constant(4))


def test_defaults_are_kept_inside():
    def scaled(x, factor=3.0, flag=True):
        return x * factor if flag else x

    assert [p.shape for p in export(scaled, F8).parameters] == ["f32[8]"]


def test_a_keras_model_is_a_function_too():
    program = export(small_model(), STEP_SPECS[0])
    assert program.results == ("f32[4,3]",)
    assert [p.kind for p in program.parameters] == ["argument", *["variable"] * 4]
    assert program.name.startswith("sequential")


def test_the_same_function_gives_the_same_program_in_another_process():
    script = (
        "from helpers.base.settings import ENVIRONMENT\n"
        "import os; os.environ.update(ENVIRONMENT)\n"
        "import sys, hashlib; sys.path.insert(0, 'tests')\n"
        "from test_tpu_compiler import *\n"
        "model = small_model()\n"
        "print(hashlib.sha256(export(train_step(model), *STEP_SPECS).hlo).hexdigest())"
    )
    there = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    tf_keras.backend.clear_session()
    here = [export(train_step(small_model()), *STEP_SPECS).hlo]
    tf_keras.backend.clear_session()
    here.append(export(train_step(small_model()), *STEP_SPECS).hlo)
    assert here[0] == here[1]
    assert there.stdout.split() == [hashlib.sha256(here[0]).hexdigest()], there.stderr
    assert str(ROOT).encode() not in here[0]
    assert b"site-packages" not in here[0]


def test_a_program_can_be_pickled_and_compiled_without_tensorflow(tmp_path):
    (tmp_path / "program").write_bytes(pickle.dumps(product_program(64)))
    script = (
        "import pickle, pathlib, sys\n"
        "from helpers import tpu_compiler\n"
        f"program = pickle.loads(pathlib.Path({str(tmp_path / 'program')!r}).read_bytes())\n"
        "print(tpu_compiler.compile(program).verdict, 'tensorflow' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("compiles False\n", "")


def no_kernel(x):
    return tf.unique_with_counts(x)[0]


def inner_range(n):
    return tf.range(n)  # here


def outer_range(n):
    return tf.map_fn(lambda z: z + tf.reduce_sum(inner_range(n)), tf.ones([3], tf.int32))


@tf.autograph.experimental.do_not_convert
def python_bool(x):
    return x if tf.reduce_sum(x) > 0 else -x


def grown_in_a_loop(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.while_loop(lambda v: tf.reduce_sum(v) > 1.0, lambda v: (v / 2.0,), (x,))[0]
    return tape.gradient(y, x)


@pytest.mark.parametrize(
    ("fn", "spec", "operation", "line"),
    [
        (no_kernel, F8, "UniqueWithCounts", "return tf.unique_with_counts(x)[0]"),
        (outer_range, N, "Range", "return tf.range(n)  # here"),
        (python_bool, F8, "", "return x if tf.reduce_sum(x) > 0 else -x"),
        (lambda x: 1 / 0, F8, "", None),
        (lambda x: tf.py_function(lambda v: v, [x], tf.float32), F8, "EagerPyFunc", None),
    ],
)
def test_a_refusal_names_the_operation_and_the_learners_line(fn, spec, operation, line):
    with pytest.raises(NotCompilable) as raised:
        export(fn, spec)
    error = raised.value
    assert error.operation == operation
    assert error.source.file == __file__
    assert line is None or error.source.code == line
    assert operation in str(error)
    assert f"test_tpu_compiler.py, line {error.source.line}" in str(error)
    assert "__inference" not in str(error)
    assert str(ROOT) not in str(error)


def test_a_refusal_inside_a_keras_model_names_the_layers_line():
    model = tf_keras.Sequential(
        [tf_keras.layers.Dense(3), tf_keras.layers.Lambda(lambda x: tf.strings.as_string(x))]
    )
    with pytest.raises(NotCompilable) as raised:
        export(lambda x: model(x), tf.TensorSpec([2, 4]))
    assert raised.value.operation == "AsString"
    assert "tf.strings.as_string(x)" in raised.value.source.code


def table():
    initializer = tf.lookup.KeyValueTensorInitializer(tf.range(4), tf.range(4))
    return tf.lookup.StaticHashTable(initializer, -1)


@pytest.mark.parametrize(
    ("make", "spec", "words"),
    [
        (lambda: lambda x: x, tf.TensorSpec([None, 4]), "every dimension must be a number"),
        (lambda: lambda x: x, tf.RaggedTensorSpec([4, None]), "every dimension must be a number"),
        (lambda: lambda x: x, tf.TensorSpec([2], tf.string), "an argument of a type that XLA"),
        (lambda: table().lookup, N, "neither argument nor variable"),
        (lambda: grown_in_a_loop, F8, "XLA refuses"),
        (lambda: lambda x: tf.Variable(x) + 1, F8, "can't trace"),
        (lambda: lambda x: tf.ensure_shape(x, [9]), F8, "can't trace"),
    ],
)
def test_other_refusals_say_what_is_wrong(make, spec, words):
    with pytest.raises(NotCompilable, match=words) as raised:
        export(make(), spec)
    assert raised.value.why
    assert raised.value.fix


def never_returns(x):
    while True:
        time.sleep(0.01)  # here


def never_returns_and_catches(x):
    while True:
        with contextlib.suppress(Exception):
            time.sleep(0.01)  # here


@pytest.mark.parametrize("fn", [never_returns, never_returns_and_catches])
@pytest.mark.parametrize("convert", [tf.function, tf.autograph.experimental.do_not_convert])
def test_tracing_that_does_not_return_is_stopped_at_its_line(fn, convert):
    with pytest.raises(TracingTooLong) as raised:
        export(convert(fn), F8, timeout=0.5)
    assert raised.value.source.code in (
        "while True:",
        "with contextlib.suppress(Exception):",
        "time.sleep(0.01)  # here",
    )
    assert "did not come back from tracing within 0.5 s" in str(raised.value)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert export(lambda x: x + 1, F8).results == ("f32[8]",)


def test_a_model_that_prints_and_forks_while_it_is_traced(capfd):
    def noisy(x):
        print("traced")  # noqa: T201
        if (child := os.fork()) > 0:
            os.waitpid(child, 0)
        return x + 1.0

    program = export(tf.autograph.experimental.do_not_convert(noisy), F8)
    assert program.results == ("f32[8]",)  # the fork's copy has ended, and did not come here
    assert "traced" in capfd.readouterr().out


def test_sizes_that_depend_on_values_are_found_with_their_line():
    def masked(x):
        kept = tf.boolean_mask(x, x > 0)  # the line
        return kept * 2.0, tf.reduce_sum(kept)

    program = export(masked, F8)
    assert program.results == ("f32[<=8]", "f32[]")
    assert {b.operation for b in program.bounded} == {"Where"}
    assert all(b.source.code.endswith("# the line") for b in program.bounded)
    assert "<=8" in repr(program.bounded[0])
    compiled = tpu_compiler.compile(program)
    assert compiled.ok
    assert compiled.bounded == program.bounded
    assert export(lambda x: tf.where(x > 0, x, 0.0), F8).bounded == ()


# --- the compiler ---------------------------------------------------------------------------------


def test_a_products_numbers_are_those_of_a_hand_count():
    compiled = tpu_compiler.compile(product_program(256))
    assert compiled.verdict == "compiles"
    assert compiled.flops == pytest.approx(2 * 256**3, rel=0.02)
    assert compiled.argument_bytes == 2 * 256 * 256 * 4
    assert compiled.output_bytes == 256 * 256 * 4
    assert compiled.bytes_accessed >= 3 * 256 * 256 * 4
    assert compiled.peak_bytes >= compiled.argument_bytes + compiled.output_bytes
    assert compiled.all_reduce_bytes == 0
    assert compiled.hlo.startswith("HloModule")
    assert "\nENTRY" in compiled.hlo
    assert compiled.versions.startswith("jax 0.10.")
    assert "v5e-8: compiles; 3.36e+07 flops" in repr(compiled)


def test_a_donated_variable_takes_no_second_place():
    weights = tf.Variable(tf.zeros([1024, 1024]))

    def step(x):
        weights.assign_add(x)
        return tf.reduce_sum(x)

    compiled = tpu_compiler.compile(export(step, tf.TensorSpec([1024, 1024])))
    assert compiled.alias_bytes == 1024 * 1024 * 4
    assert compiled.peak_bytes < 3 * 1024 * 1024 * 4


@pytest.mark.parametrize("target", ["v2-8", "v3-8", "v4-8", "v5e-1", "v5e-4", "v5p-8", "v6e-1"])
def test_every_target_says_how_much_memory_it_has(target):
    huge = tf.TensorSpec([250_000, 250_000])
    small, large = compile_many([product_program(64), export(lambda x: x + 1.0, huge)], target)
    assert small.ok
    assert large.verdict == "out of memory"
    said = re.search(r"available HBM \(([\d.]+)G\)", large.whole_message)
    assert large.available_bytes == int(float(said[1]) * 2**30)
    assert large.peak_bytes > 2 * 250_000**2 * 4
    assert "exceeds available HBM" in large.message
    assert len(large.message) < 200
    half = "one of the chip's two cores" in small.note
    assert half == target.startswith("v4")


def test_what_the_tpu_refuses_is_told_in_googles_words():
    refused = tpu_compiler.compile(
        export(product, *(tf.TensorSpec([8, 8], tf.int64) for _ in range(2)))
    )
    assert refused.verdict == "refused"
    assert refused.message.startswith("UNIMPLEMENTED: While rewriting computation to not contain")
    assert refused.hlo == ""
    assert not refused.ok
    assert repr(refused).startswith("product for v5e-8: refused. UNIMPLEMENTED")


def test_eight_replicas_add_up_every_trainable_number_once():
    model = small_model()
    alone, together = (export(train_step(model), *STEP_SPECS, replicas=n) for n in (1, 8))
    embedding = tf_keras.Sequential([tf_keras.layers.Embedding(50, 8), tf_keras.layers.Dense(1)])
    embedding.compile(tf_keras.optimizers.AdamW(), "mse")
    embedding.build((4, 7))
    specs = tf.TensorSpec([4, 7], tf.int32), tf.TensorSpec([4, 7, 1])
    words = export(train_step(embedding), *specs, replicas=8)
    results = compile_many([alone, together, words])
    numbers = [
        sum(v.shape.num_elements() for v in m.trainable_variables) for m in (model, embedding)
    ]
    assert [r.verdict for r in results] == ["compiles"] * 3
    assert [r.all_reduce_bytes for r in results] == [0, 4 * numbers[0], 4 * numbers[1]]
    assert [r.replicas for r in results] == [1, 8, 8]
    # What was changed for the export is as before.
    assert model.train_step((tf.ones([4, 8]), tf.ones([4, 3])))


def test_a_keras_3_optimizer_adds_up_its_gradients_too():
    script = (
        "import tensorflow as tf, keras\n"
        "from helpers import tpu_compiler\n"
        "model = keras.Sequential([keras.layers.Dense(16), keras.layers.Dense(3)])\n"
        "model.build((4, 8)); model.compile('adam', 'mse')\n"
        "model.optimizer.build(model.trainable_variables)\n"
        "step = lambda x, y: model.train_step((x, y))\n"
        "specs = tf.TensorSpec([4, 8]), tf.TensorSpec([4, 3])\n"
        "result = tpu_compiler.compile(tpu_compiler.export(step, *specs, replicas=8))\n"
        "print(result.verdict, result.all_reduce_bytes, 4 * model.count_params())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"TF_USE_LEGACY_KERAS": "0"},
    )
    verdict, added, expected = done.stdout.split()
    assert verdict == "compiles"
    assert added == expected


def test_another_number_of_replicas_than_the_target_has():
    program = dataclasses.replace(product_program(8), replicas=4)
    with pytest.raises(WrongReplicas, match="exported for 4 replicas; v5e-8 has 8"):
        tpu_compiler.compile(program, "v5e-8")


def test_an_unknown_effort():
    with pytest.raises(tpu_compiler.UnknownEffort, match="no effort 'most'"):
        tpu_compiler.compile(product_program(8), effort="most")


def test_an_unknown_target():
    with pytest.raises(hardware.UnknownAccelerator):
        tpu_compiler.compile(product_program(8), "v9-8")


# --- what can go wrong ----------------------------------------------------------------------------


def children():
    return [p for p in psutil.Process().children() if CHILD in p.cmdline()]


def big_program():
    x = tf.TensorSpec([64, 64])

    def deep(x):
        for _ in range(12):
            x = tf.linalg.svd(x)[1] @ tf.linalg.inv(x)
        return x

    return export(tf.autograph.experimental.do_not_convert(deep), x)


@pytest.fixture(scope="module")
def slow():
    """A program that takes the compiler long enough for something to happen to it."""
    return big_program()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGILL])
def test_a_killed_compiler_is_a_result_and_the_others_go_on(slow, number):
    begun, killed = [], []

    def programs():
        yield product_program(16)
        begun.append(slow)
        yield slow
        yield product_program(24)

    def kill(stage, seconds):
        if begun and stage == "compiling" and not killed:
            killed.append(children()[0].pid)
            os.kill(killed[0], number)

    results = compile_many(programs(), progress=kill)
    assert len(killed) == 1
    assert [r.verdict for r in results] == ["compiles", "crashed", "compiles"]
    assert results[1].message == f"The compiler's process ended by {number.name}."


def test_a_time_limit(slow):
    started = time.monotonic()
    result = tpu_compiler.compile(slow, timeout=1.5)
    assert result.verdict == "timed out"
    assert result.message == "The compiler was stopped after the time limit of 1.5 s."
    assert time.monotonic() - started < 10


def test_a_memory_limit(slow):
    result = tpu_compiler.compile(slow, memory_limit=100_000_000)
    assert result.verdict == "crashed"
    assert result.message.endswith("more of this machine's memory than the limit of 0.1 GB.")


def test_an_interruption_ends_the_compiler(slow):
    def interrupt(stage, seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tpu_compiler.compile(slow, progress=interrupt)
    assert children() == []


def test_the_compiler_ends_with_a_parent_that_was_killed(slow, tmp_path):
    (tmp_path / "program").write_bytes(pickle.dumps(slow))
    script = (
        "import pickle, pathlib, psutil, sys\n"
        "from helpers import tpu_compiler\n"
        f"program = pickle.loads(pathlib.Path({str(tmp_path / 'program')!r}).read_bytes())\n"
        "def say(stage, seconds):\n"
        "    print(*[p.pid for p in psutil.Process().children()], flush=True)\n"
        "tpu_compiler.compile(program, progress=say)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while psutil.pid_exists(child) and time.monotonic() < deadline:
        if psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.1)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_process_started_ahead_is_taken_once_and_never_left(slow):
    with tpu_compiler.started(), tpu_compiler.started():
        (ahead,) = children()
        seen = []
        result = tpu_compiler.compile(
            product_program(40), memory_limit=10**10, progress=lambda *_: seen.extend(children())
        )
        assert result.ok and {p.pid for p in seen} <= {ahead.pid} and children() == []
        assert tpu_compiler.compile(slow, memory_limit=10**8).verdict == "crashed"
    with tpu_compiler.started():
        (ahead,) = children()
        ahead.kill()
        ahead.wait(10)
        assert tpu_compiler.compile(product_program(41)).ok
    with pytest.raises(KeyError), tpu_compiler.started():
        raise KeyError
    assert children() == []


def test_several_at_once_do_not_fight():
    programs = [product_program(n) for n in (32, 40, 48)]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        results = list(pool.map(tpu_compiler.compile, programs))
    assert [r.verdict for r in results] == ["compiles"] * 3


def test_nothing_but_ours_is_printed(capfd):
    tpu_compiler.compile(product_program(20))
    tpu_compiler.compile(product_program(20), "v3-8")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({}, "jax and libtpu are not installed"),
        ({"jax": "0.10.2", "jaxlib": "0.10.2"}, "libtpu is not installed"),
    ],
)
def test_without_the_packages_the_one_command_is_told(monkeypatch, found, words):
    monkeypatch.setattr(tpu_compiler, "versions", lambda: found)
    result = tpu_compiler.compile(product_program(8))
    assert result.verdict == "not available"
    assert words in result.whole_message
    locked = locked_versions()
    command = f"python -m pip install jax=={locked['jax']} libtpu=={locked['libtpu']}"
    assert result.whole_message.endswith(command)


def test_on_another_system_there_is_no_command(monkeypatch):
    monkeypatch.setattr(tpu_compiler, "versions", dict)
    monkeypatch.setattr(tpu_compiler.sys, "platform", "darwin")
    result = tpu_compiler.compile(product_program(8))
    assert result.message == "Google's TPU compiler (libtpu) exists for Linux on x86-64 only."


def test_another_jax_is_tried_and_told(monkeypatch):
    found = tpu_compiler.versions() | {"jax": "0.9.2"}
    monkeypatch.setattr(tpu_compiler, "versions", lambda: found)
    result = tpu_compiler.compile(product_program(8))
    assert result.ok
    assert result.note == "jax 0.9.2 is installed; this route was proved with jax 0.10"


def test_a_jax_of_another_make_is_no_verdict_of_googles(monkeypatch, tmp_path):
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("__version__ = '9'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = tpu_compiler.compile(product_program(8))
    assert result.verdict == "not available"
    assert "ModuleNotFoundError" in result.message


# --- the cache ------------------------------------------------------------------------------------


def numbers(result: Compiled) -> Compiled:
    return dataclasses.replace(result, cached=False)


def test_the_second_answer_is_the_first_without_a_compiler(own_cache, monkeypatch):
    program = product_program(32)
    first = tpu_compiler.compile(program)
    monkeypatch.setattr(tpu_compiler.subprocess, "Popen", None)
    again = tpu_compiler.compile(export(product, *(tf.TensorSpec([32, 32]) for _ in range(2))))
    assert (first.cached, again.cached) == (False, True)
    assert numbers(again) == first
    assert again.hlo == first.hlo
    assert len(list(own_cache.iterdir())) == 1


def test_a_model_made_again_under_another_name_is_answered_from_the_cache_by_its_own_names():
    def narrow(name):
        layer = tf_keras.layers.Dense(2, name=name)
        return export(lambda x: tf.nn.relu(layer(x)), tf.TensorSpec([4096, 8]))

    first, again = (tpu_compiler.compile(narrow(name)) for name in ("early", "late"))
    assert (first.cached, again.cached) == (False, True)
    for result, own, other in ((first, "early/", "late/"), (again, "late/", "early/")):
        assert own in result.hlo and other not in result.hlo and "tf_op_" not in result.hlo


def test_another_question_is_not_answered_from_the_cache():
    with_child = [
        compile_many([product_program(32), product_program(33)]),
        compile_many([product_program(32)], "v3-8"),
        compile_many([product_program(32)], effort="full"),
    ]
    assert [r.cached for results in with_child for r in results] == [False] * 4


@pytest.mark.parametrize("damage", [b"", b"x", None])
def test_a_damaged_entry_is_made_again(own_cache, damage):
    program = product_program(32)
    first = tpu_compiler.compile(program)
    (entry,) = own_cache.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-5] if damage is None else damage)
    again = tpu_compiler.compile(program)
    assert not again.cached
    assert again.flops == first.flops
    assert tpu_compiler.compile(program).cached


def test_the_oldest_entries_make_room(own_cache, monkeypatch):
    monkeypatch.setattr(tpu_compiler, "CACHE_BYTES", 2500)
    told = {"verdict": "refused", "message": "m" * 900}
    for i in range(4):
        assert tpu_compiler._remember(f"{i:064}", told, b"") == ""
        os.utime(own_cache / f"{i:064}", (i, i))
    assert sorted(int(p.name) for p in own_cache.iterdir()) == [2, 3]
    left = own_cache / ".half"
    left.write_bytes(b"")
    os.utime(left, (1, 1))
    tpu_compiler._remember(f"{4:064}", told, b"")
    assert not left.exists()


def test_two_writers_leave_whole_entries(own_cache):
    def write(n):
        told = {"verdict": "refused", "message": str(n % 5) * 50_000}
        return tpu_compiler._remember(f"{n % 5:064}", told, b"text")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(write, range(100))) == {""}
    for n in range(5):
        told, text = tpu_compiler._remembered(f"{n:064}")
        assert (told["message"], text) == (str(n) * 50_000, b"text")


def test_a_full_disk_costs_the_memory_not_the_answer(monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    result = tpu_compiler.compile(product_program(8))
    assert result.ok
    assert result.note == "the result could not be kept for the next time: The disk is full"


def test_a_cache_that_is_no_folder_costs_the_memory_not_the_answer(own_cache):
    own_cache.parent.parent.mkdir(exist_ok=True)
    own_cache.parent.write_text("in the way")
    result = tpu_compiler.compile(product_program(8))
    assert result.ok
    assert result.note.startswith("the result could not be kept for the next time: ")


def test_the_cache_is_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the rules say: ignore it
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tpu_compiler.cache_folder() == tmp_path / ".cache/tensorflow-on-tpu/tpu-compiler"


# --- bounds, padding, batches ---------------------------------------------------------------------


def test_the_roofline_is_division():
    compiled = Compiled("f", "v3-8", "compiles", flops=123e12 / 2, bytes_accessed=900e9)
    bound = tpu_compiler.roofline(compiled)
    assert (bound.compute_seconds, bound.hbm_seconds) == pytest.approx((1.0, 2.0))
    assert (bound.seconds, bound.limit) == (pytest.approx(2.0), "HBM")
    assert repr(bound).startswith("v3-8: at least 2e+03 ms a step, bound by HBM")
    whole = tpu_compiler.roofline(dataclasses.replace(compiled, target="v5e-8", flops=197e12))
    assert (whole.compute_seconds, whole.hbm_seconds) == pytest.approx((1.0, 900 / 819))


def test_padding_of_a_dimension_of_two_is_found_with_its_layer():
    def narrow(x):
        with tf.name_scope("narrow"):
            y = tf.tensordot(x, tf.ones([128, 2]), 1)
        return tf.reduce_sum(tf.sort(y, -1), 0)

    found = tpu_compiler.padding(tpu_compiler.compile(export(narrow, tf.TensorSpec([64, 32, 128]))))
    assert found == tuple(sorted(found, key=lambda p: -p.bytes))
    for entry in found:
        assert entry.bytes == entry.count * (entry.layout.bytes - entry.layout.unpadded_bytes) > 0
        assert "of padding" in repr(entry)
    aligned = export(product, tf.TensorSpec([128, 128]), tf.TensorSpec([128, 128]))
    assert tpu_compiler.padding(tpu_compiler.compile(aligned)) == ()


@pytest.mark.parametrize("shape", [(5, 3), (256, 2), (8, 128), (1000,), (3, 5, 7), (300, 200)])
def test_the_compilers_own_layout_is_the_one_that_layout_predicts(shape):
    compiled = tpu_compiler.compile(export(lambda x: x + 1.0, tf.TensorSpec(shape)), "v5e-8")
    expected = layout.rearranged(shape)
    found = {p.layout.bytes for p in tpu_compiler.padding(compiled)}
    assert found == ({expected.bytes} if expected.bytes > expected.unpadded_bytes else set())


def fake_compiler(monkeypatch, memory, flops=lambda n: 1e9 * n, most=1 << 30):
    asked = []

    def one(child, program, target, timeout, effort, progress):
        asked.append(program)
        if program > most:
            return Compiled("f", target, "crashed", "The compiler's process ended by SIGILL.")
        available, needed = tpu_compiler.available_bytes(target), memory(program)
        verdict = "compiles" if needed <= available else "out of memory"
        message = "" if needed <= available else "Too much."
        return Compiled(
            "f",
            target,
            verdict,
            message,
            flops=flops(program),
            peak_bytes=int(needed),
            available_bytes=available,
        )

    monkeypatch.setattr(tpu_compiler, "_one", one)
    return asked


@settings(max_examples=200, deadline=None)
@given(
    fixed=st.integers(0, 20 * 2**30),
    each=st.integers(1_000, 2**31),
    bend=st.floats(0.5, 1.5),
    unit=st.sampled_from([1, 2, 8, 32]),
)
def test_the_largest_batch_is_found_within_a_few_attempts(fixed, each, bend, unit):
    with pytest.MonkeyPatch.context() as monkeypatch:

        def memory(n):  # a little concave or convex, as the compiler's is
            return fixed + each * n * (1 + (bend - 1) * n / (n + 1000))

        asked = fake_compiler(monkeypatch, memory)
        found = tpu_compiler.largest_batch(lambda n: n, "v5e-8", smallest=unit, most=65536)
    available = tpu_compiler.available_bytes("v5e-8")
    assert [a.batch for a in found.attempts] == asked
    assert len(set(asked)) == len(asked) <= 12
    assert all(n % unit == 0 for n in asked)
    if found.largest == 0:
        assert memory(unit) > available
    else:
        assert memory(found.largest) <= available
        above = max(unit, found.largest // 10 // unit * unit) + found.largest
        enough = memory(found.largest) >= 0.85 * available or memory(above + unit) > available
        assert found.largest >= 65536 // unit * unit or enough


def test_a_nearly_linear_need_takes_three_attempts(monkeypatch):
    # The small BERT on a v5e (2026-11): the need grows a little faster at first than later.
    asked = fake_compiler(monkeypatch, lambda n: 17e6 + 10.2e6 * n + 430 * n * n)
    found = tpu_compiler.largest_batch(lambda n: n, "v5e-8")
    assert asked[:2] == [8, 32] and len(asked) == 3
    assert found.largest == found.without_recomputing == asked[2]
    assert re.fullmatch(r"It takes 1\d\.\d\d GiB of 15\.75 GiB; more was not tried\.", found.reason)


def test_a_search_ends_in_time(monkeypatch):
    asked = []

    def one(child, program, target, timeout, effort, progress):
        asked.append((program, timeout))
        progress("compiling", 1.0)
        if program > 32:
            return Compiled("f", target, "timed out", "The compiler was stopped.")
        available = tpu_compiler.available_bytes(target)
        needed = 10**8 * program
        return Compiled("f", target, "compiles", peak_bytes=needed, available_bytes=available)

    monkeypatch.setattr(tpu_compiler, "_one", one)
    told = []
    found = tpu_compiler.largest_batch(
        lambda n: n, "v5e-8", timeout=70, seconds=50, progress=lambda s, _: told.append(s)
    )
    assert found.largest == 32 and "timed out. The compiler was stopped." in found.reason
    assert all(40 < limit <= 50 for _, limit in asked)
    assert told[:2] == ["attempt 1, batch 8: compiling", "attempt 2, batch 32: compiling"]


def test_parts_computed_twice_are_told(monkeypatch):
    fake_compiler(
        monkeypatch,
        lambda n: min(1e8 * n, 15e9 + 1e6 * n),
        lambda n: n * (1e9 if n <= 150 else 1.7e9),
    )
    found = tpu_compiler.largest_batch(lambda n: n, "v5e-8")
    assert found.largest > found.without_recomputing > 0
    assert found.without_recomputing <= 150
    assert "computes parts twice: 1.7e+09 flops per sample instead of 1e+09" in found.reason
    assert "computes parts twice" in repr(found)


@pytest.mark.parametrize(
    ("memory", "most", "largest", "reason"),
    [
        (lambda n: 1e12, 1 << 30, 0, "A batch of 8 does not fit: Too much."),
        (lambda n: 1.0 * n, 1 << 30, 4096, "More than 4096 was not tried."),
        (lambda n: 1e6 * n, 1000, 32, "crashed. The compiler's process ended by SIGILL."),
    ],
)
def test_the_reason_why_a_search_ends(monkeypatch, memory, most, largest, reason):
    fake_compiler(monkeypatch, memory, most=most)
    found = tpu_compiler.largest_batch(lambda n: n, "v5e-8", most=4096)
    assert found.largest == largest
    assert reason in found.reason


def test_the_largest_batch_of_a_real_program():
    def layer(n):
        return export(lambda x: tf.nn.softmax(x) @ tf.ones([2**14, 128]), tf.TensorSpec([n, 2**14]))

    stages = []
    found = tpu_compiler.largest_batch(
        layer, "v5e-8", smallest=4096, most=10**6, progress=lambda s, t: stages.append(s)
    )
    # Its argument alone takes 64 KiB a row.
    assert 0.5 < found.largest * 2**16 / tpu_compiler.available_bytes("v5e-8") <= 1
    assert found.attempts[-1].compiled.verdict in ("compiles", "out of memory")
    assert all(s.startswith("attempt ") for s in stages)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (2048, "2 KiB"),
        (3 * 2**20, "3 MiB"),
        (2**40, "1024.00 GiB"),
    ],
)
def test_sizes_are_written_for_people(number, text):
    assert tpu_compiler.size(number) == text


# --- random models --------------------------------------------------------------------------------


def test_random_models_get_a_verdict_with_a_reason():
    programs, refused = [], 0
    for seed in range(FUZZED):
        model = model_fuzz.model(seed)
        try:
            programs.append(export(model.fn, *model.specs, timeout=60))
        except NotCompilable as error:
            refused += 1
            # An operation, a tensor's use or a size.
            assert error.operation or re.search(r"\d+ elements|`tf.Tensor`", error.why), model
    results = compile_many(programs, timeout=120)
    assert len(results) + refused == FUZZED
    for program, result in zip(programs, results, strict=True):
        assert isinstance(program, Program)
        if result.verdict == "compiles":
            assert "\nENTRY" in result.hlo
            assert result.peak_bytes > 0
        else:
            assert result.verdict == "refused"
            assert re.search(r"%[\w.]+ = \w+\[|\w+\[[\d,]+\]", result.whole_message), result
    assert sum(r.ok for r in results) > FUZZED / 2
    assert refused > 0
