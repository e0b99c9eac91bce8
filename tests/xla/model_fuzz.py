"""Random small models for the compiler's tests: layers, types, masks, control flow, mistakes."""

import dataclasses
import random
from collections.abc import Callable

import tensorflow as tf
import tf_keras

FLOATS = (tf.float32, tf.float32, tf.float32, tf.bfloat16, tf.float16, tf.float64)


@dataclasses.dataclass(frozen=True)
class Model:
    """A random function, the shapes of its arguments, and the names of its parts."""

    name: str
    fn: Callable
    specs: tuple[tf.TensorSpec, ...]
    parts: tuple[str, ...]


def _variable(rng, *shape, dtype=tf.float32):
    return tf.Variable(
        tf.cast(tf.random.stateless_normal(shape, [rng.randrange(99), 1]), dtype), trainable=True
    )


def dense(rng, x):
    weights = _variable(rng, x.shape[-1], rng.choice((1, 7, 16, 33)), dtype=x.dtype)
    return lambda t: tf.nn.gelu(tf.tensordot(t, weights, 1)), weights.shape[-1:]


def norm(rng, x):
    return lambda t: (
        (t - tf.reduce_mean(t, -1, keepdims=True))
        * tf.math.rsqrt(tf.math.reduce_variance(t, -1, keepdims=True) + tf.cast(1e-3, t.dtype))
    )


def softmax(rng, x):
    return lambda t: tf.nn.softmax(t)


def attention(rng, x):
    def attend(t):
        t2 = tf.reshape(t, [1, -1, t.shape[-1]])
        scores = tf.nn.softmax(tf.matmul(t2, t2, transpose_b=True))
        return tf.reshape(tf.matmul(scores, t2), t.shape)

    return attend


def dropout(rng, x):
    return lambda t: tf.nn.dropout(t, 0.1)


def if_on_a_tensor(rng, x):
    def decide(t):
        if tf.reduce_sum(t) > 0:  # noqa: SIM108 - the statement is what is tested
            t = t * 2
        else:
            t = -t
        return t

    return decide


def while_on_a_tensor(rng, x):
    def halve(t):
        i = 0
        while i < 5 and tf.reduce_max(tf.abs(t)) > 1:
            t = t / 2
            i += 1
        return t

    return halve


def scan(rng, x):
    return lambda t: tf.scan(lambda a, b: a * tf.cast(0.5, b.dtype) + b, t)


def mask(rng, x):
    def reduced(t):
        kept = tf.boolean_mask(t, t > 0)
        return t + tf.reduce_sum(kept)

    return reduced


def mask_statically(rng, x):
    return lambda t: tf.where(t > 0, t, tf.zeros_like(t))


def sort(rng, x):
    return lambda t: tf.sort(t, axis=-1)


def top(rng, x):
    return lambda t: t * tf.math.top_k(t, 1).values


def cast_and_back(rng, x):
    other = rng.choice((tf.int32, tf.int64, tf.bfloat16, tf.float64))
    return lambda t: tf.cast(tf.cast(t, other), t.dtype) + t


def cumulative(rng, x):
    return lambda t: tf.cumsum(t, axis=-1)


def unique(rng, x):
    return lambda t: t + tf.reduce_sum(tf.unique(tf.reshape(t, [-1]))[0])


# Parts that XLA has no operation for, or whose size depends on a value.


def counts(rng, x):
    def counted(t):
        return t + tf.cast(tf.unique_with_counts(tf.reshape(t, [-1]))[2][0], t.dtype)

    return counted


def sized_by_a_value(rng, x):
    def sized(t):
        n = tf.cast(tf.reduce_sum(tf.cast(t > 0, tf.int32)), tf.int32)
        return t + tf.cast(tf.reduce_sum(tf.range(n)), t.dtype)

    return sized


def text(rng, x):
    return lambda t: t + tf.cast(tf.strings.length(tf.strings.as_string(t[0, 0])), t.dtype)


def python(rng, x):
    return lambda t: t + tf.py_function(lambda v: v, [t[0, 0]], t.dtype)


def matmul_int64(rng, x):
    def product(t):
        whole = tf.cast(t, tf.int64)
        return t + tf.cast(tf.reduce_sum(tf.matmul(whole, whole, transpose_b=True)), t.dtype)

    return product


def wrong_shape(rng, x):
    return lambda t: tf.reshape(t, [x.shape.num_elements() + 1])


GOOD = (
    dense,
    dense,
    norm,
    softmax,
    attention,
    dropout,
    if_on_a_tensor,
    while_on_a_tensor,
    scan,
    mask,
    mask_statically,
    sort,
    top,
    cast_and_back,
    cumulative,
    unique,
)
BAD = (counts, sized_by_a_value, text, python, matmul_int64, wrong_shape)


def _keras(rng: random.Random, name: str) -> Model:
    """A tf-keras model with its own training step."""
    layers, kind = tf_keras.layers, rng.choice(("mlp", "conv", "recurrent", "text"))
    width = rng.choice((3, 8, 20))
    if kind == "conv":
        stack, shape = [layers.Conv2D(width, 3), layers.Flatten()], (2, 8, 8, rng.choice((1, 3)))
    elif kind == "recurrent":
        stack, shape = [rng.choice((layers.LSTM, layers.GRU))(width)], (2, rng.randint(2, 9), 3)
    elif kind == "text":
        stack, shape = [layers.Embedding(30, width), layers.GlobalMaxPool1D()], (4, 7)
    else:
        stack, shape = [layers.Dense(width, "relu"), layers.BatchNormalization()], (4, 5)
    if rng.random() < 0.5:
        stack.append(layers.Dropout(0.2))
    model = tf_keras.Sequential([*stack, layers.Dense(3)])
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = rng.choice((tf_keras.optimizers.Adam, tf_keras.optimizers.SGD))
    model.compile(optimizer(), loss, metrics=["accuracy"] if rng.random() < 0.5 else None)
    model.build(shape)
    first = tf.TensorSpec(shape, tf.int32 if kind == "text" else tf.float32)
    labels = tf.TensorSpec(shape[:1], tf.int32)
    return Model(name, lambda x, y: model.train_step((x, y)), (first, labels), (f"keras {kind}",))


def model(seed: int) -> Model:
    """Make the model of a seed: the same at each call but for TensorFlow's own random numbers."""
    rng = random.Random(seed)
    name = f"model {seed}"
    if rng.random() < 0.2:
        return _keras(rng, name)
    spec = tf.TensorSpec(
        (rng.choice((1, 2, 5, 8)), rng.choice((1, 6, 16, 130))), rng.choice(FLOATS)
    )
    steps, parts, now = [], [], spec
    for _ in range(rng.randint(1, 4)):
        part = rng.choice(BAD) if rng.random() < 0.1 else rng.choice(GOOD)
        made = part(rng, now)
        parts.append(part.__name__)
        if isinstance(made, tuple):
            made, width = made
            now = tf.TensorSpec((*now.shape[:-1], *width), now.dtype)
        steps.append(made)

    def forward(x):
        for step in steps:
            x = step(x)
        return x

    if rng.random() < 0.4:
        parts.append("gradient")

        def fn(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(forward(x))
            gradient = tape.gradient(loss, x)
            return loss, x if gradient is None else gradient
    else:
        fn = forward
    return Model(name, fn, (spec,), tuple(parts))
