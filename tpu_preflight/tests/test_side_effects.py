"""What a step does in Python while it is traced, and a policy for GPUs."""

import jax
import jax.numpy as jnp
import keras
import pytest
import tensorflow as tf
from small_models import VECTOR, items_of

from tpu_preflight.checklist import preflight
from tpu_preflight.report import WARN

pytestmark = pytest.mark.slow

LOSSES = []
COUNT = 0
ROW = jax.ShapeDtypeStruct((8,), jnp.float32)


def prints(x):
    print("the sum is", x.sum())  # noqa: T201
    return x * 2


def prints_text(x):
    print(f"the sum is {x.sum()}")  # noqa: T201
    return x * 2


def keeps(x):
    LOSSES.append(x.sum())
    return x * 2


def counts(x):
    global COUNT
    COUNT += 1
    return x * 2


def counts_around():
    count = 0

    def step(x):
        nonlocal count
        count += 1
        return x * 2

    return step


def prints_shapes(x):
    squares = []
    for row in x:
        squares.append(row * row)
    print("traced for", x.shape)  # noqa: T201
    return sum(squares)


@pytest.mark.parametrize("wrap", [lambda fn: fn, jax.jit])
@pytest.mark.parametrize(
    ("fn", "says", "line"),
    [
        (prints, "print is called", 'print("the sum is", x.sum())'),
        (prints_text, "print is called", 'print(f"the sum is'),
        (keeps, "LOSSES keeps a value", ""),
        (counts, "COUNT changes", ""),
        (counts_around(), "count changes", ""),
        (prints_shapes, "", ""),
    ],
)
def test_what_happens_only_while_jax_traces(fn, says, line, wrap, no_compiler, monkeypatch):
    monkeypatch.setitem(globals(), "LOSSES", [])
    jax.clear_caches()  # what was traced before is not traced again
    items = items_of(preflight(wrap(fn), (ROW,), "v5e-1"), 5, "while tracing")
    if not says:
        assert not items
        return
    (item,) = items
    assert item.state == WARN
    assert says in item.finding
    assert line in item.where


class Prints(keras.Model):
    def __init__(self, policy=None):
        super().__init__()
        self.head = keras.layers.Dense(4, dtype=policy)

    def call(self, x):
        if isinstance(x, tf.Tensor):
            print("x is", x)  # noqa: T201
        return self.head(x)


def test_what_happens_only_while_tensorflow_traces(no_compiler, monkeypatch):
    monkeypatch.setitem(globals(), "LOSSES", [])

    def keeps_norm(x):
        LOSSES.append(tf.norm(x))
        return x * 2

    (item,) = items_of(preflight(keeps_norm, VECTOR, "v5e-1"), 5, "while tracing")
    assert "LOSSES keeps" in item.finding
    (item,) = items_of(preflight(Prints(), tf.TensorSpec([2, 8]), "v5e-1"), 5, "while tracing")
    assert 'print("x is", x)' in item.where


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float32"])
def test_a_policy_for_gpus_warns(policy, no_compiler):
    model = keras.Sequential([keras.layers.Dense(4, dtype=policy, name="scores")])
    items = items_of(preflight(model, tf.TensorSpec([2, 8]), "v5e-1"), 5, "policy")
    assert len(items) == (policy == "mixed_float16")
    for item in items:
        assert "such as scores" in item.finding and "mixed_bfloat16" in item.fix
