"""What a Keras model's ``fit`` asks of it, and the preflight with it."""

import os
import subprocess
import sys
import textwrap

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

from tpu_preflight.checks import array_division, batch_results, strategy_scope
from tpu_preflight.context import Context
from tpu_preflight.errors import PreflightError
from tpu_preflight.report import FAIL, OPEN, PASS
from tpu_preflight.subjects.load_subject import load_subject
from tpu_preflight.subjects.subject import Target

pytestmark = pytest.mark.slow

TARGET = Target("v5e-1", 1)


class Sampled(tf.keras.Model):
    """Draws negatives in a train step of its own, and has no test step for such rows."""

    def __init__(self):
        super().__init__()
        self.table = tf.keras.layers.Embedding(4, 2)

    def call(self, ids):
        tf.debugging.assert_less(tf.shape(ids)[1], 4)  # one more than the train step hands over
        return self.table(ids)

    def train_step(self, ids):
        noise = tf.random.uniform([])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(ids[:, 1:]) * noise)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {"loss": loss}


class OwnTestStep(Sampled):
    def test_step(self, ids):
        return {"loss": tf.reduce_mean(self(ids[:, 1:]))}


def results_of(model, **options):
    model.compile("sgd", **options)
    ids = tf.data.Dataset.from_tensors(tf.ones([8, 4], tf.int32))
    subject = load_subject(model, ids, 60, len)
    context = Context(subject=subject, targets=(TARGET,), say=len)
    context.read_sample(1)
    context.trace()
    item, *_ = batch_results.check(context)
    return item


def test_an_inherited_test_step_decides_nothing():
    item = results_of(Sampled())
    assert item.state == OPEN
    assert "draws random numbers" in item.finding


def test_a_test_step_of_the_models_own_is_compared():
    assert results_of(OwnTestStep()).state == PASS


def test_a_test_step_belongs_to_an_inherited_train_step_or_to_a_compiled_loss():
    layers = tf.keras.layers
    plain = tf.keras.Sequential([layers.Input([4]), layers.Dense(2)])
    data = (tf.ones([8, 4]), tf.ones([8, 2]))
    for model, is_tested in ((plain, True), (Sampled(), False), (OwnTestStep(), True)):
        model.compile("sgd")
        assert load_subject(model, data, 60, len).has_test_step == is_tested
    sampled = Sampled()
    sampled.compile("sgd", loss="mse")
    assert load_subject(sampled, data, 60, len).has_test_step


class Picker(keras.Model):
    """Picks rows of a constant, by whole numbers, as a graph network does."""

    def __init__(self, casts):
        super().__init__()
        self.casts = casts
        self.head = keras.layers.Dense(3)

    def call(self, indices):
        if self.casts:
            indices = keras.ops.cast(indices, "int32")
        return keras.ops.take(self.head(keras.ops.ones([6, 4])), indices, axis=0)


@pytest.mark.parametrize("casts", [False, True])
def test_a_model_of_whole_numbers_is_tried_with_their_mean_as_by_fit(casts):
    indices = tf.ones([8], tf.int32)

    def build():
        model = Picker(casts)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model, tf.data.Dataset.from_tensors((indices, indices))

    context = Context(subject=load_subject(build, None, 60, len), targets=(TARGET,), say=len)
    context.read_sample(1)
    context.trace()
    items = [item for item in strategy_scope.check(context) if "strategy.scope" in item.name]
    if casts:
        assert [item.state for item in items] == [PASS]
    else:
        (item,) = items
        assert item.state == FAIL
        assert "Unable to automatically build the model" in item.finding
        assert "keras.ops.cast" in item.fix


def test_arrays_with_a_model_are_one_batch_as_fit_takes_it():
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    subject = load_subject(model, (np.ones([16, 4]), np.ones([16, 2], "float32")), 60, len)
    subject.read_sample(1)
    assert subject.sample.largest == ((16, 4), (16, 2))
    assert [spec.dtype for spec in subject.structure] == [tf.float32, tf.float32]


ON_TWO_CPUS = """
import contextlib
import keras
import tensorflow as tf
from tpu_preflight import compiler, preflight, subprocess_run

def compile(program, target, **options):
    return compiler.Compiled(program.name, target, "not available")

compiler.compile, compiler.started = compile, contextlib.nullcontext
subprocess_run._divide_cpu()

class ByName(keras.Model):
    def __init__(self, casts):
        super().__init__()
        self.casts = casts
        self.head = keras.layers.Dense(3)

    def call(self, rows):
        indices = rows["indices"]
        if self.casts:
            indices = keras.ops.cast(indices, "int32")
        return self.head(tf.gather(tf.eye(8), indices))

class Alone(ByName):
    def compute_loss(self, x, y, y_pred, *others, **options):
        return tf.reduce_mean(y_pred)

class Flawed(ByName):
    def compute_loss(self, x, y, y_pred, *others, **options):
        if isinstance(tf.distribute.get_strategy(), tf.distribute.MirroredStrategy):
            raise ValueError("one replica only")
        return tf.reduce_mean(y_pred)

def build(kind, casts, labels=True):
    model = kind(casts)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    indices = tf.ones([16], tf.int32)
    element = {"indices": indices}
    if labels:
        element = (element, indices)
    return model, tf.data.Dataset.from_tensors(element)

for case in [(ByName, False), (ByName, True), (Alone, False, False), (Flawed, True)]:
    for item in preflight(lambda: build(*case), target="v5e-8").items:
        if item.check == 5:
            print(case[0].__name__, case[1], item.state, item.name, item.finding)
"""


@pytest.mark.long
def test_a_step_of_fit_on_two_cpus_is_tried_where_the_step_runs_in_the_scope(tmp_path):
    """Of whole numbers outside a tuple, a MirroredStrategy makes means, a TPUStrategy doesn't."""
    (tmp_path / "model.py").write_text(ON_TWO_CPUS)
    done = subprocess.run(
        [sys.executable, "model.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    fits = [line for line in lines if "fit on two replicas" in line]
    works, raises = fits
    assert works.startswith("ByName True pass")
    assert raises.startswith("Flawed True fail") and "one replica only" in raises
    failures = [line for line in lines if " fail made inside strategy.scope()" in line]
    (failure,) = failures
    assert failure.startswith("ByName False")
    assert "Unable to automatically build" in failure


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return np.ones([8, 4], "float32"), np.ones([8, 1], "float32")


def test_what_cannot_be_read_says_what_to_hand_in():
    def build(rows, width=8):
        raise AssertionError("it is not called")

    with pytest.raises(
        PreflightError, match=r"build \(test_fit_rules.py, line \d+\) needs"
    ) as caught:
        load_subject(build, None, 60, len)
    assert "(rows)" in caught.value.what
    assert "rows=8" in caught.value.fix
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(PreflightError, match="a PyDataset") as caught:
        load_subject(model, Rows(), 60, len)
    assert "tf.data.Dataset.from_generator" in caught.value.fix


KERAS_ON_JAX = """
import contextlib
import keras
import numpy as np
from tpu_preflight import compiler, preflight

def compile(program, target, **options):
    return compiler.Compiled(program.name, target, "not available")

compiler.compile, compiler.started = compile, contextlib.nullcontext

class Scaled(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = keras.layers.Dense(2)

    def call(self, x):
        return self.head(x)

    def train_step(self, state, data):
        trainable, others, optimizer, metrics = state
        largest = keras.ops.max(self.head.kernel)
        return {"largest": largest}, state

def made(model, rows):
    model.compile("sgd", "mse")
    return model, (np.ones([rows, 4], "float32"), np.ones([rows, 2], "float32"))

plain = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
print(preflight(*made(plain, 12), "v5e-8").text(verbose=True))
print("=====")
print(preflight(*made(plain, 16), "v5e-8").text(verbose=True))
print("=====")

class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return made(plain, 24)[1]

print(preflight(plain, Rows(), "v5e-8").text(verbose=True))
print("=====")
print(preflight(*made(Scaled(), 16), "v5e-8").text(verbose=True))
print("=====")
print(preflight(*made(plain, 16), ["v5e-8", "v5e-32"]).text(verbose=True))
print("=====")
print(plain.count_params(), plain.layers[-1].kernel.numpy().shape)
print("=====")

class Averaged(Scaled):
    def call(self, x):
        return self.head(x) * float(np.asarray(x).mean())

print(preflight(*made(Averaged(), 16), "v5e-8").text(verbose=True))
"""


@pytest.mark.long
def test_keras_on_jax_is_asked_as_much_as_by_its_fit(tmp_path):
    """State is taken out of the variables, and the devices divide arrays."""
    (tmp_path / "model.py").write_text(textwrap.dedent(KERAS_ON_JAX))
    environment = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    environment.pop("TF_USE_LEGACY_KERAS", None)
    done = subprocess.run(
        [sys.executable, "model.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    texts = done.stdout.split("=====")
    indivisible, divided, from_rows, stateful, targets, held, unbuilt = texts
    assert "not ready" in indivisible
    assert "a global batch of 12 can't be divided by 8 (v5e-8)" in indivisible
    assert "not ready" not in divided
    assert "16 rows, 2 on each (v5e-8)" in divided
    assert "24 rows, 3 on each (v5e-8)" in from_rows
    assert "fit would raise at model.py" in stateful
    assert "keras.ops.max(self.head.kernel)" in stateful
    assert "Take the values from the state" in stateful
    assert "for v5e-32 compiled for one device: the batch can't be divided" in targets
    assert held.strip() == "10 (4, 2)"
    assert "not ready" in unbuilt
    assert "fit would raise at model.py" in unbuilt
    assert "NumPy is called" in unbuilt and "float(np.asarray(x).mean())" in unbuilt


def test_the_array_that_the_devices_cant_divide_is_named():
    paths = jax.tree.flatten_with_path(({"others": 0, "rows": 0}, 0))[0]
    names = [array_division._name(path) for path, _ in paths]
    assert names == ["x['others']", "x['rows']", "y"]
    shapes = [(12, 4), (16, 4), (16,)]
    _, item = array_division.division(shapes, [Target("v5e-8", 8)], names)
    assert item.state == FAIL
    assert "a global batch of 12 rows in x['others'] can't be divided by 8" in item.finding
