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
            and the tokens that were there.
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
        size = len(self.unigram)
        keys = (left, right, left * size + right)
        parts = [self.unigram]
        for key, (contexts, tokens) in zip(keys, self.counted, strict=True):
            start, end = np.searchsorted(contexts, [key, key + 1])
            if start == end:
                parts.append(np.mean(parts, axis=0))
            else:
                counts = np.bincount(tokens[start:end], minlength=size)
                parts.append(counts / (end - start))
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
    counted_documents = [ids for at, ids in enumerate(documents) if at % TUNED]
    left, here, right = _triples(counted_documents)
    unigram = np.bincount(here, minlength=vocabulary) + 1.0
    # Sorted by context, a search gives all tokens that were in one.
    counted = []
    for contexts in (left, right, left * vocabulary + right):
        order = np.argsort(contexts)
        counted.append((contexts[order], here[order]))
    even = NGram(np.full(4, 0.25), unigram / unigram.sum(), counted)

    # The four shares of each token of the documents that were not counted: float64 [tokens, 4].
    chances = []
    for left_id, token, right_id in zip(*_triples(documents[::TUNED]), strict=True):
        chances.append(even.parts(left_id, right_id)[:, token])
    weights = even.weights
    for _ in range(ROUNDS):
        # How far each of the four is responsible for each token; the mean is the next weight.
        responsible = weights * np.array(chances)
        weights = (responsible / responsible.sum(1, keepdims=True)).mean(0)
    return dataclasses.replace(even, weights=weights)


def _triples(documents: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give each token with its neighbours: those to its left, the tokens, those to its right."""
    arrays = [np.asarray(ids, np.int64) for ids in documents]
    left = np.concatenate([ids[:-2] for ids in arrays])
    here = np.concatenate([ids[1:-1] for ids in arrays])
    right = np.concatenate([ids[2:] for ids in arrays])
    return left, here, right
