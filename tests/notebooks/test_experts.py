"""Notebook 12's mixture of experts, against its experts one by one."""

import runpy

import jax
import jax.numpy as jnp
import pytest
from conventions import ROOT
from flax import nnx

pytestmark = pytest.mark.long
FEW = {"experts": 4, "chosen": 2, "expert_inner": 8}


def defined():
    """What the notebook defines, without running the rest of its cells."""
    return runpy.run_path(str(ROOT / "notebooks/data/make_fits.py"))["notebook"]()


def one_by_one(layer, token):
    """Send one token through the experts that its router finds likeliest."""
    probabilities = jax.nn.softmax(layer.router(token))
    likeliest = jnp.argsort(probabilities)[-layer.c.chosen :]
    total = 0.0
    for expert in likeliest:
        hidden = jax.nn.gelu(token @ layer.gate[expert]) * (token @ layer.up[expert])
        total += probabilities[expert] * (hidden @ layer.down[expert].T)
    return total / probabilities[likeliest].sum()


def test_a_token_goes_through_its_likeliest_experts_as_long_as_there_is_room():
    names = defined()
    config = names["TINY"]._replace(width=16, **FEW)
    layer = names["Experts"](config, nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(1), (2, 1, 16))
    for row in range(2):
        expected = one_by_one(layer, x[row, 0])
        assert jnp.allclose(layer(x)[row, 0], expected, atol=1e-5)
    # Ten equal tokens want the same two experts, which take ten, the room for twice the average.
    same = jnp.repeat(x[:1], 10, axis=1)
    assert jnp.allclose(layer(same)[0], one_by_one(layer, x[0, 0]), atol=1e-5)
    # With one expert of four for each token there is room for five: the others pass it by.
    layer.c = config._replace(chosen=1)
    through = jnp.abs(layer(same)[0]).sum(-1) > 0
    assert through.tolist() == [True] * 5 + [False] * 5
