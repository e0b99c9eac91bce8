"""Whether a BERT learned: fixed masks on text it has not seen, against models that read less.

Three baselines know ever more, and each is fitted to the training text of one language: uniform
(the vocabulary's size), unigram (how frequent a token is) and n-gram (also the two neighbours). A
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

    If other masks were drawn each time, the loss would move by itself. Each chosen token becomes
    ``[MASK]``: from one that training leaves as it is the answer could be read off. Documents are
    token ids with ``[CLS]`` and ``[SEP]``; what is beyond ``length`` positions is left out.

    Raises `CourseError`: There is no document with a token to mask.
    """
    special = set(masks.special_ids)
    maskable = [ids for ids in documents if not special.issuperset(ids[:length])]
    if not maskable:
        raise CourseError(
            "There is no text to evaluate on.",
            f"Of {len(documents):,} held-out documents none has a token that may be masked.",
            "Hold some documents out of the training (corpus.held_out), in each language.",
        )
    # One document in a row: a packed one would share its row with others that are not compared.
    ids = np.zeros((len(maskable), length), np.int32)
    attention_mask = np.zeros_like(ids)
    for row, document in enumerate(maskable):
        size = min(len(document), length)
        ids[row, :size] = document[:size]
        attention_mask[row, :size] = 1
    masked = masks(tf.constant(ids), masking.draw(0, 0, 0))
    batch = {name: tensor.numpy() for name, tensor in masked.items()}
    positions = batch["masked_positions"]
    # Padding has the id 0 only by convention: whatever its id, it is not to be guessed.
    batch["masked_weights"] *= np.take_along_axis(attention_mask, positions, axis=1)
    rows, columns = np.nonzero(batch["masked_weights"])
    batch["input_ids"][rows, positions[rows, columns]] = masks.mask_id
    batch["attention_mask"] = attention_mask
    batch["position_ids"] = np.arange(length, dtype=np.int32) * attention_mask
    return batch


def mean(values: np.ndarray, weights: np.ndarray) -> tuple[float, tuple[float, float]]:
    """Give a mean over masked tokens, and its 95 % interval.

    Tokens of one document are alike, so documents are drawn, not tokens (a cluster bootstrap: Efron
    and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13). Both arrays are
    [documents, predictions]; weights are 1 where a token was masked, else 0.
    """
    sums = (values * weights).sum(1)
    counts = weights.sum(1)

    def mean_of(sums: np.ndarray, counts: np.ndarray, axis: int) -> np.ndarray:
        # A draw may have only documents without a masked token.
        return sums.sum(axis) / counts.sum(axis).clip(1)

    overall = float(sums.sum() / counts.sum())
    if len(sums) == 1:  # nothing to draw from
        return overall, (overall, overall)
    bootstrap = scipy.stats.bootstrap(
        (sums, counts),
        mean_of,
        n_resamples=1_000,
        batch=100,  # there may be many documents
        paired=True,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = bootstrap.confidence_interval
    return overall, (float(low), float(high))


def evaluate(
    model: tf.keras.Model, held_out: dict[str, Masked], baselines: dict[str, NGram]
) -> pd.DataFrame:
    """Let a model and its baselines (by language) guess the same masked tokens.

    Gives a row for each language and who guessed (``uniform``, ``unigram``, ``n-gram``, ``BERT``):
    ``loss``, nats per masked token; ``perplexity``, e to the loss; and ``right``, the share of
    tokens whose likeliest guess is right. Loss and share come with the ends of their intervals, as
    ``loss_low`` and so on.
    """
    rows = {}
    for language, batch in held_out.items():
        labels = batch["masked_ids"]
        weights = batch["masked_weights"]
        unigram = baselines[language].unigram
        uniform = np.full(labels.shape, 1 / len(unigram))
        # For each guesser: the loss of every masked token, and whether its likeliest is right.
        guesses = {
            "uniform": (-np.log(uniform), uniform),
            "unigram": (-np.log(unigram[labels]), labels == unigram.argmax()),
            "n-gram": _guess_by_ngram(baselines[language], batch),
            "BERT": _guess_by_model(model, batch),
        }
        for guesser, (losses, is_right) in guesses.items():
            loss, (loss_low, loss_high) = mean(losses, weights)
            right, (right_low, right_high) = mean(is_right, weights)
            rows[language, guesser] = {
                "loss": loss,
                "loss_low": loss_low,
                "loss_high": loss_high,
                "perplexity": np.exp(loss),
                "right": right,
                "right_low": right_low,
                "right_high": right_high,
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def _guess_by_ngram(ngram: NGram, batch: Masked) -> tuple[np.ndarray, np.ndarray]:
    """Give the loss of each masked token and whether the likeliest is right, like `labels`."""
    labels = batch["masked_ids"]
    ids = batch["input_ids"]
    last_position = ids.shape[1] - 1
    losses = np.zeros(labels.shape)
    is_right = np.zeros(labels.shape)
    for row, column in zip(*np.nonzero(batch["masked_weights"]), strict=True):
        position = batch["masked_positions"][row, column]
        label = labels[row, column]
        # As the model sees them: a neighbour may itself be [MASK].
        left = ids[row, position - 1]
        right = ids[row, min(position + 1, last_position)]
        chances = ngram.chances(left, right)
        losses[row, column] = -np.log(chances[label])
        is_right[row, column] = chances.argmax() == label
    return losses, is_right


def _guess_by_model(model: tf.keras.Model, masked: Masked) -> tuple[np.ndarray, np.ndarray]:
    """Give the same of a model, some documents at a time."""
    losses = []
    is_right = []
    for batch in tf.data.Dataset.from_tensor_slices(masked).batch(ROWS):
        scores = masked_scores(model, batch)
        labels = batch["masked_ids"]
        losses.append(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
        is_right.append(tf.argmax(scores, -1, tf.int32) == labels)
    return np.concatenate(losses), np.concatenate(is_right)


def evaluate_records(
    model: tf.keras.Model, data: Data, path: str | os.PathLike[str]
) -> pd.DataFrame:
    """Evaluate on records that were held out of ``data``, as the language ``held-out``.

    The n-gram is fitted to the first `data.ROWS` rows of the training's.

    Raises `CourseError`: There are no finished records, they are of another text, or as `fix_masks`
    and `ngram.fit_ngram`.
    """
    manifest = records.manifest(path)
    trained_on = data.manifest.settings
    # Held-out documents of another text may be in the training's.
    same_documents = manifest.settings.documents == trained_on.documents
    same_tokenizer = manifest.settings.tokenizer_sha256 == trained_on.tokenizer_sha256
    if not (same_documents and same_tokenizer):
        raise CourseError(
            f"The records in {records.HELD_OUT} are of another text, or of another tokenizer.",
            "Results on them would say nothing about this run.",
            "Bring back what `tpu-course prepare` wrote, or move the folder away.",
        )
    held_out = fix_masks(list(sequences(manifest)), data.masks, trained_on.sequence_length)
    ngram = fit_ngram(list(sequences(data.manifest)), data.masks.vocabulary)
    return evaluate(model, {records.HELD_OUT: held_out}, {records.HELD_OUT: ngram})
