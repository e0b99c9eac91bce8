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
    for name, (sizes, expected) in MODELS.items():
        config = types.SimpleNamespace(**dict(zip(FIELDS, sizes, strict=True)))
        count = returned(answer(config))
        if count != expected:
            raise Wrong(f"{name} has {expected:,} weights, and the function says {count:,}.")
    return "Times 16 bytes, that is what training all of them holds."


def _check_gradients(answer: object) -> str:
    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        for w in weights:
            x = x + jnp.tanh(x @ w)
        return (x**2).mean()

    weights = 0.3 * jax.random.normal(jax.random.key(0), (3, 4, 4))
    x = jnp.ones((8, 4))
    gradients = returned(answer(weights, x))
    if not np.allclose(gradients, jax.grad(loss)(weights, x), atol=1e-4):
        raise Wrong("It gives other gradients than jax.grad of this loss.")
    # The sizes for which what all blocks keep doesn't fit.
    arguments = (
        jax.ShapeDtypeStruct((64, 2048, 2048), jnp.float32),
        jax.ShapeDtypeStruct((16_384, 2048), jnp.float32),
    )
    program = jax_export.export(jax.jit(answer), arguments).program
    compiled = compiler.compile(program, "v5e-1")
    needed = compiled.peak_bytes / 2**30
    if not compiled.ok:
        available = compiled.available_bytes / 2**30
        raise Wrong(f"For v5e-1: {compiled.verdict}. It needs {needed:.1f} of {available:.2f} GiB.")
    return f"Google's compiler says that it fits: {needed:.1f} GiB."


def _check_least_seconds(answer: object) -> str:
    # Weights, operations a second, bytes a second: 512 tokens compute longest, 8 wait for memory.
    bounds = {512: 6 * 2e9 * 512 / 200e12, 8: 6 * 2e9 / 800e9}
    for tokens, expected in bounds.items():
        seconds = returned(answer(2e9, tokens, 200e12, 800e9))
        if not abs(seconds / expected - 1) < 1e-6:
            raise Wrong(
                f"For {tokens} tokens and 2e9 weights it says {seconds:.3g} s: {expected:.3g}."
            )
    return "Where the two times are equal lies the ridge of the roofline."


WORDS, NEW_TOKENS = 13, 4


def _check_decode(answer: object) -> str:
    matrix = np.random.default_rng(0).normal(size=(WORDS, WORDS))
    shapes = set()

    def model(ids: jax.Array, position: jax.Array, seen: jax.Array) -> tuple[jax.Array, None]:
        shapes.add(ids.shape)
        weights = jnp.where(seen, 1.0 + position[:, None, :], 0.0)
        return weights @ jax.nn.one_hot(ids, WORDS) @ matrix, None

    for lengths in ([2, 5, 3], [4, 1, 3]):
        known_shapes = set(shapes)
        is_token = np.arange(5) < np.array(lengths)[:, None]
        prompts = np.arange(15, dtype="int32").reshape(3, 5) % WORDS * is_token
        tokens = np.asarray(returned(answer(model, prompts, np.int32(lengths), NEW_TOKENS)))
        for row, length in enumerate(lengths):
            expected = _continuation(prompts[row, :length], matrix)
            # Greedy decoding: there is one right continuation.
            if tokens.shape != (3, NEW_TOKENS) or list(tokens[row]) != expected:
                raise Wrong(f"Row {row}, of {length} tokens, goes on otherwise.")
    # With other lengths the second call must meet the shapes of the first.
    if len(shapes) > 2 or shapes != known_shapes:
        raise Wrong(f"The model was given {len(shapes)} different shapes: each is a program more.")
    return "With a cache, each round reads one token of each row."


def _continuation(prompt: np.ndarray, matrix: np.ndarray) -> list[int]:
    """Go on with a prompt as the model above does, one row and one token at a time."""
    text = list(prompt)
    for _ in range(NEW_TOKENS):
        weights = np.zeros(WORDS)
        for position, word in enumerate(text):
            weights[word] += 1.0 + position
        text.append(int((weights @ matrix).argmax()))
    return text[len(prompt) :]
