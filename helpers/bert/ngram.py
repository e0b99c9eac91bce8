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
        counted: For left, right and both neighbours: all contexts of the text as numbers, sorted,
            and the tokens that stood there.
    """

    weights: np.ndarray
    unigram: np.ndarray
    counted: Sequence[tuple[np.ndarray, np.ndarray]] = dataclasses.field(repr=False)

    def chances(self, left: int, right: int) -> np.ndarray:
        """Say how likely every token is between two others: float64 [vocabulary], sum 1."""
        return self.weights @ self.parts(left, right)

    def parts(self, left: int, right: int) -> np.ndarray:
        """Give the four shares of every token that `chances` mixes, float64 [4, vocabulary].

        In a context that was never counted, such as ``[MASK]``'s, the mean of the shares before it.
        """
        size, parts = len(self.unigram), [self.unigram]
        for key, (contexts, tokens) in zip(
            (left, right, left * size + right), self.counted, strict=True
        ):
            low, high = np.searchsorted(contexts, [key, key + 1])
            counts = np.bincount(tokens[low:high], minlength=size)
            parts.append(counts / (high - low) if high > low else np.mean(parts, axis=0))
        return np.array(parts)


def fit_ngram(documents: Sequence[Sequence[int]], vocabulary: int) -> NGram:
    """Count tokens between their neighbours; fit the mix of the counts on documents left out.

    Documents are token ids of the training text, with ``[CLS]`` and ``[SEP]``. The weights are
    fitted by expectation and maximisation.

    Raises `CourseError`: Fewer than ten documents.
    """
    if len(documents) < TUNED:
        raise CourseError(
            f"{len(documents):,} documents are too few for the n-gram baseline.",
            f"One of {TUNED} sets the weights of the counts, the others are counted.",
            f"Give at least {TUNED} documents with text.",
        )
    left, here, right = _triples([d for at, d in enumerate(documents) if at % TUNED])
    unigram = np.bincount(here, minlength=vocabulary) + 1.0
    orders = ((key, np.argsort(key)) for key in (left, right, left * vocabulary + right))
    counted = [(key[order], here[order]) for key, order in orders]
    even = NGram(np.full(4, 0.25), unigram / unigram.sum(), counted)
    tuned = zip(*_triples(documents[::TUNED]), strict=True)
    chances = np.array([even.parts(left, right)[:, here] for left, here, right in tuned])
    weights = even.weights
    for _ in range(ROUNDS):
        responsible = weights * chances
        weights = (responsible / responsible.sum(1, keepdims=True)).mean(0)
    return dataclasses.replace(even, weights=weights)


def _triples(documents: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Each token with its neighbours: those before, the tokens themselves, those after."""
    spans = (slice(None, -2), slice(1, -1), slice(2, None))
    return [np.concatenate([np.asarray(ids[s], np.int64) for ids in documents]) for s in spans]
