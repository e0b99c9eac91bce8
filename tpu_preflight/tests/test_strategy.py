"""Check 5: jit_compile, and what was made outside the scope."""

import contextlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from programs import ROOT
from small_models import KINDS, VECTOR, batches, classifier, dense, mean, ready, the

from tpu_preflight.checklist import preflight
from tpu_preflight.checks import strategy_scope
from tpu_preflight.context import Context
from tpu_preflight.errors import PreflightError
from tpu_preflight.report import FAIL, OPEN, PASS, WARN
from tpu_preflight.subjects.subject import Target
from tpu_preflight.subjects.tensorflow_subject import TensorflowSubject

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", **KINDS)
def test_jit_compile_left_on(kind, no_compiler):
    for on, state in ((True, FAIL), (False, PASS)):
        result = preflight(dense(kind, jit_compile=on), batches(), "v5e-1")
        assert the(result, 5, "jit_compile").state == state
    marked = preflight(tf.function(mean, jit_compile=True), VECTOR, "v5e-1")
    assert the(marked, 5, "jit_compile").state == WARN


@pytest.mark.parametrize(
    ("kind", "part", "make", "says"),
    [
        (tf.keras, "optimizer", tf.keras.optimizers.Adam, "optimizer"),
        (keras, "optimizer", keras.optimizers.Adam, "optimizer"),
        (tf.keras, "metrics", lambda: [tf.keras.metrics.SparseCategoricalAccuracy()], "Metric"),
    ],
)
def test_what_was_made_outside_the_scope(kind, part, make, says, no_compiler):
    outside = {"optimizer": "adam", part: make()}

    def build():
        model = dense(kind)
        model.compile(loss="mse", **outside)
        return model, batches().map(lambda x, y: (x, x[:, :4]))

    item = the(preflight(build, target="v5e-1"), 5, "scope")
    assert item.state == FAIL and says in item.finding
    assert says != "Metric" or "model.compile" in item.where


def test_a_model_without_a_factory_leaves_the_scope_open(no_compiler):
    model = dense()
    assert the(preflight(model, batches(), "v5e-1"), 5, "scope").state == WARN
    same = preflight(lambda: (model, batches()), target="v5e-1")
    assert "same model twice" in the(same, 5, "scope").finding
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        under, _ = ready()()
    with pytest.raises(PreflightError, match="under a OneDeviceStrategy"):
        preflight(under, batches(), "v5e-1")


MEAN = lambda x: tf.reduce_sum(x) / 16  # noqa: E731
TWICE = lambda x: MEAN(x) / tf.distribute.get_strategy().num_replicas_in_sync  # noqa: E731


def compares(x):  # each row with the others, as SimCLR does: a replica has fewer of them
    near = -tf.square(x[:, None] - x) - 1e9 * tf.eye(tf.shape(x)[0])
    mean = tf.reduce_mean(tf.reduce_logsumexp(near, 1))
    return mean / tf.distribute.get_strategy().num_replicas_in_sync


class Own(tf.keras.Model):
    def __init__(self, loss="none", touch=lambda count: None, mean=MEAN, aside=None):
        super().__init__()
        self.mean, self.touch, self.aside = mean, touch, aside and aside()
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


class NoCall(keras.Model):  # which Keras 3 calls, and its loss, before a strategy's first step
    def __init__(self, take=lambda x: row(x), loss=None):
        super().__init__()
        self.head, self.take = keras.layers.Dense(4), take
        self.compile("sgd", loss)

    def train_step(self, data):
        return {"loss": tf.reduce_mean(self.head(self.take(data)))}


class WithCall(NoCall):
    def call(self, x):
        return self.head(self.take(x))


def alone(kind, element, *options):
    return lambda: (kind(*options), batches().map(element))


BEFORE = tf.Variable(1.0)  # as a module makes it when it is imported
FROM_BEFORE = lambda x, y: BEFORE.assign_add(tf.reduce_mean(x))  # noqa: E731
SCATTER = lambda v: v.scatter_nd_update([[0]], [1.0])  # noqa: E731
WIDE = lambda x: tf.repeat((x[0] if isinstance(x, tuple) else x)[:, None], 16, 1)  # noqa: E731
row, part = lambda x: tf.gather(tf.eye(8), x), lambda x: x["a"]
PARTLY = lambda x: tf.reduce_sum(x) / 16 * 48 / 49 + tf.reduce_mean(x) / 49  # noqa: E731
RATE = tf.keras.optimizers.schedules.PolynomialDecay(0.0, 9, 1.0)  # nothing in the first step
WARMS = lambda: tf.keras.optimizers.SGD(RATE)  # noqa: E731
noisy = lambda generator: lambda x, y: x + generator.normal([8])  # noqa: E731
MADE = {}


@tf.function
def of_the_module(x, y):
    with tf.GradientTape() as tape:
        loss = tf.nn.compute_average_loss(tf.reduce_sum(MADE["model"](x) ** 2, 1))
    weights = MADE["model"].trainable_variables
    MADE["optimizer"].apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return loss


def step_of_the_module():
    MADE["model"], MADE["optimizer"] = dense(), tf.keras.optimizers.Adam()
    return of_the_module, batches()


def masked():  # a mean over what is real, as in TensorFlow's tutorials of translation
    model, real = dense(), tf.constant([[1.0, 1, 1, 0]])
    model.compile("sgd", lambda y, x: tf.reduce_sum(x * x * real) / tf.reduce_sum(real + 0 * x))
    return model, batches()


def scaled_by_policy():
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        return ready()()
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


# A model or function; of a preflight's failure what it says, the fix and the line; and what a real
# fit does on two CPUs under MirroredStrategy, which is no TPU: the rule of TPUStrategy wins.
CASES = [
    (own(), "", "", "", "right"),
    (own(loss="auto"), "Reduction.SUM", "compute_average_loss", "loss = self.mean", "raises"),
    (own(touch=lambda v: v.assign_add(tf.ones([4]))), "", "", "", "right"),
    (own(touch=SCATTER), "NotImplementedError", "no scatter updates", "scatter_nd", "raises"),
    # tpu_values.py, __getitem__; mixed_precision of tf-keras; the module's variable is on the host.
    (own(touch=lambda v: v[0].assign(1.0)), "'assign'", "assign it whole", "v[0].assign", "right"),
    (scaled_by_policy, "Mixed precision is not", "mixed_bfloat16", "Dense", "right"),
    (ready(run_eagerly=True), "run_eagerly=True", "Take", "", "right"),
    (lambda: (FROM_BEFORE, batches()), "made outside the scope: 1", "its scope", "", "right"),
    # tpu_strategy.py, _reduce_to: a TPUStrategy has no mean of a nest, so whole numbers stay whole.
    (alone(WithCall, lambda x, y: {"a": y}, lambda x: row(part(x))), "", "", "", "raises"),
    (alone(WithCall, lambda x, y: y), "convert 0.5", "in a tuple", "", "raises"),
    (alone(WithCall, lambda x, y: {"a": x}, part, "mse"), "None values", "names", "", "raises"),
    (alone(WithCall, lambda x, y: (x, y[:, None]), WIDE, "mse"), "equal", "call it", "", "raises"),
    (alone(NoCall, lambda x, y: {"a": x}, part), "Unable to auto", "a call method", "", "raises"),
    (lambda: (noisy(tf.random.Generator.from_seed(1)), batches()), "", "", "", "right"),
    (step_of_the_module, "", "", "", "right"),
    (own("sgd", mean=tf.reduce_mean), "8 times as much", "global_batch_size", "", "more"),
    (own("sgd", mean=PARTLY), " 1.14 times as much", "global_batch_size", "", "right"),  # by 1/49
    (own(WARMS, mean=tf.reduce_mean), "8 times as much", "global_batch_size", "", "more"),
    (masked, "", "", "", "right"),
    (own(mean=tf.reduce_mean), "", "", "", "right"),
    (own("sgd", mean=TWICE), " 0.125 times as much", "Divide once", "", "less"),
    (own("sgd", mean=compares), "", "", "", "less"),  # with fewer rows: as it should
    (own(aside=tf.keras.Sequential), "lists all weights", "build(shape)", "", "raises"),
    (ready(dropout=0.8, optimizer="sgd"), "", "", "", "less"),  # it draws others on two devices
]


@pytest.mark.parametrize(("build", "says", "fix", "where"), [case[:4] for case in CASES])
def test_a_step_under_a_tpus_strategy(build, says, fix, where, no_compiler):
    result = preflight(build, target="v5e-8")
    failed = result.find(FAIL)
    if not says:
        assert not failed and the(result, 5, "TPUStrategy.run").state == PASS
        assert the(result, 1, "TPU bridge").state == PASS
        return
    (item,) = failed
    assert item.check == 5 and says in item.finding and fix in item.fix and where in item.where


WITNESS = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import test_strategy
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
print(*(test_strategy.fitted(case[0], strategy) for case in test_strategy.CASES))
"""


def fitted(build, strategy):
    """Say whether a fit on two devices raises, or changes weights more than one device does."""
    tf.keras.utils.set_random_seed(1)
    start, changes = [], []
    try:
        for scope in (strategy.scope(), contextlib.nullcontext()):
            with scope:
                step, data = build()
            if not hasattr(step, "fit"):
                batch = next(iter(strategy.experimental_distribute_dataset(data)))
                tf.function(strategy.run)(step, args=batch)
                return "right"
            step.fit(data.take(1), verbose=0)
            start = start or step.get_weights()
            step.set_weights(start)
            step.fit(data.take(1), verbose=0)
            changes.append([*map(np.ravel, map(np.subtract, step.get_weights(), start))])
    except Exception:
        return "raises"
    two, one = map(np.concatenate, changes)
    times = np.vdot(one, two) / np.vdot(one, one)
    return "more" if times > 1.1 else "less" if times < 0.9 else "right"


@pytest.mark.long
def test_a_real_fit_on_two_devices_is_the_witness():
    command = [sys.executable, "-c", WITNESS]
    told = subprocess.check_output(command, cwd=ROOT / "tests", text=True)
    assert told.splitlines()[-1].split() == [case[4] for case in CASES]


def traced_context(model, data, factory=None):
    """A context of a model that was exported for one device."""
    subject = TensorflowSubject(model, data, factory, 60)
    context = Context(subject, (Target("v5e-1", 1),), print)
    context.read_sample(1)
    context.trace()
    return context


@pytest.mark.parametrize("model, found", [(Own(), []), (Own("auto"), [FAIL]), (dense(), [])])
def test_without_a_factory_only_what_no_scope_would_mend_is_told(model, found):
    model.compile("adam", "mse", metrics=["accuracy"])
    context = traced_context(model, batches())
    items = strategy_scope.check(context)
    assert [i.state for i in items if i.state == FAIL] == found
    assert (context.traced_under_run is None) == bool(found)


def test_what_computes_in_the_scope_leaves_it_open(no_compiler):
    def build():
        current = tf.distribute.get_strategy()
        tf.function(current.run)(tf.zeros, args=([2],))
        return dense(), batches()

    assert the(preflight(build, target="v5e-1"), 5, "scope").state == OPEN


def test_the_model_in_the_scope_holds_no_large_weights_of_its_own():
    made, drawn = [], []

    def draw(shape, dtype=None):
        drawn.append(shape)
        return tf.ones(shape, dtype)

    def build():
        wide = tf.keras.layers.Dense(1000, kernel_initializer=draw, bias_initializer="ones")
        made.append(classifier(tf.keras, tf.keras.layers.Input([1000]), wide))
        return made[-1]

    specs = tf.TensorSpec([2, 1000]), tf.TensorSpec([2], tf.int32)
    strategy_scope.check(traced_context(build(), specs, build))
    kernel, bias = made[-1].get_weights()
    assert len(made) == 2 and len(drawn) == 1
    assert not kernel.any() and bias.all()
