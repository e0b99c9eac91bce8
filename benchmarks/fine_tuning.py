"""How much a pretrained BERT is worth where labels are few: the curve of notebook 10."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import tensorflow as tf
from rich.table import Table
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import Pipeline, make_pipeline
from transformers import BertTokenizerFast, TFBertForSequenceClassification

from benchmarks.measure import SMALL, Size
from helpers.base import files
from helpers.base.settings import ROOT
from helpers.bert.step import WarmUpLinearDecay, adamw

DATA = ROOT / "notebooks" / "data"
PRETRAINED = DATA / "bert-tiny"
RESULTS = DATA / "fine_tuning.tsv"
LANGUAGES = ("en", "ko")
LABELS = (1, 2, 4, 8, 16, 32, 64, None)  # of each program; None: all there are
SEEDS = 5  # each with other labelled texts, another classifier and another order
LONGEST = 64  # tokens of a text
BATCH = 16
STEPS, EPOCHS = 160, 5  # at least
LEARNING_RATE = 1e-3


def read() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the texts to train on and to test on, with each program's number as ``label``."""
    table = pd.read_csv(DATA / "programs.tsv", sep="\t", quoting=3)
    table["label"] = table.program.astype("category").cat.codes
    return table[table.part == "train"], table[table.part == "test"]


def few(train: pd.DataFrame, each: int | None, seed: int) -> pd.DataFrame:
    """Draw so many texts of each program; a larger draw has them, too."""
    draw = np.random.default_rng(seed)
    labels = range(train.label.max() + 1)
    rows = [draw.permutation(np.flatnonzero(train.label == label))[:each] for label in labels]
    return train.iloc[np.concatenate(rows)]


def counting(unit: str) -> Pipeline:
    """Make a classifier that counts words, or pieces of two to four characters of them."""
    words = {"token_pattern": r"\S+"}
    pieces = {"analyzer": "char_wb", "ngram_range": (2, 4)}
    counts = TfidfVectorizer(sublinear_tf=True, **(words if unit == "words" else pieces))
    return make_pipeline(counts, LogisticRegression(C=10, max_iter=1000))


def score(labels: np.ndarray, guessed: np.ndarray) -> dict[str, str]:
    """Give accuracy and macro-F1 as they are written."""
    accuracy, macro = accuracy_score(labels, guessed), f1_score(labels, guessed, average="macro")
    return {"accuracy": f"{accuracy:.4f}", "macro_f1": f"{macro:.4f}"}


def tune(known: pd.DataFrame, language: str, seed: int, pretrained: bool) -> tf.keras.Model:
    """Fine-tune a classifier, from pretrained weights or fresh ones."""
    tf.keras.utils.set_random_seed(seed)
    options = {"num_labels": known.label.max() + 1, "use_safetensors": False}
    model = TFBertForSequenceClassification.from_pretrained(PRETRAINED, **options)
    if not pretrained:
        model = TFBertForSequenceClassification(model.config)
        model.build_in_name_scope()
    epochs = max(EPOCHS, -(-STEPS * BATCH // len(known)))
    steps = epochs * -(-len(known) // BATCH)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    schedule = WarmUpLinearDecay(LEARNING_RATE, max(1, steps // 10), steps)
    model.compile(adamw(model, schedule, clip_norm=1.0), loss)
    rows = min(BATCH, len(known))
    model.fit(ids(known[language]), known.label, batch_size=rows, epochs=epochs, verbose=0)
    return model


def ids(texts: pd.Series) -> dict[str, np.ndarray]:
    """Give token ids and mask of texts, cut and filled up to `LONGEST`."""
    tokenizer = BertTokenizerFast.from_pretrained(PRETRAINED)
    options = {"padding": "max_length", "truncation": True, "max_length": LONGEST}
    return dict(tokenizer(list(texts), return_tensors="np", return_token_type_ids=False, **options))


def runs(language: str, each: int | None) -> Iterator[dict[str, object]]:
    """Train and test all models on one language with so many labels; give the table's rows."""
    train, test = read()
    for name, seed in itertools.product(("words", "n-grams", "pretrained", "fresh"), range(SEEDS)):
        known = few(train, each, seed)
        row = {"model": name, "trained_on": language, "labels": each or "all", "seed": seed}
        if name in ("words", "n-grams"):
            model = counting(name).fit(known[language], known.label)
            guesses = model.predict(test[language])
            yield row | {"tested_on": language} | score(test.label, guesses)
        else:
            model = tune(known, language, seed, name == "pretrained")
            for other in LANGUAGES:
                logits = model.predict(ids(test[other]), batch_size=64, verbose=0)["logits"]
                yield row | {"tested_on": other} | score(test.label, logits.argmax(-1))


def run(size: Size, done: Callable[[str, int], None]) -> Table:
    """Run the whole experiment, write its table, and show the means.

    Args:
        size: With `measure.SMALL` nothing is trained: the table is shown as it is.
        done: Called with what was done, and how much there is in all.

    Returns:
        One row per language and number of labels.
    """
    if size is not SMALL:
        rows = []
        for language, each in itertools.product(LANGUAGES, LABELS):
            rows += runs(language, each)
            done(f"{language}, {each or 'all'}", len(LANGUAGES) * len(LABELS))
        order = ["model", "trained_on", "tested_on", "labels", "seed", "accuracy", "macro_f1"]
        files.write(RESULTS, pd.DataFrame(rows)[order].to_csv(sep="\t", index=False))
    found = pd.read_csv(RESULTS, sep="\t", dtype={"labels": str})
    own = found[found.trained_on == found.tested_on]
    means = own.pivot_table("accuracy", ["trained_on", "labels"], "model", sort=False)
    table = Table(title="Accuracy, mean of the seeds, by labels of each program")
    for name in ("language", "labels", *means.columns):
        table.add_column(name, justify="right")
    for (language, labels), row in means.iterrows():
        table.add_row(language, labels, *(f"{value:.1%}" for value in row))
    return table
