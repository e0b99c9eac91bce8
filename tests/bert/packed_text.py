"""The same sequences one per row and packed, and models small enough to compare everything."""

import numpy as np
import tensorflow as tf
from transformers import BertConfig

from helpers.bert.settings import Configuration
from helpers.text import buckets

VOCABULARY = 500
LENGTH = 64
TOLERANCE = 1e-4
SMALL = Configuration(2, 32, 2)
CLS = 2
SEP = 3

CONFIG = BertConfig(
    vocab_size=VOCABULARY,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=LENGTH,
    initializer_range=0.15,  # larger than usual: logits of the size that training gives
)


class Text:
    """The same sequences, one per row, and packed in rows longer than the longest sequence."""

    def __init__(self, seed, count=40):
        draw = np.random.default_rng(seed)
        lengths = np.minimum(draw.geometric(1 / 16, count) + 2, LENGTH)
        tokens = draw.integers(5, VOCABULARY, lengths.sum(), dtype=np.int32)
        labels = np.where(draw.random(len(tokens)) < 0.15, tokens, -100).astype(np.int32)
        is_token = np.arange(LENGTH) < lengths[:, None]
        ids = np.zeros(is_token.shape, np.int32)
        ids[is_token] = tokens
        padded_labels = np.full(is_token.shape, -100, np.int32)
        padded_labels[is_token] = labels
        packing = buckets.pack(lengths, 2 * LENGTH)
        assert max(map(len, packing.rows)) > 2
        self.padded = {
            "input_ids": ids,
            "attention_mask": is_token.astype(np.int32),
            "labels": padded_labels,
        }
        self.packed = {
            "input_ids": packing.lay_out(tokens),
            "attention_mask": packing.segment_ids(),
            "position_ids": packing.position_ids(),
            "labels": packing.lay_out(labels, -100),
        }
        # Where the tokens are in each layout, in the same order.
        token_numbers = packing.lay_out(np.arange(len(tokens)), -1).ravel()
        self.padded_order = np.flatnonzero(is_token)
        self.packed_order = np.argsort(token_numbers, kind="stable")[-len(tokens) :]


def gradients_of(model, batch, jit):
    """Logits, loss and gradients by the name of their weights."""

    def run():
        with tf.GradientTape() as tape:
            output = model(batch)
        gradients = tape.gradient(output.loss, model.trainable_variables)
        return output.logits, output.loss, list(map(tf.convert_to_tensor, gradients))

    logits, loss, gradients = tf.function(run, jit_compile=jit)()
    names = [weight.name.partition("/")[2] for weight in model.trainable_variables]
    assert len(set(names)) == len(names)
    return logits, float(tf.reduce_mean(loss)), dict(zip(names, gradients, strict=True))


def some_documents(number, seed=0, vocabulary=60, longest=30):
    draw = np.random.default_rng(seed)
    documents = []
    for _ in range(number):
        tokens = draw.integers(5, vocabulary, draw.integers(1, longest))
        documents.append([CLS, *tokens.tolist(), SEP])
    return documents
