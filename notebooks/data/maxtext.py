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


def weights(scale: int) -> dict[str, tuple[tuple[int, ...], P]]:
    """Give shape and sharding of each weight, as MaxText's ``global_parameter_scale`` sets them."""
    # Each factor of two goes to the heads first, then to the width, then to the layers.
    layer_doublings, remainder = divmod(int(math.log2(scale)), 3)
    head_doublings = layer_doublings + (remainder > 0)
    width_doublings = layer_doublings + (remainder > 1)
    layers = 16 * 2**layer_doublings
    heads = 8 * 2**head_doublings
    inner = 8192 * 2**head_doublings
    width = 2560 * 2**width_doublings
    into = P(None, "fsdp", "tensor")
    out = P(None, "tensor", "fsdp")
    return {
        "words": ((WORDS, width), P("tensor", "fsdp")),
        "scores": ((width, WORDS), P("fsdp", "tensor")),
        "last": ((width,), P("tensor")),
        "norm": ((layers, width), P(None, "tensor")),
        "query": ((layers, width, heads, HEAD), into),
        "key": ((layers, width, heads, HEAD), into),
        "value": ((layers, width, heads, HEAD), into),
        "output": ((layers, heads, HEAD, width), P(None, "tensor", None, "fsdp")),
        "up": ((layers, width, inner), into),
        "down": ((layers, inner, width), out),
    }


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    y = x.astype(jnp.float32)
    mean = jnp.mean(jnp.square(y), -1, keepdims=True)
    return (y * jax.lax.rsqrt(mean + 1e-6)).astype(x.dtype) * scale.astype(x.dtype)


def _turn(x: jax.Array) -> jax.Array:
    """Turn the halves of each head by an angle that grows with the position."""
    position = jnp.arange(x.shape[1])[:, None, None]
    angle = position * 1e4 ** -jnp.linspace(0, 1, HEAD // 2, False)
    a, b = jnp.split(x, 2, -1)
    sine = jnp.sin(angle)
    cosine = jnp.cos(angle)
    rotated = jnp.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)
    return rotated.astype(x.dtype)


def _attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Attention of one device's rows and heads, by the kernel."""
    _, length, heads, _ = query.shape
    sizes = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
    blocks = splash.BlockSizes(**{f"block_{name}": BLOCK for name in sizes})
    mask = splash.MultiHeadMask([splash.CausalMask((length, length))] * heads)
    kernel = splash.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=blocks)
    # The kernel takes heads before positions.
    query = jnp.moveaxis(query * HEAD**-0.5, 1, 2)
    key = jnp.moveaxis(key, 1, 2)
    value = jnp.moveaxis(value, 1, 2)
    return jnp.moveaxis(jax.vmap(kernel)(query, key, value), 1, 2)


def loss(weights: dict[str, jax.Array], ids: jax.Array, mesh: AbstractMesh, kept: str) -> jax.Array:
    """The mean cross-entropy of the next token."""

    def shard(x: jax.Array, spec: P) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    attend = jax.shard_map(
        _attend, mesh=mesh, in_specs=(HEADS,) * 3, out_specs=HEADS, check_vma=False
    )

    def block(x: jax.Array, layer: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        layer = {name: weight.astype(x.dtype) for name, weight in layer.items()}
        y = shard(_norm(x, layer["norm"]), HIDDEN)
        query = shard(jnp.einsum("btd,dhk->bthk", y, layer["query"]), HEADS)
        key = shard(jnp.einsum("btd,dhk->bthk", y, layer["key"]), HEADS)
        value = shard(jnp.einsum("btd,dhk->bthk", y, layer["value"]), HEADS)
        heads = shard(attend(_turn(query), _turn(key), value), HEADS)
        attention = shard(jnp.einsum("bthk,hkd->btd", heads, layer["output"]), HIDDEN)
        inner = shard(jax.nn.relu(y @ layer["up"]), HIDDEN)
        return shard(x + attention + shard(inner @ layer["down"], HIDDEN), HIDDEN), None

    layers = dict(weights)
    for name in ("words", "scores", "last"):  # these are of no block
        del layers[name]
    words = weights["words"].astype(jnp.bfloat16)
    x = shard(jax.nn.one_hot(ids, WORDS, dtype=words.dtype) @ words, HIDDEN)
    x, _ = jax.lax.scan(jax.checkpoint(block, prevent_cse=False, policy=KEPT[kept]), x, layers)
    scores = shard(_norm(x, weights["last"]).astype(jnp.float32) @ weights["scores"], HIDDEN)
    true = jax.nn.one_hot(jnp.roll(ids, -1, 1), WORDS)
    return jnp.mean(jax.nn.logsumexp(scores, -1) - jnp.sum(scores * true, -1))


def step(state: dict, ids: jax.Array, mesh: AbstractMesh, kept: str) -> tuple[dict, jax.Array]:
    """One step of AdamW."""
    value, gradients = jax.value_and_grad(loss)(state["weights"], ids, mesh, kept)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in gradients.values()))
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
    for name, (shape, spec) in weights(scale).items():
        sharding = NamedSharding(mesh, spec)
        arrays[name] = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
    state = dict.fromkeys(("weights", "mean", "square"), arrays)
    by_rows = NamedSharding(mesh, P("fsdp"))
    ids = jax.ShapeDtypeStruct((rows * chips, length), jnp.int32, sharding=by_rows)
    shardings = jax.tree.map(lambda x: x.sharding, state), None
    fn = jax.jit(step, donate_argnums=0, static_argnums=(2, 3), out_shardings=shardings)
    return jax_export.export(fn, (state, ids, mesh, kept))


def useful(scale: int, rows: int, length: int) -> float:
    """Count a chip's operations of a step as MaxText did when it published: nothing twice.

    Six for each weight and token, and of attention's products what a causal mask leaves.
    """
    shapes = [shape for shape, _ in weights(scale).values()]
    layers, _, heads, _ = weights(scale)["query"][0]
    return rows * length * 6 * (sum(map(math.prod, shapes)) + layers * length * heads * HEAD)


def _parts(run: Run) -> tuple[int, int, str]:
    _, scale, tensor, kept = [part.rpartition("=")[2] for part in run.model.split()]
    return int(scale), int(tensor), kept


def _milliseconds(seconds: float) -> float:
    return float(f"{seconds * 1e3:.4g}")


def counted(run: Run) -> Run:
    """Fill in what follows from a row's published rate and MaxText's count of operations.

    The bound is the useful operations at the peak rate, so it is as large a share of the published
    time as the published MFU says.
    """
    operations = useful(_parts(run)[0], run.rows, run.size)
    peak, _ = compiler.per_device(hardware.slice_of(run.target, jax=True).chip)
    rate = float(run.computed.split()[0]) * 1e12
    return dataclasses.replace(
        run,
        published_ms=_milliseconds(operations / rate),
        roofline_ms=_milliseconds(operations / peak),
    )


def estimated(run: Run) -> Run:
    """Compile a row's step with full effort, and fill in the estimate."""
    scale, tensor, kept = _parts(run)
    program = export(scale, run.target, run.rows, run.size, tensor, kept).program
    compiled = compiler.compile(program, run.target, effort="full", timeout=TIMEOUT)
    profile = compiler.profile(compiled)
    bytes_sent = 0
    for exchange in profile.exchanges:
        if exchange.waits and exchange.kind == "all-reduce":
            bytes_sent += exchange.sent
    slice_ = hardware.slice_of(run.target, jax=True)
    links, _ = compiler.link_seconds(slice_, bytes_sent)
    return dataclasses.replace(run, estimate_ms=_milliseconds(profile.seconds + links))


def main() -> None:
    """Fill MaxText's rows, or those that have all that is named, and write the table."""
    sys.path.append(str(pathlib.Path(__file__).parents[2]))
    from benchmarks import published

    runs = list(calibration.published())
    for index, run in enumerate(runs):
        if run.excluded and set(sys.argv[1:]) <= set(run.run.split()):
            runs[index] = estimated(counted(run))
            print(runs[index], flush=True)
            published.write(runs)


if __name__ == "__main__":
    main()
