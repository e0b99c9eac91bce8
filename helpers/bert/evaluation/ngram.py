"""The n-gram baseline: how likely a token is between its two neighbours, counted."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from helpers.base.errors import CourseError

TUNED = 10  # one document in this many sets the weights; the others are counted
ROUNDS = 30  # of setting them


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
        """Say how likely every token is between two others: float64 [vocabulary], sum 1.

        An id that was never counted, such as ``[MASK]``'s, leaves its weight to the others.
        """
        parts = zip(self.weights, self._parts(left, right), strict=True)
        known = [(weight, part) for weight, part in parts if part is not None]
        total = sum(weight for weight, _ in known)
        return sum(weight / total * part for weight, part in known)

    def _parts(self, left: int, right: int) -> list[np.ndarray | None]:
        size = len(self.unigram)
        parts: list[np.ndarray | None] = [self.unigram]
        keys = (left, right, left * size + right)
        for key, contexts, tokens in zip(keys, self._contexts, self._tokens, strict=True):
            low, high = np.searchsorted(contexts, [key, key + 1])
            counts = np.bincount(tokens[low:high], minlength=size) if high > low else None
            parts.append(None if counts is None else counts / counts.sum())
        return parts


def fit_ngram(documents: Sequence[Sequence[int]], vocabulary: int) -> NGram:
    """Count tokens between their neighbours; fit the mix of the counts on documents left out.

    Documents are token ids of the training text, with ``[CLS]`` and ``[SEP]``.

    Raises:
        CourseError: Fewer than ten documents, or nothing in them.
    """
    counted = [d for at, d in enumerate(documents) if at % TUNED and len(d) > 2]
    tuned = [d for at, d in enumerate(documents) if at % TUNED == 0 and len(d) > 2]
    if len(documents) < TUNED or not counted or not tuned:
        raise CourseError(
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


def _triples(documents: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Each token with its neighbours: those before, the tokens themselves, those after."""
    spans = (slice(None, -2), slice(1, -1), slice(2, None))
    return [np.concatenate([np.asarray(ids[s], np.int64) for ids in documents]) for s in spans]


def _weigh(chances: np.ndarray) -> np.ndarray:
    """Find weights that make the tokens likely: expectation and maximisation.

    Exact where all contexts were counted; where some were not, the others share their weight.
    """
    weights = np.full(chances.shape[1], 1 / chances.shape[1])
    known = ~np.isnan(chances)
    for _ in range(ROUNDS):
        shared = np.where(known, weights, 0)
        shared /= shared.sum(1, keepdims=True)
        responsible = shared * np.nan_to_num(chances)
        responsible /= responsible.sum(1, keepdims=True)
        # A weight whose context is unknown was not asked: that is not counted against it.
        weights = responsible.sum(0) / known.sum(0).clip(1)
        weights /= weights.sum()
    return weights
