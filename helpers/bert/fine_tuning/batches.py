"""Texts as token ids, in batches of few fixed shapes: `buckets.bucketed` with labels and weights.

A bucket's last rows are completed with rows of padding whose weight in the loss is 0: each batch
has a shape that was compiled, each replica gets as many rows, and no text is left out.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from transformers import BertTokenizerFast

from helpers.text import buckets

BUCKETS = 4  # at most: each is one more program to compile
FILLED = 2  # batches that a bucket of its own must fill


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Token ids of texts, each with [CLS] and [SEP]."""

    ids: tuple[np.ndarray, ...]  # of each text, int32 [tokens]
    cut: int  # texts that were longer, and are cut

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, int64 [texts]."""
        return np.array([len(ids) for ids in self.ids])


def encode(tokenizer: BertTokenizerFast, texts: Sequence[str], longest: int) -> Encoded:
    """Turn texts into token ids, at most ``longest`` for each, [CLS] and [SEP] among them."""
    found = tokenizer(list(texts), return_attention_mask=False)["input_ids"]
    cut = sum(len(ids) > longest for ids in found)
    if cut:
        found = [ids if len(ids) <= longest else [*ids[: longest - 1], ids[-1]] for ids in found]
    return Encoded(tuple(np.array(ids, np.int32) for ids in found), cut)


def edges(lengths: np.ndarray, rows: int) -> buckets.Edges:
    """Choose bucket edges with the least padding: as many as fill some batches of so many rows."""
    most = len(np.unique(-(-lengths // 8)))
    number = min(max(1, len(lengths) // (FILLED * rows)), BUCKETS, most)
    return buckets.optimal_edges(lengths, number)


def training(
    encoded: Encoded,
    labels: np.ndarray,
    *,
    global_batch_size: int,
    replicas: int = 1,
    seed: int = 0,
) -> buckets.Batches:
    """Make an epoch's batches for Keras' ``fit``: features, labels and weights.

    Features are ``input_ids`` and ``attention_mask``, int32 [rows, edge]; labels int32 [rows];
    weights float32 [rows], 1 on a text and 0 on a row of padding. Each epoch has its own order;
    with the same seed the same.

    Raises:
        CourseError: As `buckets.bucketed`.
    """
    rows = {
        "label": tf.constant(labels, tf.int32),
        "weight": tf.ones(len(labels)),
    }
    made = _bucketed(encoded, rows, {"label": 0, "weight": 0}, global_batch_size, replicas, seed)

    def divided(batch: dict) -> tuple[dict, tf.Tensor, tf.Tensor]:
        label, weight = batch.pop("label"), batch.pop("weight")
        return batch, label, weight

    return dataclasses.replace(made, dataset=made.dataset.map(divided))


def in_order(encoded: Encoded, *, global_batch_size: int, replicas: int = 1) -> buckets.Batches:
    """Make batches to predict, each with ``row``: the text's number, -1 on a row of padding."""
    rows = {"row": tf.range(len(encoded.ids))}
    return _bucketed(encoded, rows, {"row": -1}, global_batch_size, replicas, None)


def _bucketed(
    encoded: Encoded,
    rows: dict[str, tf.Tensor],
    padding: dict[str, int],
    size: int,
    replicas: int,
    seed: int | None,
) -> buckets.Batches:
    ids = tf.RaggedTensor.from_row_lengths(np.concatenate(encoded.ids), encoded.lengths)
    dataset = tf.data.Dataset.from_tensor_slices({"input_ids": ids} | rows)
    return buckets.bucketed(
        dataset,
        edges(encoded.lengths, size),
        global_batch_size=size,
        replicas=replicas,
        remainder="pad",
        pad_values=padding,
        seed=seed,
    )
