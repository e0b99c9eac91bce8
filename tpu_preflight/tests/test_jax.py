"""A function of JAX through the checklist: as it is traced and compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.experimental.pallas.ops.tpu import flash_attention, splash_attention
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from small_models import LINUX, states, the

from tpu_preflight import compiler
from tpu_preflight.checklist import preflight
from tpu_preflight.errors import PreflightError
from tpu_preflight.program import jax_export
from tpu_preflight.report import FAIL, NOTHING, OPEN, PASS, WARN

pytestmark = pytest.mark.slow

VECTOR, DROPOUT = jax.ShapeDtypeStruct((8,), jnp.float32), nnx.Dropout(0.5, rngs=nnx.Rngs(0))


def mean(x):
    return jnp.mean(x)


@pytest.mark.parametrize(
    ("fn", "line", "fix"),
    [
        (lambda x: x[x > 0], "x[x > 0]", "Keep the full size"),
        (lambda x: x if x.sum() > 0 else -x, "x if x.sum() > 0", "jax.lax.cond"),
        (lambda x: jnp.arange(x[0]), "jnp.arange(x[0])", "Take sizes from shapes"),
        (lambda x: np.sin(x), "np.sin(x)", "jax.numpy"),
        (lambda x: DROPOUT(x), "DROPOUT(x)", "as an argument of nnx.jit"),
    ],
)
def test_what_jax_cannot_trace_is_named_with_its_line(fn, line, fix, no_compiler):
    report = preflight(fn, (VECTOR,), "v5e-1")
    item = the(report, 1)
    assert item.state == FAIL and line in item.where and fix in item.fix
    assert report.exit_status == 1 and states(report, 6) == [OPEN]


TABLE = np.ones([512, 1024], np.float32)


def print_it(x):
    jax.debug.print("{}", x)
    return x * jax.pure_callback(lambda a: a + 1, VECTOR, x)


def normalised(x):  # as Adam does a gradient of zero: that of what a softmax takes alike
    alike = lambda b: jnp.sum(jax.nn.softmax(jnp.outer(jnp.sin(x), x) + b[:, None]) @ x)  # noqa: E731
    gradient = jax.grad(alike)(jnp.zeros(64))
    return gradient / (jnp.abs(gradient) + 1e-12)


def counted(x):
    calls = iter(range(9))  # as Flax counts them for its random numbers
    add = lambda x, _: (x + jax.random.normal(jax.random.key(next(calls))), None)  # noqa: E731
    return jax.lax.scan(add, x, length=3)[0]


@pytest.mark.parametrize(
    ("fn", "given", "check", "state", "says"),
    [
        (mean, VECTOR, 4, OPEN, "needs real values"),
        (jax.jit(mean), np.ones(8), 3, PASS, "float32"),
        (mean, jnp.ones(8), 4, PASS, "the same on this CPU"),
        (mean, VECTOR, 2, NOTHING, "compiles again"),
        (jax.random.split, jax.random.key(0), 3, PASS, "random keys"),
        (jax.random.split, jax.random.key(0), 4, PASS, "the same on this CPU"),
        (lambda x: x + np.random.default_rng().normal(), jnp.ones(8), 4, WARN, "once and for all"),
        (lambda i: jnp.log(jnp.ones(4)[i] - 1), jnp.zeros(2, jnp.int32), 4, FAIL, "not finite"),
        (jax.jit(counted), jnp.zeros(()), 4, PASS, "the same on this CPU"),
        (normalised, jnp.linspace(0.1, 0.9, 64), 4, PASS, "what rounding decides: result"),
        (jax.jit(lambda x: x), np.zeros(3, jax.dtypes.float0), 4, OPEN, "could not be compared"),
        (print_it, VECTOR, 5, WARN, "pure_callback"),
        (lambda x: x @ TABLE, jax.ShapeDtypeStruct((4, 512), jnp.float32), 1, WARN, "2 MB"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_what_is_said_of_a_function(fn, given, check, state, says, no_compiler):
    item = the(preflight(fn, given, "v5e-1"), check, says)
    assert item.state == state


def test_float64_is_named_with_its_line(no_compiler):
    with jax.enable_x64(True):
        report = preflight(lambda x: mean(x * np.float64(2)), np.ones(8), "v5e-1")
        given = preflight(mean, (jnp.ones(8, jnp.float64),), "v5e-1")
    assert the(given, 3, "[0]").state == WARN
    assert the(given, 1, "64-bit").where.endswith("return jnp.mean(x)")
    assert report.subject == "lambda"


def nnx_step(model, optimizer, x):
    gradients = nnx.grad(lambda model: jnp.mean(model(x) ** 2))(model)
    optimizer.update(model, gradients)


@pytest.mark.parametrize("fn", [nnx_step, nnx.jit(nnx_step)])
def test_a_step_that_changes_modules_is_written_with_what_it_changes(fn):
    model = nnx.Linear(256, 128, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    x = jax.ShapeDtypeStruct((64, 256), jnp.float32)
    exported = jax_export.export(*jax_export.without_modules(fn, (model, optimizer, x)))
    shapes = [p.shape for p in exported.program.parameters]
    assert shapes.count("f32[256,128]") == 3 == list(exported.program.results).count("f32[256,128]")
    assert exported.program.hlo.count(b"dot_general") >= 2


def dense(weights, x):
    with jax.named_scope("dense"):
        return jnp.sum(jnp.tanh(x @ weights) ** 2)


def step(weights, x):
    loss, gradients = jax.jit(jax.value_and_grad(dense))(weights, x)
    return loss, weights - 0.1 * gradients


@pytest.mark.long
@LINUX
def test_googles_compiler_measures_a_step_by_line_and_by_chip():
    arguments = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((1024, 1024), (4096, 1024))]
    report = preflight(jax.jit(step, donate_argnums=0), (*arguments,), "v5e-1", profile=True)
    (estimate,), (timing,) = report.estimates, report.timings
    assert report.status == "ready"
    assert estimate.flops == pytest.approx(4 * 4096 * 1024 * 1024, rel=0.05)
    assert "x @ weights" in timing.lines[0].name and timing.lines[0].share > 0.5
    assert timing.operations[0].name == "dot_general"
    assert any("dense" in layer.name for layer in timing.layers)


@pytest.mark.parametrize("kernel", ["flash", "splash"])
def test_a_kernel_of_pallas_is_counted_by_the_blocks_that_its_mask_leaves(kernel):
    def attend(q, k, v):
        if kernel == "flash":
            return flash_attention.flash_attention(q, k, v, causal=True)
        sizes = {f"block_{name}": 128 for name in ("q", "kv", "q_dkv", "kv_dkv", "q_dq", "kv_dq")}
        sizes |= {"block_kv_compute": 128, "block_kv_dkv_compute": 128}
        mask = splash_attention.MultiHeadMask([splash_attention.CausalMask((512, 512))] * 2)
        sizes = splash_attention.BlockSizes(**sizes)
        made = splash_attention.make_splash_mha(
            mask, head_shards=1, q_seq_shards=1, block_sizes=sizes
        )
        return jax.vmap(made)(q, k, v)

    def looped(q, k, v):
        block = jax.checkpoint(lambda c, _: (attend(c, k, v).astype(c.dtype), None))
        return jnp.sum(jax.lax.scan(block, q, length=3)[0] ** 2)

    given = (jax.ShapeDtypeStruct((1, 2, 512, 128), jnp.bfloat16),) * 3
    program = jax_export.export(jax.jit(jax.grad(looped, argnums=(0, 1, 2))), given).program
    done = compiler.compile(program, "v5e-1", effort="full")
    found = compiler.profile(done)
    # Four rows of blocks with 1 to 4 of them; forward twice with two products, then four and three.
    left = 3 * (2 + 2 + 4 + 3) * 2 * 2 * 512 * 512 * 128 * (1 + 2 + 3 + 4) / 16
    counted = [k for k in found.kernels if k.kind == "custom-call"]
    assert sum(k.flops for k in counted) == left and not found.unknown
    assert done.flops > left and all(k.advice[0].kind == "bound" for k in counted)
    assert all(k.seconds == max(k.compute_seconds, k.hbm_seconds) for k in counted)


def sent(step, given, target):
    """Give the bytes that a chip sends, by kind; together they are what is told of the program."""
    done = compiler.compile(jax_export.export(step, given).program, target, effort="full")
    kinds = {"all-gather": 0, "reduce-scatter": 0, "all-reduce": 0, "collective-permute": 0}
    for one in compiler.profile(done).exchanges:
        kinds[one.kind] += one.sent
    assert sum(kinds.values()) == done.sent_bytes
    return [*kinds.values()][:3]


@pytest.mark.long
def test_what_the_devices_of_a_mesh_send_each_other_is_counted_by_hand():
    def shaped(mesh, shape, *spec):
        sharding = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    def loss(weights, x):
        layer = lambda x, w: (x + jax.nn.relu(x @ w[0]) @ w[1], None)  # noqa: E731
        return jnp.sum(jax.lax.scan(layer, x, weights)[0].astype(jnp.float32) ** 2)

    def step(weights, x):
        return jax.tree.map(jnp.subtract, weights, jax.grad(loss)(weights, x))

    mesh = AbstractMesh((2, 4), ("data", "fsdp"))
    up = shaped(mesh, (3, 1024, 4096), None, "fsdp")
    weights = up, shaped(mesh, (3, 4096, 1024), None, None, "fsdp")
    x = shaped(mesh, (8192, 1024), ("data", "fsdp"))
    sharded = jax.jit(step, out_shardings=tuple(w.sharding for w in weights))
    # Both are gathered forward and backward, their gradients scattered over the four that share
    # them, and each part is added up with the other four's.
    weight = 2 * up.size
    gathered, scattered, added = sent(sharded, (weights, x), "v5e-8")
    assert (gathered, added) == (4 * weight * 3 / 4, 2 * (2 * weight / 4) / 2)
    assert scattered == pytest.approx(2 * weight * 3 / 4, rel=0.05)
    # Copies of the weights on all devices of the target.
    for chips in (4, 16):
        mesh = AbstractMesh((chips,), ("data",))
        weights = tuple(shaped(mesh, w.shape) for w in weights)
        given = weights, shaped(mesh, (chips * 1024, 1024), "data")
        kinds = sent(jax.jit(step), given, f"v5e-{chips}")
        assert kinds == [0, 0, 2 * (2 * weight) * (chips - 1) / chips]


@LINUX
def test_shardings_say_what_lies_where():
    mesh = AbstractMesh((8,), ("data",))
    whole, parts = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in ((), ("data",)))
    weights = jax.ShapeDtypeStruct((256, 256), jnp.float32, sharding=whole)
    x = jax.ShapeDtypeStruct((64, 256), jnp.float32, sharding=parts)
    (estimate,) = preflight(step, (weights, x), "v5e-8").estimates
    assert 0 <= estimate.all_reduce_bytes - 4 * weights.size <= 100
    uneven = jax.ShapeDtypeStruct((60, 256), jnp.float32, sharding=parts)
    item = the(preflight(step, (weights, uneven), "v5e-8"), 1)
    assert "multiple of the mesh's axis" in item.fix and "sharding.py" not in repr(item)
    with pytest.raises(PreflightError, match="over 8 devices; v5e-4 has 4"):
        preflight(step, (weights, x), "v5e-4")


@pytest.mark.long
@LINUX
def test_a_factorys_arguments_are_varied_to_see_which_of_them_fit():
    def build(rows=1, remat="no"):
        layer = lambda x, w: (x + jnp.tanh(jnp.sin(x @ w)), None)  # noqa: E731
        block = jax.checkpoint(layer, prevent_cse=False) if remat == "yes" else layer
        fn = jax.grad(lambda w, x: jnp.sum(jax.lax.scan(block, x, w)[0] ** 2))
        shapes = (16, 512, 512), (rows * 65_536, 512)
        return jax.jit(fn), tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)

    vary = {"rows": [1, 4], "remat": ["no", "yes"]}
    report = preflight(build, target="v5e-1", vary=vary)
    told = {item.name: item for item in report.items if "=" in item.name}
    assert [x.state for x in told.values()] == [PASS, PASS, WARN, PASS] and len(told) == 4
    assert "does not fit: Total memory" in told["rows=4, remat=no on v5e-1"].finding
    # By hand: what each layer is given and no more; its product twice forward, two backward.
    again = told["rows=4, remat=yes on v5e-1"].finding
    assert f"{16 * 4 * 2 * 262_144 * 512**2 / 1e12:.3g} TFLOP" in again
