"""The exercises of notebook 12: weights counted, a step that fits, a bound, rows decoded."""

import types

import jax
import jax.numpy as jnp
import numpy as np

from helpers.exercises import Wrong, returned
from tpu_preflight import compiler
from tpu_preflight.program import jax_export

FIELDS = "layers", "width", "heads", "kv_heads", "head", "inner", "vocabulary", "tied"
MODELS = {
    "Gemma 2B": ((18, 2048, 8, 1, 256, 16_384, 256_000, True), 2_506_172_416),
    "Llama 3 8B": ((32, 4096, 32, 8, 128, 14_336, 128_256, False), 8_030_261_248),
    # By hand: 21 + 2 * (72 + 45 + 6) + 3, and 20 + 8 + 18 + 4 + 2.
    "one of 3 wide": ((2, 3, 2, 1, 4, 5, 7, True), 270),
    "one of 2 wide": ((1, 2, 1, 1, 1, 3, 5, False), 52),
}


def _check_count_weights(answer: object) -> str:
    for name, (sizes, right) in MODELS.items():
        given = returned(answer(types.SimpleNamespace(**dict(zip(FIELDS, sizes, strict=True)))))
        if given != right:
            raise Wrong(f"{name} has {right:,} weights, and the function says {given:,}.")
    return "Times 16 bytes, that is what training all of them holds."


def _check_gradients(answer: object) -> str:
    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        for w in weights:
            x = x + jnp.tanh(x @ w)
        return (x**2).mean()

    given = 0.3 * jax.random.normal(jax.random.key(0), (3, 4, 4)), jnp.ones((8, 4))
    if not np.allclose(returned(answer(*given)), jax.grad(loss)(*given), atol=1e-4):
        raise Wrong("It gives other gradients than jax.grad of this loss.")
    shapes = (64, 2048, 2048), (16_384, 2048)
    sizes = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    found = compiler.compile(jax_export.export(jax.jit(answer), sizes).program, "v5e-1")
    if not found.ok:
        needs, has = (size / 2**30 for size in (found.peak_bytes, found.available_bytes))
        raise Wrong(f"For v5e-1: {found.verdict}. It needs {needs:.1f} of {has:.2f} GiB.")
    return f"Google's compiler says that it fits: {found.peak_bytes / 2**30:.1f} GiB."


def _check_least_seconds(answer: object) -> str:
    for tokens, right in ((512, 6 * 2e9 * 512 / 200e12), (8, 6 * 2e9 / 800e9)):
        given = returned(answer(2e9, tokens, 200e12, 800e9))
        if not abs(given / right - 1) < 1e-6:
            raise Wrong(f"For {tokens} tokens and 2e9 weights it says {given:.3g} s: {right:.3g}.")
    return "Where the two times are equal lies the ridge of the roofline."


def _check_decode(answer: object) -> str:
    words, turned, shapes = 13, np.random.default_rng(0).normal(size=(13, 13)), set()

    def model(ids: jax.Array, position: jax.Array, seen: jax.Array) -> tuple[jax.Array, None]:
        shapes.add(ids.shape)
        mixed = jnp.where(seen, 1.0 + position[:, None, :], 0.0) @ jax.nn.one_hot(ids, words)
        return mixed @ turned, None

    for lengths in ([2, 5, 3], [4, 1, 3]):
        before = set(shapes)
        prompts = np.arange(15).reshape(3, 5) % words * (np.arange(5) < np.array(lengths)[:, None])
        given = np.asarray(returned(answer(model, prompts.astype("int32"), np.int32(lengths), 4)))
        for row, length in enumerate(lengths):
            grown = [*prompts[row, :length]]
            for _ in range(4):
                weights = np.zeros(words)
                np.add.at(weights, grown, 1.0 + np.arange(len(grown)))
                grown.append(int((weights @ turned).argmax()))
            if given.shape != (3, 4) or [*given[row]] != grown[length:]:
                raise Wrong(f"Row {row}, of {length} tokens, goes on otherwise.")
    if len(shapes) > 2 or shapes != before:
        raise Wrong(f"The model was given {len(shapes)} different shapes: each is a program more.")
    return "With a cache, each round reads one token of each row."
