"""How much a pretrained BERT is worth where labels are few: the curve of notebook 10."""

import itertools
import math
import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd
import tensorflow as tf
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import Pipeline, make_pipeline
from transformers import BertTokenizerFast, TFBertForSequenceClassification

from helpers.base import files
from helpers.base.settings import ROOT
from helpers.bert.step import WarmUpLinearDecay

DATA = ROOT / "notebooks" / "data"
PRETRAINED = DATA / "bert-tiny"
RESULTS = DATA / "fine_tuning.tsv"
LANGUAGES = ("en", "ko")
LABELS = (1, 2, 4, 8, 16, 32, 64, None)  # of each program; None: all there are
SEEDS = 5  # each with other labelled texts, another classifier and another order
LONGEST = 64  # tokens of a text
BATCH = 16
STEPS = 160  # at least
EPOCHS = 5  # at least
LEARNING_RATE = 1e-3


def read() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the texts to train on and to test on, with each program's number as ``label``."""
    table = pd.read_csv(DATA / "programs.tsv", sep="\t", quoting=3)
    table["label"] = table.program.astype("category").cat.codes
    return table[table.part == "train"], table[table.part == "test"]


def few(train: pd.DataFrame, each: int | None, seed: int) -> pd.DataFrame:
    """Draw so many texts of each program; a larger draw also has them."""
    draw = np.random.default_rng(seed)
    rows = []
    for label in range(train.label.max() + 1):
        shuffled = draw.permutation(np.flatnonzero(train.label == label))
        rows += shuffled[:each].tolist()
    return train.iloc[rows]


def counting(unit: str) -> Pipeline:
    """Make a classifier that counts words, or pieces of two to four characters of them."""
    options = {"analyzer": "char_wb", "ngram_range": (2, 4)}
    if unit == "words":
        options = {"token_pattern": r"\S+"}
    counts = TfidfVectorizer(sublinear_tf=True, **options)
    return make_pipeline(counts, LogisticRegression(C=10, max_iter=1000))


def score(labels: np.ndarray, guesses: np.ndarray) -> dict[str, str]:
    """Give accuracy and macro-F1 as they are written."""
    accuracy = accuracy_score(labels, guesses)
    macro_f1 = f1_score(labels, guesses, average="macro")
    return {"accuracy": f"{accuracy:.4f}", "macro_f1": f"{macro_f1:.4f}"}


def tune(labelled: pd.DataFrame, language: str, seed: int, pretrained: bool) -> tf.keras.Model:
    """Fine-tune a classifier, from pretrained weights or fresh ones."""
    tf.keras.utils.set_random_seed(seed)
    model = TFBertForSequenceClassification.from_pretrained(
        PRETRAINED, num_labels=labelled.label.max() + 1, use_safetensors=False
    )
    if not pretrained:
        model = TFBertForSequenceClassification(model.config)
        model.build_in_name_scope()
    # Few texts are read more often, so that each model has some steps.
    steps_per_epoch = math.ceil(len(labelled) / BATCH)
    epochs = max(EPOCHS, math.ceil(STEPS * BATCH / len(labelled)))
    steps = epochs * steps_per_epoch
    schedule = WarmUpLinearDecay(LEARNING_RATE, max(1, steps // 10), steps)
    # As in notebook 10.
    optimizer = tf.keras.optimizers.AdamW(
        schedule, weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0, jit_compile=False
    )
    optimizer.exclude_from_weight_decay(var_names=["LayerNorm", "bias"])
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(
        ids(labelled[language]),
        labelled.label,
        batch_size=min(BATCH, len(labelled)),
        epochs=epochs,
        verbose=0,
    )
    return model


def ids(texts: pd.Series) -> dict[str, np.ndarray]:
    """Give token ids and mask of texts, cut and filled up to `LONGEST`."""
    tokenizer = BertTokenizerFast.from_pretrained(PRETRAINED)
    encoded = tokenizer(
        list(texts),
        padding="max_length",
        truncation=True,
        max_length=LONGEST,
        return_tensors="np",
        return_token_type_ids=False,
    )
    return dict(encoded)


def runs(language: str, each: int | None) -> Iterator[dict[str, object]]:
    """Train and test all models on one language with so many labels; give the table's rows."""
    train, test = read()
    for name, seed in itertools.product(("words", "n-grams", "pretrained", "fresh"), range(SEEDS)):
        labelled = few(train, each, seed)
        row = {"model": name, "trained_on": language, "labels": each or "all", "seed": seed}
        if name in ("words", "n-grams"):
            model = counting(name).fit(labelled[language], labelled.label)
            guesses = model.predict(test[language])
            yield row | {"tested_on": language} | score(test.label, guesses)
        else:
            model = tune(labelled, language, seed, name == "pretrained")
            for tested_on in LANGUAGES:
                logits = model.predict(ids(test[tested_on]), batch_size=64, verbose=0)["logits"]
                yield row | {"tested_on": tested_on} | score(test.label, logits.argmax(-1))


def run(small: bool) -> Iterator[tuple[str, pd.DataFrame]]:
    """Run the whole experiment, write its table, and show the means.

    With ``small`` nothing is trained: the table is shown as it is.
    """
    if not small:
        rows = []
        for language, each in itertools.product(LANGUAGES, LABELS):
            rows += runs(language, each)
            print(f"{language}, {each or 'all'}", file=sys.stderr)
        order = ["model", "trained_on", "tested_on", "labels", "seed", "accuracy", "macro_f1"]
        files.write(RESULTS, pd.DataFrame(rows)[order].to_csv(sep="\t", index=False))
    table = pd.read_csv(RESULTS, sep="\t", dtype={"labels": str})
    same_language = table[table.trained_on == table.tested_on]
    means = same_language.pivot_table("accuracy", ["trained_on", "labels"], "model", sort=False)
    yield "accuracy, mean of the seeds, by labels of each program", means.round(3).reset_index()
