"""Random small models for the compiler's tests: layers, types, masks, control flow, mistakes."""

import dataclasses
import random
from collections.abc import Callable

import tensorflow as tf
import tf_keras
from tf_keras import layers

FLOATS = (tf.float32, tf.float32, tf.float32, tf.bfloat16, tf.float16, tf.float64)


@dataclasses.dataclass(frozen=True)
class Model:
    """A random function, the shapes of its arguments, and the names of its parts."""

    name: str
    fn: Callable
    specs: tuple[tf.TensorSpec, ...]
    parts: tuple[str, ...]


# Parts that are drawn when a model is made.


def dense(rng, x):
    shape = x.shape[-1], rng.choice((1, 7, 16, 33))
    drawn = tf.random.stateless_normal(shape, [rng.randrange(99), 1])
    weights = tf.Variable(tf.cast(drawn, x.dtype))
    return lambda t: tf.nn.gelu(tf.tensordot(t, weights, 1))


def cast_and_back(rng, x):
    other = rng.choice((tf.int32, tf.int64, tf.bfloat16, tf.float64))
    return lambda t: tf.cast(tf.cast(t, other), t.dtype) + t


def wrong_shape(rng, x):
    return lambda t: tf.reshape(t, [x.shape.num_elements() + 1])


DRAWN = dense, cast_and_back, wrong_shape

# Parts that are always the same.


def norm(t):
    spread = tf.math.rsqrt(tf.math.reduce_variance(t, -1, keepdims=True) + tf.cast(1e-3, t.dtype))
    return (t - tf.reduce_mean(t, -1, keepdims=True)) * spread


def attention(t):
    t2 = tf.reshape(t, [1, -1, t.shape[-1]])
    scores = tf.nn.softmax(tf.matmul(t2, t2, transpose_b=True))
    return tf.reshape(tf.matmul(scores, t2), t.shape)


def if_on_a_tensor(t):
    if tf.reduce_sum(t) > 0:  # noqa: SIM108 - the statement is what is tested
        t = t * 2
    else:
        t = -t
    return t


def while_on_a_tensor(t):
    i = 0
    while i < 5 and tf.reduce_max(tf.abs(t)) > 1:
        t = t / 2
        i += 1
    return t


def sized_by_a_value(t):
    n = tf.reduce_sum(tf.cast(t > 0, tf.int32))
    return t + tf.cast(tf.reduce_sum(tf.range(n)), t.dtype)


def matmul_int64(t):
    whole = tf.cast(t, tf.int64)
    return t + tf.cast(tf.reduce_sum(tf.matmul(whole, whole, transpose_b=True)), t.dtype)


GOOD = {
    "dense": dense,
    "another dense": dense,
    "norm": norm,
    "softmax": lambda t: tf.nn.softmax(t),
    "attention": attention,
    "dropout": lambda t: tf.nn.dropout(t, 0.1),
    "if on a tensor": if_on_a_tensor,
    "while on a tensor": while_on_a_tensor,
    "scan": lambda t: tf.scan(lambda a, b: a * tf.cast(0.5, b.dtype) + b, t),
    "mask": lambda t: t + tf.reduce_sum(tf.boolean_mask(t, t > 0)),
    "static mask": lambda t: tf.where(t > 0, t, tf.zeros_like(t)),
    "sort": lambda t: tf.sort(t, axis=-1),
    "top": lambda t: t * tf.math.top_k(t, 1).values,
    "cast and back": cast_and_back,
    "cumulative": lambda t: tf.cumsum(t, axis=-1),
    "unique": lambda t: t + tf.reduce_sum(tf.unique(tf.reshape(t, [-1]))[0]),
}
# XLA has no operation for these, or their size depends on a value.
BAD = {
    "counts": lambda t: t + tf.cast(tf.unique_with_counts(t[:, 0])[2][0], t.dtype),
    "sized by a value": sized_by_a_value,
    "text": lambda t: t + tf.cast(tf.strings.length(tf.strings.as_string(t[0, 0])), t.dtype),
    "python": lambda t: t + tf.py_function(lambda v: v, [t[0, 0]], t.dtype),
    "matmul of int64": matmul_int64,
    "wrong shape": wrong_shape,
}


def _keras(rng: random.Random, name: str) -> Model:
    """A tf-keras model with its own training step."""
    kind, width = rng.choice(("mlp", "conv", "recurrent", "text")), rng.choice((3, 8, 20))
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
    rng, name = random.Random(seed), f"model {seed}"
    if rng.random() < 0.2:
        return _keras(rng, name)
    shape = rng.choice((1, 2, 5, 8)), rng.choice((1, 6, 16, 130))
    spec = now = tf.TensorSpec(shape, rng.choice(FLOATS))
    steps, parts = [], []
    for _ in range(rng.randint(1, 4)):
        kinds = BAD if rng.random() < 0.1 else GOOD
        parts.append(rng.choice(list(kinds)))
        part = kinds[parts[-1]]
        steps.append(part(rng, now) if part in DRAWN else part)
        if part is dense:
            now = tf.TensorSpec(steps[-1](tf.zeros(now.shape, now.dtype)).shape, now.dtype)

    def forward(x):
        for step in steps:
            x = step(x)
        return x

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(forward(x))
        slope = tape.gradient(loss, x)
        return loss, x if slope is None else slope

    if rng.random() < 0.4:
        return Model(name, gradient, (spec,), (*parts, "gradient"))
    return Model(name, forward, (spec,), tuple(parts))
