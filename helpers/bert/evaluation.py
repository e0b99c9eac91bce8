"""Whether a BERT learned: fixed masks on text it has not seen, against models that read less.

Three baselines know ever more, and each is fitted to the training text of one language: uniform
(the vocabulary's size), unigram (how frequent a token is) and n-gram (the two neighbours, too). A
masked language model that is worth its name beats the last one.
"""

import os
from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy.stats
import tensorflow as tf

from helpers.base.errors import CourseError
from helpers.bert.data import Data, sequences
from helpers.bert.ngram import NGram, fit_ngram
from helpers.bert.step import masked_scores
from helpers.text import masking, records

ROWS = 32  # documents that are guessed at a time

Masked = dict[str, np.ndarray]  # what `step.masked_scores` takes, [documents, ...]


def fix_masks(documents: Sequence[Sequence[int]], masks: masking.Masking, length: int) -> Masked:
    """Mask held-out documents, the same way at every evaluation.

    If the masks were drawn anew each time, the loss would move by itself. Each chosen token becomes
    ``[MASK]``: from one that training leaves as it stands the answer could be read off. Documents
    are token ids with ``[CLS]`` and ``[SEP]``; what is beyond ``length`` positions is left out.

    Raises `CourseError`: There is no document with a token to mask.
    """
    special = set(masks.special_ids)
    kept = [ids for ids in documents if not special.issuperset(ids[:length])]
    if not kept:
        raise CourseError(
            "There is no text to evaluate on.",
            f"Of {len(documents):,} held-out documents none has a token that may be masked.",
            "Hold some documents out of the training (corpus.held_out), in each language.",
        )
    ids, used = np.zeros((2, len(kept), length), np.int32)
    for row, document in enumerate(kept):
        size = min(len(document), length)
        ids[row, :size], used[row, :size] = document[:size], 1
    masked = masks(tf.constant(ids), masking.draw(0, 0, 0))
    batch = {name: tensor.numpy() for name, tensor in masked.items()}
    # Padding has the id 0 only by convention: whatever its id, it is not to be guessed.
    batch["masked_weights"] *= np.take_along_axis(used, batch["masked_positions"], axis=1)
    row, at = np.nonzero(batch["masked_weights"])
    batch["input_ids"][row, batch["masked_positions"][row, at]] = masks.mask_id
    batch["attention_mask"] = used
    batch["position_ids"] = np.where(used, np.arange(length, dtype=np.int32), 0)
    return batch


def mean(values: np.ndarray, weights: np.ndarray) -> tuple[float, tuple[float, float]]:
    """Give a mean over masked tokens, and its 95 % interval.

    Tokens of one document are alike, so documents are drawn, not tokens (a cluster bootstrap: Efron
    and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13). Both arrays are
    [documents, predictions]; weights are 1 where a token was masked, else 0.
    """
    sums, counts = (values * weights).sum(1), weights.sum(1)
    whole = float(sums.sum() / counts.sum())
    if len(sums) == 1:
        return whole, (whole, whole)
    found = scipy.stats.bootstrap(
        (sums, counts),
        lambda sums, counts, axis: sums.sum(axis) / counts.sum(axis).clip(1),
        n_resamples=1_000,
        batch=100,  # there may be many documents
        paired=True,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return whole, tuple(map(float, found.confidence_interval))


def evaluate(
    model: tf.keras.Model, held_out: dict[str, Masked], baselines: dict[str, NGram]
) -> pd.DataFrame:
    """Let a model and its baselines (by language) guess the same masked tokens.

    Gives a row for each language and who guessed (``uniform``, ``unigram``, ``n-gram``, ``BERT``):
    ``loss``, nats per masked token; ``perplexity``, e to the loss; and ``right``, the share of
    tokens whose likeliest guess is right. Loss and share have the ends of their intervals beside
    them, as ``loss_low`` and so on.
    """
    found = {}
    for language, batch in held_out.items():
        labels, weights = batch["masked_ids"], batch["masked_weights"]
        unigram = baselines[language].unigram
        uniform = np.full(labels.shape, 1 / len(unigram))
        ways = {
            "uniform": (-np.log(uniform), uniform),
            "unigram": (-np.log(unigram[labels]), labels == unigram.argmax()),
            "n-gram": _guess_ngram(baselines[language], batch),
            "BERT": _guess(model, batch),
        }
        for way, (losses, right) in ways.items():
            loss, (low, high) = mean(losses, weights)
            row = {"loss": loss, "loss_low": low, "loss_high": high, "perplexity": np.exp(loss)}
            share, (low, high) = mean(right, weights)
            row |= {"right": share, "right_low": low, "right_high": high}
            found[language, way] = row
    return pd.DataFrame.from_dict(found, orient="index")


def _guess_ngram(ngram: NGram, batch: Masked) -> tuple[np.ndarray, np.ndarray]:
    labels, ids = batch["masked_ids"], batch["input_ids"]
    losses, right = np.zeros((2, *labels.shape))
    for row, number in zip(*np.nonzero(batch["masked_weights"]), strict=True):
        at, label = batch["masked_positions"][row, number], labels[row, number]
        # As the model sees them: a neighbour may be [MASK], too.
        chances = ngram.chances(ids[row, at - 1], ids[row, min(at + 1, ids.shape[1] - 1)])
        losses[row, number] = -np.log(chances[label])
        right[row, number] = chances.argmax() == label
    return losses, right


def _guess(model: tf.keras.Model, masked: Masked) -> tuple[np.ndarray, np.ndarray]:
    losses, right = [], []
    for batch in tf.data.Dataset.from_tensor_slices(masked).batch(ROWS):
        scores, labels = masked_scores(model, batch), batch["masked_ids"]
        losses.append(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
        right.append(tf.argmax(scores, -1, tf.int32) == labels)
    return np.concatenate(losses), np.concatenate(right)


def evaluate_records(
    model: tf.keras.Model, data: Data, path: str | os.PathLike[str]
) -> pd.DataFrame:
    """Evaluate on records that were held out of ``data``, as the language ``held-out``.

    The n-gram is fitted to the first `data.ROWS` rows of the training's.

    Raises `CourseError`: There are no finished records, they are of another text, or as `fix_masks`
    and `ngram.fit_ngram`.
    """
    length, apart = data.manifest.settings.sequence_length, records.manifest(path)
    trained, held = data.manifest.settings, apart.settings
    if (held.documents, held.tokenizer_sha256) != (trained.documents, trained.tokenizer_sha256):
        raise CourseError(
            f"The records in {records.HELD_OUT} are of another text, or of another tokenizer.",
            "Results on them would say nothing of this run.",
            "Bring back what `tpu-course prepare` wrote, or move the folder away.",
        )
    held_out = fix_masks(list(sequences(apart)), data.masks, length)
    ngram = fit_ngram(list(sequences(data.manifest)), data.masks.vocabulary)
    return evaluate(model, {records.HELD_OUT: held_out}, {records.HELD_OUT: ngram})
