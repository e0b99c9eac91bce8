"""What JAX refuses for a TPU, and what only the preflight can't write: the one is no other."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.experimental import pallas as pl
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from tpu_preflight.checklist import preflight
from tpu_preflight.program import NotCompilable, jax_export

MESH = AbstractMesh((8,), ("data",))
ROWS = NamedSharding(MESH, PartitionSpec("data"))
MATRIX = jax.ShapeDtypeStruct((64, 64), jnp.float32)
SHARDED = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=ROWS)


def refusal_of(fn, *arguments):
    with pytest.raises(NotCompilable) as caught:
        jax_export.export(fn, arguments)
    return caught.value


def spectral(x):
    return x / jnp.max(jnp.abs(jnp.linalg.eigvals(x)))


def double_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


def doubled(x):
    out_shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(double_kernel, out_shape=out_shape)(x)


def printed_in_order(x):
    jax.debug.print("{}", x.sum(), ordered=True)
    return x


@pytest.mark.parametrize(
    ("fn", "argument", "line", "fix"),
    [
        (spectral, MATRIX, "jnp.linalg.eigvals(x)", "jnp.linalg.eigh"),
        (doubled, SHARDED, "pl.pallas_call(double_kernel", "jax.shard_map"),
        (printed_in_order, SHARDED, 'jax.debug.print("{}"', "Take ordered=True out"),
    ],
)
def test_what_jax_refuses_while_it_lowers_is_named_with_its_line(fn, argument, line, fix):
    refusal = refusal_of(fn, argument)
    assert refusal.reason == ""
    assert "can't write" in refusal.what
    assert line in refusal.where
    assert fix in refusal.fix
    assert "eval_shape" not in refusal.fix


def identity_sharding(mesh, arguments, result):
    return arguments[0].sharding


def partition(mesh, arguments, result):
    sharding = arguments[0].sharding
    return mesh, jnp.sin, sharding, (sharding,)


@custom_partitioning
def partitioned(x):
    return jnp.sin(x)


partitioned.def_partition(
    infer_sharding_from_operands=identity_sharding,
    partition=partition,
    sharding_rule="i j -> i j",
)


def sine(x):
    return partitioned(x)


def failing(*_, **__):
    raise KeyError("a fault of JAX's own")


@pytest.mark.parametrize(
    ("fn", "argument", "line", "fix"),
    [
        (printed_in_order, MATRIX, 'jax.debug.print("{}"', "Take ordered=True out"),
        (sine, SHARDED, "return partitioned(x)", "jax.shard_map"),
    ],
)
def test_what_only_the_preflight_cannot_write_is_no_verdict(fn, argument, line, fix, no_compiler):
    refusal = refusal_of(fn, argument)
    assert refusal.reason == "limit"
    assert line in refusal.where
    assert fix in refusal.fix
    report = preflight(fn, (argument,), "v5e-8")
    assert report.status == "can't tell"
    assert report.exit_status == 2


def test_an_error_inside_jax_is_no_verdict(monkeypatch):
    traced = jax.jit(jnp.sin).trace(MATRIX)
    monkeypatch.setattr(type(traced), "lower", failing)
    assert refusal_of(jnp.sin, MATRIX).reason == "limit"


def test_calls_of_python_need_no_devices_of_a_mesh():
    def fn(x):
        return io_callback(np.sin, x, x) * 2

    exported = jax_export.export(fn, (SHARDED,))
    assert [name for name, _ in exported.calls] == ["io_callback"]
    assert exported.program.replicas == 8


# --- functions that another library compiles ------------------------------------------------------


@dataclasses.dataclass
class Linear:
    """A module as Equinox has them: arrays and functions in one."""

    weights: Any
    activation: Any


jax.tree_util.register_dataclass(Linear, ["weights", "activation"], [])


class OtherLowered:
    def __init__(self, lowered):
        self.lowered = lowered


class FilterJit:
    """The protocol of ``equinox.filter_jit``: no ``trace``; what is no array is static."""

    def __init__(self, fn):
        self.__wrapped__ = fn
        self.__name__ = fn.__name__

    def _jitted(self, arguments):
        leaves, tree = jax.tree.flatten(arguments)
        is_array = [hasattr(leaf, "dtype") for leaf in leaves]
        arrays = [leaf for leaf, dynamic in zip(leaves, is_array, strict=True) if dynamic]
        others = [leaf for leaf, dynamic in zip(leaves, is_array, strict=True) if not dynamic]

        def of_arrays(arrays):
            from_arrays, from_others = iter(arrays), iter(others)
            merged = [next(from_arrays if dynamic else from_others) for dynamic in is_array]
            return self.__wrapped__(*jax.tree.unflatten(tree, merged))

        of_arrays.__name__ = self.__name__
        return jax.jit(of_arrays), arrays

    def __call__(self, *arguments):
        jitted, arrays = self._jitted(arguments)
        return jitted(arrays)

    def lower(self, *arguments):
        jitted, arrays = self._jitted(arguments)
        return OtherLowered(jitted.lower(arrays))


def forward(model, x):
    return model.activation(x @ model.weights)


@pytest.mark.parametrize("make", [jnp.ones, lambda shape: jax.ShapeDtypeStruct(shape, "float32")])
def test_a_function_that_only_lowers_is_written_for_a_tpu(make, no_compiler):
    arguments = (Linear(make((8, 4)), jnp.tanh), make((16, 8)))
    step = FilterJit(forward)
    program = jax_export.export(step, arguments).program
    assert program.results == ("f32[16,4]",)
    assert {parameter.shape for parameter in program.parameters} == {"f32[8,4]", "f32[16,8]"}
    report = preflight(step, arguments, "v5e-1")
    assert report.subject == "forward"
    assert report.status == "ready"


def test_arguments_that_only_another_librarys_jit_takes_are_no_verdict():
    model = Linear(jnp.ones((8, 4)), jnp.tanh)
    refusal = refusal_of(forward, model, jnp.ones((16, 8)))
    assert refusal.reason == "limit"
    assert "your library's own jit" in refusal.fix


def test_what_lowers_without_jax_is_no_verdict():
    class Other:
        def __call__(self, x):
            return x

        def lower(self, x):
            return "text"

    assert refusal_of(Other(), MATRIX).reason == "limit"


def test_equinox_itself_is_written_for_a_tpu():
    equinox = pytest.importorskip(
        "equinox", reason="needs Equinox, which make libraries installs apart"
    )
    model = equinox.nn.MLP(8, 4, 16, 1, key=jax.random.key(0))

    @equinox.filter_jit
    def step(model, x):
        return jax.vmap(model)(x)

    program = jax_export.export(step, (model, jnp.ones((16, 8)))).program
    assert "f32[16,4]" in program.results  # and a number that Equinox adds


def both(x, y):
    return x + 1, y * 2


def scalar(x, y):
    return jnp.sum(x * y)


@pytest.mark.parametrize("donated", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("fn", [both, scalar])
def test_an_array_that_is_donated_and_given_twice_is_refused_where_jax_raises(fn, donated):
    jitted = jax.jit(fn, donate_argnums=donated)
    x = jnp.ones((4, 8))
    program = jax_export.export(jitted, (x, x))
    copied = jax_export.export(jitted, (x, x + 0))
    assert copied.donated_twice == ()
    try:
        jax.block_until_ready(jitted(x, x))
    except jax.errors.JaxRuntimeError as error:
        assert "donate" in str(error)
        assert program.donated_twice == (("argument 0", "argument 1"),)
    else:
        assert program.donated_twice == ()


def test_two_names_of_one_donated_array_are_named():
    weights = {"w": jnp.ones((4, 8))}
    state = {"online": weights, "target": weights}

    def learn(state):
        return jax.tree.map(lambda leaf: leaf * 0.9, state)

    report = preflight(jax.jit(learn, donate_argnums=0), (state,), "v5e-1")
    assert report.status == "not ready"
    (item,) = report.find("fail")
    assert "argument 0, ['online']['w'] and argument 0, ['target']['w']" in item.finding
