"""How much a pretrained BERT is worth where labels are few: the curve of notebook 10."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from rich.table import Table
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from benchmarks.measure import SMALL, Size
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
STEPS, EPOCHS = 80, 5  # at least
LEARNING_RATE = 1e-3


def counting(unit: str) -> Pipeline:
    """Make a classifier that counts words, or pieces of two to four characters of them."""
    words = {"token_pattern": r"\S+"}
    pieces = {"analyzer": "char_wb", "ngram_range": (2, 4)}
    counts = TfidfVectorizer(sublinear_tf=True, **(words if unit == "words" else pieces))
    return make_pipeline(counts, LogisticRegression(C=10, max_iter=1000))


def draw(labels: np.ndarray, each: int | None, seed: int) -> np.ndarray:
    """Choose so many texts of each label at random; give their numbers."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    chosen = [shuffled[labels[shuffled] == label][:each] for label in np.unique(labels)]
    return np.concatenate(chosen)


class Curve:
    """All that the runs share: texts, labels, token ids, and the scores they write."""

    def __init__(self) -> None:
        self.data = {
            language: labelled.read(DATA / "programs.tsv", text=language, label="program")
            for language in LANGUAGES
        }
        (self.names,) = {data.names for data in self.data.values()}
        self.labels = self.data["en"].train.labels  # a paragraph and its translation have one
        tokenizer = classifier.tokenizer(PRETRAINED)
        self.inputs = {
            (part, language): dict(
                tokenizer(
                    list(getattr(data, part).texts),
                    padding="max_length",
                    truncation=True,
                    max_length=LONGEST,
                    return_tensors="np",
                    return_token_type_ids=False,
                )
            )
            for language, data in self.data.items()
            for part in labelled.PARTS
        }

    def score(self, guessed: np.ndarray) -> tuple[str, str]:
        """Give accuracy and macro-F1 on the test part, as they are written."""
        matrix = metrics.confusion(self.data["en"].test.labels, guessed, len(self.names))
        return f"{metrics.accuracy(matrix):.4f}", f"{metrics.macro_f1(matrix):.4f}"

    def count(self, unit: str, language: str, each: int | None, seed: int) -> Iterator[tuple]:
        """Train and test a classifier that counts."""
        chosen, data = draw(self.labels, each, seed), self.data[language]
        known = [data.train.texts[at] for at in chosen]
        model = counting(unit).fit(known, self.labels[chosen])
        yield language, *self.score(model.predict(data.test.texts))

    def tune(self, start: classifier.Start, language: str, chosen: np.ndarray) -> Iterator[tuple]:
        """Fine-tune from the start that was set, and test on both languages."""
        inputs = {name: ids[chosen] for name, ids in self.inputs["train", language].items()}
        rows = min(BATCH, len(chosen))
        epochs = max(EPOCHS, -(-STEPS * BATCH // len(chosen)))
        start.model.fit(inputs, self.labels[chosen], batch_size=rows, epochs=epochs, verbose=0)
        for other in LANGUAGES:
            logits = start.model.predict(self.inputs["test", other], batch_size=64, verbose=0)
            yield other, *self.score(logits["logits"].argmax(-1))


def _runs(curve: Curve, language: str, each: int | None) -> Iterator[tuple]:
    """Give the rows of one language and number of labels: model, then what is in `HEADER`."""
    for model, unit in (("words", "words"), ("n-grams", "pieces")):
        for seed in range(SEEDS):
            for scores in curve.count(unit, language, each, seed):
                yield model, seed, scores
    draws = [draw(curve.labels, each, seed) for seed in range(SEEDS)]
    steps = -(-len(draws[0]) // BATCH) * max(EPOCHS, -(-STEPS * BATCH // len(draws[0])))
    for model in ("pretrained", "fresh"):
        start = classifier.load(PRETRAINED, curve.names, pretrained=model == "pretrained")
        classifier.compiled(start, steps=steps, learning_rate=LEARNING_RATE)
        for seed, chosen in enumerate(draws):
            start.again(seed)
            for scores in curve.tune(start, language, chosen):
                yield model, seed, scores


def run(size: Size, done: Callable[[str, int], None]) -> Table:
    """Run the whole experiment, write its table, and show the means.

    Args:
        size: With `measure.SMALL` nothing is trained: the table is shown as it is.
        done: Called with what was done, and how much there is in all.

    Returns:
        One row per language and number of labels.
    """
    if size is not SMALL:
        curve, rows = Curve(), []
        for language, each in itertools.product(LANGUAGES, LABELS):
            rows += [
                (model, language, scores[0], each or "all", seed, *scores[1:])
                for model, seed, scores in _runs(curve, language, each)
            ]
            done(f"{language}, {each or 'all'}", len(LANGUAGES) * len(LABELS))
        lines = ("\t".join(map(str, row)) for row in (HEADER, *rows))
        files.write(RESULTS, "".join(f"{line}\n" for line in lines))
    return _table()


def _table() -> Table:
    found = pd.read_csv(RESULTS, sep="\t", dtype={"labels": str})
    own = found[found.trained_on == found.tested_on]
    means = own.pivot_table("accuracy", ["trained_on", "labels"], "model", sort=False)
    table = Table(title="Accuracy, mean of the seeds, by labels of each program")
    for name in ("language", "labels", *means.columns):
        table.add_column(name, justify="right")
    for (language, labels), row in means.iterrows():
        table.add_row(language, labels, *(f"{value:.1%}" for value in row))
    return table
