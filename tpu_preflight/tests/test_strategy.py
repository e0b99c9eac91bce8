"""Check 5: jit_compile, what was made outside the scope, and the step under a strategy's run."""

import contextlib
import subprocess
import sys
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from programs import ROOT
from small_models import KINDS, VECTOR, batches, classifier, dense, mean, ready, the

from tpu_preflight.checklist import preflight
from tpu_preflight.checks import replica_update, strategy_scope
from tpu_preflight.context import Context
from tpu_preflight.errors import PreflightError
from tpu_preflight.report import FAIL, OPEN, PASS, WARN
from tpu_preflight.subjects.subject import Target
from tpu_preflight.subjects.tensorflow_subject import TensorflowSubject

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", **KINDS)
def test_jit_compile_left_on(kind, no_compiler):
    for is_on, state in ((True, FAIL), (False, PASS)):
        report = preflight(dense(kind, jit_compile=is_on), batches(), "v5e-1")
        assert the(report, 5, "jit_compile").state == state
    report = preflight(tf.function(mean, jit_compile=True), VECTOR, "v5e-1")
    assert the(report, 5, "jit_compile").state == WARN


def accuracy():
    return [tf.keras.metrics.SparseCategoricalAccuracy()]


@pytest.mark.parametrize(
    ("kind", "part", "make", "says"),
    [
        (tf.keras, "optimizer", tf.keras.optimizers.Adam, "optimizer"),
        (keras, "optimizer", keras.optimizers.Adam, "optimizer"),
        (tf.keras, "metrics", accuracy, "Metric"),
    ],
)
def test_what_was_made_outside_the_scope(kind, part, make, says, no_compiler):
    outside = {"optimizer": "adam", part: make()}

    def build():
        model = dense(kind)
        model.compile(loss="mse", **outside)
        return model, batches().map(lambda x, y: (x, x[:, :4]))

    item = the(preflight(build, target="v5e-1"), 5, "scope")
    assert item.state == FAIL
    assert says in item.finding
    assert says != "Metric" or "model.compile" in item.where


def test_a_model_without_a_factory_leaves_the_scope_open(no_compiler):
    model = dense()
    assert the(preflight(model, batches(), "v5e-1"), 5, "scope").state == WARN
    report = preflight(lambda: (model, batches()), target="v5e-1")
    assert "same model twice" in the(report, 5, "scope").finding
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model, _ = ready()()
    with pytest.raises(PreflightError, match="under a OneDeviceStrategy"):
        preflight(model, batches(), "v5e-1")


# --- losses of a train step, and what they are divided by -----------------------------------------


def by_the_global_batch(x):
    return tf.reduce_sum(x) / 16


def by_the_replicas_as_well(x):
    return by_the_global_batch(x) / tf.distribute.get_strategy().num_replicas_in_sync


def partly_by_the_replicas_rows(x):
    return tf.reduce_sum(x) / 16 * 48 / 49 + tf.reduce_mean(x) / 49


def compares(x):  # each row with the others, as SimCLR does: a replica has fewer of them
    itself = tf.eye(tf.shape(x)[0])
    similarity = -tf.square(x[:, None] - x) - 1e9 * itself
    loss = tf.reduce_mean(tf.reduce_logsumexp(similarity, 1))
    return loss / tf.distribute.get_strategy().num_replicas_in_sync


# --- train steps of one's own, with tf-keras ------------------------------------------------------


def leave(variable):
    """Change nothing."""


def assign(variable):
    variable.assign_add(tf.ones([4]))


def scatter(variable):
    variable.scatter_nd_update([[0]], [1.0])


def assign_a_slice(variable):
    variable[0].assign(1.0)


class Own(tf.keras.Model):
    def __init__(self, loss="none", touch=leave, mean=by_the_global_batch, unused_layer=None):
        super().__init__()
        self.mean = mean
        self.touch = touch
        self.unused_layer = unused_layer and unused_layer()
        self.head = tf.keras.layers.Dense(4)
        self.count = tf.Variable(tf.zeros([4]), trainable=False)
        self.each = tf.keras.losses.SparseCategoricalCrossentropy(True, reduction=loss)

    def call(self, x):
        self.touch(self.count)
        return self.head(x) + self.count

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.mean(self.each(y, self(x, training=True)))
        weights = self.head.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def own(optimizer="adam", **options):
    def build():
        model = Own(**options)
        model.compile(optimizer() if callable(optimizer) else optimizer)
        return model, batches()

    return build


def warms_up():
    rate = tf.keras.optimizers.schedules.PolynomialDecay(0.0, 9, 1.0)  # 0 in the first step
    return tf.keras.optimizers.SGD(rate)


# --- train steps of Keras 3, which calls the model, and its loss, before a strategy's first step --


def row(x):
    return tf.gather(tf.eye(8), x)


def part(x):
    return x["a"]


def row_of_part(x):
    return row(part(x))


def wide(x):
    if isinstance(x, tuple):
        x = x[0]
    return tf.repeat(x[:, None], 16, 1)


class NoCall(keras.Model):
    def __init__(self, take=row, loss=None):
        super().__init__()
        self.head = keras.layers.Dense(4)
        self.take = take
        self.compile("sgd", loss)

    def train_step(self, data):
        return {"loss": tf.reduce_mean(self.head(self.take(data)))}


class WithCall(NoCall):
    def call(self, x):
        return self.head(self.take(x))


def alone(kind, element, *options):
    def build():
        return kind(*options), batches().map(element)

    return build


def labels(x, y):
    return y


def labels_by_name(x, y):
    return {"a": y}


def rows_by_name(x, y):
    return {"a": x}


def labels_as_column(x, y):
    return x, y[:, None]


# --- functions of a module, and factories ---------------------------------------------------------

BEFORE = tf.Variable(1.0)  # as a module makes it when it is imported
MADE = {}


def from_before(x, y):
    return BEFORE.assign_add(tf.reduce_mean(x))


def of_a_variable_from_before():
    return from_before, batches()


def noisy():
    generator = tf.random.Generator.from_seed(1)

    def step(x, y):
        return x + generator.normal([8])

    return step, batches()


@tf.function
def of_the_module(x, y):
    with tf.GradientTape() as tape:
        losses = tf.reduce_sum(MADE["model"](x) ** 2, 1)
        loss = tf.nn.compute_average_loss(losses)
    weights = MADE["model"].trainable_variables
    MADE["optimizer"].apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return loss


def step_of_the_module():
    MADE["model"] = dense()
    MADE["optimizer"] = tf.keras.optimizers.Adam()
    return of_the_module, batches()


def masked():  # a mean over what is real, as in TensorFlow's tutorials of translation
    real = tf.constant([[1.0, 1, 1, 0]])

    def loss(y, x):
        return tf.reduce_sum(x * x * real) / tf.reduce_sum(real + 0 * x)

    model = dense()
    model.compile("sgd", loss)
    return model, batches()


def scaled_by_policy():
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        return ready()()
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


class Case(NamedTuple):
    """What is checked, and what is to be said of it."""

    build: Any
    says: str = ""  # what the only failure says; empty where there is none
    fix: str = ""
    where: str = ""
    # What a real fit does on two CPUs under MirroredStrategy, which is no TPU: the rule of
    # TPUStrategy wins.
    real_fit: str = "right"


CASES = [
    Case(own()),
    Case(
        own(loss="auto"),
        "Reduction.SUM",
        "compute_average_loss",
        where="loss = self.mean",
        real_fit="raises",
    ),
    Case(own(touch=assign)),
    Case(
        own(touch=scatter),
        "NotImplementedError",
        "no scatter updates",
        where="scatter_nd",
        real_fit="raises",
    ),
    # tpu_values.py, __getitem__; mixed_precision of tf-keras; the module's variable is on the host.
    Case(own(touch=assign_a_slice), "'assign'", "assign it whole", where="variable[0].assign"),
    Case(scaled_by_policy, "Mixed precision is not", "mixed_bfloat16", where="Dense"),
    Case(ready(run_eagerly=True), "run_eagerly=True", "Remove"),
    Case(of_a_variable_from_before, "made outside the scope: 1", "inside the scope"),
    # tpu_strategy.py, _reduce_to: a TPUStrategy has no mean of a nest, so whole numbers stay whole.
    Case(alone(WithCall, labels_by_name, row_of_part), real_fit="raises"),
    Case(alone(WithCall, labels), "convert 0.5", "in a tuple", real_fit="raises"),
    Case(alone(WithCall, rows_by_name, part, "mse"), "None values", "names", real_fit="raises"),
    Case(alone(WithCall, labels_as_column, wide, "mse"), "equal", "call it", real_fit="raises"),
    Case(alone(NoCall, rows_by_name, part), "Unable to auto", "a call method", real_fit="raises"),
    Case(noisy),
    Case(step_of_the_module),
    Case(own("sgd", mean=tf.reduce_mean), "8 times as much", "global_batch_size", real_fit="more"),
    Case(own("sgd", mean=partly_by_the_replicas_rows), " 1.14 times as much", "global_batch_size"),
    Case(
        own(warms_up, mean=tf.reduce_mean), "8 times as much", "global_batch_size", real_fit="more"
    ),
    Case(masked),
    Case(own(mean=tf.reduce_mean)),
    Case(
        own("sgd", mean=by_the_replicas_as_well),
        " 0.125 times as much",
        "Divide once",
        real_fit="less",
    ),
    Case(own("sgd", mean=compares), real_fit="less"),  # with fewer rows: as it should
    Case(
        own(unused_layer=tf.keras.Sequential),
        "lists all weights",
        "build(shape)",
        real_fit="raises",
    ),
    # It draws others on two devices.
    Case(ready(dropout=0.8, optimizer="sgd"), real_fit="less"),
]


@pytest.mark.parametrize(("factor", "is_fault"), [(1.0005, False), (1.02, True), (8, True)])
def test_what_an_optimizers_epsilon_leaves_of_a_factor_is_no_fault(factor, is_fault):
    key = (False, "kernel", 0)
    change = np.arange(1.0, 5)
    _, faults = replica_update._compared({key: factor * change}, {key: change}, 8, 1e-4)
    assert faults == [key] * is_fault


def test_a_change_that_is_rounding_beside_another_is_no_fault():
    kernel, bias = (False, "kernel", 0), (False, "bias", 1)
    large = np.ones(4)
    alone = {kernel: large, bias: 1e-4 * large}
    assert replica_update._compared({kernel: large, bias: 1e-5 * large}, alone, 8, 1e-3)[1] == []
    alone[bias] = 1e-2 * large
    faults = replica_update._compared({kernel: large, bias: 1e-3 * large}, alone, 8, 1e-3)[1]
    assert faults == [bias]


def noise(seed, size):
    return size * np.random.default_rng(seed).normal(size=4)


@pytest.mark.parametrize(
    ("bias", "state"), [(noise, PASS), (lambda seed, size: size * np.ones(4), FAIL)]
)
def test_a_change_that_rounding_makes_is_no_fault(bias, state):
    """Adam makes as much of a gradient of zero, but for rounding, as of a large one."""
    calls = []

    def changes(batch, replicas, nudge=0.0):
        calls.append(nudge)
        size = 8.0 if replicas == 8 else 1.0
        return {(False, "kernel", 0): np.ones(4), (False, "bias", 1): bias(len(calls), size)}

    (item,) = replica_update._findings(changes, [], [], 8, 1e-3)
    assert item.state == state
    assert calls == [0.0, 0.0, 0.0, 1e-5]


@pytest.mark.parametrize("case", CASES)
def test_a_step_under_a_tpus_strategy(case, no_compiler):
    report = preflight(case.build, target="v5e-8")
    failures = report.find(FAIL)
    if not case.says:
        assert not failures
        assert the(report, 5, "TPUStrategy.run").state == PASS
        assert the(report, 1, "TPU bridge").state == PASS
        return
    (item,) = failures
    assert item.check == 5
    assert case.says in item.finding
    assert case.fix in item.fix
    assert case.where in item.where


WITNESS = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import test_strategy
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
print(*(test_strategy.real_fit(case.build, strategy) for case in test_strategy.CASES))
"""


def real_fit(build, strategy):
    """Say whether a fit on two devices raises, or changes weights more than one device does."""
    tf.keras.utils.set_random_seed(1)
    initial_weights = []
    changes = []
    try:
        for scope in (strategy.scope(), contextlib.nullcontext()):
            with scope:
                step, data = build()
            if not hasattr(step, "fit"):
                batch = next(iter(strategy.experimental_distribute_dataset(data)))
                tf.function(strategy.run)(step, args=batch)
                return "right"
            step.fit(data.take(1), verbose=0)
            initial_weights = initial_weights or step.get_weights()
            step.set_weights(initial_weights)
            step.fit(data.take(1), verbose=0)
            differences = map(np.subtract, step.get_weights(), initial_weights)
            changes.append(np.concatenate([np.ravel(difference) for difference in differences]))
    except Exception:
        return "raises"
    on_two, on_one = changes
    times = np.vdot(on_one, on_two) / np.vdot(on_one, on_one)
    if times > 1.1:
        return "more"
    if times < 0.9:
        return "less"
    return "right"


@pytest.mark.long
def test_a_real_fit_on_two_devices_is_the_witness():
    command = [sys.executable, "-c", WITNESS]
    output = subprocess.check_output(command, cwd=ROOT / "tests", text=True)
    assert output.splitlines()[-1].split() == [case.real_fit for case in CASES]


def traced_context(model, data, factory=None):
    """Give a context of a model that was exported for one device."""
    subject = TensorflowSubject(model, data, factory=factory, seconds=60, keras="tf-keras")
    context = Context(subject, (Target("v5e-1", 1),), print)
    context.read_sample(1)
    context.trace()
    return context


@pytest.mark.parametrize(("model", "failures"), [(Own(), []), (Own("auto"), [FAIL]), (dense(), [])])
def test_without_a_factory_only_what_no_scope_would_mend_is_told(model, failures):
    model.compile("adam", "mse", metrics=["accuracy"])
    context = traced_context(model, batches())
    items = strategy_scope.check(context)
    assert [item.state for item in items if item.state == FAIL] == failures
    assert (context.traced_under_run is None) == bool(failures)


def test_what_computes_in_the_scope_leaves_it_open(no_compiler):
    def build():
        current = tf.distribute.get_strategy()
        tf.function(current.run)(tf.zeros, args=([2],))
        return dense(), batches()

    assert the(preflight(build, target="v5e-1"), 5, "scope").state == OPEN


def test_the_model_in_the_scope_holds_no_large_weights_of_its_own():
    models = []
    shapes_drawn = []

    def draw(shape, dtype=None):
        shapes_drawn.append(shape)
        return tf.ones(shape, dtype)

    def build():
        layer = tf.keras.layers.Dense(1000, kernel_initializer=draw, bias_initializer="ones")
        models.append(classifier(tf.keras, tf.keras.layers.Input([1000]), layer))
        return models[-1]

    specs = tf.TensorSpec([2, 1000]), tf.TensorSpec([2], tf.int32)
    strategy_scope.check(traced_context(build(), specs, build))
    kernel, bias = models[-1].get_weights()
    assert len(models) == 2
    assert len(shapes_drawn) == 1
    assert not kernel.any()
    assert bias.all()
