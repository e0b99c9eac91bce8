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
    # For left, right and both neighbours: all contexts of the text, sorted, and their tokens.
    _counted: tuple[tuple[np.ndarray, np.ndarray], ...] = dataclasses.field(repr=False)

    def chances(self, left: int, right: int) -> np.ndarray:
        """Say how likely every token is between two others: float64 [vocabulary], sum 1.

        An id that was never counted, such as ``[MASK]``'s, leaves its weight to the others.
        """
        parts = zip(self.weights, self._parts(left, right), strict=True)
        known = [(weight, part) for weight, part in parts if part is not None]
        return sum(weight * part for weight, part in known) / sum(weight for weight, _ in known)

    def _parts(self, left: int, right: int) -> list[np.ndarray | None]:
        size, parts = len(self.unigram), [self.unigram]
        keys = (left, right, left * size + right)
        for key, (contexts, tokens) in zip(keys, self._counted, strict=True):
            low, high = np.searchsorted(contexts, [key, key + 1])
            counts = np.bincount(tokens[low:high], minlength=size) / max(1, high - low)
            parts.append(counts if high > low else None)
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
    orders = ((key, np.argsort(key)) for key in (left, right, left * vocabulary + right))
    sorted_ = tuple((key[order], here[order]) for key, order in orders)
    even = NGram(np.full(4, 0.25), unigram / unigram.sum(), sorted_)
    chances = [
        [np.nan if part is None else part[token] for part in even._parts(before, after)]
        for before, token, after in zip(*_triples(tuned), strict=True)
    ]
    return dataclasses.replace(even, weights=_weigh(np.array(chances)))


def _triples(documents: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Each token with its neighbours: those before, the tokens themselves, those after."""
    spans = (slice(None, -2), slice(1, -1), slice(2, None))
    return [np.concatenate([np.asarray(ids[s], np.int64) for ids in documents]) for s in spans]


def _weigh(chances: np.ndarray) -> np.ndarray:
    """Find weights that make the tokens likely: expectation and maximisation.

    Exact where all contexts were counted; where some were not, the others share their weight.
    """
    known, weights = ~np.isnan(chances), np.full(chances.shape[1], 1 / chances.shape[1])
    for _ in range(ROUNDS):
        responsible = np.where(known, weights * chances, 0)
        responsible /= responsible.sum(1, keepdims=True)
        # A weight whose context is unknown was not asked: that is not counted against it.
        weights = responsible.sum(0) / known.sum(0).clip(1)
        weights /= weights.sum()
    return weights
