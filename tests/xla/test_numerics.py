"""A TPU's products, against NumPy with operands rounded by ml_dtypes, and trainings with them."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from helpers.base.errors import CourseError
from helpers.display.figures import Figure
from helpers.xla import numerics
from helpers.xla.program import trace

pytestmark = pytest.mark.slow


def bf16(x):
    """Round to bfloat16 and back: nearest, ties to even."""
    return np.asarray(x, ml_dtypes.bfloat16).astype(np.float32)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


X, W1, W2, Y = draw(16, 24), draw(24, 32, seed=1), draw(32, 5, seed=2), draw(16, 5, seed=3)
IMAGE, KERNEL = draw(2, 6, 6, 3, seed=4), draw(3, 3, 3, 4, seed=5)
SQUARE = draw(8, 8, seed=6) / 3
WHOLE = np.arange(64, dtype=np.int32).reshape(8, 8) * 1001
TIES = np.array([[1.0, 257.0, 259.0, 1.00390625, 1.01171875]], np.float32)


def network(first, second, product):
    """A two-layer network's loss and gradients by hand, with a product to choose."""
    before = product(X, first)
    hidden = np.maximum(before, 0)
    error = product(hidden, second) - Y
    slope = 2 * error / error.size
    back = product(slope, second.T) * (before > 0)
    return np.square(error).mean(), product(X.T, back), product(hidden.T, slope)


def by_hand(rounding):
    """What each result of `several` must be."""

    def product(a, b):
        return (rounding(a) @ rounding(b)).astype(np.float32)

    windows = np.lib.stride_tricks.sliding_window_view(IMAGE, (3, 3), (1, 2))
    looped = SQUARE
    for _ in range(3):
        looped = product(looped, SQUARE)
    loss, first, second = network(W1, W2, product)
    return {
        "loss": loss,
        "first gradient": first,
        "second gradient": second,
        "convolution": np.einsum("nyxcij,ijco->nyxo", rounding(windows), rounding(KERNEL)),
        "in a loop": looped,
        "in a branch": product(SQUARE, SQUARE),
        "whole numbers": WHOLE @ WHOLE,
        "ties": product(TIES, np.eye(5, dtype=np.float32)),
        # XLA may keep more digits than bfloat16 has.
        "already bfloat16": bf16(SQUARE) @ bf16(SQUARE),
        "no product": (SQUARE[:, :, None] * SQUARE[None]).sum(1),
    }


def several(x, first, second, square, image, kernel, whole, ties):
    """Every kind of product in one program."""
    with tf.GradientTape() as tape:
        tape.watch([first, second])
        loss = tf.reduce_mean(tf.square(tf.nn.relu(x @ first) @ second - Y))
    half = tf.cast(square, tf.bfloat16)
    round_, looped = tf.constant(0), square
    while round_ < 3:
        looped = looped @ square
        round_ += 1
    branch = tf.cond(x[0, 0] > 1e9, lambda: square, lambda: square @ square)
    return (
        loss,
        *tape.gradient(loss, [first, second]),
        tf.nn.conv2d(image, kernel, 1, "VALID"),
        looped,
        branch,
        tf.matmul(whole, whole),
        tf.matmul(ties, tf.eye(5)),
        tf.cast(half @ half, tf.float32),
        tf.reduce_sum(square[:, :, None] * square[None], 1),
    )


@pytest.fixture(scope="module")
def compared():
    return numerics.compare(several, X, W1, W2, SQUARE, IMAGE, KERNEL, WHOLE, TIES)


@pytest.mark.parametrize("at", range(10), ids=list(by_hand(bf16)))
def test_each_product_is_what_numpy_makes_of_rounded_operands(compared, at):
    for rounding, ours in ((np.asarray, "exact"), (bf16, "rounded")):
        name, wanted = list(by_hand(rounding).items())[at]
        # Another order of the sum may round a hidden value to bfloat16's other side.
        assert np.allclose(getattr(compared.results[at], ours), wanted, 3e-4, 3e-4), name
    changed = compared.results[at].apart > 0
    assert changed == (at < 6 or name == "ties")


def test_what_is_rounded_is_counted_and_shown(compared):
    # Two forward, three backward; a loop, a branch, convolution, ties.
    assert (compared.products, compared.precise) == (9, 0)
    assert "9 products" in repr(compared) and "not confirmed on a TPU" in compared._repr_html_()


def test_products_that_ask_for_more_passes_are_left_alone():
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        found = numerics.compare(lambda x, y: x @ y, X, W1)
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(True)
    assert (found.products, found.precise) == (0, 1) and found.results[0].apart == 0


def test_both_runs_draw_the_same_numbers_and_each_step_others():
    def draws(x):
        return tf.random.uniform([9999], 2.0, 4.0), tf.random.normal([9999], 5.0, 2.0), x @ x

    traced = trace(draws, SQUARE)
    one, two = numerics.compare_batches(traced, [[SQUARE], [SQUARE]])
    assert [v.apart > 0 for v in one.results] == [False, False, True]
    assert [v.between > 0 for v in two.results] == [True, True, False]
    flat, bell = (v.exact for v in one.results[:2])
    assert 2 <= flat.min() < 2.01 and 3.99 < flat.max() <= 4 and abs(flat.mean() - 3) < 0.05
    assert abs(bell.mean() - 5) < 0.1 and abs(bell.std() - 2) < 0.1
    assert abs(np.corrcoef(flat, bell)[0, 1]) < 0.05


def step_of(seed, rate=0.05):
    tf.keras.utils.set_random_seed(seed)
    model = tf_keras.Sequential([tf_keras.layers.Dense(16, "relu"), tf_keras.layers.Dense(5)])
    model.build((16, 24))
    optimizer = tf_keras.optimizers.Adam(rate)

    def step(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        optimizer.minimize(loss, model.trainable_variables, tape)
        return loss

    optimizer.build(model.trainable_variables)
    return step, model


def test_a_training_carries_its_state_and_leaves_the_model_alone():
    (step, model), (other, _) = step_of(0), step_of(1)
    batches = [(X[i : i + 8], Y[i : i + 8]) for i in (0, 8)]
    before = model.get_weights()
    found = numerics.train(step, batches, steps=12, other=other)
    assert all(map(np.array_equal, before, model.get_weights()))
    wanted = [float(tf.function(step)(batches[i % 2])) for i in range(12)]
    assert np.allclose(found.exact, wanted, 1e-4)  # TensorFlow's own training
    assert found.exact[-1] < found.exact[0] and found.finite
    assert 0 < found.apart < found.between_seeds and found.seed == "the weights"
    assert isinstance(found.figure(), Figure) and "not confirmed" in repr(found)


def test_without_another_seed_the_batches_come_in_another_order():
    found = numerics.train(step_of(0)[0], [(X + i, Y) for i in range(4)])
    assert sorted(np.round(found.other[:1], 3)) != sorted(np.round(found.exact[:1], 3))
    assert found.seed == "the order of the batches"


def strange(x):
    """Calls code that jax doesn't have."""
    (y,) = gen_xla_ops.xla_custom_call_v2([x], "nobody", "", False, [tf.float32], [x.shape])
    return y


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (lambda: numerics.train(lambda x: x, []), "no batches"),
        (lambda: numerics.train(lambda x: tf.cast(x, tf.int32), [X]), "no loss"),
        (lambda: numerics.train(lambda x: tf.reduce_sum(x), [X]), "trains nothing"),
        (lambda: numerics.compare(strange, X), "could not be run"),
    ],
)
def test_what_gives_no_numbers_says_why(run, says):
    with pytest.raises(CourseError, match=says):
        run()


def test_without_jax_there_is_advice(monkeypatch):
    monkeypatch.setattr(numerics.running, "versions", dict)
    with pytest.raises(numerics.NotRun, match="without jax"):
        numerics.compare(lambda x: x, X)
