"""Parts that the programs share: norms, rotary positions, and AdamW written by hand."""

import jax
import jax.numpy as jnp

ROTARY_BASE = 10_000.0
EPSILON = 1e-6

Arrays = dict[str, jax.Array]


def rms_norm(x: jax.Array) -> jax.Array:
    """Divide each row by its root mean square, computed in float32; there are no weights."""
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean_square + EPSILON)).astype(x.dtype)


def rotary(x: jax.Array, base: float = ROTARY_BASE) -> jax.Array:
    """Turn the halves of each head by angles that grow with the position.

    ``x`` is ``[rows, positions, heads, size of a head]``.
    """
    half = x.shape[-1] // 2
    frequencies = base ** -(jnp.arange(half, dtype=jnp.float32) / half)
    angles = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None, None] * frequencies
    sine = jnp.sin(angles).astype(x.dtype)
    cosine = jnp.cos(angles).astype(x.dtype)
    left, right = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([left * cosine + right * sine, right * cosine - left * sine], axis=-1)


def adamw(
    weight: jax.Array,
    mean: jax.Array,
    square: jax.Array,
    gradient: jax.Array,
    step: jax.Array,
    *,
    rate: float = 3e-4,
    b1: float = 0.9,
    b2: float = 0.95,
    epsilon: float = 1e-8,
    decay: float = 0.1,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Update one array with bias correction; decay is for arrays of two and more dimensions.

    Gives the new weight, mean and mean square; each keeps its dtype.
    """
    count = (step + 1).astype(jnp.float32)
    mean = b1 * mean + (1 - b1) * gradient
    square = b2 * square + (1 - b2) * jnp.square(gradient)
    corrected_mean = mean / (1 - b1**count).astype(mean.dtype)
    corrected_square = square / (1 - b2**count).astype(square.dtype)
    change = corrected_mean / (jnp.sqrt(corrected_square) + epsilon)
    if weight.ndim >= 2:
        change = change + decay * weight
    return weight - rate * change, mean, square
