"""Make MaxText's rows of published.tsv again: steps that Google published, and their estimates.

    python notebooks/data/maxtext.py                # all rows, hours
    python notebooks/data/maxtext.py 16B v5e-256    # one, minutes; 128B on v5p-256 takes thirty

Nothing is run. The step is MaxText's of 2023-11 to 2024-01, when the table came to be (its scripts
and tables at 76bd53b, 128B on v5e as before pull 450, ``base.yml`` as in the fork shivajid/maxtext
at 10872a9), written again in plain JAX: sizes by its scale, attention and a ReLU's products side by
side in a block, a norm before them, weights in float32 that are sharded over the axis ``fsdp`` (and
``tensor``), activations in bfloat16, Pallas' splash attention in blocks of 512, layers in a loop,
AdamW behind a clipped norm.

Unlike the other rows', an estimate here is the kernels' time and that of the all-reduces that the
program waits for; kernels of Pallas count with a bound.
"""

import dataclasses
import math
import pathlib
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_policies
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tpu_preflight import compiler
from tpu_preflight.chips import hardware
from tpu_preflight.estimate import calibration
from tpu_preflight.estimate.calibration import Run
from tpu_preflight.program import jax_export

TIMEOUT = 3600.0
WORDS = 32_768  # of the vocabulary
HEAD = 256  # size of a head
BLOCK = 512  # rows of an attention's block
# Shardings of activations: [rows, length, width], and [rows, length, heads, head].
HIDDEN = P("fsdp", None, "tensor")
HEADS = P("fsdp", None, "tensor", None)
# What the backward pass finds kept: nothing, or the results of all products with weights.
KEPT = {"full": None, "minimal": checkpoint_policies.dots_with_no_batch_dims_saveable}


# Shardings of weights. Those of a layer have the layers as their first axis.
INTO = P(None, "fsdp", "tensor")
OUT = P(None, "tensor", "fsdp")
SHARDINGS = {
    "words": P("tensor", "fsdp"),
    "scores": P("fsdp", "tensor"),
    "last": P("tensor"),
    "norm": P(None, "tensor"),
    "query": INTO,
    "key": INTO,
    "value": INTO,
    "output": P(None, "tensor", None, "fsdp"),
    "up": INTO,
    "down": OUT,
}


class Sizes(NamedTuple):
    """The sizes of a model."""

    layers: int
    heads: int
    inner: int
    width: int


def sizes(scale: int) -> Sizes:
    """Give a model's sizes as MaxText's ``global_parameter_scale`` sets them."""
    # Each factor of two goes to the heads first, then to the width, then to the layers.
    doublings = int(math.log2(scale))
    layer_doublings, remainder = divmod(doublings, 3)
    head_doublings = layer_doublings + (remainder > 0)
    width_doublings = layer_doublings + (remainder > 1)
    return Sizes(
        layers=16 * 2**layer_doublings,
        heads=8 * 2**head_doublings,
        inner=8192 * 2**head_doublings,
        width=2560 * 2**width_doublings,
    )


def shapes(scale: int) -> dict[str, tuple[int, ...]]:
    """Give the shape of each weight."""
    layers, heads, inner, width = sizes(scale)
    shape_by_name = {}
    shape_by_name["words"] = (WORDS, width)
    shape_by_name["scores"] = (width, WORDS)
    shape_by_name["last"] = (width,)
    shape_by_name["norm"] = (layers, width)
    for name in ("query", "key", "value"):
        shape_by_name[name] = (layers, width, heads, HEAD)
    shape_by_name["output"] = (layers, heads, HEAD, width)
    shape_by_name["up"] = (layers, width, inner)
    shape_by_name["down"] = (layers, inner, width)
    return shape_by_name


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    y = x.astype(jnp.float32)
    mean = jnp.mean(jnp.square(y), -1, keepdims=True)
    y = y * jax.lax.rsqrt(mean + 1e-6)
    return y.astype(x.dtype) * scale.astype(x.dtype)


def _turn(x: jax.Array) -> jax.Array:
    """Turn the halves of each head by an angle that grows with the position."""
    length = x.shape[1]
    position = jnp.arange(length)[:, None, None]
    fraction = jnp.linspace(0, 1, HEAD // 2, endpoint=False)
    angle = position * 1e4**-fraction
    a, b = jnp.split(x, 2, -1)
    sine = jnp.sin(angle)
    cosine = jnp.cos(angle)
    rotated_a = a * cosine - b * sine
    rotated_b = b * cosine + a * sine
    rotated = jnp.concatenate([rotated_a, rotated_b], -1)
    return rotated.astype(x.dtype)


def _attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Attention of one device's rows and heads, by the kernel."""
    _, length, heads, _ = query.shape
    blocks = splash.BlockSizes(
        block_q=BLOCK,
        block_kv=BLOCK,
        block_kv_compute=BLOCK,
        block_q_dkv=BLOCK,
        block_kv_dkv=BLOCK,
        block_kv_dkv_compute=BLOCK,
        block_q_dq=BLOCK,
        block_kv_dq=BLOCK,
    )
    causal = splash.CausalMask((length, length))
    mask = splash.MultiHeadMask([causal] * heads)
    kernel = splash.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=blocks)
    # The kernel takes heads before positions.
    query = jnp.moveaxis(query * HEAD**-0.5, 1, 2)
    key = jnp.moveaxis(key, 1, 2)
    value = jnp.moveaxis(value, 1, 2)
    attention = jax.vmap(kernel)(query, key, value)
    return jnp.moveaxis(attention, 1, 2)


def loss(weights: dict[str, jax.Array], ids: jax.Array, mesh: AbstractMesh, kept: str) -> jax.Array:
    """The mean cross-entropy of the next token."""

    def shard(x: jax.Array, spec: P) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    attend = jax.shard_map(
        _attend, mesh=mesh, in_specs=(HEADS,) * 3, out_specs=HEADS, check_vma=False
    )

    def block(x: jax.Array, arrays: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        layer = {name: weight.astype(x.dtype) for name, weight in arrays.items()}
        y = _norm(x, layer["norm"])
        y = shard(y, HIDDEN)
        query = jnp.einsum("btd,dhk->bthk", y, layer["query"])
        query = shard(query, HEADS)
        key = jnp.einsum("btd,dhk->bthk", y, layer["key"])
        key = shard(key, HEADS)
        value = jnp.einsum("btd,dhk->bthk", y, layer["value"])
        value = shard(value, HEADS)
        heads = attend(_turn(query), _turn(key), value)
        heads = shard(heads, HEADS)
        attention = jnp.einsum("bthk,hkd->btd", heads, layer["output"])
        attention = shard(attention, HIDDEN)
        inner = jax.nn.relu(y @ layer["up"])
        inner = shard(inner, HIDDEN)
        x = x + attention
        x = x + shard(inner @ layer["down"], HIDDEN)
        return shard(x, HIDDEN), None

    layers = dict(weights)
    for name in ("words", "scores", "last"):  # these are of no block
        del layers[name]
    words = weights["words"].astype(jnp.bfloat16)
    one_hot = jax.nn.one_hot(ids, WORDS, dtype=words.dtype)
    x = shard(one_hot @ words, HIDDEN)
    checkpointed = jax.checkpoint(block, prevent_cse=False, policy=KEPT[kept])
    x, _ = jax.lax.scan(checkpointed, x, layers)
    x = _norm(x, weights["last"]).astype(jnp.float32)
    scores = shard(x @ weights["scores"], HIDDEN)
    next_ids = jnp.roll(ids, -1, 1)
    is_next = jax.nn.one_hot(next_ids, WORDS)
    log_sum = jax.nn.logsumexp(scores, -1)
    next_score = jnp.sum(scores * is_next, -1)
    return jnp.mean(log_sum - next_score)


def step(state: dict, ids: jax.Array, mesh: AbstractMesh, kept: str) -> tuple[dict, jax.Array]:
    """One step of AdamW."""
    loss_and_gradients = jax.value_and_grad(loss)
    value, gradients = loss_and_gradients(state["weights"], ids, mesh, kept)
    sum_of_squares = sum(jnp.sum(jnp.square(gradient)) for gradient in gradients.values())
    norm = jnp.sqrt(sum_of_squares)
    result = {"weights": {}, "mean": {}, "square": {}}
    for name, weight in state["weights"].items():
        gradient = gradients[name] / jnp.maximum(norm, 1.0)
        mean = 0.9 * state["mean"][name] + 0.1 * gradient
        square = 0.95 * state["square"][name] + 0.05 * gradient**2
        change = mean / (jnp.sqrt(square) + 1e-8) + 0.1 * weight
        result["mean"][name] = mean
        result["square"][name] = square
        result["weights"][name] = weight - 3e-5 * change
    return result, value


def export(
    scale: int, target: str, rows: int, length: int, tensor: int, kept: str
) -> jax_export.Exported:
    """Write the step for all chips of a slice, ``tensor`` of which share the rows of each."""
    chips = hardware.slice_of(target, jax=True).chips
    mesh = AbstractMesh((chips // tensor, tensor), ("fsdp", "tensor"))
    arrays = {}
    for name, shape in shapes(scale).items():
        sharding = NamedSharding(mesh, SHARDINGS[name])
        arrays[name] = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
    state = dict.fromkeys(("weights", "mean", "square"), arrays)
    by_rows = NamedSharding(mesh, P("fsdp"))
    ids = jax.ShapeDtypeStruct((rows * chips, length), jnp.int32, sharding=by_rows)
    state_shardings = jax.tree.map(lambda x: x.sharding, state)
    shardings = (state_shardings, None)
    fn = jax.jit(step, donate_argnums=0, static_argnums=(2, 3), out_shardings=shardings)
    return jax_export.export(fn, (state, ids, mesh, kept))


def useful(scale: int, rows: int, length: int) -> float:
    """Count a chip's operations of a step as MaxText did when it published: nothing twice.

    Six for each weight and token, and of attention's products what a causal mask leaves.
    """
    weight_count = sum(map(math.prod, shapes(scale).values()))
    c = sizes(scale)
    attention = c.layers * length * c.heads * HEAD
    return rows * length * 6 * (weight_count + attention)


def _parts(run: Run) -> tuple[int, int, str]:
    """Give a row's options, as in ``maxtext scale=16 tensor=1 kept=full``."""
    options = {}
    for part in run.model.split():
        name, _, value = part.partition("=")
        options[name] = value
    return int(options["scale"]), int(options["tensor"]), options["kept"]


def _milliseconds(seconds: float) -> float:
    return float(f"{seconds * 1e3:.4g}")


def counted(run: Run) -> Run:
    """Fill in what follows from a row's published rate and MaxText's count of operations.

    The bound is the useful operations at the peak rate, so it is as large a share of the published
    time as the published MFU says.
    """
    scale, _, _ = _parts(run)
    operations = useful(scale, run.rows, run.size)
    slice_ = hardware.slice_of(run.target, jax=True)
    peak, _ = compiler.per_device(slice_.chip)
    teraflops, *_ = run.computed.split()
    rate = float(teraflops) * 1e12
    return dataclasses.replace(
        run,
        published_ms=_milliseconds(operations / rate),
        roofline_ms=_milliseconds(operations / peak),
    )


def estimated(run: Run) -> Run:
    """Compile a row's step with full effort, and fill in the estimate."""
    scale, tensor, kept = _parts(run)
    exported = export(scale, run.target, run.rows, run.size, tensor, kept)
    compiled = compiler.compile(exported.program, run.target, effort="full", timeout=TIMEOUT)
    profile = compiler.profile(compiled)
    bytes_sent = 0
    for exchange in profile.exchanges:
        if exchange.waits and exchange.kind == "all-reduce":
            bytes_sent += exchange.sent
    slice_ = hardware.slice_of(run.target, jax=True)
    links, _ = compiler.link_seconds(slice_, bytes_sent)
    estimate = _milliseconds(profile.seconds + links)
    return dataclasses.replace(run, estimate_ms=estimate)


def main() -> None:
    """Fill MaxText's rows, or those that have all that is named, and write the table."""
    root = pathlib.Path(__file__).parents[2]
    sys.path.append(str(root))
    from benchmarks import published

    selection = set(sys.argv[1:])
    runs = list(calibration.published())
    for index, run in enumerate(runs):
        names = set(run.run.split())
        if run.excluded and selection <= names:
            runs[index] = estimated(counted(run))
            print(runs[index], flush=True)
            published.write(runs)


if __name__ == "__main__":
    main()
