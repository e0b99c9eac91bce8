"""The n-gram against dictionaries."""

import collections
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_text import some_documents

from helpers.bert.ngram import TUNED, fit_ngram

pytestmark = pytest.mark.slow


def reference(documents, weights, left, right):
    """Count with dictionaries."""
    counts = collections.defaultdict(collections.Counter)
    for number, document in enumerate(documents):
        if number % TUNED == 0:
            continue
        for before, token, after in zip(document, document[1:], document[2:], strict=False):
            for context in ("", ("left", before), ("right", after), (before, after)):
                counts[context][token] += 1
    smoothed_total = counts[""].total() + 60
    parts = [[(counts[""][token] + 1) / smoothed_total for token in range(60)]]
    for context in (("left", left), ("right", right), (left, right)):
        total = counts[context].total()
        if total:
            parts.append([counts[context][token] / total for token in range(60)])
        else:
            parts.append(list(map(statistics.fmean, zip(*parts, strict=True))))
    return np.dot(weights, parts)


@settings(max_examples=20, deadline=None)
@given(st.integers(10, 60), st.integers(0, 1000), st.integers(0, 59), st.integers(0, 59))
def test_ngram_equals_counting_with_dictionaries(number, seed, left, right):
    documents = some_documents(number, seed, longest=8)
    ngram = fit_ngram(documents, 60)
    chances = ngram.chances(left, right)
    np.testing.assert_allclose(chances, reference(documents, ngram.weights, left, right))
    assert math.isclose(chances.sum(), 1)
    assert (chances > 0).all()
