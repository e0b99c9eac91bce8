"""A small BERT is fine-tuned, killed, resumed, exported and asked."""

import dataclasses
import json
import os
import signal

import numpy as np
import pytest
import tensorflow as tf
from transformers import BertConfig, TFBertForMaskedLM, TFBertForPreTraining
from typer.testing import CliRunner

from helpers.base.errors import CourseError
from helpers.bert import export
from helpers.bert.fine_tuning import batches, classifier, exported, labelled, tuning
from helpers.bert.fine_tuning.settings import Settings
from helpers.course.commands.app import app
from helpers.text import corpus
from tpu_preflight.checklist import preflight

pytestmark = pytest.mark.slow

SETTINGS = Settings(epochs=8, global_batch_size=8, learning_rate=1e-2)
WORDS = {"cell": ("cell", "row", "sheet"), "text": ("page", "text", "font")}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """An exported BERT without a pooler, as a run without next sentence prediction leaves it."""
    tf.keras.utils.set_random_seed(1)
    config = BertConfig(3000, 16, 2, 2, 32, max_position_embeddings=32)
    model = TFBertForMaskedLM(config)
    model.build_in_name_scope()
    folder = tmp_path_factory.mktemp("model") / "bert"
    return export.write(model, corpus.kept_tokenizer().read_text(), folder, "# Card")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Texts that one word tells apart."""
    draw = np.random.default_rng(0)
    lines = ["text\tlabel"]
    for at in range(80):
        label = sorted(WORDS)[at % 2]
        words = draw.choice(["select", "the", "a", "new"], draw.integers(1, 12))
        lines.append(f"{' '.join(words)} {draw.choice(WORDS[label])} {at}\t{label}")
    path = tmp_path_factory.mktemp("data") / "texts.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def data(table):
    return labelled.read(table)


@pytest.fixture(scope="module")
def whole(bert, data, tmp_path_factory):
    """A run that nothing disturbed."""
    output, said = tmp_path_factory.mktemp("whole"), []
    return tuning.run(SETTINGS, bert, data, output, say=said.append), output, said


def test_it_learns_says_what_is_fresh_and_leaves_no_text_out(whole, data):
    tuned, output, said = whole
    assert tuned.evaluation.numbers["accuracy"][0] > 0.8
    assert said == [tuning.NO_POOLER]
    rows = [json.loads(line) for line in (output / "log.jsonl").open()]
    assert [row["step"] for row in rows] == list(range(1, tuned.steps + 1))
    assert (output / "guesses.tsv").read_text() == tuned.evaluation.tsv()
    card = (output / "model/README.md").read_text()
    assert tuned.evaluation.table() in card and "cell, text" in card


def test_every_text_is_in_an_epoch_once_and_padding_weighs_nothing(bert, data):
    tokenizer = classifier.tokenizer(bert)
    encoded = batches.encode(tokenizer, data.train.texts, 32)
    made = batches.training(encoded, data.train.labels, global_batch_size=8)
    epochs = [list(made.dataset.as_numpy_iterator()) for _ in range(2)]
    for epoch in epochs:
        assert sum(weights.sum() for *_, weights in epoch) == len(data.train)
        assert {features["input_ids"].shape for features, *_ in epoch} == {*made.shapes}
        texts = sorted(
            (tuple(ids[ids > 0]), label)
            for features, labels, weights in epoch
            for ids, label, weight in zip(features["input_ids"], labels, weights, strict=True)
            if weight
        )
        wanted = zip(map(tuple, encoded.ids), data.train.labels, strict=True)
        assert texts == sorted(wanted)
    assert made.empty > 0
    model = classifier.compiled(classifier.load(bert, data.names), steps=9)
    features, labels, weights = next(batch for epoch in epochs for batch in epoch if 0 in batch[2])
    some = weights > 0
    loss = model.evaluate(features, labels, sample_weight=weights, verbose=0, return_dict=True)
    alone = {name: values[some] for name, values in features.items()}
    alone = model.evaluate(alone, labels[some], verbose=0, return_dict=True)
    assert loss["cross_entropy"] == pytest.approx(alone["cross_entropy"], abs=1e-5)


def test_stopped_and_resumed_it_gives_the_same_numbers(whole, bert, data, tmp_path):
    (undisturbed, output, _), step = whole, 23

    def stop(progress):
        if progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    stopped = tuning.run(SETTINGS, bert, data, tmp_path, report=stop)
    assert (stopped.step, stopped.stopped, stopped.evaluation) == (step, signal.SIGTERM, None)
    assert not (tmp_path / "model").exists()
    with pytest.raises(CourseError, match="has no model yet"):
        exported.find_classifier(tmp_path)
    tuned = tuning.run(SETTINGS, bert, data, tmp_path)
    assert tuned.resumed == step
    assert (tmp_path / "log.jsonl").read_bytes() == (output / "log.jsonl").read_bytes()
    for one, other in zip(tuned.model.weights, undisturbed.model.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_begun_again_with_a_seed_a_model_is_what_a_new_one_is(bert, data):
    start = classifier.load(bert, data.names, seed=3)
    kept = start.model.get_weights()
    model = classifier.compiled(start, steps=4)
    encoded = batches.encode(classifier.tokenizer(bert), data.train.texts, 32)
    losses = []
    for seed in (3, 4, 3):
        made = batches.training(encoded, data.train.labels, global_batch_size=8)
        losses.append(start.again(seed).fit(made.dataset.take(4), verbose=0).history["loss"])
    assert losses[0] == losses[2] != losses[1]
    assert model.train_tf_function.experimental_get_tracing_count() == 1
    start.again(3)
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), kept, strict=True))
    fresh = classifier.load(bert, data.names, pretrained=False).model
    assert not np.array_equal(fresh.get_weights()[0], kept[0])


def test_another_run_is_refused(whole, bert, data):
    _, output, _ = whole
    for wanted, says in (
        (dataclasses.replace(SETTINGS, seed=1), "seed 0 there, 1 now"),
        (dataclasses.replace(SETTINGS, epochs=0), "--epochs"),
    ):
        with pytest.raises(CourseError, match=says):
            tuning.run(wanted, bert, data, output)


def test_a_trained_pooler_is_kept_and_pytorchs_weights_are_read(data, tmp_path):
    model = TFBertForPreTraining(BertConfig(3000, 16, 1, 2, 32, max_position_embeddings=32))
    model.build_in_name_scope()
    folder = export.write(model, corpus.kept_tokenizer().read_text(), tmp_path / "bert", "")
    both = [classifier.load(folder, data.names)]
    (folder / "tf_model.h5").unlink()  # model.safetensors, in PyTorch's names, is left
    both.append(classifier.load(folder, data.names))
    for start in both:
        assert start.fresh == ("classifier",)
        kernel = start.model.bert.pooler.dense.kernel
        np.testing.assert_array_equal(kernel, model.bert.pooler.dense.kernel)
    for one, other in zip(*(start.model.get_weights() for start in both), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_commands_train_and_tell_the_labels_of_the_model_in_memory(
    whole, bert, table, data, tmp_path
):
    words = ["finetune", "-m", bert, "-d", table, "-o", tmp_path / "run", "--epochs", 8]
    words += ["--batch", 8, "--learning-rate", 1e-2]
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    tuned, output, _ = whole
    assert tuned.evaluation.table() in done.output
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(data.test.texts))
    lines = CliRunner().invoke(app, ["predict", "-m", str(output), str(texts)]).output.splitlines()
    guesses = [
        (g.guessed, pytest.approx(g.confidence, abs=1e-3), g.text) for g in tuned.evaluation.guesses
    ]
    found = [line.split("\t") for line in lines]
    assert [(label, float(sure), text) for label, sure, text in found] == guesses
    words = ["predict", "-m", str(output / "model"), "--json"]
    told = CliRunner().invoke(app, [*words, str(texts)]).output.splitlines()
    assert [json.loads(line)["label"] for line in told] == [label for label, *_ in guesses]


def test_a_preflight_takes_what_build_makes(bert, table):
    report = preflight(lambda: tuning.build(bert, table, global_batch_size=8))
    assert report.exit_status == 0, report
