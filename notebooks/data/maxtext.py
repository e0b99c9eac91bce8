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
) -> jax_export.Exported:
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
    return jax_export.export(fn, (state, ids, mesh, kept))


def useful(scale: int, rows: int, length: int) -> float:
    """Count a chip's operations of a step as MaxText did when it published: nothing twice.

    Six for each weight and token, and of attention's products what a causal mask leaves.
    """
    shapes = [shape for shape, _ in weights(scale).values()]
    layers, _, heads, _ = weights(scale)["query"][0]
    return rows * length * 6 * (sum(map(math.prod, shapes)) + layers * length * heads * HEAD)


def _parts(run: Run) -> tuple[int, int, str]:
    scale, tensor, kept = (part.partition("=")[2] for part in run.model.split()[1:])
    return int(scale), int(tensor), kept


def _rounded(run: Run, **seconds: float) -> Run:
    return dataclasses.replace(run, **{k: float(f"{s * 1e3:.4g}") for k, s in seconds.items()})


def counted(run: Run) -> Run:
    """Fill in what follows from a row's published rate and MaxText's count of operations.

    The bound is the useful operations at the peak rate, so it is as large a share of the published
    time as the published MFU says.
    """
    operations = useful(_parts(run)[0], run.rows, run.size)
    peak, _ = compiler.per_device(hardware.slice_of(run.target, jax=True).chip)
    rate = float(run.computed.split()[0]) * 1e12
    return _rounded(run, published_ms=operations / rate, roofline_ms=operations / peak)


def estimated(run: Run) -> Run:
    """Compile a row's step with full effort, and fill in the estimate."""
    scale, tensor, kept = _parts(run)
    program = export(scale, run.target, run.rows, run.size, tensor, kept).program
    done = compiler.compile(program, run.target, effort="full", timeout=TIMEOUT)
    found, slice_ = compiler.profile(done), hardware.slice_of(run.target, jax=True)
    waited = (one for one in found.exchanges if one.waits and one.kind == "all-reduce")
    links, _ = compiler.link_seconds(slice_, sum(one.sent for one in waited))
    return _rounded(run, estimate_ms=found.seconds + links)


def main() -> None:
    """Fill MaxText's rows, or those that have all that is named, and write the table."""
    sys.path.append(str(pathlib.Path(__file__).parents[2]))
    from benchmarks import published

    runs = list(calibration.published())
    for at, run in enumerate(runs):
        if run.excluded and set(sys.argv[1:]) <= set(run.run.split()):
            runs[at] = estimated(counted(run))
            print(runs[at], flush=True)
            published.write(runs)


if __name__ == "__main__":
    main()
