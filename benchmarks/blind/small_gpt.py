"""K1 to K6: a GPT of 160 million bfloat16 weights on one v6e chip.

Eight layers of width 1024, each written out; one head for key and value; splash attention; AdamW's
state is bfloat16 as well. Arguments are not donated.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.experimental.pallas.ops.tpu import splash_attention as splash

from benchmarks.blind.layers import Arrays, adamw, rms_norm, rotary

LAYERS, WIDTH, INNER, VOCABULARY, HEAD = 8, 1024, 3072, 32_768, 256
POSITIONS = 2048
BLOCK = 1024  # rows and columns of an attention's block
CAP = 15.0  # of the logits
PIECES = 8  # of the loss, where it is computed in pieces


@dataclasses.dataclass(frozen=True)
class Variant:
    """What differs between the steps."""

    heads: int = 3  # of the queries
    rows: int = 4  # of 2048 tokens, in a micro-batch
    micro_batches: int = 1  # one after the other in a loop; their gradients are added up
    # AdamW by hand, the loss in pieces with its own backward pass, layers recomputed
    frugal: bool = False


VARIANTS = {
    "K1": Variant(),
    "K2": Variant(rows=16),
    "K3": Variant(rows=64),
    "K4": Variant(micro_batches=16),
    "K5": Variant(micro_batches=16, heads=4),
    "K6": Variant(frugal=True),
}


def weight_shapes(heads: int) -> dict[str, tuple[int, ...]]:
    """Give the shape of each weight, by name."""
    shapes = {"embedding": (VOCABULARY, WIDTH), "head": (WIDTH, VOCABULARY)}
    for layer in range(LAYERS):
        shapes |= {
            f"query {layer}": (WIDTH, heads * HEAD),
            f"key {layer}": (WIDTH, HEAD),
            f"value {layer}": (WIDTH, HEAD),
            f"output {layer}": (heads * HEAD, WIDTH),
            f"gate {layer}": (WIDTH, INNER),
            f"up {layer}": (WIDTH, INNER),
            f"down {layer}": (INNER, WIDTH),
        }
    return shapes


def attention_kernel(heads: int) -> Callable[..., jax.Array]:
    """Make the splash attention of one row: causal, several query heads for one key head."""
    names = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
    blocks = splash.BlockSizes(**{f"block_{name}": BLOCK for name in names})
    mask = splash.MultiHeadMask([splash.CausalMask((POSITIONS, POSITIONS))] * heads)
    return splash.make_splash_mqa_single_device(mask, block_sizes=blocks)


def attention(x: jax.Array, weights: Arrays, layer: int, heads: int) -> jax.Array:
    """Attention of one layer."""
    rows = x.shape[0]
    query = (x @ weights[f"query {layer}"]).reshape(rows, POSITIONS, heads, HEAD)
    key = (x @ weights[f"key {layer}"]).reshape(rows, POSITIONS, 1, HEAD)
    value = x @ weights[f"value {layer}"]
    query = rms_norm(rotary(query)) * HEAD**-0.5
    key = rms_norm(rotary(key))
    attend = jax.vmap(attention_kernel(heads))
    attended = attend(jnp.swapaxes(query, 1, 2), key[:, :, 0], value)
    merged = jnp.swapaxes(attended, 1, 2).reshape(rows, POSITIONS, heads * HEAD)
    return merged @ weights[f"output {layer}"]


def feed_forward(x: jax.Array, weights: Arrays, layer: int) -> jax.Array:
    """SwiGLU of one layer."""
    gate = jax.nn.silu(x @ weights[f"gate {layer}"])
    return (gate * (x @ weights[f"up {layer}"])) @ weights[f"down {layer}"]


def hidden_states(weights: Arrays, inputs: jax.Array, variant: Variant) -> jax.Array:
    """Compute what the head gets: ``[rows, positions, width]``."""

    def block(x: jax.Array, weights: Arrays, layer: int) -> jax.Array:
        x = x + attention(rms_norm(x), weights, layer, variant.heads)
        return x + feed_forward(rms_norm(x), weights, layer)

    if variant.frugal:
        block = jax.checkpoint(block, static_argnums=2)
    x = weights["embedding"][inputs]
    for layer in range(LAYERS):
        x = block(x, weights, layer)
    return rms_norm(x)


def losses(hidden: jax.Array, head: jax.Array, labels: jax.Array) -> jax.Array:
    """Compute the cross-entropy of each position."""
    logits = CAP * jnp.tanh((hidden @ head) / CAP)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


@jax.custom_vjp
def loss_in_pieces(hidden: jax.Array, head: jax.Array, labels: jax.Array) -> jax.Array:
    """Compute the mean loss of pieces of the rows, one after the other."""

    def add_piece(total: jax.Array, piece: tuple) -> tuple[jax.Array, None]:
        states, targets = piece
        return total + losses(states, head, targets).sum(dtype=jnp.float32), None

    total, _ = jax.lax.scan(add_piece, jnp.zeros([]), split(hidden, labels))
    return total / labels.size


def split(hidden: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cut hidden states and labels into pieces of rows."""
    return hidden.reshape(PIECES, -1, WIDTH), labels.reshape(PIECES, -1)


def forward_in_pieces(hidden: jax.Array, head: jax.Array, labels: jax.Array) -> tuple:
    """Keep for the backward pass what the loss was computed from, not the logits."""
    return loss_in_pieces(hidden, head, labels), (hidden, head, labels)


def backward_in_pieces(kept: tuple, cotangent: jax.Array) -> tuple:
    """Compute the logits of each piece again, and its gradients."""
    hidden, head, labels = kept

    def piece_loss(states: jax.Array, head: jax.Array, targets: jax.Array) -> jax.Array:
        return losses(states, head, targets).sum(dtype=jnp.float32) * (cotangent / labels.size)

    def add_piece(head_gradient: jax.Array, piece: tuple) -> tuple[jax.Array, jax.Array]:
        states, targets = piece
        of_states, of_head = jax.grad(piece_loss, argnums=(0, 1))(states, head, targets)
        return head_gradient + of_head, of_states

    head_gradient, gradients = jax.lax.scan(add_piece, jnp.zeros_like(head), split(hidden, labels))
    return gradients.reshape(hidden.shape), head_gradient, None


loss_in_pieces.defvjp(forward_in_pieces, backward_in_pieces)


def loss(weights: Arrays, inputs: jax.Array, labels: jax.Array, variant: Variant) -> jax.Array:
    """The mean cross-entropy of the next token."""
    hidden = hidden_states(weights, inputs, variant)
    if variant.frugal:
        flat = hidden.reshape(-1, WIDTH)
        return loss_in_pieces(flat, weights["head"], labels.reshape(-1))
    return losses(hidden, weights["head"], labels).mean()


def optimizer() -> optax.GradientTransformation:
    """AdamW with a warm-up; its state has the weights' dtype."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-4, 100, 10_000)
    return optax.adamw(schedule, b1=0.9, b2=0.95, eps=1e-8, weight_decay=0.1)


def gradients_of(
    weights: Arrays, inputs: jax.Array, labels: jax.Array, variant: Variant
) -> tuple[jax.Array, Arrays]:
    """Compute loss and gradients; those of several micro-batches are added up in a loop."""
    compute = jax.value_and_grad(loss)
    if variant.micro_batches == 1:
        return compute(weights, inputs, labels, variant)

    def add_micro_batch(sums: tuple, batch: tuple) -> tuple[tuple, None]:
        value, gradients = compute(weights, *batch, variant)
        return jax.tree.map(jnp.add, sums, (value, gradients)), None

    zero = jnp.zeros([], jnp.bfloat16), jax.tree.map(jnp.zeros_like, weights)
    sums, _ = jax.lax.scan(add_micro_batch, zero, (inputs, labels))
    return jax.tree.map(lambda total: total / variant.micro_batches, sums)


def step_and_arguments(name: str) -> tuple[Callable, tuple]:
    """Give the jitted step of ``K1`` to ``K6``, and the shapes of its arguments."""
    variant = VARIANTS[name]
    weights = {
        name: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
        for name, shape in weight_shapes(variant.heads).items()
    }
    shape = (variant.rows, POSITIONS)
    if variant.micro_batches > 1:
        shape = (variant.micro_batches, *shape)
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32)

    def step(weights: Arrays, state: optax.OptState, inputs: jax.Array, labels: jax.Array) -> tuple:
        value, gradients = gradients_of(weights, inputs, labels, variant)
        updates, state = optimizer().update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, value

    def frugal_step(
        weights: Arrays, means: Arrays, squares: Arrays, count: jax.Array,
        inputs: jax.Array, labels: jax.Array,
    ) -> tuple:  # fmt: skip
        value, gradients = gradients_of(weights, inputs, labels, variant)
        updated = {}
        for name, weight in weights.items():
            updated[name] = adamw(weight, means[name], squares[name], gradients[name], count)
        return updated, count + 1, value

    if variant.frugal:
        count = jax.ShapeDtypeStruct((), jnp.int32)
        return jax.jit(frugal_step), (weights, weights, weights, count, tokens, tokens)
    state = jax.eval_shape(optimizer().init, weights)
    return jax.jit(step), (weights, state, tokens, tokens)
