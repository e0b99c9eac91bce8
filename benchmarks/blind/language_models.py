"""R5 to R8: language models of 7 to 175 billion weights, in slices over 8 or 256 v6e chips.

Float32 weights and AdamW state lie in slices over all chips (FSDP); products are bfloat16; the
layers run in a loop; the backward pass finds what `Model.kept` says and computes the rest again.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name, checkpoint_policies
from jax.experimental.layout import Layout, with_layout_constraint
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.blind.layers import Arrays, adamw, rotary

EPSILON = 1e-5  # of the norms
CLIP = 1.0  # norm of the gradients
ROWS_SHARDED = P("fsdp")
OFFLOADED = ("input", "query", "key", "value", "output")


@dataclasses.dataclass(frozen=True)
class Model:
    """A model's sizes, and how its step is computed."""

    target: str
    rows: int  # on each chip
    positions: int  # of a row
    layers: int
    width: int
    heads: int
    key_heads: int
    head: int
    inner: int  # of the MLP
    vocabulary: int
    kind: str  # ``gpt3``, ``llama`` or ``gemma``
    blocks: splash.BlockSizes
    kept: str = "input"  # or ``host``: what is named in OFFLOADED, in the host's memory
    group: int = 1  # layers in one round of the loop
    window: int = 0  # of all layers of a group but the last; 0 without
    pieces: int = 1  # in which the loss is computed
    rotary_base: float = 10_000.0

    @property
    def attention_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head


def splash_blocks(forward: tuple[int, int], backward: tuple[int, int]) -> splash.BlockSizes:
    """Give the blocks of splash attention, queries by keys, with separate backward kernels."""
    query, key = forward
    query_backward, key_backward = backward
    return splash.BlockSizes(
        block_q=query,
        block_kv=key,
        block_kv_compute=key,
        block_q_dkv=query_backward,
        block_kv_dkv=key_backward,
        block_kv_dkv_compute=key_backward,
        block_q_dq=query_backward,
        block_kv_dq=key_backward,
    )


FUSED_BLOCKS = splash.BlockSizes(
    block_q=2048,
    block_kv=2048,
    block_kv_compute=2048,
    block_q_dkv=2048,
    block_kv_dkv=2048,
    block_kv_dkv_compute=2048,
    use_fused_bwd_kernel=True,
)
LLAMA = Model(
    target="v6e-8",
    rows=3,
    positions=8192,
    layers=32,
    width=4096,
    heads=32,
    key_heads=8,
    head=128,
    inner=14_336,
    vocabulary=128_256,
    kind="llama",
    blocks=FUSED_BLOCKS,
    kept="host",
    rotary_base=500_000.0,
)

MODELS = {
    "R5": Model(
        target="v6e-256",
        rows=3,
        positions=2048,
        layers=96,
        width=12_288,
        heads=96,
        key_heads=96,
        head=128,
        inner=49_152,
        vocabulary=50_304,
        kind="gpt3",
        blocks=splash_blocks((1024, 2048), (1024, 2048)),
    ),
    "R6": LLAMA,
    "R7": dataclasses.replace(LLAMA, rows=6, vocabulary=32_000, rotary_base=10_000.0),
    "R8": Model(
        target="v6e-256",
        rows=1,
        positions=32_768,
        layers=48,
        width=3840,
        heads=16,
        key_heads=8,
        head=256,
        inner=15_360,
        vocabulary=262_208,
        kind="gemma",
        blocks=splash_blocks((1024, 1024), (512, 2048)),
        group=6,
        window=1024,
        pieces=16,
        rotary_base=1_000_000.0,
    ),
}


# --- weights ----------------------------------------------------------------------------------


def weight_shapes(model: Model) -> dict[str, tuple[tuple[int, ...], P]]:
    """Give shape and sharding of each weight; those of the layers are stacked.

    The dimension of the model's width is cut over all chips.
    """
    width, heads, inner = model.width, model.attention_width, model.inner
    key_heads = model.key_heads * model.head
    stack = (model.layers // model.group, model.group)
    into, out_of, vector = P(None, None, "fsdp"), P(None, None, None, "fsdp"), P()
    shapes = {
        "words": ((model.vocabulary, width), P(None, "fsdp")),
        "last norm": ((width,), vector),
        "query": ((*stack, width, heads), into),
        "key": ((*stack, width, key_heads), into),
        "value": ((*stack, width, key_heads), into),
        "output": ((*stack, heads, width), out_of),
        "up": ((*stack, width, inner), into),
        "down": ((*stack, inner, width), out_of),
        "attention norm": ((*stack, width), vector),
        "inner norm": ((*stack, width), vector),
    }
    if model.kind == "gpt3":
        shapes |= {
            "positions": ((model.positions, width), P(None, "fsdp")),
            "head": ((width, model.vocabulary), P("fsdp")),
            "attention norm bias": ((*stack, width), vector),
            "inner norm bias": ((*stack, width), vector),
            "query bias": ((*stack, heads), vector),
            "key bias": ((*stack, key_heads), vector),
            "value bias": ((*stack, key_heads), vector),
            "output bias": ((*stack, width), vector),
            "up bias": ((*stack, inner), vector),
            "down bias": ((*stack, width), vector),
        }
    else:
        shapes["gate"] = ((*stack, width, inner), into)
    if model.kind == "llama":
        shapes["head"] = ((width, model.vocabulary), P("fsdp"))
    if model.kind == "gemma":
        shapes |= {
            "attention norm after": ((*stack, width), vector),
            "inner norm after": ((*stack, width), vector),
            "query norm": ((*stack, model.head), vector),
            "key norm": ((*stack, model.head), vector),
        }
    return shapes


OUTSIDE = ("words", "positions", "head", "last norm")  # of the loop over the layers


# --- layers -----------------------------------------------------------------------------------


def normed(x: jax.Array, weights: Arrays, name: str) -> jax.Array:
    """Norm of the last dimension in float32: a layer norm where there is a bias, else RMS."""
    wide = x.astype(jnp.float32)
    bias = weights.get(f"{name} bias")
    if bias is not None:
        wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
    mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    scaled = (wide * jax.lax.rsqrt(mean_square + EPSILON)).astype(x.dtype) * weights[name]
    return scaled if bias is None else scaled + bias


def product(x: jax.Array, weights: Arrays, name: str) -> jax.Array:
    """Multiply by a weight, and add its bias where there is one."""
    result = x @ weights[name]
    bias = weights.get(f"{name} bias")
    return result if bias is None else result + bias


@functools.cache
def splash_kernel(
    positions: int, heads: int, window: int, blocks: splash.BlockSizes
) -> Callable[..., jax.Array]:
    """Make the splash attention of one row; its masks' blocks take a while to compute."""
    shape = (positions, positions)
    mask = splash.CausalMask(shape)
    if window:
        mask = splash.LocalMask(shape, window_size=(window - 1, 0), offset=0)
    masks = splash.MultiHeadMask([mask] * heads)
    with jax.ensure_compile_time_eval():
        return splash.make_splash_mha(masks, head_shards=1, q_seq_shards=1, block_sizes=blocks)


def attend(
    query: jax.Array, key: jax.Array, value: jax.Array, model: Model, window: int
) -> jax.Array:
    """Causal attention of one chip's rows, by the kernel; ``[rows, heads, positions, size]``."""
    kernel = splash_kernel(model.positions, model.heads, window, model.blocks)
    return jax.vmap(kernel)(query, key, value)


def attention(
    x: jax.Array, weights: Arrays, model: Model, mesh: AbstractMesh, window: int
) -> jax.Array:
    """Attention of one layer, its output projection included."""
    rows = x.shape[0]
    heads = {}
    for name, count in (
        ("query", model.heads),
        ("key", model.key_heads),
        ("value", model.key_heads),
    ):
        projected = product(x, weights, name)
        heads[name] = projected.reshape(rows, model.positions, count, model.head)
    if model.kind == "gemma":
        heads["query"] = normed(heads["query"], weights, "query norm")
        heads["key"] = normed(heads["key"], weights, "key norm")
    if model.kind != "gpt3":
        base = 10_000.0 if window else model.rotary_base
        heads["query"] = rotary(heads["query"], base)
        heads["key"] = rotary(heads["key"], base)
    heads["query"] = heads["query"] * model.head**-0.5
    for name, values in heads.items():
        heads[name] = jnp.swapaxes(checkpoint_name(values, name), 1, 2)
    on_each_chip = jax.shard_map(
        lambda query, key, value: attend(query, key, value, model, window),
        mesh=mesh,
        in_specs=(ROWS_SHARDED,) * 3,
        out_specs=ROWS_SHARDED,
        check_vma=False,
    )
    attended = on_each_chip(heads["query"], heads["key"], heads["value"])
    merged = jnp.swapaxes(attended, 1, 2).reshape(rows, model.positions, model.attention_width)
    return checkpoint_name(in_rows(product(merged, weights, "output")), "output")


def feed_forward(x: jax.Array, weights: Arrays, model: Model) -> jax.Array:
    """The MLP of one layer."""
    if model.kind == "gpt3":
        inner = jax.nn.gelu(product(x, weights, "up"))
    elif model.kind == "llama":
        inner = jax.nn.silu(product(x, weights, "gate")) * product(x, weights, "up")
    else:
        inner = jax.nn.gelu(product(x, weights, "gate")) * product(x, weights, "up")
    return product(inner, weights, "down")


def in_rows(x: jax.Array) -> jax.Array:
    """Keep the last dimension fastest in memory, as the host's buffer has it.

    Otherwise the compiler turns the buffers of all layers on the chip, which needs room for them.
    """
    return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))


def layer(
    x: jax.Array, weights: Arrays, model: Model, mesh: AbstractMesh, window: int
) -> jax.Array:
    """One layer, with its residuals."""
    x = checkpoint_name(in_rows(x), "input")
    attended = attention(normed(x, weights, "attention norm"), weights, model, mesh, window)
    if model.kind == "gemma":
        attended = normed(attended, weights, "attention norm after")
    x = x + attended
    widened = feed_forward(normed(x, weights, "inner norm"), weights, model)
    if model.kind == "gemma":
        widened = normed(widened, weights, "inner norm after")
    return x + widened


# --- the step ---------------------------------------------------------------------------------


def loss(
    weights: Arrays, inputs: jax.Array, labels: jax.Array, model: Model, mesh: AbstractMesh
) -> jax.Array:
    """The mean cross-entropy of the next token."""

    def sharded(x: jax.Array, spec: P = ROWS_SHARDED) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    policy = None
    if model.kept == "host":
        policy = checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=OFFLOADED,
            offload_src="device",
            offload_dst="pinned_host",
        )

    def group(x: jax.Array, weights: Arrays) -> tuple[jax.Array, None]:
        for number in range(model.group):
            window = model.window if number < model.group - 1 else 0

            def one_layer(x: jax.Array, weights: Arrays, window: int = window) -> jax.Array:
                weights = {name: weight.astype(x.dtype) for name, weight in weights.items()}
                return sharded(layer(sharded(x), weights, model, mesh, window))

            own_weights = {name: weight[number] for name, weight in weights.items()}
            x = jax.checkpoint(one_layer, prevent_cse=False, policy=policy)(x, own_weights)
        return x, None

    stacked = {name: weight for name, weight in weights.items() if name not in OUTSIDE}
    outside = {name: weights[name].astype(jnp.bfloat16) for name in weights if name in OUTSIDE}
    x = sharded(outside["words"][inputs])
    if model.kind == "gpt3":
        x = sharded(x + outside["positions"])
    if model.kind == "gemma":
        x = x * jnp.asarray(model.width**0.5, x.dtype)
    x, _ = jax.lax.scan(group, x, stacked)
    x = normed(x, outside, "last norm")
    head = sharded(outside["head"] if "head" in outside else outside["words"].T, P())

    def loss_of(states: jax.Array, labels: jax.Array) -> jax.Array:
        logits = sharded(states @ head).astype(jnp.float32)
        # As a sum over a row with a single value, which needs no copy of the logits in float32.
        is_label = labels[..., None] == jnp.arange(model.vocabulary)
        of_labels = jnp.sum(jnp.where(is_label, logits, 0.0), axis=-1)
        return jnp.sum(jax.nn.logsumexp(logits, axis=-1) - of_labels)

    if model.pieces == 1:
        return loss_of(x, labels) / labels.size

    def add_piece(total: jax.Array, piece: tuple) -> tuple[jax.Array, None]:
        return total + jax.checkpoint(loss_of, prevent_cse=False)(*piece), None

    rows, length = labels.shape[0], model.positions // model.pieces
    states = jnp.moveaxis(x.reshape(rows, model.pieces, length, model.width), 1, 0)
    targets = jnp.moveaxis(labels.reshape(rows, model.pieces, length), 1, 0)
    total, _ = jax.lax.scan(add_piece, jnp.zeros([]), (states, targets))
    return total / labels.size


def step(
    state: dict[str, Arrays],
    count: jax.Array,
    inputs: jax.Array,
    labels: jax.Array,
    model: Model,
    mesh: AbstractMesh,
) -> tuple[dict[str, Arrays], jax.Array, jax.Array]:
    """One step of AdamW behind a clipped norm."""
    value, gradients = jax.value_and_grad(loss)(state["weights"], inputs, labels, model, mesh)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(each)) for each in gradients.values()))
    updated = {part: {} for part in state}
    for name, weight in state["weights"].items():
        gradient = gradients[name] / jnp.maximum(norm / CLIP, 1.0)
        mean, square = state["mean"][name], state["square"][name]
        weight, mean, square = adamw(weight, mean, square, gradient, count)
        updated["weights"][name] = weight
        updated["mean"][name] = mean
        updated["square"][name] = square
    return updated, count + 1, value


def step_and_arguments(name: str, layers: int = 0) -> tuple[Callable, tuple]:
    """Give the jitted step of ``R5`` to ``R8`` and its arguments.

    With ``layers`` it has so many instead of the model's.
    """
    model = MODELS[name]
    if layers:
        model = dataclasses.replace(model, layers=layers)
    chips = int(model.target.partition("-")[2])
    mesh = AbstractMesh((chips,), ("fsdp",))
    arrays = {}
    for weight, (shape, spec) in weight_shapes(model).items():
        sharding = NamedSharding(mesh, spec)
        arrays[weight] = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
    state = {part: arrays for part in ("weights", "mean", "square")}
    by_row = NamedSharding(mesh, ROWS_SHARDED)
    shape = (model.rows * chips, model.positions)
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=by_row)
    count = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, P()))
    results = jax.tree.map(lambda x: x.sharding, state), None, None
    jitted = jax.jit(step, donate_argnums=0, static_argnums=(4, 5), out_shardings=results)
    return jitted, (state, count, tokens, tokens, model, mesh)
