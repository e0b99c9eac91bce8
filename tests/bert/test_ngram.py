"""The n-gram against dictionaries, and its weights against other weights."""

import collections
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_text import CLS, SEP, some_documents

from helpers.base.errors import CourseError
from helpers.bert.ngram import TUNED, fit_ngram

pytestmark = pytest.mark.slow


def reference(documents, vocabulary, weights, left, right):
    """Count with dictionaries."""
    counts = collections.defaultdict(collections.Counter)
    for number, document in enumerate(documents):
        if number % TUNED == 0:
            continue
        for before, here, after in zip(document, document[1:], document[2:], strict=False):
            for context in ("", ("left", before), ("right", after), (before, after)):
                counts[context][here] += 1
    unigram = {t: counts[""][t] + 1 for t in range(vocabulary)}
    parts = [(weights[0], {t: n / sum(unigram.values()) for t, n in unigram.items()})]
    contexts = (("left", left), ("right", right), (left, right))
    for weight, context in zip(weights[1:], contexts, strict=True):
        if context in counts:
            total = sum(counts[context].values())
            parts.append((weight, {t: n / total for t, n in counts[context].items()}))
    total = sum(weight for weight, _ in parts)
    return [sum(w / total * part.get(t, 0) for w, part in parts) for t in range(vocabulary)]


@settings(max_examples=20, deadline=None)
@given(st.integers(10, 60), st.integers(0, 1000), st.integers(0, 59), st.integers(0, 59))
def test_ngram_equals_counting_with_dictionaries(number, seed, left, right):
    documents = some_documents(number, seed, longest=8)
    ngram = fit_ngram(documents, 60)
    chances = ngram.chances(left, right)
    expected = reference(documents, 60, ngram.weights, left, right)
    np.testing.assert_allclose(chances, expected, atol=1e-12)
    assert math.isclose(chances.sum(), 1) and (chances > 0).all()


@pytest.mark.parametrize("documents", [[], some_documents(9), [[CLS, SEP]] * 30])
def test_too_little_to_fit_is_told(documents):
    with pytest.raises(CourseError, match=f"{len(documents)} documents are too few"):
        fit_ngram(documents, 60)
