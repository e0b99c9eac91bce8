"""An exported folder: the same scores in TensorFlow and in today's PyTorch, whole or absent."""

import dataclasses
import json
import os
import pathlib
import shutil
import unittest.mock

import numpy as np
import pytest
import tensorflow as tf
from conventions import ROOT
from terminal import call, without
from transformers import BertTokenizerFast, TFBertForMaskedLM, TFBertForPreTraining
from typer.testing import CliRunner

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.bert import evaluation, export, pretraining
from helpers.bert.data import prepare_shipped
from helpers.bert.fine_tuning import classifier
from helpers.bert.model import pretraining_model
from helpers.bert.settings import Configuration, Description
from helpers.course.commands.app import app
from helpers.text import corpus, records

pytestmark = pytest.mark.slow

PYTORCH = ROOT / "build/pytorch/bin/python"
SETTINGS = pretraining.Settings(Configuration(2, 64, 2), 4, 8, warm_up=1)
TEXTS = [
    "문서를 저장합니다.",
    "Select a file name and click [MASK] to save the file.",
    "Cell (A1)!",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run on the shipped text, as the command line makes it."""
    folder = tmp_path_factory.mktemp("run")
    data = prepare_shipped(folder / "data", sequence_length=64)
    pretraining.run(SETTINGS, data, folder, save_every=2, patience=0, jit=False)
    return folder


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "bert"
    result = CliRunner().invoke(app, ["export", str(run), str(folder)])
    assert result.exit_code == 0, result.output
    assert "step 4 of 4" in result.output
    return folder


@pytest.fixture(scope="module")
def trained(run):
    return export.load(run, run / "data")


@pytest.fixture(scope="module")
def scores(trained):
    """Ordinary rows with padding, and what our model says of their tokens."""
    rows = corpus.load_tokenizer()(TEXTS, padding=True, return_tensors="np")
    rows = {name: rows[name].astype(np.int32) for name in ("input_ids", "attention_mask")}
    # The bias of the head starts as frequencies; the other weights moved only four steps: both
    # must be there for equal scores.
    return rows | {"logits": trained.model(**rows).logits.numpy()}


def check_logits(found, scores):
    used = scores["attention_mask"] > 0  # padding attends to other positions in a packed model
    np.testing.assert_allclose(found[used], scores["logits"][used], atol=1e-4)
    assert scores["logits"][used].std() > 0.1


def test_tensorflow_loads_it_with_equal_scores(exported, scores):
    model = TFBertForMaskedLM.from_pretrained(exported, use_safetensors=False)
    names = ("input_ids", "attention_mask")
    check_logits(model({name: scores[name] for name in names}).logits, scores)


def test_tokenizer_and_configuration_come_with_it(exported):
    loaded, kept = BertTokenizerFast.from_pretrained(exported), corpus.load_tokenizer()
    assert loaded(TEXTS)["input_ids"] == kept(TEXTS)["input_ids"]
    assert loaded.model_max_length == 64
    config = json.loads((exported / "config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"]
    assert config["vocab_size"] == 3000 and config["max_position_embeddings"] == 64


def test_a_run_with_next_sentence_keeps_both_heads(paired, tmp_path):
    settings = dataclasses.replace(SETTINGS, next_sentence=True)
    model = pretraining.run(settings, paired, tmp_path, patience=0, jit=False).model
    facts = export.export(tmp_path, tmp_path / "bert")
    config = json.loads((tmp_path / "bert/config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"]
    card = (tmp_path / "bert/README.md").read_text()
    assert "modelling and next sentence prediction" in card and "a coin" in card
    assert facts.results is not None
    ids = np.array(corpus.load_tokenizer()(TEXTS[0], "저장합니다.")["input_ids"])[None]
    ours = model(input_ids=ids)
    theirs = TFBertForPreTraining.from_pretrained(tmp_path / "bert", use_safetensors=False)(ids)
    for name in ("prediction_logits", "seq_relationship_logits"):
        np.testing.assert_allclose(theirs[name], ours[name], atol=1e-4)
    assert "cls.seq_relationship.weight" in export.pytorch_weights(model)


CHILD = """
import json, sys, numpy, torch, transformers
kind, folder, rows, output = sys.argv[1:]
model, told = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
batch = numpy.load(rows)
tensors = {name: torch.tensor(batch[name]).long() for name in ("input_ids", "attention_mask")}
with torch.no_grad():
    numpy.save(output, model.eval()(**tensors).logits.numpy())
ids = tokenizer(json.loads(batch["texts"].item()), padding=True)["input_ids"]
told = {name: sorted(map(str, found)) for name, found in told.items()}
print(json.dumps({"version": transformers.__version__, "ids": ids, "told": told}))
"""


def in_pytorch(kind, folder, scores, tmp_path):
    """What today's PyTorch makes of the texts, with its own packages only."""
    np.savez(tmp_path / "rows.npz", texts=json.dumps(TEXTS), **scores)
    clean = without("PYTHON") | {"HF_HUB_OFFLINE": "1"}
    paths = (folder, tmp_path / "rows.npz", tmp_path / "logits.npy")
    done = call(PYTORCH, "-c", CHILD, kind, *paths, env=clean)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert int(said["version"].split(".")[0]) >= 5
    assert said["told"] and not any(said["told"].values()), "a weight is missing or left over"
    assert said["ids"] == scores["input_ids"].tolist()
    return np.load(tmp_path / "logits.npy")


@pytest.mark.skipif(not PYTORCH.exists(), reason="needs PyTorch apart: make pytorch")
def test_todays_pytorch_loads_it_with_equal_scores(exported, scores, tmp_path):
    check_logits(in_pytorch("BertForMaskedLM", exported, scores, tmp_path), scores)


@pytest.mark.skipif(not PYTORCH.exists(), reason="needs PyTorch apart: make pytorch")
def test_pytorch_gives_the_labels_of_a_classifier_on_the_shipped_weights(tmp_path):
    shipped = corpus.DATA / "bert-tiny"
    model = classifier.load(shipped, ("a", "b", "c"), seed=1).model
    model.classifier.kernel.assign(30 * model.classifier.kernel)  # far apart, as training would
    tokenizer = classifier.tokenizer(shipped)
    folder = export.write(model, tokenizer.backend_tokenizer.to_str(), tmp_path / "model", "")
    rows = tokenizer(TEXTS, padding=True, return_tensors="np", return_token_type_ids=False)
    rows = {name: ids.astype(np.int32) for name, ids in rows.items()}
    expected = model(rows).logits.numpy()
    found = in_pytorch("BertForSequenceClassification", folder, rows, tmp_path)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert expected.std() > 0.1


def test_pytorchs_weights_are_all_there_and_turned(trained):
    model = trained.model
    found = export.pytorch_weights(model)
    assert len(found) == len(model.weights)
    assert found["cls.predictions.bias"].shape == (3000,)
    assert found["bert.embeddings.word_embeddings.weight"].shape == (3000, 64)
    dense = model.bert.encoder.layer[1].intermediate.dense.kernel.numpy()
    name = "bert.encoder.layer.1.intermediate.dense.weight"
    np.testing.assert_array_equal(found[name], dense.T)


# The card.


def test_the_card_tells_data_settings_results_and_limits(exported, run, trained):
    text = (exported / "README.md").read_text()
    for words in (
        "pipeline_tag: fill-mask",
        "Mozilla Public License 2.0",
        "2,636 documents",
        "| steps | 4 of 4 planned |",
        "| ko | n-gram |",
        "| en | BERT |",
        "## Limits",
    ):
        assert words in text
    loss = np.mean([json.loads(line)["loss"] for line in (run / "log.jsonl").open()])
    assert f"| training loss | {loss:.2f} (counting words alone:" in text
    assert evaluation.evaluate_shipped(trained.model, trained.data).markdown() in text


def test_results_come_from_the_records_held_out_folder(run, tmp_path):
    data = shutil.copytree(run / "data", tmp_path / "data")
    shutil.rmtree(data / "held-out")
    assert export.export(run, tmp_path / "without", data).results is None
    assert "No text was held out" in (tmp_path / "without/README.md").read_text()
    records.write(["문서를 저장합니다."] * 20, data / "held-out", corpus.load_tokenizer(), shards=1)
    facts = export.export(run, tmp_path / "with", data)
    assert list(facts.results.scores) == ["held-out"]
    assert export.UNNAMED in (tmp_path / "with/README.md").read_text()


# Whole or absent.


def tiny():
    return pretraining_model(Configuration(1, 64, 1), 3000, longest=16)


TOKENIZER = corpus.kept_tokenizer().read_text()


@pytest.mark.parametrize("failing", ["save_weights", "rename"])
def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch, failing):
    model = tiny()
    owner = model if failing == "save_weights" else pathlib.Path
    full = unittest.mock.Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(owner, failing, full)
    with pytest.raises(files.CantWrite, match="The disk is full"):
        export.write(model, TOKENIZER, tmp_path / "out", "# Card")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_filled_with_files_that_others_can_read(tmp_path):
    (tmp_path / "out").mkdir()
    folder = export.write(tiny(), TOKENIZER, tmp_path / "out", "# Card")
    mask = os.umask(0)
    os.umask(mask)
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o666 & ~mask}
    assert folder.stat().st_mode & 0o777 == 0o777 & ~mask
    assert (folder / "README.md").read_text() == "# Card"
    names = "README.md config.json model.safetensors tf_model.h5 tokenizer.json"
    assert {file.name for file in folder.iterdir()} >= {*names.split(), "tokenizer_config.json"}


# What is not a run.


def test_records_are_found_where_they_were(run, tmp_path):
    mine, moved = shutil.copytree(run, tmp_path / "run"), tmp_path / "moved"
    shutil.move(mine / "data", moved)
    described = Description.read(Folder(mine))
    dataclasses.replace(described, records_at=str(moved)).write(Folder(mine))
    assert export.load(mine).facts.manifest.path == str(moved)
    moved.rename(tmp_path / "again")
    with pytest.raises(CourseError, match="aren't where they were") as caught:
        export.load(mine)
    assert str(moved) in caught.value.what and "--data" in caught.value.fix
    assert export.load(mine, tmp_path / "again").facts.step == 4


def test_a_damaged_checkpoint_is_passed_over_and_nothing_is_changed(run, tmp_path):
    broken = shutil.copytree(run, tmp_path / "run")
    newest, before = sorted((broken / "checkpoints").iterdir(), reverse=True)
    for file in newest.glob("*.data*"):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    times = {path: path.stat().st_mtime_ns for path in broken.rglob("*")}
    loaded = export.load(broken, broken / "data")
    assert loaded.facts.step == 2 and loaded.facts.settings == SETTINGS
    assert {path: path.stat().st_mtime_ns for path in broken.rglob("*")} == times
    again = tf.train.load_checkpoint(str(before / "state"))
    bias = again.get_tensor("model/mlm/predictions/bias/.ATTRIBUTES/VARIABLE_VALUE")
    np.testing.assert_array_equal(loaded.model.mlm.predictions.bias.numpy(), bias)
    for file in before.glob("*.data*"):
        file.unlink()
    with pytest.raises(CourseError, match="None of the 2 checkpoints can be read"):
        export.load(broken, broken / "data")
