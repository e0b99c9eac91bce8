"""Q1 and Q2: Qwen3-0.6B in float32 on TPU7x-8, weights on each device or in slices over all eight.

The sizes are the published ones. A batch is 8 rows of 1024 tokens for all eight devices, so each
has one row (the script that measured divides its batch by the devices). AdamW's arguments are
donated, attention is the splash kernel, layers are written out. The page says that its policy of
recomputation is ``none``; what it measured tells us that each layer is computed again for its
gradients (``benchmarks/README.md``). ``recomputed=False`` keeps all values, ``scanned=True`` takes
a loop over the layers, which compiles sooner, and ``layers`` takes fewer.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.blind.layers import Arrays, rotary

LAYERS, WIDTH, INNER, VOCABULARY = 28, 1024, 3072, 151_936
HEADS, KEY_HEADS, HEAD = 16, 8, 128
POSITIONS = 1024
ROWS = 8  # of a batch
DEVICES = 8
BLOCK = 512  # rows and columns of an attention's block
ROTARY_BASE = 1e6
EPSILON = 1e-6  # of the norms


@dataclasses.dataclass(frozen=True)
class Variant:
    """How the step is spread over the devices, and how its layers are written."""

    axis: str  # ``data``: each device has all weights; ``fsdp``: a slice of each
    layers: int = LAYERS
    scanned: bool = False  # the layers in a loop; otherwise each is written out
    recomputed: bool = True  # a layer's values are computed again for its gradients, none is kept


VARIANTS = {"Q1": Variant("data"), "Q2": Variant("fsdp")}

# Shape of each weight of a layer, and which of its dimensions FSDP cuts; None: it cuts none.
LAYER_SHAPES = {
    "query": ((WIDTH, HEADS * HEAD), 0),
    "key": ((WIDTH, KEY_HEADS * HEAD), 0),
    "value": ((WIDTH, KEY_HEADS * HEAD), 0),
    "output": ((HEADS * HEAD, WIDTH), 1),
    "gate": ((WIDTH, INNER), 0),
    "up": ((WIDTH, INNER), 0),
    "down": ((INNER, WIDTH), 1),
    "attention norm": ((WIDTH,), None),
    "inner norm": ((WIDTH,), None),
    "query norm": ((HEAD,), None),
    "key norm": ((HEAD,), None),
}


def normed(x: jax.Array, scale: jax.Array) -> jax.Array:
    """RMS norm of the last dimension, with its weights."""
    mean_square = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean_square + EPSILON) * scale


def attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Causal attention of one device's rows; ``[rows, heads, positions, size]``."""
    names = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
    blocks = splash.BlockSizes(**{f"block_{name}": BLOCK for name in names})
    mask = splash.MultiHeadMask([splash.CausalMask((POSITIONS, POSITIONS))] * HEADS)
    kernel = splash.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=blocks)
    return jax.vmap(kernel)(query, key, value)


def attention(x: jax.Array, weights: Arrays, mesh: AbstractMesh, by_row: P) -> jax.Array:
    """Attention of one layer, with norms of queries and keys."""
    rows = x.shape[0]
    query = (x @ weights["query"]).reshape(rows, POSITIONS, HEADS, HEAD)
    key = (x @ weights["key"]).reshape(rows, POSITIONS, KEY_HEADS, HEAD)
    value = (x @ weights["value"]).reshape(rows, POSITIONS, KEY_HEADS, HEAD)
    query = rotary(normed(query, weights["query norm"]), ROTARY_BASE) * HEAD**-0.5
    key = rotary(normed(key, weights["key norm"]), ROTARY_BASE)
    on_each_device = jax.shard_map(
        attend, mesh=mesh, in_specs=(by_row,) * 3, out_specs=by_row, check_vma=False
    )
    # The kernel takes heads before positions.
    query = jnp.swapaxes(query, 1, 2)
    key = jnp.swapaxes(key, 1, 2)
    value = jnp.swapaxes(value, 1, 2)
    attended = jnp.swapaxes(on_each_device(query, key, value), 1, 2)
    return attended.reshape(rows, POSITIONS, HEADS * HEAD) @ weights["output"]


def feed_forward(x: jax.Array, weights: Arrays) -> jax.Array:
    """SwiGLU of one layer."""
    gate = jax.nn.silu(x @ weights["gate"])
    return (gate * (x @ weights["up"])) @ weights["down"]


def loss(
    weights: dict[str, Any],
    tokens: jax.Array,
    mesh: AbstractMesh,
    by_row: P,
    recomputed: bool,
) -> jax.Array:
    """The mean cross-entropy of the next token; the table of words scores them as well."""

    def sharded(x: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, by_row))

    def block(x: jax.Array, layer: Arrays) -> tuple[jax.Array, None]:
        attended = attention(normed(x, layer["attention norm"]), layer, mesh, by_row)
        x = sharded(x + attended)
        return sharded(x + feed_forward(normed(x, layer["inner norm"]), layer)), None

    if recomputed:
        block = jax.checkpoint(block)
    x = sharded(weights["words"][tokens])
    if isinstance(weights["layers"], dict):
        x, _ = jax.lax.scan(block, x, weights["layers"])
    else:
        for layer in weights["layers"]:
            x, _ = block(x, layer)
    logits = sharded(normed(x, weights["last norm"]) @ weights["words"].T)[:, :-1]
    # As a sum over a row with a single value, which every device computes of its own rows.
    is_label = tokens[:, 1:, None] == jnp.arange(VOCABULARY)
    of_labels = jnp.sum(jnp.where(is_label, logits, 0.0), axis=-1)
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - of_labels)


def weight_arrays(variant: Variant, mesh: AbstractMesh) -> dict[str, Any]:
    """Give shape and sharding of each weight."""

    def array(shape: tuple[int, ...], cut: int | None, stacked: bool = False) -> Any:
        axes = [None] * len(shape)
        if variant.axis == "fsdp" and cut is not None:
            axes[cut] = "fsdp"
        if stacked:
            shape = (variant.layers, *shape)
            axes = [None, *axes]
        sharding = NamedSharding(mesh, P(*axes))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    def layer(stacked: bool = False) -> Arrays:
        arrays = {}
        for name, (shape, cut) in LAYER_SHAPES.items():
            arrays[name] = array(shape, cut, stacked)
        return arrays

    layers = [layer() for _ in range(variant.layers)]
    if variant.scanned:
        layers = layer(stacked=True)
    return {
        "words": array((VOCABULARY, WIDTH), 1),
        "last norm": array((WIDTH,), None),
        "layers": layers,
    }


def step_and_arguments(name: str, **changes: Any) -> tuple[Callable, tuple]:
    """Give the jitted step of ``Q1`` or ``Q2``, changed in a `Variant`'s fields, and arguments."""
    variant = dataclasses.replace(VARIANTS[name], **changes)
    mesh = AbstractMesh((DEVICES,), (variant.axis,))
    by_row = P(variant.axis)
    optimizer = optax.adamw(1e-5, b1=0.9, b2=0.95, eps=1e-8, weight_decay=0.1)
    weights = weight_arrays(variant, mesh)
    everywhere = NamedSharding(mesh, P())
    (adam, *rest) = jax.eval_shape(optimizer.init, weights)
    count = jax.ShapeDtypeStruct((), jnp.int32, sharding=everywhere)
    state = (adam._replace(count=count, mu=weights, nu=weights), *rest)
    tokens = jax.ShapeDtypeStruct(
        (ROWS, POSITIONS), jnp.int32, sharding=NamedSharding(mesh, by_row)
    )

    def step(weights: dict[str, Any], state: optax.OptState, tokens: jax.Array) -> tuple:
        value_and_gradients = jax.value_and_grad(loss)
        value, gradients = value_and_gradients(weights, tokens, mesh, by_row, variant.recomputed)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, value

    shardings = jax.tree.map(lambda array: array.sharding, (weights, state))
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*shardings, None))
    return jitted, (weights, state, tokens)
