"""Whether a BERT learned: fixed masks on text it has not seen, against models that read less.

Three baselines know ever more, and each is fitted to the training text of one language: uniform
(the vocabulary's size), unigram (how frequent a token is) and n-gram (the two neighbours, too). A
masked language model that is worth its name beats the last one.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
import tensorflow as tf

from helpers import bert, masking
from helpers.errors import CourseError

RESAMPLED = 1_000  # times that documents are drawn for a confidence interval
TUNED = 10  # one document in so many sets the n-gram's weights instead of its counts
ROUNDS = 30  # of setting them


class NothingHeldOut(CourseError):
    """There is no text to evaluate on."""


class TooLittleToFit(CourseError):
    """There is too little text for a baseline."""


@dataclasses.dataclass(frozen=True)
class FixedMasks:
    """Documents, one per row, masked once and for all.

    Attributes:
        batch: What `bert.masked_scores` takes, NumPy arrays [documents, ...].
    """

    batch: dict[str, np.ndarray]

    @property
    def tokens(self) -> int:
        """Number of masked tokens."""
        return int(self.batch["masked_weights"].sum())

    def neighbours(self) -> tuple[np.ndarray, np.ndarray]:
        """Look left and right of each masked place.

        Returns:
            Two arrays int32 [documents, predictions] of token ids as the model sees them, so a
            neighbour may be ``[MASK]``.
        """
        ids, at = self.batch["input_ids"], self.batch["masked_positions"]
        last = ids.shape[1] - 1
        left = np.take_along_axis(ids, np.maximum(at - 1, 0), axis=1)
        return left, np.take_along_axis(ids, np.minimum(at + 1, last), axis=1)


def fix_masks(
    documents: Sequence[Sequence[int]], masks: masking.Masking, length: int, seed: int = 0
) -> FixedMasks:
    """Mask held-out documents, the same at every evaluation.

    If they were masked anew each time, the loss would move by itself.

    Args:
        documents: Token ids with ``[CLS]`` and ``[SEP]``; what is beyond ``length`` is left out.
        masks: How to mask.
        length: Places per row.
        seed: Of the masks.

    Returns:
        The documents, a row each.

    Raises:
        NothingHeldOut: There is no document with a token to mask.
    """
    special = set(masks.special_ids)
    kept = [ids for ids in documents if not special.issuperset(ids[:length])]
    if not kept:
        raise NothingHeldOut(
            "There is no text to evaluate on.",
            f"Of {len(documents):,} held-out documents none has a token that may be masked.",
            "Hold some documents out of the training (corpus.held_out), in each language.",
        )
    ids = np.zeros((len(kept), length), np.int32)
    used = np.zeros((len(kept), length), np.int32)
    for row, document in enumerate(kept):
        size = min(len(document), length)
        ids[row, :size], used[row, :size] = document[:size], 1
    masked = masks(tf.constant(ids), masking.draw(seed, 0, 0))
    # Padding has the id 0 only by habit: no place of it is ever chosen.
    weights = masked["masked_weights"].numpy()
    weights *= np.take_along_axis(used, masked["masked_positions"].numpy(), axis=1)
    batch = {name: tensor.numpy() for name, tensor in masked.items()}
    batch["masked_weights"] = weights
    batch["attention_mask"] = used
    batch["position_ids"] = np.where(used, np.arange(length, dtype=np.int32), 0)
    return FixedMasks(batch)


@dataclasses.dataclass(frozen=True)
class NGram:
    """How likely a token is between two neighbours: four counts, mixed (Jelinek and Mercer, 1980).

    Attributes:
        weights: Of unigram, left neighbour, right neighbour and both, float64 [4], sum 1.
        unigram: Share of each token, float64 [vocabulary]; none is 0.
    """

    weights: np.ndarray
    unigram: np.ndarray
    _contexts: tuple[np.ndarray, ...] = dataclasses.field(repr=False)
    _tokens: tuple[np.ndarray, ...] = dataclasses.field(repr=False)

    def chances(self, left: int, right: int) -> np.ndarray:
        """Say how likely every token is.

        Args:
            left: Id of the token before; an id that was never counted, such as ``[MASK]``'s,
                leaves its share to the others.
            right: Id of the token after.

        Returns:
            float64 [vocabulary], sum 1.
        """
        return self._mix(self._parts(left, right))

    def _parts(self, left: int, right: int) -> list[np.ndarray | None]:
        size = len(self.unigram)
        parts: list[np.ndarray | None] = [self.unigram]
        keys = (left, right, left * size + right)
        for key, contexts, tokens in zip(keys, self._contexts, self._tokens, strict=True):
            low, high = np.searchsorted(contexts, [key, key + 1])
            counts = np.bincount(tokens[low:high], minlength=size) if high > low else None
            parts.append(None if counts is None else counts / counts.sum())
        return parts

    def _mix(self, parts: list[np.ndarray | None]) -> np.ndarray:
        known = [(w, p) for w, p in zip(self.weights, parts, strict=True) if p is not None]
        total = sum(weight for weight, _ in known)
        return sum(weight / total * part for weight, part in known)


def fit_ngram(documents: Sequence[Sequence[int]], vocabulary: int) -> NGram:
    """Count tokens between their neighbours, and weigh the counts where they were not counted.

    Args:
        documents: Token ids of the training text, with ``[CLS]`` and ``[SEP]``.
        vocabulary: Number of tokens.

    Returns:
        The model.

    Raises:
        TooLittleToFit: Fewer than ten documents, or nothing in them.
    """
    counted = [d for at, d in enumerate(documents) if at % TUNED and len(d) > 2]
    tuned = [d for at, d in enumerate(documents) if at % TUNED == 0 and len(d) > 2]
    if len(documents) < TUNED or not counted or not tuned:
        raise TooLittleToFit(
            f"{len(documents):,} documents are too few for the n-gram baseline.",
            f"One of {TUNED} sets the weights of the counts, the others are counted.",
            f"Give at least {TUNED} documents with text.",
        )
    left, here, right = _triples(counted)
    unigram = np.bincount(here, minlength=vocabulary) + 1.0
    unigram /= unigram.sum()
    contexts, tokens = [], []
    for key in (left, right, left * vocabulary + right):
        order = np.argsort(key, kind="stable")
        contexts.append(key[order])
        tokens.append(here[order])
    even = NGram(np.full(4, 0.25), unigram, tuple(contexts), tuple(tokens))
    chances = np.array(
        [
            [np.nan if part is None else part[token] for part in even._parts(before, after)]
            for before, token, after in zip(*_triples(tuned), strict=True)
        ]
    )
    return dataclasses.replace(even, weights=_weigh(chances))


def _triples(documents: Sequence[Sequence[int]]) -> tuple[np.ndarray, ...]:
    before = np.concatenate([np.asarray(ids[:-2], np.int64) for ids in documents])
    here = np.concatenate([np.asarray(ids[1:-1], np.int64) for ids in documents])
    after = np.concatenate([np.asarray(ids[2:], np.int64) for ids in documents])
    return before, here, after


def _weigh(chances: np.ndarray) -> np.ndarray:
    """Find the weights that make the tokens likeliest, by expectation and maximisation."""
    weights = np.full(chances.shape[1], 1 / chances.shape[1])
    known = ~np.isnan(chances)
    for _ in range(ROUNDS):
        shared = np.where(known, weights, 0)
        shared /= shared.sum(1, keepdims=True)
        responsible = shared * np.nan_to_num(chances)
        responsible /= responsible.sum(1, keepdims=True)
        # Where a context is unknown, its weight was not asked: it is not counted against it.
        weights = responsible.sum(0) / known.sum(0).clip(1)
        weights /= weights.sum()
    return weights


@dataclasses.dataclass(frozen=True)
class Score:
    """How well masked tokens are guessed.

    Attributes:
        loss: Mean, in nats per masked token.
        loss_interval: 95 % confidence interval of it, over documents.
        accuracy: Share of tokens whose likeliest guess is right.
        accuracy_interval: The same for it.
        tokens: Number of masked tokens.
    """

    loss: float
    loss_interval: tuple[float, float]
    accuracy: float
    accuracy_interval: tuple[float, float]
    tokens: int

    @property
    def perplexity(self) -> float:
        """Between how many equally likely tokens one would have to guess: e to the loss."""
        return float(np.exp(self.loss))

    def __repr__(self) -> str:
        return (
            f"loss {self.loss:.2f} ({self.loss_interval[0]:.2f} to {self.loss_interval[1]:.2f}), "
            f"perplexity {self.perplexity:.0f}, right {self.accuracy:.0%} "
            f"({self.accuracy_interval[0]:.0%} to {self.accuracy_interval[1]:.0%}) of "
            f"{self.tokens:,} tokens"
        )


def score(losses: np.ndarray, right: np.ndarray, weights: np.ndarray, seed: int = 0) -> Score:
    """Sum guesses up, with confidence intervals.

    Tokens of one document are alike, so documents are drawn, not tokens (a cluster bootstrap:
    Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13).

    Args:
        losses: Of each guess in nats, [documents, predictions].
        right: Whether the likeliest guess was right, the same shape.
        weights: 1 where a token was masked, else 0, the same shape.
        seed: Of the draws.

    Returns:
        The score.
    """
    sums = np.stack([(values * weights).sum(1) for values in (losses, right)])
    counts = weights.sum(1)
    drawn = np.random.default_rng(seed).integers(0, len(counts), (RESAMPLED, len(counts)))
    resampled = sums[:, drawn].sum(2) / counts[drawn].sum(1).clip(1)
    (loss_low, right_low), (loss_high, right_high) = np.quantile(resampled, [0.025, 0.975], axis=1)
    loss, accuracy = sums.sum(1) / counts.sum()
    return Score(
        float(loss),
        (float(loss_low), float(loss_high)),
        float(accuracy),
        (float(right_low), float(right_high)),
        int(counts.sum()),
    )


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How well a model and its baselines guess, language by language.

    Attributes:
        scores: By language, then by way: ``uniform``, ``unigram``, ``n-gram``, ``BERT``.
    """

    scores: dict[str, dict[str, Score]]

    def table(self) -> pd.DataFrame:
        """Lay the scores out: a line for each language and way, numbers rounded."""
        lines = {
            (language, way): {
                "loss": f"{one.loss:.2f}",
                "95 %": f"{one.loss_interval[0]:.2f} to {one.loss_interval[1]:.2f}",
                "perplexity": f"{one.perplexity:,.0f}",
                "right": f"{one.accuracy:.0%}",
                "95 % ": f"{one.accuracy_interval[0]:.0%} to {one.accuracy_interval[1]:.0%}",
            }
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
    """Let a model and its baselines guess the same masked tokens.

    Args:
        model: From `bert.pretraining_model`.
        held_out: Masked documents by language.
        baselines: By language, from `fit_ngram` on its training text.
        rows: Documents at a time; the last batch is filled up, so that there is one shape.

    Returns:
        The scores.
    """
    scores_of = tf.function(
        lambda batch: bert.masked_scores(model, batch), jit_compile=True, autograph=False
    )
    found = {}
    for language, fixed in held_out.items():
        vocabulary = len(baselines[language].unigram)
        labels, weights = fixed.batch["masked_ids"], fixed.batch["masked_weights"]
        uniform = np.full(labels.shape, np.log(vocabulary))
        # Guessing blindly among all is right once in `vocabulary` times.
        ways = {"uniform": (uniform, np.full(labels.shape, 1 / vocabulary))}
        ways["unigram"] = _guess_unigram(baselines[language].unigram, labels)
        ways["n-gram"] = _guess_ngram(baselines[language], fixed)
        ways["BERT"] = _guess(scores_of, fixed, rows)
        found[language] = {
            way: score(losses, right, weights) for way, (losses, right) in ways.items()
        }
    return Evaluation(found)


def _guess_unigram(unigram: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return -np.log(unigram[labels]), labels == unigram.argmax()


def _guess_ngram(ngram: NGram, fixed: FixedMasks) -> tuple[np.ndarray, np.ndarray]:
    labels = fixed.batch["masked_ids"]
    losses, right = np.zeros(labels.shape), np.zeros(labels.shape, bool)
    left, after = fixed.neighbours()
    for place in zip(*np.nonzero(fixed.batch["masked_weights"]), strict=True):
        chances = ngram.chances(int(left[place]), int(after[place]))
        losses[place] = -np.log(chances[labels[place]])
        right[place] = chances.argmax() == labels[place]
    return losses, right


def _guess(scores_of: object, fixed: FixedMasks, rows: int) -> tuple[np.ndarray, np.ndarray]:
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


@dataclasses.dataclass(frozen=True)
class Probe:
    """Whether a linear model on top of frozen hidden states can tell real tokens from swapped ones.

    Attributes:
        pretrained: Share of tokens judged right with the model's weights; 50 % is guessing.
        pretrained_interval: 95 % confidence interval over documents.
        random: The same with fresh weights of the same shape.
        random_interval: The same for it.
        tokens: Number of judged tokens.
    """

    pretrained: float
    pretrained_interval: tuple[float, float]
    random: float
    random_interval: tuple[float, float]
    tokens: int

    def __repr__(self) -> str:
        def line(share: float, interval: tuple[float, float]) -> str:
            return f"{share:.0%} ({interval[0]:.0%} to {interval[1]:.0%})"

        return (
            f"replaced tokens found among {self.tokens:,}: pretrained "
            f"{line(self.pretrained, self.pretrained_interval)}, random weights "
            f"{line(self.random, self.random_interval)}, guessing 50%"
        )


JUDGED = 0.3  # of the tokens; half of these are replaced
RIDGE = 1.0


def probe(
    model: tf.keras.Model,
    fresh: tf.keras.Model,
    training: Sequence[Sequence[int]],
    testing: Sequence[Sequence[int]],
    masks: masking.Masking,
    length: int,
    seed: int = 0,
) -> Probe:
    """Ask whether pretraining left something in the hidden states that random weights lack.

    In real text some tokens are replaced by others of the same frequency. A linear model (ridge
    regression) reads the frozen hidden state at a place and says whether its token is the
    original. It is fitted on one part of the text and judged on another.

    Args:
        model: Pretrained, from `bert.pretraining_model`.
        fresh: The same with fresh weights.
        training: Documents to fit the linear model on: token ids with ``[CLS]`` and ``[SEP]``.
        testing: Documents to judge it on.
        masks: Only its vocabulary and special tokens are used.
        length: Places per row; what is beyond is left out.
        seed: Of the choice of places and tokens.

    Returns:
        How often each is right.

    Raises:
        NothingHeldOut: There is no document to judge on, or to fit on.
    """
    random = np.random.default_rng(seed)
    shares = np.ones(masks.vocabulary)
    for document in training:
        shares += np.bincount(document, minlength=masks.vocabulary)
    shares[list(masks.special_ids)] = 0
    shares /= shares.sum()
    parts = [
        _replace(documents, masks, length, shares, random) for documents in (training, testing)
    ]
    found = []
    for one in (model, fresh):
        (fit_x, fit_y, _), (test_x, test_y, document) = (
            (_hidden(one, part)[part["judged"]], part["replaced"][part["judged"]], part["judged"])
            for part in parts
        )
        mean, deviation = fit_x.mean(0), fit_x.std(0) + 1e-6
        fit_x, test_x = (fit_x - mean) / deviation, (test_x - mean) / deviation
        square = fit_x.T @ fit_x + RIDGE * np.eye(fit_x.shape[1])
        direction = np.linalg.solve(square, fit_x.T @ np.where(fit_y, 1.0, -1.0))
        right = np.zeros(document.shape)
        right[document] = (test_x @ direction > 0) == test_y
        found.append(score(np.zeros(document.shape), right, document.astype(float), seed))
    return Probe(
        found[0].accuracy,
        found[0].accuracy_interval,
        found[1].accuracy,
        found[1].accuracy_interval,
        found[0].tokens,
    )


def _replace(
    documents: Sequence[Sequence[int]],
    masks: masking.Masking,
    length: int,
    shares: np.ndarray,
    random: np.random.Generator,
) -> dict[str, np.ndarray]:
    fixed = fix_masks(documents, masks, length)
    used = fixed.batch["attention_mask"]
    ids = np.zeros_like(used)
    special = set(masks.special_ids)
    kept = [document for document in documents if not special.issuperset(document[:length])]
    for row, document in enumerate(kept):
        ids[row, : min(len(document), length)] = document[:length]
    ordinary = ~np.isin(ids, masks.special_ids) & (used > 0)
    judged = ordinary & (random.random(ids.shape) < JUDGED)
    replaced = judged & (random.random(ids.shape) < 0.5)
    others = random.choice(masks.vocabulary, ids.shape, p=shares).astype(ids.dtype)
    replaced &= others != ids  # drawn its own token: nothing was replaced
    return {
        "input_ids": np.where(replaced, others, ids),
        "attention_mask": used,
        "position_ids": fixed.batch["position_ids"],
        "judged": judged,
        "replaced": replaced,
    }


def _hidden(model: tf.keras.Model, part: dict[str, np.ndarray], rows: int = 32) -> np.ndarray:
    names = ("input_ids", "attention_mask", "position_ids")
    found = []
    for first in range(0, len(part["judged"]), rows):
        batch = {name: tf.constant(part[name][first : first + rows]) for name in names}
        found.append(tf.cast(model.bert(**batch)[0], tf.float32).numpy())
    return np.concatenate(found)
