"""The exercise of notebook 10: fine-tuning, written from an empty cell."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned


def _check_fine_tune(answer: object) -> str:
    tokens = tf.keras.Input([6], dtype=tf.int32)
    vectors = tf.keras.layers.Embedding(20, 16)(tokens)
    mixed = tf.keras.layers.Dense(16, "tanh")(vectors + tf.reduce_sum(vectors, 1, keepdims=True))
    encoder = tf.keras.Model(tokens, mixed)
    before = encoder.get_weights()
    ids = np.random.default_rng(0).integers(0, 20, [512, 6]).astype(np.int32)
    labels = (ids > 12).sum(1) // 3  # 0, 1 or 2
    model = returned(answer(encoder, ids, labels, 3))
    orders = (range(6), [0, 2, 1, 5, 3, 4], [1, 0, 2, 3, 4, 5])
    logits, turned, other = (np.asarray(model(ids[:, order])) for order in orders)
    if logits.shape != (512, 3):
        raise Wrong(f"512 texts and 3 classes have logits [512, 3], not {[*logits.shape]}.")
    if np.allclose(logits.sum(1), 1, atol=1e-3):
        raise Wrong("These are probabilities: leave the softmax to the loss (from_logits=True).")
    if any(np.array_equal(*pair) for pair in zip(before, encoder.get_weights(), strict=True)):
        raise Wrong("The encoder is as it was: its pretrained weights are to be trained, too.")
    if not np.allclose(turned, logits, atol=1e-3) or np.allclose(other, logits, atol=1e-3):
        raise Wrong("The scores are to come from the vector of the first token, and of no other.")
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)
    guess = -np.mean(np.log(np.bincount(labels) / 512)[labels])
    if not loss < 0.4 * guess:  # ten epochs get below a third of it
        raise Wrong(
            f"Loss {loss:.2f}, a guess {guess:.2f}: what does the loss take the scores for?"
        )
    return "New scores on pretrained vectors, and all weights trained: that is fine-tuning."
