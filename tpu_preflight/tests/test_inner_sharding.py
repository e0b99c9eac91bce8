"""An array inside a step that loses the sharding which an argument like it has."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from outside import carried_step
from small_models import LINUX

from tpu_preflight.checklist import preflight
from tpu_preflight.compiler import replication
from tpu_preflight.program import Program
from tpu_preflight.program.tensorflow_export import Parameter
from tpu_preflight.report import WARN

MESH = AbstractMesh((8,), ("data",))


def array(shape, *spec):
    sharding = NamedSharding(MESH, PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


ARGUMENTS = (array(carried_step.SHAPE, "data"), array((1024, 1024)))


def warnings_of(step, arguments):
    report = preflight(step, arguments, "v5e-8")
    assert report.status == "ready"
    return [item for item in report.items if item.name.startswith("sharding")]


@pytest.mark.slow
@LINUX
def test_an_array_made_by_its_shape_alone_warns_with_its_line_and_its_bytes():
    (item,) = warnings_of(carried_step.replicated, ARGUMENTS)
    assert item.state == WARN and "jnp.zeros_like(x)" in str(item.where)
    assert "all of an array of f32[4096,1024], 16 MiB, where x" in item.finding
    assert item.finding.endswith("takes 2 MiB") and "x * 0" in item.fix
    assert not warnings_of(carried_step.sharded, ARGUMENTS)


@pytest.mark.slow
def test_eight_virtual_devices_compute_it_as_a_whole():
    environment = dict(os.environ)
    environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    environment["JAX_PLATFORMS"] = "cpu"
    path = pathlib.Path(carried_step.__file__)
    command = [sys.executable, str(path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["replicated", "True", "sharded", "False"]


def gathered(x, weights):
    """Each device needs all of it, from the others."""
    whole = jax.lax.with_sharding_constraint(x + 1, NamedSharding(MESH, PartitionSpec()))
    return jnp.sum(jnp.tanh(whole) @ weights)


def constrained(x, weights):
    zeros = jnp.zeros_like(x)
    zeros = jax.lax.with_sharding_constraint(zeros, NamedSharding(MESH, PartitionSpec()))
    return carried_step.run(zeros, weights) + jnp.sum(x)


@pytest.mark.slow
@LINUX
@pytest.mark.parametrize("step", [gathered, constrained])
def test_what_is_gathered_or_asked_for_as_a_whole_does_not_warn(step):
    assert not warnings_of(step, ARGUMENTS)


@pytest.mark.slow
@LINUX
def test_where_an_argument_of_the_same_shape_is_whole_it_is_as_the_function_has_it():
    alike = array(carried_step.SHAPE)

    def step(x, weights, alike):
        return carried_step.replicated(x, weights) + jnp.sum(alike)

    assert not warnings_of(step, (*ARGUMENTS, alike))


PROGRAM = """HloModule m

%body (p: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {
  %p = (s32[], f32[8,8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %a = f32[8,8] get-tuple-element(%p), index=1
  %twice = f32[8,8] add(%a, %a)
  ROOT %out = (s32[], f32[8,8]) tuple(%i, %twice)
}

%condition (q: (s32[], f32[8,8])) -> pred[] {
  %q = (s32[], f32[8,8]) parameter(0)
  ROOT %yes = pred[] constant(true)
}

ENTRY %main (x: f32[1,8], b: f32[]) -> f32[8,8] {
  %x = f32[1,8] parameter(0)
  %b = f32[] parameter(1)
  %filled = f32[8,8] broadcast(%b), dimensions={}
  %all = f32[8,8] all-gather(%x), dimensions={0}
  %start = SOURCE
  %n = s32[] constant(0)
  %t = (s32[], f32[8,8]) tuple(%n, %start)
  %loop = (s32[], f32[8,8]) while(%t), condition=%condition, body=%body
  ROOT %end = f32[8,8] get-tuple-element(%loop), index=1
}
"""


@pytest.mark.parametrize(
    ("source", "alike"),
    [
        ("f32[8,8] copy(%filled)", {"twice", "filled", "start"}),
        ("f32[8,8] copy(%all)", {"filled"}),
        ("f32[8,8] custom-call(%filled, %x)", {"filled"}),
    ],
)
def test_a_loop_is_alike_where_what_goes_in_is(source, alike):
    program = Program(
        name="m",
        hlo=b"",
        parameters=(
            Parameter("x", "argument", "f32[8,8]"),
            Parameter("b", "argument", "f32[]"),
        ),
        results=("f32[8,8]",),
        donated=(),
        replicas=8,
        mesh=(("data", 8),),
        shardings=((("data",), ()), ()),
    )
    text = PROGRAM.replace("SOURCE", source)
    kernels = replication.replicated(text, program, smallest=256)
    assert {kernel.name for kernel in kernels if kernel.shapes == ("f32[8,8]",)} == alike
