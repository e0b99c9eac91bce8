"""R1 to R4: a GPT of 270 million float32 weights on one v6e chip.

Sixteen layers of width 1024; attention by two einsums over all pairs of positions; AdamW by hand,
array by array. Matrix products at default precision; nothing recomputed; nothing donated.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from benchmarks.blind.layers import Arrays, adamw, rms_norm, rotary

LAYERS, WIDTH, INNER, VOCABULARY = 16, 1024, 4096, 32_768
HEADS, HEAD, POSITIONS, WINDOW = 8, 128, 2048, 1024
CAP = 15.0  # of the logits
ROWS = {"R1": 1, "R2": 2, "R3": 4, "R4": 6}


def weight_shapes() -> dict[str, tuple[int, ...]]:
    """Give the shape of each weight, by name."""
    shapes = {
        "embedding": (VOCABULARY, WIDTH),
        "head": (WIDTH, VOCABULARY),
        "residual": (LAYERS,),
        "first": (LAYERS,),
    }
    for layer in range(LAYERS):
        for name in ("query", "key", "value", "output"):
            shapes[f"{name} {layer}"] = (WIDTH, WIDTH)
        shapes[f"up {layer}"] = (WIDTH, INNER)
        shapes[f"down {layer}"] = (INNER, WIDTH)
    return shapes


def mask(layer: int) -> jax.Array:
    """Say which pairs of positions see each other: every fourth layer has no window."""
    query = jnp.arange(POSITIONS)[:, None]
    key = jnp.arange(POSITIONS)[None, :]
    visible = key <= query
    if layer % 4 != 3:
        visible &= query - key < WINDOW
    return visible


def attention(x: jax.Array, weights: Arrays, layer: int) -> jax.Array:
    """Attention of one layer, over all pairs of positions."""
    shape = (x.shape[0], POSITIONS, HEADS, HEAD)
    query = (x @ weights[f"query {layer}"]).reshape(shape)
    key = (x @ weights[f"key {layer}"]).reshape(shape)
    value = (x @ weights[f"value {layer}"]).reshape(shape)
    query = rms_norm(rotary(query))
    key = rms_norm(rotary(key))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * HEAD**-0.5
    scores = jnp.where(mask(layer), scores, -jnp.inf)
    attended = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), value)
    return attended.reshape(x.shape) @ weights[f"output {layer}"]


def feed_forward(x: jax.Array, weights: Arrays, layer: int) -> jax.Array:
    """The MLP of one layer, with the square of a ReLU."""
    inner = jnp.square(jax.nn.relu(x @ weights[f"up {layer}"]))
    return inner @ weights[f"down {layer}"]


def loss(weights: Arrays, inputs: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean cross-entropy of the next token."""
    first = x = rms_norm(weights["embedding"][inputs])
    for layer in range(LAYERS):
        x = weights["residual"][layer] * x + weights["first"][layer] * first
        x = x + attention(rms_norm(x), weights, layer)
        x = x + feed_forward(rms_norm(x), weights, layer)
    logits = CAP * jnp.tanh((rms_norm(x) @ weights["head"]) / CAP)
    of_labels = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - of_labels)


@jax.jit
def step(
    weights: Arrays,
    means: Arrays,
    squares: Arrays,
    count: jax.Array,
    inputs: jax.Array,
    labels: jax.Array,
) -> tuple[dict[str, tuple[jax.Array, ...]], jax.Array, jax.Array]:
    """One step of AdamW: new weights and their state, the new count, the loss."""
    value, gradients = jax.value_and_grad(loss)(weights, inputs, labels)
    updated = {}
    for name, weight in weights.items():
        updated[name] = adamw(weight, means[name], squares[name], gradients[name], count)
    return updated, count + 1, value


def step_and_arguments(name: str) -> tuple[Callable, tuple]:
    """Give the jitted step of ``R1`` to ``R4``, and the shapes of its arguments."""
    weights = {
        name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in weight_shapes().items()
    }
    tokens = jax.ShapeDtypeStruct((ROWS[name], POSITIONS), jnp.int32)
    count = jax.ShapeDtypeStruct((), jnp.int32)
    return step, (weights, weights, weights, count, tokens, tokens)
