"""The exercises of notebook 00, what a TPU is."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned
from tpu_preflight import preflight
from tpu_preflight.chips.hardware import slice_of

WIDTH = 24  # tokens of a text, with its padding


def _check_replicas(answer: object) -> str:
    for name in ("v2-8", "v3-32", "v4-8", "v5p-16", "v5e-4", "v6e-8"):
        tpu = slice_of(name)
        count = returned(answer(name))
        if count != tpu.replicas:
            raise Wrong(
                f"{name}: it is not {count!r}. It has {tpu.chips} chips; what is one "
                "replica there: a core, two cores that work as one, or a chip?"
            )
    return "Cores on v2 and v3, pairs of cores on v4 and v5p, chips on v5e and v6e."


def _check_build_program(answer: object) -> str:
    rng = np.random.default_rng(0)
    ids = rng.integers(1000, size=(100, WIDTH), dtype=np.int32)
    # 5 to 24 words in a text, so that nearly all have padding.
    length = (np.arange(100) % 20 + 5).astype(np.int32)
    labels = (ids[:, 0] < 500).astype(np.int32)
    model, _ = returned(answer(ids, length, labels))
    if model.optimizer is None:
        raise Wrong("The model has no optimizer and no loss yet: compile it.")
    # The longest of these fills its row. With shorter ones, a mask that is as wide as the longest
    # fails here, before preflight can say why it is refused.
    _compare_texts(model, ids[12:20], length[12:20])
    report = preflight(lambda: answer(ids, length, labels), target="v5e-8")
    for item in report.items:
        if item.state in ("fail", "warn"):
            finding = item.finding.removesuffix(".")  # a compiler's message has its own
            raise Wrong(f"{item.name}: {finding}. {item.fix}")
    # Last, as what a TPU refuses is what the exercise is about.
    _compare_words(model)
    _compare_losses(model)
    return f"{report.summary}. You have written a program that is ready for a TPU."


def _scores(model: tf.keras.Model, ids: np.ndarray, length: np.ndarray) -> np.ndarray:
    return np.asarray(model({"ids": ids, "length": length}))


def _compare_texts(model: tf.keras.Model, ids: np.ndarray, length: np.ndarray) -> None:
    """Hold that the scores depend on a text's own words, and on nothing behind them."""
    scores = _scores(model, ids, length)
    is_word = np.arange(WIDTH) < length[:, None]
    other_padding = _scores(model, np.where(is_word, ids, 7), length)
    if not np.allclose(scores, other_padding, atol=1e-5):
        raise Wrong("Other numbers after a text's length change what the model says of it.")
    other_words = _scores(model, np.where(is_word, 7, ids), length)
    if np.allclose(scores, other_words, atol=1e-5):
        raise Wrong("Other words within a text's length don't change what the model says of it.")


def _compare_words(model: tf.keras.Model) -> None:
    """Hold that a text is read as the mean of its words, whatever comes after it."""
    # A sum tells the second from the first; a maximum doesn't tell the third.
    texts = [[3, 4], [3, 4, 3, 4], [3, 4, 4]]
    ids = np.zeros([3, WIDTH], np.int32)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    once, twice, uneven = _scores(model, ids, np.int32([2, 4, 3]))
    if not np.allclose(once, twice, atol=1e-5):
        raise Wrong(
            "A text with each word twice has the same mean, and your model gives it other scores: "
            "divide the sum by the text's own length."
        )
    if np.allclose(once, uneven, atol=1e-5):
        raise Wrong(
            "In a mean, a word that comes twice counts twice. In your model it counts once."
        )


def _compare_losses(model: tf.keras.Model) -> None:
    """Hold that the loss is lower where the right class has the higher score."""
    classes = _scores(model, np.zeros([1, WIDTH], np.int32), np.int32([1])).shape[-1]
    if classes not in (1, 2):
        raise Wrong(f"The labels are 0 or 1: give each text two scores, not {classes}.")
    # Read as scores or as probabilities, the first says class 0 and the second class 1.
    scores = {0: [[0.9, 0.1]], 1: [[0.1, 0.9]]}
    if classes == 1:
        scores = {0: [[-0.9]], 1: [[0.9]]}
    for label, score in scores.items():
        if not _loss(model, label, score) < _loss(model, 1 - label, score):
            raise Wrong(
                "The loss doesn't prefer the right class: the labels are numbers of classes, so "
                "take a cross-entropy, such as SparseCategoricalCrossentropy(from_logits=True)."
            )


def _loss(model: tf.keras.Model, label: int, score: list) -> float:
    return float(model.compute_loss(y=tf.constant([label]), y_pred=tf.constant(score)))
