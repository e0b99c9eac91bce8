"""How much a pretrained BERT is worth where labels are few: the curve of notebook 10."""

import itertools
import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from helpers.base import files
from helpers.base.settings import ROOT
from helpers.bert.fine_tuning import classifier, labelled, metrics

DATA = ROOT / "notebooks" / "data"
PRETRAINED = DATA / "bert-tiny"
RESULTS = DATA / "fine_tuning.tsv"
HEADER = ("model", "trained_on", "tested_on", "labels", "seed", "accuracy", "macro_f1")
LANGUAGES = ("en", "ko")
LABELS = (1, 2, 4, 8, 16, 32, 64, None)  # of each program; None: all there are
SEEDS = 5  # each with other labelled texts, another classifier and another order
LONGEST = 64  # tokens of a text
BATCH = 16
STEPS, EPOCHS = 160, 5  # at least
LEARNING_RATE = 1e-3


def counting(unit: str) -> Pipeline:
    """Make a classifier that counts words, or pieces of two to four characters of them."""
    words = {"token_pattern": r"\S+"}
    pieces = {"analyzer": "char_wb", "ngram_range": (2, 4)}
    counts = TfidfVectorizer(sublinear_tf=True, **(words if unit == "words" else pieces))
    return make_pipeline(counts, LogisticRegression(C=10, max_iter=1000))


class Curve:
    """All that the runs share: texts, labels, token ids, and the scores they write."""

    def __init__(self) -> None:
        self.data = {
            language: labelled.read(DATA / "programs.tsv", text=language, label="program")
            for language in LANGUAGES
        }
        (self.names,) = {data.names for data in self.data.values()}
        self.tokenizer = classifier.tokenizer(PRETRAINED)
        self.test = {language: self.inputs(data.test) for language, data in self.data.items()}

    def inputs(self, part: labelled.Part) -> dict[str, np.ndarray]:
        """Give token ids and mask of texts, cut and filled up to `LONGEST`."""
        options = {"padding": "max_length", "truncation": True, "max_length": LONGEST}
        texts = list(part.texts)
        return dict(
            self.tokenizer(texts, return_tensors="np", return_token_type_ids=False, **options)
        )

    def draw(self, language: str, each: int | None, seed: int) -> labelled.Part:
        """Choose so many texts of each label; translations are drawn together."""
        train = self.data[language].train
        return train.few(each or len(train), seed)

    def score(self, guessed: np.ndarray) -> tuple[str, str]:
        """Give accuracy and macro-F1 on the test part, as they are written."""
        labels = self.data["en"].test.labels  # a paragraph and its translation have one
        matrix = metrics.confusion(labels, guessed, len(self.names))
        return f"{metrics.accuracy(matrix):.4f}", f"{metrics.macro_f1(matrix):.4f}"

    def count(self, unit: str, language: str, each: int | None, seed: int) -> Iterator[tuple]:
        """Train and test a classifier that counts."""
        known = self.draw(language, each, seed)
        model = counting(unit).fit(known.texts, known.labels)
        yield language, *self.score(model.predict(self.data[language].test.texts))

    def tune(self, start: classifier.Start, known: labelled.Part) -> Iterator[tuple]:
        """Fine-tune from the start that was set, and test on both languages."""
        rows, epochs = min(BATCH, len(known)), _epochs(len(known))
        start.model.fit(self.inputs(known), known.labels, batch_size=rows, epochs=epochs, verbose=0)
        for other in LANGUAGES:
            logits = start.model.predict(self.test[other], batch_size=64, verbose=0)
            yield other, *self.score(logits["logits"].argmax(-1))


def _epochs(texts: int) -> int:
    return max(EPOCHS, -(-STEPS * BATCH // texts))


def _runs(curve: Curve, language: str, each: int | None) -> Iterator[tuple]:
    """Give the rows of one language and number of labels: model, then what is in `HEADER`."""
    for model, unit in (("words", "words"), ("n-grams", "pieces")):
        for seed in range(SEEDS):
            for scores in curve.count(unit, language, each, seed):
                yield model, seed, scores
    draws = [curve.draw(language, each, seed) for seed in range(SEEDS)]
    steps = -(-len(draws[0]) // BATCH) * _epochs(len(draws[0]))
    for model in ("pretrained", "fresh"):
        start = classifier.load(PRETRAINED, curve.names, pretrained=model == "pretrained")
        classifier.compiled(start, steps=steps, learning_rate=LEARNING_RATE)
        for seed, known in enumerate(draws):
            start.again(seed)
            for scores in curve.tune(start, known):
                yield model, seed, scores


def run(small: bool) -> Iterator[tuple[str, pd.DataFrame]]:
    """Run the whole experiment, write its table, and show the means.

    With ``small`` nothing is trained: the table is shown as it is.
    """
    if not small:
        curve, rows = Curve(), []
        for language, each in itertools.product(LANGUAGES, LABELS):
            rows += [
                (model, language, scores[0], each or "all", seed, *scores[1:])
                for model, seed, scores in _runs(curve, language, each)
            ]
            print(f"{language}, {each or 'all'}", file=sys.stderr)
        lines = ("\t".join(map(str, row)) for row in (HEADER, *rows))
        files.write(RESULTS, "".join(f"{line}\n" for line in lines))
    found = pd.read_csv(RESULTS, sep="\t", dtype={"labels": str})
    own = found[found.trained_on == found.tested_on]
    means = own.pivot_table("accuracy", ["trained_on", "labels"], "model", sort=False)
    yield "accuracy, mean of the seeds, by labels of each program", means.round(3).reset_index()
