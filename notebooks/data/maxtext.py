"""Make maxtext.tsv again: steps that Google published, and what its compiler estimates of them.

    python notebooks/data/maxtext.py                # all rows, an hour
    python notebooks/data/maxtext.py 32B v5e-256    # one

Nothing is run. The step is MaxText's of 2023-11 to 2024-01, when the table came to be, written
again in plain JAX: sizes by its scale, attention and a ReLU's products side by side in a block, a
norm before them, weights in float32 that are sharded over the axis ``fsdp`` (and ``tensor``),
activations in bfloat16, Pallas' splash attention in blocks of 512, layers in a loop, AdamW behind a
clipped norm.
"""

import csv
import math
import pathlib
import sys

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_policies
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from helpers.base import files
from tpu_preflight import compiler
from tpu_preflight.chips import hardware
from tpu_preflight.program import from_jax

TABLE = pathlib.Path(__file__).with_suffix(".tsv")
TIMEOUT = 3600.0
WORDS, HEAD, BLOCK = 32_768, 256, 512  # vocabulary, size of a head, rows of an attention's block
HIDDEN, HEADS = P("fsdp", None, "tensor"), P("fsdp", None, "tensor", None)
# What the backward pass finds kept: nothing, or the results of all products with weights.
KEPT = {"full": None, "minimal": checkpoint_policies.dots_with_no_batch_dims_saveable}


def weights(scale: int) -> dict[str, tuple[tuple[int, ...], P]]:
    """Give shape and sharding of each weight, as MaxText's ``global_parameter_scale`` sets them."""
    third, rest = divmod(int(math.log2(scale)), 3)
    layers, wide = 16 * 2**third, 2 ** (third + (rest > 0))
    width, heads, inner = 2560 * 2 ** (third + (rest > 1)), 8 * wide, 8192 * wide
    into, out = P(None, "fsdp", "tensor"), P(None, "tensor", "fsdp")
    return {
        "words": ((WORDS, width), P("tensor", "fsdp")),
        "scores": ((width, WORDS), P("fsdp", "tensor")),
        "last": ((width,), P("tensor")),
        "norm": ((layers, width), P(None, "tensor")),
        **{name: ((layers, width, heads, HEAD), into) for name in ("query", "key", "value")},
        "output": ((layers, heads, HEAD, width), P(None, "tensor", None, "fsdp")),
        "up": ((layers, width, inner), into),
        "down": ((layers, inner, width), out),
    }


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    mean = jnp.mean(jnp.square(wide), -1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean + 1e-6)).astype(x.dtype) * scale.astype(x.dtype)


def _turn(x: jax.Array) -> jax.Array:
    """Turn the halves of each head by an angle that grows with the position."""
    at = jnp.arange(x.shape[1])[:, None, None] * 1e4 ** -jnp.linspace(0, 1, HEAD // 2, False)
    left, right = jnp.split(x, 2, -1)
    sine, cosine = jnp.sin(at), jnp.cos(at)
    turned = jnp.concatenate([left * cosine - right * sine, right * cosine + left * sine], -1)
    return turned.astype(x.dtype)


def _attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Attention of one device's rows and heads, by the kernel."""
    _, length, heads, _ = query.shape
    sizes = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
    blocks = splash.BlockSizes(**{f"block_{name}": BLOCK for name in sizes})
    mask = splash.MultiHeadMask([splash.CausalMask((length, length))] * heads)
    kernel = splash.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=blocks)
    given = (jnp.moveaxis(x, 1, 2) for x in (query * HEAD**-0.5, key, value))
    return jnp.moveaxis(jax.vmap(kernel)(*given), 1, 2)


def loss(weights: dict[str, jax.Array], ids: jax.Array, mesh: AbstractMesh, kept: str) -> jax.Array:
    """The mean cross-entropy of the next token."""

    def lay(x: jax.Array, spec: P) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    attend = jax.shard_map(
        _attend, mesh=mesh, in_specs=(HEADS,) * 3, out_specs=HEADS, check_vma=False
    )

    def block(x: jax.Array, layer: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        layer = {name: weight.astype(x.dtype) for name, weight in layer.items()}
        y = lay(_norm(x, layer["norm"]), HIDDEN)
        query, key, value = (
            lay(jnp.einsum("btd,dhk->bthk", y, layer[name]), HEADS)
            for name in ("query", "key", "value")
        )
        heads = lay(attend(_turn(query), _turn(key), value), HEADS)
        attended = lay(jnp.einsum("bthk,hkd->btd", heads, layer["output"]), HIDDEN)
        inner = lay(jax.nn.relu(y @ layer["up"]), HIDDEN)
        return lay(x + attended + lay(inner @ layer["down"], HIDDEN), HIDDEN), None

    layers = {name: w for name, w in weights.items() if name not in ("words", "scores", "last")}
    words = weights["words"].astype(jnp.bfloat16)
    x = lay(jax.nn.one_hot(ids, WORDS, dtype=words.dtype) @ words, HIDDEN)
    x, _ = jax.lax.scan(jax.checkpoint(block, prevent_cse=False, policy=KEPT[kept]), x, layers)
    scores = lay(_norm(x, weights["last"]).astype(jnp.float32) @ weights["scores"], HIDDEN)
    true = jax.nn.one_hot(jnp.roll(ids, -1, 1), WORDS)
    return jnp.mean(jax.nn.logsumexp(scores, -1) - jnp.sum(scores * true, -1))


def step(state: dict, ids: jax.Array, mesh: AbstractMesh, kept: str) -> tuple[dict, jax.Array]:
    """One step of AdamW."""
    value, gradients = jax.value_and_grad(loss)(state["weights"], ids, mesh, kept)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in gradients.values()))
    new = {part: {} for part in state}
    for name, weight in state["weights"].items():
        gradient = gradients[name] / jnp.maximum(norm, 1.0)
        new["mean"][name] = mean = 0.9 * state["mean"][name] + 0.1 * gradient
        new["square"][name] = square = 0.95 * state["square"][name] + 0.05 * gradient**2
        change = mean / (jnp.sqrt(square) + 1e-8) + 0.1 * weight
        new["weights"][name] = weight - 3e-5 * change
    return new, value


def export(
    scale: int, target: str, rows: int, length: int, tensor: int, kept: str
) -> from_jax.Exported:
    """Write the step for all chips of a slice, ``tensor`` of which share the rows of each."""
    chips = hardware.slice_of(target, jax=True).chips
    mesh = AbstractMesh((chips // tensor, tensor), ("fsdp", "tensor"))
    given = {
        name: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
        for name, (shape, spec) in weights(scale).items()
    }
    state = {part: given for part in ("weights", "mean", "square")}
    laid = NamedSharding(mesh, P("fsdp"))
    ids = jax.ShapeDtypeStruct((rows * chips, length), jnp.int32, sharding=laid)
    shardings = jax.tree.map(lambda x: x.sharding, state), None
    fn = jax.jit(step, donate_argnums=0, static_argnums=(2, 3), out_shardings=shardings)
    return from_jax.export(fn, (state, ids, mesh, kept))


def useful(scale: int, rows: int, length: int) -> float:
    """Count a chip's operations of a step as MaxText did when it published: nothing twice.

    Six for each weight and token, and of attention's products what a causal mask leaves.
    """
    shapes = [shape for shape, _ in weights(scale).values()]
    layers, _, heads, _ = weights(scale)["query"][0]
    return rows * length * 6 * (sum(map(math.prod, shapes)) + layers * length * heads * HEAD)


def filled(row: dict[str, str]) -> dict[str, str]:
    """Compile a row's step with full effort, and fill in what follows from it."""
    scale = int(row["model"].removesuffix("B"))
    rows, length, tensor = (int(row[name]) for name in ("rows", "length", "tensor"))
    slice_ = hardware.slice_of(row["target"], jax=True)
    program = export(scale, row["target"], rows, length, tensor, row["kept"]).program
    done = compiler.compile(program, row["target"], effort="full", timeout=TIMEOUT)
    found = compiler.profile(done)
    waited = (one for one in found.exchanges if one.waits and one.kind == "all-reduce")
    sent = sum(one.sent for one in waited)
    told = {
        "published_seconds": useful(scale, rows, length) / float(row["published_tflops"]) / 1e12,
        "kernels_seconds": found.seconds,
        "all_reduce_seconds": compiler.link_seconds(slice_, sent)[0],
    }
    published, *parts = told.values()
    told |= {"estimated_seconds": sum(parts), "ratio": published / sum(parts)}
    told |= {"gib": done.peak_bytes / 2**30}
    return row | {name: f"{number:.3g}" for name, number in told.items()}


def main() -> None:
    """Fill the rows that have all that is named, or every row."""
    about, *table = TABLE.read_text("utf-8").splitlines(keepends=True)
    rows = list(csv.DictReader(table, delimiter="\t"))
    for at, row in enumerate(rows):
        if set(sys.argv[1:]) <= set(row.values()):
            rows[at] = filled(row)
            print(*rows[at].values(), sep="\t", flush=True)
            cells = [list(rows[0]), *(one.values() for one in rows)]
            lines = ("\t".join(cell) + "\n" for cell in cells)
            files.write(TABLE, about + "".join(lines))


if __name__ == "__main__":
    main()
