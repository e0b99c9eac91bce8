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

VECTOR = jax.ShapeDtypeStruct((8,), jnp.float32)
DROPOUT = nnx.Dropout(0.5, rngs=nnx.Rngs(0))


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
    assert item.state == FAIL
    assert line in item.where
    assert fix in item.fix
    assert report.exit_status == 1
    assert states(report, 6) == [OPEN]


TABLE = np.ones([512, 1024], np.float32)


def with_table(x):
    return x @ TABLE


def print_it(x):
    jax.debug.print("{}", x)
    return x * jax.pure_callback(lambda a: a + 1, VECTOR, x)


def normalised(x):
    """Divide a gradient by its size, as Adam does: here by 0, as the softmax ignores the bias."""

    def loss(bias):
        scores = jnp.outer(jnp.sin(x), x) + bias[:, None]
        return jnp.sum(jax.nn.softmax(scores) @ x)

    gradient = jax.grad(loss)(jnp.zeros(64))
    return gradient / (jnp.abs(gradient) + 1e-12)


def counted(x):
    """Count in Python while it is traced, as Flax does for its random numbers."""
    numbers = iter(range(9))

    def add_noise(x, _):
        key = jax.random.key(next(numbers))
        return x + jax.random.normal(key), None

    return jax.lax.scan(add_noise, x, length=3)[0]


def numpy_noise(x):
    return x + np.random.default_rng().normal()


def infinite(i):
    return jnp.log(jnp.ones(4)[i] - 1)


def identity(x):
    return x


def best_so_far(state):
    return {"best": jnp.minimum(state["best"], jnp.inf), "loss": state["x"].mean()}


def root_of_best(state):
    return jnp.sqrt(-state["x"]) + state["best"]


def masked_scores(x):
    return jnp.where(x > 1, x, -jnp.inf)


STATE = {"best": jnp.inf, "x": jnp.ones(2)}


@pytest.mark.parametrize(
    ("fn", "argument", "check", "state", "words"),
    [
        (mean, VECTOR, 4, OPEN, "needs real values"),
        (jax.jit(mean), np.ones(8), 3, PASS, "float32"),
        (mean, jnp.ones(8), 4, PASS, "the same on this CPU"),
        (mean, VECTOR, 2, NOTHING, "compiles again"),
        (jax.random.split, jax.random.key(0), 3, PASS, "random keys"),
        (jax.random.split, jax.random.key(0), 4, PASS, "the same on this CPU"),
        (numpy_noise, jnp.ones(8), 4, WARN, "once and then repeats them"),
        (infinite, jnp.zeros(2, jnp.int32), 4, WARN, "infinite"),
        (infinite, jnp.zeros((), jnp.int32), 4, FAIL, "not finite"),
        (best_so_far, STATE, 4, PASS, "the same on this CPU"),
        (root_of_best, STATE, 4, FAIL, "not finite"),
        (masked_scores, jnp.ones(2), 4, WARN, "infinite"),
        (jax.jit(counted), jnp.zeros(()), 4, PASS, "the same on this CPU"),
        (normalised, jnp.linspace(0.1, 0.9, 64), 4, PASS, "except for result: rounding decides"),
        (jax.jit(identity), np.zeros(3, jax.dtypes.float0), 4, OPEN, "the check jax results"),
        (print_it, VECTOR, 5, WARN, "pure_callback"),
        (with_table, jax.ShapeDtypeStruct((4, 512), jnp.float32), 1, WARN, "2 MB"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_what_is_said_of_a_function(fn, argument, check, state, words, no_compiler):
    report = preflight(fn, argument, "v5e-1")
    assert the(report, check, words).state == state


class RaisesAlone:
    """A function that is compiled, but raises when it is run operation by operation."""

    def __call__(self, x):
        if not isinstance(x, jax.core.Tracer):
            raise ValueError("not traced")
        return x + 1


def test_what_raises_operation_by_operation_is_said_in_jaxs_words(no_compiler):
    item = the(preflight(RaisesAlone(), (jnp.ones(8),), "v5e-1"), 4)
    assert item.state == FAIL and "not traced" in item.finding
    assert item.finding.startswith("JAX raises") and "jax.disable_jit()" in item.fix


def test_float64_is_named_with_its_line(no_compiler):
    with jax.enable_x64(True):
        lambda_report = preflight(lambda x: mean(x * np.float64(2)), np.ones(8), "v5e-1")
        report = preflight(mean, (jnp.ones(8, jnp.float64),), "v5e-1")
    assert the(report, 3, "[0]").state == WARN
    assert the(report, 1, "64-bit").where.endswith("return jnp.mean(x)")
    assert lambda_report.subject == "lambda"


def nnx_step(model, optimizer, x):
    gradients = nnx.grad(lambda model: jnp.mean(model(x) ** 2))(model)
    optimizer.update(model, gradients)


@pytest.mark.parametrize("fn", [nnx_step, nnx.jit(nnx_step)])
def test_a_step_that_changes_modules_is_written_with_what_it_changes(fn):
    model = nnx.Linear(256, 128, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    x = jax.ShapeDtypeStruct((64, 256), jnp.float32)
    fn, arguments = jax_export.without_modules(fn, (model, optimizer, x))
    program = jax_export.export(fn, arguments).program
    # The weights and Adam's two moments of them.
    shapes = [parameter.shape for parameter in program.parameters]
    assert shapes.count("f32[256,128]") == 3
    assert list(program.results).count("f32[256,128]") == 3
    assert program.hlo.count(b"dot_general") >= 2


def dense(weights, x):
    with jax.named_scope("dense"):
        return jnp.sum(jnp.tanh(x @ weights) ** 2)


def step(weights, x):
    loss, gradients = jax.jit(jax.value_and_grad(dense))(weights, x)
    return loss, weights - 0.1 * gradients


@pytest.mark.long
@LINUX
def test_googles_compiler_measures_a_step_by_line_and_by_chip():
    weights = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    x = jax.ShapeDtypeStruct((4096, 1024), jnp.float32)
    report = preflight(jax.jit(step, donate_argnums=0), (weights, x), "v5e-1", profile=True)
    assert report.status == "ready"
    (estimate,) = report.estimates
    assert estimate.flops == pytest.approx(4 * 4096 * 1024 * 1024, rel=0.05)
    (timing,) = report.timings
    assert "x @ weights" in timing.lines[0].name
    assert timing.lines[0].share > 0.5
    assert timing.operations[0].name == "dot_general"
    assert any("dense" in layer.name for layer in timing.layers)


def flash(q, k, v):
    return flash_attention.flash_attention(q, k, v, causal=True)


def splash(q, k, v):
    sizes = splash_attention.BlockSizes(
        block_q=128,
        block_kv=128,
        block_kv_compute=128,
        block_q_dkv=128,
        block_kv_dkv=128,
        block_kv_dkv_compute=128,
        block_q_dq=128,
        block_kv_dq=128,
    )
    mask = splash_attention.MultiHeadMask([splash_attention.CausalMask((512, 512))] * 2)
    kernel = splash_attention.make_splash_mha(
        mask, head_shards=1, q_seq_shards=1, block_sizes=sizes
    )
    return jax.vmap(kernel)(q, k, v)


@pytest.mark.parametrize("attend", [flash, splash])
def test_a_kernel_of_pallas_is_counted_by_the_blocks_that_its_mask_leaves(attend):
    def looped(q, k, v):
        def block(queries, _):
            return attend(queries, k, v).astype(queries.dtype), None

        queries, _ = jax.lax.scan(jax.checkpoint(block), q, length=3)
        return jnp.sum(queries**2)

    arguments = (jax.ShapeDtypeStruct((1, 2, 512, 128), jnp.bfloat16),) * 3
    fn = jax.jit(jax.grad(looped, argnums=(0, 1, 2)))
    program = jax_export.export(fn, arguments).program
    compiled = compiler.compile(program, "v5e-1", effort="full")
    profile = compiler.profile(compiled)
    # Forward twice with two products, then four and three; in 3 rounds, for 2 heads.
    products = 3 * (2 + 2 + 4 + 3) * 2
    whole_product = 2 * 512 * 512 * 128
    # Four rows of blocks with 1 to 4 of them.
    share = (1 + 2 + 3 + 4) / 16
    flops = products * whole_product * share
    kernels = [kernel for kernel in profile.kernels if kernel.kind == "custom-call"]
    assert sum(kernel.flops for kernel in kernels) == flops
    assert compiled.flops > flops
    assert not profile.unknown
    for kernel in kernels:
        assert kernel.advice[0].kind == "fitted"
        assert kernel.seconds > max(kernel.compute_seconds, kernel.hbm_seconds)


def bytes_by_kind(step, arguments, target):
    """Give the bytes that a chip sends, by kind; together they are those of the whole program."""
    program = jax_export.export(step, arguments).program
    compiled = compiler.compile(program, target, effort="full")
    kinds = {"all-gather": 0, "reduce-scatter": 0, "all-reduce": 0, "collective-permute": 0}
    for exchange in compiler.profile(compiled).exchanges:
        kinds[exchange.kind] += exchange.sent
    assert sum(kinds.values()) == compiled.sent_bytes
    return kinds


def sharded_array(mesh, shape, *spec):
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)


def residual_loss(weights, x):
    """Three blocks of two products, each added to its input."""

    def block(x, weights):
        up, down = weights
        return x + jax.nn.relu(x @ up) @ down, None

    outputs, _ = jax.lax.scan(block, x, weights)
    return jnp.sum(outputs.astype(jnp.float32) ** 2)


def residual_step(weights, x):
    return jax.tree.map(jnp.subtract, weights, jax.grad(residual_loss)(weights, x))


UP = (3, 1024, 4096)
DOWN = (3, 4096, 1024)
WEIGHT_BYTES = 2 * 3 * 1024 * 4096


def zeros(params):
    return params, {"mean": jax.tree.map(jnp.zeros_like, params)}


def times_zero(params):
    return params, {"mean": jax.tree.map(lambda x: x * 0, params)}


def constrained(params):
    sharding = NamedSharding(AbstractMesh((8,), ("data",)), PartitionSpec())
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x + 1, sharding), params)


def whole_product(params):  # of the same shape, in another place
    return {"product": jnp.sum(params["w"], 0, keepdims=True) * jnp.ones((8192, 1))}


REPLICATED = NamedSharding(AbstractMesh((8,), ("data",)), PartitionSpec())


@LINUX
@pytest.mark.parametrize("sharding", [None, REPLICATED])
def test_a_step_that_uses_no_argument_is_judged(sharding):
    x = jax.ShapeDtypeStruct((8, 128), jnp.float32, sharding=sharding)
    report = preflight(lambda x: jnp.ones((4, 128)) * 2, (x,), "v5e-8")
    assert report.status == "ready"
    assert the(report, 6, "memory of v5e-8").state == PASS


@LINUX
@pytest.mark.parametrize(
    ("fn", "line"),
    [
        (zeros, "jnp.zeros_like, params"),
        (times_zero, ""),
        (constrained, ""),
        (whole_product, ""),
        (jax.jit(zeros, out_shardings=REPLICATED), ""),  # as it is asked for
    ],
    ids=["zeros", "times_zero", "constrained", "another", "asked_for"],
)
def test_a_result_that_loses_the_sharding_of_its_argument_warns(fn, line):
    mesh = AbstractMesh((8,), ("data",))
    params = {"w": sharded_array(mesh, (8192, 512), "data"), "bias": sharded_array(mesh, (512,))}
    report = preflight(fn, (params,), "v5e-8")
    assert report.status == "ready"
    items = [item for item in report.items if item.name.startswith("sharding of the results")]
    if not line:
        assert not items
        return
    (item,) = items
    assert item.state == WARN and line in item.where
    assert "result[1]['mean']['w'] (bf16[8192,512]) takes 8 MiB of each device" in item.finding
    assert "params['w'], which has the same shape, takes 1 MiB" in item.finding


@pytest.mark.long
def test_what_the_devices_of_a_sharded_mesh_send_each_other_is_counted_by_hand():
    mesh = AbstractMesh((2, 4), ("data", "fsdp"))
    up = sharded_array(mesh, UP, None, "fsdp")
    down = sharded_array(mesh, DOWN, None, None, "fsdp")
    x = sharded_array(mesh, (8192, 1024), ("data", "fsdp"))
    fn = jax.jit(residual_step, out_shardings=(up.sharding, down.sharding))
    bytes_sent = bytes_by_kind(fn, ((up, down), x), "v5e-8")
    # Both are gathered forward and backward, their gradients scattered over the four that share
    # them, and each part is added up with the other four's.
    assert bytes_sent["all-gather"] == 4 * WEIGHT_BYTES * 3 / 4
    assert bytes_sent["reduce-scatter"] == pytest.approx(2 * WEIGHT_BYTES * 3 / 4, rel=0.05)
    assert bytes_sent["all-reduce"] == 2 * (2 * WEIGHT_BYTES / 4) / 2


@pytest.mark.long
@pytest.mark.parametrize("chips", [4, 16])
def test_devices_with_copies_of_the_weights_send_their_gradients(chips):
    mesh = AbstractMesh((chips,), ("data",))
    weights = (sharded_array(mesh, UP), sharded_array(mesh, DOWN))
    x = sharded_array(mesh, (chips * 1024, 1024), "data")
    bytes_sent = bytes_by_kind(jax.jit(residual_step), (weights, x), f"v5e-{chips}")
    assert bytes_sent["all-reduce"] == 2 * (2 * WEIGHT_BYTES) * (chips - 1) / chips
    assert bytes_sent["all-gather"] == bytes_sent["reduce-scatter"] == 0


@LINUX
def test_shardings_say_what_lies_where():
    mesh = AbstractMesh((8,), ("data",))
    replicated = NamedSharding(mesh, PartitionSpec())
    by_rows = NamedSharding(mesh, PartitionSpec("data"))
    weights = jax.ShapeDtypeStruct((256, 256), jnp.float32, sharding=replicated)
    x = jax.ShapeDtypeStruct((64, 256), jnp.float32, sharding=by_rows)
    (estimate,) = preflight(step, (weights, x), "v5e-8").estimates
    assert 0 <= estimate.all_reduce_bytes - 4 * weights.size <= 100
    uneven = jax.ShapeDtypeStruct((60, 256), jnp.float32, sharding=by_rows)
    item = the(preflight(step, (weights, uneven), "v5e-8"), 1)
    assert "multiple of the mesh's axis" in item.fix
    assert "sharding.py" not in repr(item)
    with pytest.raises(PreflightError, match="over 8 devices; v5e-4 has 4"):
        preflight(step, (weights, x), "v5e-4")


def build_layers(rows=1, remat="no"):
    """Give the gradient of 16 layers, which keep what they compute or compute it again."""

    def layer(x, weights):
        return x + jnp.tanh(jnp.sin(x @ weights)), None

    if remat == "yes":
        layer = jax.checkpoint(layer, prevent_cse=False)

    def loss(weights, x):
        outputs, _ = jax.lax.scan(layer, x, weights)
        return jnp.sum(outputs**2)

    weights = jax.ShapeDtypeStruct((16, 512, 512), jnp.float32)
    x = jax.ShapeDtypeStruct((rows * 65_536, 512), jnp.float32)
    return jax.jit(jax.grad(loss)), (weights, x)


@pytest.mark.long
@LINUX
def test_a_factorys_arguments_are_varied_to_see_which_of_them_fit():
    vary = {"rows": [1, 4], "remat": ["no", "yes"]}
    report = preflight(build_layers, target="v5e-1", vary=vary)
    items = {item.name: item for item in report.items if "=" in item.name}
    assert [item.state for item in items.values()] == [PASS, PASS, WARN, PASS]
    assert len(items) == 4
    assert "does not fit: Total memory" in items["rows=4, remat=no on v5e-1"].finding
    # By hand: what each layer is given and no more; its product twice forward, two backward.
    tflop = 16 * 4 * 2 * 262_144 * 512**2 / 1e12
    assert f"{tflop:.3g} TFLOP" in items["rows=4, remat=yes on v5e-1"].finding


def moments_on_host(x, moment):
    gradient = jnp.tanh(x)
    moment = 0.9 * jax.device_put(moment, jax.memory.Space.Device) + gradient
    return x - moment, jax.device_put(moment, jax.memory.Space.Host)


@LINUX
def test_a_result_that_goes_to_the_host_s_memory_compiles():
    x = jnp.ones((256, 256))
    moment = jax.device_put(jnp.zeros((256, 256)), jax.memory.Space.Host)
    program = jax_export.export(moments_on_host, (x, moment)).program
    assert (program.host_parameters, program.host_results) == ((1,), (1,))
    report = preflight(moments_on_host, (x, moment), "v5e-1")
    assert report.status == "ready"
    on_device = jax_export.export(moments_on_host, (x, x)).program
    assert (on_device.host_parameters, on_device.host_results) == ((), (1,))
