"""What JAX and Optax raise while a function is traced: the line, the cause, a fix that fits."""

import functools

import jax
import jax.numpy as jnp
import optax
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from tpu_preflight.program import NotCompilable, jax_export

MESH = AbstractMesh((8,), ("data",))
ROWS = NamedSharding(MESH, PartitionSpec("data"))
VECTOR = jax.ShapeDtypeStruct((8,), jnp.float32)
SHARDED = jax.ShapeDtypeStruct((64, 16), jnp.float32, sharding=ROWS)


def refusal_of(fn, argument):
    with pytest.raises(NotCompilable) as caught:
        jax_export.export(fn, (argument,))
    return caught.value


# --- rules for derivatives ------------------------------------------------------------------------


def gradient_with(backward):
    """Make a step that differentiates a function with this backward rule."""

    @jax.custom_vjp
    def clipped(x, limit):
        return jnp.clip(x, -limit, limit)

    def forward(x, limit):
        return clipped(x, limit), x

    clipped.defvjp(forward, backward)
    return jax.grad(lambda x: clipped(x, 1.0).sum())


def one_for_two_arguments(x, gradient):
    return (gradient,)


def no_tuple(x, gradient):
    return gradient


def of_another_shape(x, gradient):
    return gradient.sum(), None


def one_with_options(scale, x, gradient):
    return (gradient * scale,)


def without_rules(x):
    return jax.grad(jax.custom_vjp(jnp.sum))(x)


def mean_of_no_axis(x):
    return jax.lax.pmean(x, "batch")


def forward_mode(x):
    @jax.custom_vjp
    def double(x):
        return 2 * x

    def forward(x):
        return double(x), None

    def backward(_, gradient):
        return (2 * gradient,)

    double.defvjp(forward, backward)
    return jax.jvp(double, (x,), (x,))[1]


def gradient_of_many(x):
    return jax.grad(jnp.sin)(x)


# --- loops and branches ---------------------------------------------------------------------------


def wider_carry(x):
    def body(total, row):
        return total + row, None

    return jax.lax.scan(body, jnp.zeros((), jnp.bfloat16), x)[0]


def growing_carry(x):
    def body(rows, row):
        return jnp.append(rows, row), None

    return jax.lax.scan(body, jnp.zeros(1), x)[0]


def longer_carry(x):
    def body(state):
        return *state, state[0]

    return jax.lax.while_loop(lambda state: state[0] < 3, body, (x.sum(), x))


def carry_alone(x):
    return jax.lax.scan(lambda total, row: total + row, 0.0, x)


def condition_for_each(x):
    return jax.lax.while_loop(lambda x: x < 3, lambda x: x + 1, x)


def branches_of_two_types(x):
    return jax.lax.cond(x.sum() > 0, jnp.sin, lambda x: x.astype(jnp.bfloat16), x)


def branches_of_two_shapes(x):
    return jax.lax.cond(x.sum() > 0, jnp.mean, jnp.sin, x)


def branches_of_two_structures(x):
    return jax.lax.cond(x.sum() > 0, lambda x: (x, x), jnp.sin, x)


def branch_for_each(x):
    return jax.lax.cond(x > 0, jnp.sin, jnp.cos, x)


def keys_for_one(x):
    return jax.random.normal(jax.random.split(jax.random.key(0), 3), x.shape)


def classes_as_floats(x):
    return optax.softmax_cross_entropy_with_integer_labels(jnp.outer(x, x), x)


# --- optimizers -----------------------------------------------------------------------------------


def update(x, optimizer, state_optimizer, state_params, *params):
    """Update the parameters ``w`` with a state that was made for others."""
    state = state_optimizer.init(state_params)
    return optimizer.update({"w": x}, state, *params)


ADAM = optax.adam(1e-3)


def state_of_more(x):
    return update(x, ADAM, ADAM, {"w": x, "bias": x})


def state_of_another(x):
    return update(x, ADAM, optax.sgd(0.1, momentum=0.9), {"w": x})


def state_of_other_shapes(x):
    return update(x, ADAM, ADAM, {"w": x[:4]})


def decay_without_parameters(x):
    adamw = optax.adamw(1e-3)
    return update(x, adamw, adamw, {"w": x})


def wrong_loss_shapes(x):
    return optax.sigmoid_binary_cross_entropy(x, jnp.ones(3)).mean()


# --- parts on each device -------------------------------------------------------------------------


def mean_of_part(x):
    return x.mean()


def mapped(out_specs, fn=mean_of_part):
    """Map a function over the devices, with nothing of the user's own around it."""
    return jax.shard_map(fn, mesh=MESH, in_specs=PartitionSpec("data"), out_specs=out_specs)


@pytest.mark.parametrize(
    ("fn", "argument", "line", "why", "fix"),
    [
        (
            gradient_with(one_for_two_arguments),
            VECTOR,
            "def one_for_two_arguments(x, gradient):",
            "gives (*,) for the arguments (*, *)",
            "return gradient, None",
        ),
        (gradient_with(no_tuple), VECTOR, "def no_tuple(", "a tuple with one gradient", "None"),
        (
            gradient_with(of_another_shape),
            VECTOR,
            "def of_another_shape(",
            "gives float32[] at output[0], where the argument is float32[8]",
            "jnp.broadcast_to",
        ),
        (
            gradient_with(functools.partial(one_with_options, 2.0)),
            VECTOR,
            "def one_with_options(",
            "one gradient for each argument",
            "None",
        ),
        (without_rules, VECTOR, "jax.grad(jax.custom_vjp", "without rules", "defvjp"),
        (forward_mode, VECTOR, "jax.jvp(double", "reverse mode only", "jax.custom_jvp"),
        (gradient_of_many, VECTOR, "jax.grad(jnp.sin)", "one number", "jnp.mean(losses)"),
        (wider_carry, VECTOR, "jax.lax.scan(body", "total has type bfloat16[]", ".astype"),
        (mean_of_no_axis, VECTOR, "jax.lax.pmean(", "the axis batch, and", "jax.shard_map"),
        (growing_carry, VECTOR, "jax.lax.scan(body", "rows has type float32[1]", "carry.at[i]"),
        (longer_carry, VECTOR, "jax.lax.while_loop(", "a tuple of length 2", "same parts"),
        (carry_alone, VECTOR, "jax.lax.scan(lambda", "must give a pair", "return carry, None"),
        (condition_for_each, VECTOR, "while_loop(", "this one gives bool[8].", "jnp.all"),
        (branches_of_two_types, VECTOR, "jax.lax.cond(", "bfloat16[8]", ".astype(x.dtype)"),
        (branches_of_two_shapes, VECTOR, "jax.lax.cond(", "same shape", "Pad the smaller"),
        (branches_of_two_structures, VECTOR, "lax.cond(", "structure", "from each branch"),
        (branch_for_each, VECTOR, "jax.lax.cond(x > 0", "shape (8,)", "jnp.where(condition"),
        (keys_for_one, VECTOR, "jax.random.normal(", "of shape (3,)", "jax.vmap(function)"),
        (classes_as_floats, VECTOR, "_labels(jnp", "whole numbers", "labels.astype(jnp.int32)"),
        (state_of_more, VECTOR, "optimizer.update(", "have bias", "optimizer.init(params)"),
        (state_of_another, VECTOR, "optimizer.update(", "not one of this", "optimizer.init"),
        (state_of_other_shapes, VECTOR, "optimizer.update(", "(8,), (4,)", "optimizer.init"),
        (decay_without_parameters, VECTOR, "update(", "needs the parameters", "state, params)"),
        (mapped(PartitionSpec()), SHARDED, "def mean_of_part(", "is P()", "jax.lax.pmean(x, 'd"),
        (mapped(PartitionSpec("data")), SHARDED, "def mean_of_part(", "more entries", "x[None]"),
        (mapped(PartitionSpec("model")), SHARDED, "def mean_of_", "axis 'model'", "Name an axis"),
        (mapped((PartitionSpec(),) * 2), SHARDED, "def mean_", "another structure", "one Part"),
    ],
)
def test_what_jax_cannot_trace_has_its_line_its_cause_and_a_fix(fn, argument, line, why, fix):
    refusal = refusal_of(fn, argument)
    assert line in refusal.where
    assert why in refusal.why
    assert fix in refusal.fix


def test_a_loss_of_optax_is_no_optimizers_state():
    refusal = refusal_of(wrong_loss_shapes, VECTOR)
    assert "incompatible shapes" in refusal.why
    assert "optimizer.init" not in refusal.fix
