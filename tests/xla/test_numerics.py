"""A TPU's products, against NumPy with operands rounded by ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from helpers.base.errors import CourseError
from helpers.xla import numerics

pytestmark = pytest.mark.slow


def bf16(x):
    """Round to bfloat16 and back: nearest, ties to even."""
    return np.asarray(x, ml_dtypes.bfloat16).astype(np.float32)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


X, W, Y = draw(16, 24), draw(24, 32, seed=1), draw(16, 32, seed=3)
IMAGE, KERNEL = draw(2, 6, 6, 3, seed=4), draw(3, 3, 3, 4, seed=5)
SQUARE = draw(8, 8, seed=6) / 3
WHOLE = np.arange(64, dtype=np.int32).reshape(8, 8) * 1001
TIES = np.array([[1.0, 257.0, 259.0, 1.00390625, 1.01171875]], np.float32)


def by_hand(rounding):
    """What each result of `several` must be."""

    def product(a, b):
        return (rounding(a) @ rounding(b)).astype(np.float32)

    windows = np.lib.stride_tricks.sliding_window_view(IMAGE, (3, 3), (1, 2))
    looped = SQUARE
    for _ in range(3):
        looped = product(looped, SQUARE)
    return {
        "loss": (product(X, W) * Y).sum(),
        "gradient": product(X.T, Y),
        "convolution": np.einsum("nyxcij,ijco->nyxo", rounding(windows), rounding(KERNEL)),
        "in a loop": looped,
        "in a branch": product(SQUARE, SQUARE),
        "whole numbers": WHOLE @ WHOLE,
        "ties": product(TIES, np.eye(5, dtype=np.float32)),
        "already bfloat16": bf16(bf16(SQUARE) @ bf16(SQUARE)),
        "no product": (SQUARE[:, :, None] * SQUARE[None]).sum(1),
    }


def several(x, weights, square, image, kernel, whole, ties):
    """Every kind of product in one program."""
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = tf.reduce_sum(x @ weights * Y)
    half = tf.cast(square, tf.bfloat16)
    round_, looped = tf.constant(0), square
    while round_ < 3:
        looped = looped @ square
        round_ += 1
    branch = tf.cond(x[0, 0] > 1e9, lambda: square, lambda: square @ square)
    return (
        loss,
        tape.gradient(loss, weights),
        tf.nn.conv2d(image, kernel, 1, "VALID"),
        looped,
        branch,
        tf.matmul(whole, whole),
        tf.matmul(ties, tf.eye(5)),
        tf.cast(half @ half, tf.float32),
        tf.reduce_sum(square[:, :, None] * square[None], 1),
    )


def test_each_product_is_what_numpy_makes_of_rounded_operands():
    compared = numerics.compare(several, X, W, SQUARE, IMAGE, KERNEL, WHOLE, TIES)
    for rounding, ours in ((np.asarray, "exact"), (bf16, "rounded")):
        for found, (name, wanted) in zip(compared.results, by_hand(rounding).items(), strict=True):
            # Another order of the sum may round a hidden value to bfloat16's other side.
            assert np.allclose(getattr(found, ours), wanted, 3e-4, 3e-4), name
    kept = [name for r, name in zip(compared.results, by_hand(bf16), strict=True) if not r.share]
    assert kept == ["whole numbers", "already bfloat16", "no product"]
    # Forward and backward; a loop, a branch, convolution, ties.
    assert compared.products == 6
    assert "6 products" in repr(compared) and "not confirmed on a TPU" in compared._repr_html_()


def test_random_numbers_are_told_and_precise_products_are_left_alone():
    with pytest.raises(CourseError, match="draws random numbers"):
        numerics.compare(lambda x: x + tf.random.uniform([8, 8]), SQUARE)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    compared = numerics.compare(tf.matmul, SQUARE, SQUARE)
    tf.config.experimental.enable_tensor_float_32_execution(True)
    assert compared.products == compared.results[0].share == 0


def test_a_changed_variable_keeps_its_value():
    total = tf.Variable(SQUARE)
    compared = numerics.compare(lambda x: total.assign_add(x @ x) + 0.0, SQUARE)
    np.testing.assert_allclose(compared.results[0].exact, SQUARE + SQUARE @ SQUARE, 1e-5, 1e-6)
    np.testing.assert_array_equal(total, SQUARE)
