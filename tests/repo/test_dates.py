"""No sentence that names its source's month is older than a year at the last review of the texts.

A month says when a source was read, or when something happened. ``REVIEWED`` is the month in which
the texts were last read against their sources. It is written here, not taken from the clock: the
tests shall not begin to fail with the calendar. Who reviews the texts sets it, and gets the
sentences to look at: read the source again and date it anew, or add what stays true to ``PAST``.
"""

import json
import re

import pytest
from conventions import NOTEBOOKS, ROOT

REVIEWED = (2026, 11)
PAGES = [*sorted((ROOT / "notebooks").glob("*.md")), ROOT / "README.md"]
MONTH = re.compile(r"\b(20\d\d)-(0[1-9]|1[0-2])(?:-\d\d)?\b")
END_OF_SENTENCE = re.compile(r"(?<=[.!?:]) (?=[A-Z*`\[|-])|(?: \|)+ ")

# What happened in a month, or a text of that month, stays so.
PAST = [
    "with a newer one TensorFlow found no TPU on Kaggle",
    "distributed_embedding_tf.py), 2025-09",
    "google-research/bert, README, 2019-05-31",
    "transformers 5 has no TensorFlow",
    "Kaggle's TPU image no longer has `tensorflow-tpu`",
    "as MaxText counts since 2025-07",
    'BERT 학습하기 - (1)" (2020-06-01)',
    'TensorFlow TPU 학습 101" (2020-04-17)',
    "old runtimes said",
    "Hugging Face datasets came with",
    "support ended on 2025-04-15",
]


def sentences(path):
    """List the sentences of a page or of a notebook's texts."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        text = "\n\n".join(texts)
    return END_OF_SENTENCE.split(" ".join(text.split()))


def newest_month(sentence):
    """Give the newest month that a sentence names, as (year, month); None if it names none."""
    months = [(int(year), int(month)) for year, month in MONTH.findall(sentence)]
    return max(months, default=None)


def old_sentences(reviewed):
    """List the sentences whose newest month is more than a year before a review."""
    year, month = reviewed
    old = []
    for path in [*NOTEBOOKS, *PAGES]:
        for sentence in sentences(path):
            newest = newest_month(sentence)
            if newest is not None and newest < (year - 1, month):
                old.append(f"{path.name}: {sentence}")
    return old


def test_no_dated_sentence_is_older_than_a_year_but_what_is_past():
    unknown = []
    for sentence in old_sentences(REVIEWED):
        if not any(part in sentence for part in PAST):
            unknown.append(sentence)
    assert not unknown, "read the source again, and date it anew:\n" + "\n".join(unknown)


@pytest.mark.parametrize("part", PAST)
def test_what_is_called_past_is_still_in_a_text(part):
    assert any(part in sentence for sentence in old_sentences(REVIEWED))


def test_a_later_review_lists_more():
    later = old_sentences((REVIEWED[0] + 2, REVIEWED[1]))
    assert len(later) > len(old_sentences(REVIEWED)) + 20


def test_the_newest_month_of_a_sentence_counts():
    assert newest_month("Read 2024-03 and 2026-11-02.") == (2026, 11)
    assert newest_month("About 2026, in 20-11.") is None
