"""The exercise of notebook 10: fine-tuning, written from an empty cell."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned

# Below this rate ten epochs of the check's small data hardly move the weights.
LEAST_RATE = 1e-3
EPOCHS = 10


def _small_encoder() -> tf.keras.Model:
    """Make an encoder whose vector at each position depends on its word and on the text's sum."""
    tokens = tf.keras.Input([6], dtype=tf.int32)
    vectors = tf.keras.layers.Embedding(20, 16)(tokens)
    mixed = tf.keras.layers.Dense(16, "tanh")(vectors + tf.reduce_sum(vectors, 1, keepdims=True))
    return tf.keras.Model(tokens, mixed)


def _check_fine_tune(answer: object) -> str:
    encoder = _small_encoder()
    pretrained = encoder.get_weights()
    ids = np.random.default_rng(0).integers(0, 20, [512, 6]).astype(np.int32)
    labels = (ids > 12).sum(1) // 3  # 0, 1 or 2
    model = returned(answer(encoder, ids, labels, 3))
    logits = np.asarray(model(ids))
    if logits.shape != (512, 3):
        raise Wrong(f"512 texts and 3 classes have logits [512, 3], not {[*logits.shape]}.")
    epochs = _epochs(model)
    if epochs not in (None, EPOCHS):
        raise Wrong(f"Ten epochs are asked for, and fit ran for {epochs:g}.")
    if np.allclose(logits.sum(1), 1, atol=1e-3):
        raise Wrong("These are probabilities: leave the softmax to the loss (from_logits=True).")
    if any(map(np.array_equal, pretrained, encoder.get_weights())):
        raise Wrong("The encoder is as it was: train its pretrained weights as well.")
    # With its first token in place, a text in another order has the same first vector.
    same_first = np.asarray(model(ids[:, [0, 2, 1, 5, 3, 4]]))
    other_first = np.asarray(model(ids[:, [1, 0, 2, 3, 4, 5]]))
    if not np.allclose(same_first, logits, atol=1e-3):
        raise Wrong("The scores are to come from the vector of the first token, and of no other.")
    if np.allclose(other_first, logits, atol=1e-3):
        raise Wrong("The scores are to come from the vector of the first token, and of no other.")
    _check_loss(model, labels, logits)
    return "New scores on pretrained vectors, and all weights trained: that is fine-tuning."


def _check_loss(model: tf.keras.Model, labels: np.ndarray, logits: np.ndarray) -> None:
    cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    loss = cross_entropy(labels, logits)
    # The loss of a model that knows only how frequent each class is.
    shares = np.bincount(labels) / len(labels)
    guess = -np.mean(np.log(shares[labels]))
    if loss < 0.4 * guess:  # ten epochs get below a third of it
        return
    rate = _learning_rate(model)
    if rate < LEAST_RATE:
        raise Wrong(
            f"Loss {loss:.2f}, a guess {guess:.2f}: with a learning rate of {rate:g} ten epochs "
            "of these 512 texts hardly move the weights. For so little data take 0.01."
        )
    raise Wrong(f"Loss {loss:.2f}, a guess {guess:.2f}: what does the loss take the scores for?")


def _epochs(model: tf.keras.Model) -> float | None:
    """Give how many epochs the optimizer made; None if `fit` can't tell.

    Its own count is of its last call only, and one may call it ten times for an epoch each.
    """
    history = getattr(model, "history", None)
    steps_per_epoch = getattr(history, "params", {}).get("steps")
    iterations = getattr(getattr(model, "optimizer", None), "iterations", None)
    if not steps_per_epoch or iterations is None:
        return None
    return int(tf.convert_to_tensor(iterations)) / steps_per_epoch


def _learning_rate(model: tf.keras.Model) -> float:
    """Give the rate of the last step; infinite where the model has no optimizer of Keras."""
    optimizer = getattr(model, "optimizer", None)
    if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
        return np.inf
    return float(tf.convert_to_tensor(optimizer.learning_rate))
