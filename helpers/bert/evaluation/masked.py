"""Whether a BERT learned: fixed masks on text it has not seen, against models that read less.

Three baselines know ever more, and each is fitted to the training text of one language: uniform
(the vocabulary's size), unigram (how frequent a token is) and n-gram (the two neighbours, too). A
masked language model that is worth its name beats the last one.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
import tensorflow as tf

from helpers.base.errors import CourseError
from helpers.bert.data import Data, sequences
from helpers.bert.evaluation.ngram import NGram, fit_ngram
from helpers.bert.step import masked_scores
from helpers.text import corpus, masking, records
from helpers.text.records import HELD_OUT

RESAMPLED = 1_000  # draws of documents for a confidence interval


@dataclasses.dataclass(frozen=True)
class FixedMasks:
    """Documents, one per row, masked once and for all."""

    batch: dict[str, np.ndarray]  # what `step.masked_scores` takes, [documents, ...]

    @property
    def tokens(self) -> int:
        """Number of masked tokens."""
        return int(self.batch["masked_weights"].sum())

    def neighbours(self) -> tuple[np.ndarray, np.ndarray]:
        """Look left and right of each masked position: two arrays int32 [documents, predictions].

        They hold token ids as the model sees them: a neighbour may be ``[MASK]``.
        """
        ids, at = self.batch["input_ids"], self.batch["masked_positions"]
        last = ids.shape[1] - 1
        left = np.take_along_axis(ids, np.maximum(at - 1, 0), axis=1)
        return left, np.take_along_axis(ids, np.minimum(at + 1, last), axis=1)


def fix_masks(
    documents: Sequence[Sequence[int]], masks: masking.Masking, length: int, seed: int = 0
) -> FixedMasks:
    """Mask held-out documents, the same way at every evaluation.

    If the masks were drawn anew each time, the loss would move by itself. Each chosen token becomes
    ``[MASK]``: from one that training leaves as it stands the answer could be read off. Documents
    are token ids with ``[CLS]`` and ``[SEP]``; what is beyond ``length`` positions is left out.

    Raises:
        CourseError: There is no document with a token to mask.
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
    masked = masks(tf.constant(ids), masking.draw(seed, 0, 0))
    # Padding has the id 0 only by convention: whatever its id, it is not to be guessed.
    weights = masked["masked_weights"].numpy()
    weights *= np.take_along_axis(used, masked["masked_positions"].numpy(), axis=1)
    batch = {name: tensor.numpy() for name, tensor in masked.items()}
    row, at = np.nonzero(weights)
    batch["input_ids"][row, batch["masked_positions"][row, at]] = masks.mask_id
    batch["masked_weights"] = weights
    batch["attention_mask"] = used
    batch["position_ids"] = np.where(used, np.arange(length, dtype=np.int32), 0)
    return FixedMasks(batch)


@dataclasses.dataclass(frozen=True)
class Score:
    """How well masked tokens are guessed; the intervals are of 95 % confidence, over documents."""

    loss: float  # mean, in nats per masked token
    loss_interval: tuple[float, float]
    accuracy: float  # share of tokens whose likeliest guess is right
    accuracy_interval: tuple[float, float]
    tokens: int  # number of masked tokens

    @property
    def perplexity(self) -> float:
        """Number of equally likely tokens one would have to guess between: e to the loss."""
        return float(np.exp(self.loss))

    def row(self) -> dict[str, str]:
        """Write the score as a row of a table."""
        return {
            "loss": f"{self.loss:.2f}",
            "95 %": "{:.2f} to {:.2f}".format(*self.loss_interval),
            "perplexity": f"{self.perplexity:,.0f}",
            "right": f"{self.accuracy:.0%}",
            "95 % ": "{:.0%} to {:.0%}".format(*self.accuracy_interval),
        }

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value}" for name, value in self.row().items())
        return f"{values}; {self.tokens:,} tokens"


def score(losses: np.ndarray, right: np.ndarray, weights: np.ndarray) -> Score:
    """Summarize guesses, with confidence intervals.

    Tokens of one document are alike, so documents are drawn, not tokens (a cluster bootstrap: Efron
    and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13). All arrays are
    [documents, predictions]: losses in nats, whether the likeliest guess was right, and weights, 1
    where a token was masked, else 0.
    """
    sums = np.stack([(values * weights).sum(1) for values in (losses, right)])
    counts = weights.sum(1)
    random, resampled = np.random.default_rng(0), np.empty((2, RESAMPLED))
    for draw in range(RESAMPLED):  # one by one: there may be many documents
        documents = random.integers(0, len(counts), len(counts))
        resampled[:, draw] = sums[:, documents].sum(1) / counts[documents].sum().clip(1)
    loss_interval, right_interval = np.quantile(resampled, [0.025, 0.975], axis=1).T.tolist()
    loss, accuracy = (sums.sum(1) / counts.sum()).tolist()
    return Score(loss, tuple(loss_interval), accuracy, tuple(right_interval), int(counts.sum()))


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How well a model and its baselines guess, language by language."""

    # By language, then by who guessed: ``uniform``, ``unigram``, ``n-gram``, ``BERT``.
    scores: dict[str, dict[str, Score]]

    def markdown(self) -> str:
        """Write the table in Markdown."""
        table = self.table()
        lines = [["text", "guessed by", *table.columns], ["---"] * (2 + len(table.columns))]
        lines += [[*index, *row] for index, row in zip(table.index, table.to_numpy(), strict=True)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def table(self) -> pd.DataFrame:
        """Lay the scores out: a line for each language and who guessed, numbers rounded."""
        lines = {
            (language, way): one.row()
            for language, ways in self.scores.items()
            for way, one in ways.items()
        }
        return pd.DataFrame.from_dict(lines, orient="index")

    def __repr__(self) -> str:
        return self.table().to_string()

    def _repr_html_(self) -> str:
        return self.table().to_html()


def evaluate(
    model: tf.keras.Model,
    held_out: dict[str, FixedMasks],
    baselines: dict[str, NGram],
    rows: int = 32,
) -> Evaluation:
    """Let a model and its baselines (by language) guess the same masked tokens.

    ``rows`` documents are guessed at a time; the last batch is filled up, so that there is one
    shape.
    """
    scores_of = tf.function(partial(masked_scores, model), jit_compile=True, autograph=False)
    found = {}
    for language, fixed in held_out.items():
        labels, weights = fixed.batch["masked_ids"], fixed.batch["masked_weights"]
        unigram = baselines[language].unigram
        uniform = np.full(labels.shape, 1 / len(unigram))
        ways = {
            "uniform": (-np.log(uniform), uniform),
            "unigram": (-np.log(unigram[labels]), labels == unigram.argmax()),
            "n-gram": _guess_ngram(baselines[language], fixed),
            "BERT": _guess(scores_of, fixed, rows),
        }
        found[language] = {
            way: score(losses, right, weights) for way, (losses, right) in ways.items()
        }
    return Evaluation(found)


def _guess_ngram(ngram: NGram, fixed: FixedMasks) -> tuple[np.ndarray, np.ndarray]:
    labels = fixed.batch["masked_ids"]
    losses, right = np.zeros(labels.shape), np.zeros(labels.shape, bool)
    left, after = fixed.neighbours()
    for at in zip(*np.nonzero(fixed.batch["masked_weights"]), strict=True):
        chances = ngram.chances(int(left[at]), int(after[at]))
        losses[at] = -np.log(chances[labels[at]])
        right[at] = chances.argmax() == labels[at]
    return losses, right


def _guess(scores_of: Callable, fixed: FixedMasks, rows: int) -> tuple[np.ndarray, np.ndarray]:
    labels = fixed.batch["masked_ids"]
    losses, right = [], []
    for first in range(0, len(labels), rows):
        part = {name: values[first : first + rows] for name, values in fixed.batch.items()}
        short = rows - len(part["masked_ids"])
        full = {name: np.pad(v, [(0, short), (0, 0)], "edge") for name, v in part.items()}
        scores = scores_of({name: tf.constant(values) for name, values in full.items()})
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(full["masked_ids"], scores)
        guesses = tf.argmax(scores, -1, tf.int32)
        losses.append(entropy.numpy()[: rows - short])
        right.append((guesses == full["masked_ids"]).numpy()[: rows - short])
    return np.concatenate(losses), np.concatenate(right)


def evaluate_shipped(model: tf.keras.Model, data: Data) -> Evaluation:
    """Evaluate on the held-out paragraphs of the course's own text, each language by itself.

    The model was trained on ``data``, the others, with the shipped tokenizer.

    Raises:
        CourseError: The shipped files were changed or are missing.
    """
    tokenizer, length = corpus.load_tokenizer(), data.manifest.settings.sequence_length
    held_out, baselines = {}, {}
    for language, path in corpus.shipped().items():
        ids = tokenizer(corpus.read(pathlib.Path(path)))["input_ids"]
        unseen = [document for line, document in enumerate(ids) if corpus.held_out(line)]
        seen = [document for line, document in enumerate(ids) if not corpus.held_out(line)]
        held_out[language] = fix_masks(unseen, data.masks, length)
        baselines[language] = fit_ngram(seen, data.masks.vocabulary)
    return evaluate(model, held_out, baselines)


def evaluate_records(model: tf.keras.Model, data: Data, path: str | os.PathLike[str]) -> Evaluation:
    """Evaluate on records that were held out of ``data``, as the language ``held-out``.

    The n-gram is fitted to the first `data.ROWS` rows of the training's.

    Raises:
        CourseError: There are no finished records, or another tokenizer wrote them.
    """
    unseen = records.manifest(path)
    if unseen.settings.tokenizer_sha256 != data.manifest.settings.tokenizer_sha256:
        raise CourseError(
            "The held-out records were written with another tokenizer than the training's.",
            "The same id is another token there.",
            "Write both with one call of `tpu-course prepare`.",
        )
    length = data.manifest.settings.sequence_length
    held_out = fix_masks(list(sequences(unseen)), data.masks, length)
    ngram = fit_ngram(list(sequences(data.manifest)), data.masks.vocabulary)
    return evaluate(model, {HELD_OUT: held_out}, {HELD_OUT: ngram})
