"""The exercises of notebook 12: weights counted, a step that fits, a bound, rows decoded."""

import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

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
            part = _parts(config).get(abs(expected - count))
            if part is None:
                raise Wrong(f"{name} has {expected:,} weights, and the function says {count:,}.")
            raise Wrong(f"{name} has {expected:,} weights, and the function says {count:,}. {part}")
    return "Times 16 bytes, that is what training all of them holds."


def _parts(c: types.SimpleNamespace) -> dict[int, str]:
    """Name the parts that are easily forgotten or counted wrongly, by how many weights they have.

    Where two have the same number, the last is named.
    """
    fewer_heads = c.heads - c.kv_heads
    keys_and_values = 2 * c.layers * c.width * fewer_heads * c.head
    parts: dict[int, str] = {}
    parts[c.layers * c.width * c.inner] = (
        "The difference is one product of the MLP in each block: gate, up and down are three."
    )
    parts[keys_and_values] = (
        "The difference is in keys and values, which have fewer heads than the queries."
    )
    parts[c.width] = "The difference is one norm, as after the last block."
    parts[c.layers * c.width] = "The difference is one norm in each block."
    parts[c.layers * 2 * c.width] = "The difference is two norms in each block."
    parts[c.vocabulary * c.width] = (
        "The difference is one table: does it count the head where it isn't tied?"
    )
    return parts


def _check_gradients(answer: object) -> str:
    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        for w in weights:
            x = x + jnp.tanh(x @ w)
        return (x**2).mean()

    weights = 0.3 * jax.random.normal(jax.random.key(0), (3, 4, 4))
    # Rows that differ: the mean of some must not be the mean of all.
    x = jax.random.normal(jax.random.key(1), (8, 4))
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
    # With 2e9 weights, at 200e12 operations and 800e9 bytes a second.
    bounds = {
        512: (6 * 2e9 * 512 / 200e12, "the operations take longer."),
        8: (6 * 2e9 / 800e9, "reading two bytes of each weight three times takes longer."),
    }
    for tokens, (expected, why) in bounds.items():
        seconds = returned(answer(2e9, tokens, 200e12, 800e9))
        if not abs(seconds / expected - 1) < 1e-6:
            raise Wrong(
                f"For {tokens} tokens and 2e9 weights the bound is {expected:.3g} s, not "
                f"{seconds:.3g}: {why}"
            )
    return "Where the two times are equal lies the ridge of the roofline."


WORDS, NEW_TOKENS = 13, 4


class Sizes(NamedTuple):
    """What an answer with a cache asks of a decoder's Config: its sizes, as small as can be."""

    layers: int = 1
    width: int = WORDS
    heads: int = 1
    kv_heads: int = 1
    head: int = 1
    vocabulary: int = WORDS
    dtype: str = "float32"


def _small_decoder(matrix: np.ndarray, shapes: set[tuple[int, ...]]) -> nnx.Module:
    """Make a module that is called as the notebook's Decoder, and collects the shapes of its ids.

    A word that is seen weighs more at a later position; the scores are these weights times
    ``matrix``. The keys of its cache are the words, the values are their weights.
    """

    class SmallDecoder(nnx.Module):
        def __init__(self) -> None:
            self.c = Sizes()
            self.matrix = nnx.Param(jnp.asarray(matrix, jnp.float32))

        def __call__(
            self,
            ids: jax.Array,
            position: jax.Array,
            seen: jax.Array,
            cache: tuple | None = None,
            at: object = 0,
            again: bool = False,
        ) -> tuple[jax.Array, tuple]:
            shapes.add(ids.shape)
            # [layers, rows, length, heads, head], as the Decoder stacks them.
            keys = jnp.float32(ids)[None, :, :, None, None]
            values = jnp.broadcast_to(1.0 + position, ids.shape)[None, :, :, None, None]
            if cache is not None:
                start = (0, 0, at, 0, 0)
                keys = jax.lax.dynamic_update_slice(cache[0], keys, start)
                values = jax.lax.dynamic_update_slice(cache[1], values, start)
            weights = jnp.where(seen, values[0, :, None, :, 0, 0], 0.0)
            words = jax.nn.one_hot(jnp.int32(keys[0, :, :, 0, 0]), WORDS)
            return weights @ words @ self.matrix[...], (keys, values)

    return SmallDecoder()


def _check_decode(answer: object) -> str:
    matrix = np.random.default_rng(0).normal(size=(WORDS, WORDS))
    shapes: set[tuple[int, ...]] = set()
    model = _small_decoder(matrix, shapes)
    for lengths in ([2, 5, 3], [4, 1, 3]):
        known_shapes = set(shapes)
        is_token = np.arange(5) < np.array(lengths)[:, None]
        prompts = np.arange(15, dtype="int32").reshape(3, 5) % WORDS * is_token
        tokens = np.asarray(returned(answer(model, prompts, np.int32(lengths), NEW_TOKENS)))
        if tokens.shape != (3, NEW_TOKENS):
            raise Wrong(
                f"For three rows and {NEW_TOKENS} new tokens it returns {list(tokens.shape)}, not "
                f"[3, {NEW_TOKENS}]: the new tokens alone."
            )
        for row, length in enumerate(lengths):
            expected = _continuation(prompts[row, :length], matrix)
            # Greedy decoding: there is one right continuation.
            if tokens[row].tolist() != expected:
                raise Wrong(
                    f"Row {row}, of {length} tokens, goes on with {expected}, not "
                    f"{tokens[row].tolist()}: take the scores at its own last token, and let no "
                    "token see padding."
                )
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
