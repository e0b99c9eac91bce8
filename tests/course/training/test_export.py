"""An exported folder: the same scores in TensorFlow and in today's PyTorch, whole or absent."""

import functools
import itertools
import json
import os
import pathlib
import shutil
import signal
import unittest.mock

import numpy as np
import pytest
from conventions import ROOT
from small_runs import NANO, child, ended
from terminal import call, without
from transformers import BertTokenizerFast, TFBertForMaskedLM
from typer.testing import CliRunner

from course import export
from course.commands.app import app
from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.temporary import reserved_folder
from helpers.bert import pretraining
from helpers.bert.data import prepare_shipped
from helpers.bert.model import pretraining_model
from helpers.bert.settings import Configuration
from helpers.text import corpus, records

pytestmark = pytest.mark.long

PYTORCH = ROOT / "build/pytorch/bin/python"
SETTINGS = pretraining.Settings(Configuration(2, 64, 2), 4, 8, warm_up=1)
TEXTS = [
    "문서를 저장합니다.",
    "Select a file name and click [MASK] to save the file.",
    "Cell (A1)!",
]
TOKENIZER = corpus.kept_tokenizer().read_text("utf-8")
MOMENTS = 1, 3, 6  # of the 6 times that something is made sure of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run on the shipped text, as the command line makes it."""
    folder = tmp_path_factory.mktemp("run")
    data = prepare_shipped(folder / "data", sequence_length=64)
    pretraining.run(SETTINGS, data, folder, save_every=2, jit=False)
    return folder


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "bert"
    result = CliRunner().invoke(app, ["export", str(run), str(folder)])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def scores(run):
    """Ordinary rows with padding, and what our model says of their tokens."""
    rows = corpus.load_tokenizer()(TEXTS, padding=True, return_tensors="np")
    rows = {name: rows[name].astype(np.int32) for name in ("input_ids", "attention_mask")}
    return rows | {"logits": export.load(run)[0](**rows).logits.numpy()}


def check_logits(logits, scores):
    is_token = scores["attention_mask"] > 0  # padding attends to other positions in a packed model
    np.testing.assert_allclose(logits[is_token], scores["logits"][is_token], atol=1e-4)
    assert scores["logits"][is_token].std() > 0.1


def test_tensorflow_loads_it_with_equal_scores_and_its_tokenizer(exported, scores):
    model = TFBertForMaskedLM.from_pretrained(exported, use_safetensors=False)
    rows = {name: scores[name] for name in ("input_ids", "attention_mask")}
    check_logits(model(rows).logits, scores)
    tokenizer = BertTokenizerFast.from_pretrained(exported)
    assert tokenizer(TEXTS)["input_ids"] == corpus.load_tokenizer()(TEXTS)["input_ids"]
    assert tokenizer.model_max_length == 64


CHILD = """
import json, sys, numpy, torch, transformers
folder, rows, output = sys.argv[1:]
kind = transformers.BertForMaskedLM
model, info = kind.from_pretrained(folder, output_loading_info=True)
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
batch = numpy.load(rows)
tensors = {name: torch.tensor(batch[name]).long() for name in ("input_ids", "attention_mask")}
with torch.no_grad():
    numpy.save(output, model.eval()(**tensors).logits.numpy())
ids = tokenizer(json.loads(batch["texts"].item()), padding=True)["input_ids"]
info = {name: sorted(map(str, weights)) for name, weights in info.items()}
print(json.dumps({"version": transformers.__version__, "ids": ids, "info": info}))
"""


@pytest.mark.skipif(not PYTORCH.exists(), reason="needs PyTorch apart: make libraries")
def test_todays_pytorch_loads_it_with_equal_scores(exported, scores, tmp_path):
    np.savez(tmp_path / "rows.npz", texts=json.dumps(TEXTS), **scores)
    clean = without("PYTHON") | {"HF_HUB_OFFLINE": "1"}
    paths = (exported, tmp_path / "rows.npz", tmp_path / "logits.npy")
    process = call(PYTORCH, "-c", CHILD, *paths, env=clean)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout.splitlines()[-1])
    assert int(result["version"].split(".")[0]) >= 5
    assert result["info"]
    assert not any(result["info"].values()), "a weight is missing or left over"
    assert result["ids"] == scores["input_ids"].tolist()
    check_logits(np.load(tmp_path / "logits.npy"), scores)


def test_pytorchs_weights_are_all_there_and_turned(run):
    model = export.load(run)[0]
    weights = export.pytorch_weights(model)
    assert len(weights) == len(model.weights)
    assert weights["cls.predictions.bias"].shape == (3000,)
    dense = model.bert.encoder.layer[1].intermediate.dense.kernel.numpy()
    name = "bert.encoder.layer.1.intermediate.dense.weight"
    np.testing.assert_array_equal(weights[name], dense.T)


def test_the_card_tells_data_settings_and_results(exported, run):
    text = (exported / "README.md").read_text()
    log = (run / "log.jsonl").read_text().splitlines()
    loss = np.mean([json.loads(line)["loss"] for line in log])
    for words in (
        "pipeline_tag: fill-mask",
        "2,636 documents",
        f"4 of 4 steps, 32 rows; mean loss of the last steps {loss:.2f} nats",
        "| learning_rate | 0.001 |",
        "| text | guessed by | loss | loss_low | loss_high | perplexity | right |",
        "| held-out | n-gram |",
        "| held-out | BERT |",
    ):
        assert words in text


def test_records_may_be_moved_and_may_have_nothing_held_out(run, tmp_path):
    moved = shutil.copytree(run / "data", tmp_path / "moved")
    shutil.rmtree(moved / "held-out")
    out = export.export(run, tmp_path / "out", moved)
    assert "No text was held out" in (out / "README.md").read_text()
    records.write(["다른 문서"] * 20, tmp_path / "other", corpus.load_tokenizer(), shards=1)
    with pytest.raises(CourseError, match="not those that the run was trained on"):
        export.load(run, tmp_path / "other")
    shutil.move(tmp_path / "other", moved / "held-out")
    with pytest.raises(CourseError, match="are of another text"):
        export.export(run, tmp_path / "again", moved)


def test_a_run_whose_records_were_moved_asks_for_their_new_folder(run, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    settings = (copied / "settings.json").read_text()
    (copied / "settings.json").write_text(settings.replace(str(run), str(tmp_path / "gone")))
    with pytest.raises(CourseError, match="records are not in") as raised:
        export.export(copied, tmp_path / "out")
    assert "in now with --data." in str(raised.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("settings.json", b'"layers": 2', b'"layers": 1000000', "whole numbers up to"),
        ("settings.json", b'"heads": 2', b'"heads": 7', "by 7 heads"),
        ("settings.json", b'"hidden": 64', b'"hidden": 6400', "are not of the model"),
        ("settings.json", b'"layers": 2', b'"layers": 1', "another model's"),
        ("settings.json", b'"records"', b"[" * 100_000, "settings.json was changed"),
        ("log.jsonl", b'"loss"', b'"lost"', "KeyError"),
        ("log.jsonl", b'"loss"', b"\xff", "UnicodeDecodeError"),
        ("log.jsonl", b'{"step": 4', b'{"step": 5', "step after step"),
        ("log.jsonl", b'{"step": 2', b'{"step": 1', "step after step"),
    ],
)
def test_a_run_that_was_changed_is_told_in_one_message(run, tmp_path, name, old, new, says):
    path = pathlib.Path(shutil.copytree(run, tmp_path / "run")) / name
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(CourseError, match=says):
        export.export(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_deleted_log_costs_the_card_a_number_alone(run, tmp_path):
    (shutil.copytree(run, tmp_path / "run") / "log.jsonl").unlink()
    text = (export.export(tmp_path / "run", tmp_path / "out") / "README.md").read_text()
    assert "4 of 4 steps, 32 rows." in text
    assert "nan" not in text


@pytest.mark.parametrize("failing", ["save_weights", "rename"])
def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch, failing):
    model = pretraining_model(NANO, 3000, longest=16)
    owner = model if failing == "save_weights" else pathlib.Path
    full = unittest.mock.Mock(side_effect=OSError(28, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(owner, failing, full)
        with pytest.raises(files.CantWrite, match="The disk is full"):
            export.write(model, TOKENIZER, tmp_path / "out", "# Card")
    assert list(tmp_path.iterdir()) == []


def write(folder):
    export.write(pretraining_model(NANO, 3000, longest=16), TOKENIZER, folder, "# Card")


def killed(folder, number):
    """Write a model, and kill this process as it syncs something for the given time."""
    calls = itertools.count(1)
    fsync = os.fsync

    def fsync_or_die(file):
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(file)

    os.fsync = fsync_or_die
    os.sync = functools.partial(fsync_or_die, 0)
    write(folder)


@pytest.mark.parametrize("number", MOMENTS)
def test_killed_the_folder_is_whole_or_absent_and_the_next_call_makes_it(tmp_path, number):
    output = tmp_path / "out"
    users_file = tmp_path / ".out.abcd1234"
    users_file.touch()
    users_folder = tmp_path / ".out.writing"
    users_folder.mkdir()
    with reserved_folder(output) as reserved:  # this process writes there
        assert ended(child(killed, output, number)) == -signal.SIGKILL
        if not output.exists():
            write(output)
        assert set(tmp_path.iterdir()) == {output, users_file, users_folder, reserved}
    assert len(list(output.iterdir())) == 8
