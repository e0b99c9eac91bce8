"""A run that is killed, stopped, moved or spread gives the losses of a run that was not."""

import contextlib
import dataclasses
import json
import multiprocessing
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from helpers.base import files
from helpers.bert import model as bert
from helpers.bert import pretraining
from helpers.bert.pretraining import Settings
from helpers.rehearsal import node as rehearsal
from helpers.rehearsal import storage
from helpers.text import corpus, records

NANO = bert.Configuration(1, 32, 1)
STEPS = 60
SAVE = 2
SETTINGS = Settings(NANO, STEPS, global_batch_size=8, warm_up=5)

# Children are forked from a process that has imported TensorFlow and not yet used it: a start
# without an import, in a process of its own that can be killed.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["helpers.bert.pretraining", "helpers.rehearsal.storage", "helpers.rehearsal.node"]
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Real text as records, with its held-out part left out."""
    return pretraining.prepare_shipped(tmp_path_factory.mktemp("data"), sequence_length=64)


def train(data, output, settings=SETTINGS, **options):
    """Train; what isn't the subject of the test is small and not compiled."""
    return pretraining.run(
        settings, data, output, **{"jit": False, "save_every": SAVE, "patience": 0, **options}
    )


def log(output):
    return pathlib.Path(output, "log.jsonl").read_text()


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A run that nothing disturbed."""
    output = tmp_path_factory.mktemp("whole")
    run = train(data, output)
    assert run.step == STEPS and run.resumed == 0 and run.stopped is None
    return output


def copy(whole, tmp_path):
    return pathlib.Path(shutil.copytree(whole, tmp_path / "copy"))


class Ended(Exception):
    """Stands for whatever ends a run from outside."""


def end_at(step):
    def report(progress):
        if progress.step >= step:
            raise Ended

    return report


def child(target, *arguments, output=None):
    """Start a function of this module in a process of its own."""
    process = FORKS.Process(target=_redirected, args=(output, target, arguments))
    process.start()
    return process


def _redirected(output, target, arguments):
    if output is not None:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
    target(*arguments)


def ended(process, seconds=120):
    process.join(seconds)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


# What the log holds.


def test_every_step_has_one_line_and_the_loss_falls(whole, data):
    rows = [json.loads(line) for line in log(whole).splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    losses = [row["loss"] for row in rows]
    _, baseline = pretraining.unigram(pretraining.count_tokens(pretraining.read(data)))
    assert abs(np.mean(losses[:5]) - baseline) < 0.15  # the head start: where counting words is
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.03
    assert all(0 < row["norm"] < 10 and 400 < row["tokens"] <= 8 * 64 for row in rows)
    names = sorted(path.name for path in (whole / "checkpoints").iterdir())
    assert names == [f"step-{step:09d}" for step in (STEPS - SAVE, STEPS)]
    assert list((whole / "tensorboard").glob("events.*"))


def test_a_finished_run_only_says_so(whole, data, tmp_path):
    said = []
    run = train(data, copy(whole, tmp_path), say=said.append, report=end_at(0))
    assert said == [f"Going on after step {STEPS} of {STEPS}."]
    assert run.step == run.resumed == STEPS and len(run.loss) == STEPS
    assert re.fullmatch(
        r"step 60 of 60; loss \d\.\d\d \(mean of the last 60\), unigram baseline \d\.\d\d",
        repr(run),
    )


def test_steps_per_execution_changes_no_number(whole, data, tmp_path):
    train(data, tmp_path / "run", steps_per_execution=10, save_every=20)
    assert log(tmp_path / "run") == log(whole)


def test_another_seed_is_another_run(whole, data, tmp_path):
    settings = Settings(NANO, 2, global_batch_size=8, warm_up=5, seed=1)
    run = train(data, tmp_path / "run", settings)
    assert run.loss[0] != json.loads(log(whole).splitlines()[0])["loss"]


# Killed.


def killed(data, output, how, number, settings=SETTINGS):
    """Train until this process kills itself with SIGKILL."""

    def kill(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def slow(progress):
        if progress.step == start + 1 and how == "at any moment":
            threading.Timer(number / 1000, kill).start()
        if how == "after a step" and progress.step == start + number:
            kill()
        time.sleep(0.005)

    start = max([0, *_Saved(output).steps()])
    if how == "while saving":
        moments = [0]

        def event(name, arguments):
            places = [str(argument) for argument in arguments[:2]]
            touched = name in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "open")
            if touched and any("checkpoints/" in place for place in places):
                moments[0] += 1
                if moments[0] == number:
                    kill()

        sys.addaudithook(event)
        write = tf.train.Checkpoint.write

        def written(*arguments):
            event("open", ["checkpoints/"])
            path = write(*arguments)
            event("open", ["checkpoints/"])
            return path

        tf.train.Checkpoint.write = written
    train(data, output, settings, report=slow)


def _Saved(output):
    return pretraining._Checkpoints(str(output), None)


def test_killed_at_twenty_moments_the_run_equals_the_undisturbed_one(whole, data, tmp_path):
    draw = random.Random(6)
    output = tmp_path / "run"
    kinds = ["at any moment"] * 8 + ["after a step"] * 6 + ["while saving"] * 6
    draw.shuffle(kinds)
    upper = {"at any moment": 60, "after a step": 4, "while saving": 12}
    steps = []
    for kind in kinds:
        process = child(killed, data, output, kind, draw.randint(1, upper[kind]))
        assert ended(process) == -signal.SIGKILL, kind
        steps.append(max([0, *_Saved(output).steps()]))
    assert len(steps) == 20 and steps == sorted(steps) and 0 < steps[-1] < STEPS
    assert len(set(steps)) > 5
    train(data, output)
    assert log(output) == log(whole)
    assert sorted(path.name for path in (output / "checkpoints").iterdir()) == sorted(
        path.name for path in (whole / "checkpoints").iterdir()
    )


# With next sentence prediction.


PAIRED = dataclasses.replace(SETTINGS, steps=20, next_sentence=True)


@pytest.fixture(scope="module")
def paired(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paired")
    return pretraining.prepare_shipped(folder, sequence_length=64, pairs=True)


def test_the_pairs_of_a_batch_are_those_of_its_rows(paired):
    data = pretraining.read(paired)
    rows = next(iter(records.dataset(paired, global_batch_size=8, seed=0)))
    batch = next(iter(pretraining.batches(data, PAIRED)))
    cls = corpus.load_tokenizer().cls_token_id
    for row in range(8):
        used = batch["pair_weights"][row].numpy() > 0
        at = batch["pair_positions"][row].numpy()[used]
        np.testing.assert_array_equal(at, np.flatnonzero(rows["input_ids"][row] == cls))
        labels = batch["pair_labels"][row].numpy()[used]
        np.testing.assert_array_equal(labels, rows["random_next"][row].numpy()[at])
    assert batch["pair_weights"].shape == (8, 64 // 5)
    np.testing.assert_array_equal(batch["token_type_ids"], rows["token_type_ids"])
    assert 0.2 < np.average(batch["pair_labels"], weights=batch["pair_weights"]) < 0.8
    alone = next(iter(pretraining.batches(data, dataclasses.replace(PAIRED, next_sentence=False))))
    assert not any(name.startswith("pair") for name in alone)
    np.testing.assert_array_equal(alone["input_ids"], batch["input_ids"])


def test_with_next_sentence_a_killed_run_equals_the_undisturbed_one(paired, tmp_path):
    whole = train(paired, tmp_path / "whole", PAIRED)
    assert abs(np.mean(whole.loss[:5]) - whole.unigram) < 0.2  # counting words, and a coin
    without = pretraining.unigram(pretraining.count_tokens(pretraining.read(paired)))[1]
    assert whole.unigram == pytest.approx(without + np.log(2))
    process = child(killed, paired, tmp_path / "run", "after a step", 7, PAIRED)
    assert ended(process) == -signal.SIGKILL
    assert _Saved(tmp_path / "run").steps()[0] == 6
    assert train(paired, tmp_path / "run", PAIRED).resumed == 6
    assert log(tmp_path / "run") == log(tmp_path / "whole")
    with pytest.raises(pretraining.OtherRun, match="next_sentence True there, False now"):
        train(paired, tmp_path / "run", dataclasses.replace(PAIRED, next_sentence=False))


def test_next_sentence_without_pairs_is_refused(data, tmp_path):
    with pytest.raises(pretraining.NoPairs, match=r"hold no pairs(.|\n)*prepare --pairs"):
        train(data, tmp_path / "run", PAIRED)
    assert not (tmp_path / "run").exists()


# Damaged.


def truncated(checkpoint):
    path = checkpoint / "state.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-100])


def bit_flipped(checkpoint):
    path = checkpoint / "state.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def without_index(checkpoint):
    (checkpoint / "state.index").unlink()


def index_truncated(checkpoint):
    path = checkpoint / "state.index"
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize("damage", [truncated, bit_flipped, without_index, index_truncated])
def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(whole, data, tmp_path, damage):
    output, said = copy(whole, tmp_path), []
    damage(output / "checkpoints" / f"step-{STEPS:09d}")
    run = train(data, output, say=said.append)
    assert run.resumed == STEPS - SAVE
    assert said[0].startswith(f"The checkpoint of step {STEPS} is damaged (")
    assert said[1] == f"Going on after step {STEPS - SAVE} of {STEPS}."
    assert log(output) == log(whole)
    assert pretraining._damage(f"{output}/checkpoints/step-{STEPS:09d}/state") == ""


def test_no_whole_checkpoint_is_an_error_and_not_a_new_start(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    for checkpoint in (output / "checkpoints").iterdir():
        truncated(checkpoint)
    with pytest.raises(pretraining.AllDamaged, match="None of the 2 checkpoints"):
        train(data, output)
    assert log(output) == log(whole)


def test_a_checkpoint_that_can_not_be_reached_is_not_taken_for_damaged(whole, monkeypatch):
    def silent(*_):
        raise tf.errors.UnavailableError(None, None, "Could not resolve the host")

    monkeypatch.setattr(tf.train, "load_checkpoint", silent)
    assert pretraining._damage(f"{whole}/checkpoints/step-{STEPS:09d}/state")
    monkeypatch.setattr(tf.io.gfile, "listdir", silent)
    with pytest.raises(pretraining.CantRead, match=r"resolve the host(.|\n)*nothing was changed"):
        pretraining._damage(f"{whole}/checkpoints/step-{STEPS:09d}/state")


def test_what_a_crash_leaves_in_log_and_folder_is_taken_away(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    shutil.rmtree(output / "checkpoints" / f"step-{STEPS:09d}")
    (output / "checkpoints/.writing-000000060").mkdir()
    lines = log(output).splitlines(keepends=True)
    (output / "log.jsonl").write_text("".join(lines[:-1]) + lines[-1][:20])
    train(data, output)
    assert log(output) == log(whole)
    assert not list((output / "checkpoints").glob(".*"))


# The folder of another run.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learning_rate": 2e-3}, "learning_rate 0.001 there, 0.002 now"),
        ({"steps": 80}, "steps 60 there, 80 now"),
        (
            {"size": bert.Configuration(2, 32, 1)},
            "size layers 1, hidden 32, heads 1 there, layers 2, hidden 32, heads 1 now",
        ),
    ],
)
def test_other_settings_are_refused_with_the_difference(whole, data, change, words):
    with pytest.raises(pretraining.OtherRun, match=re.escape(f"another run: {words}.")):
        train(data, whole, dataclasses.replace(SETTINGS, **change))


def test_other_data_is_refused_and_the_same_data_elsewhere_is_not(whole, data, tmp_path):
    moved = shutil.copytree(data, tmp_path / "moved")
    assert train(moved, whole).step == STEPS
    tokenizer = corpus.load_tokenizer()
    records.write(["another text " * 300] * 20, tmp_path / "other", tokenizer, shards=1)
    with pytest.raises(pretraining.OtherRun, match=r"sequence_length 64 there, 128 now"):
        train(tmp_path / "other", whole)


def test_a_folder_that_is_no_run_is_refused(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    (output / "settings.json").write_text("{}")
    with pytest.raises(pretraining.NotARun, match=r"settings\.json .* can't be read"):
        train(data, output)
    (output / "settings.json").unlink()
    with pytest.raises(pretraining.NotARun, match=r"checkpoints and no settings\.json"):
        train(data, output)


def test_a_lost_log_is_told(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    (output / "log.jsonl").unlink()
    with pytest.raises(pretraining.NotARun, match="no line for 60 of the 60 steps"):
        train(data, output)


def test_two_processes_can_not_train_in_one_folder(whole, data):
    with (
        pretraining._lock(str(whole)),
        pytest.raises(pretraining.RunInUse, match="Another process"),
    ):
        train(data, whole)


# Training that goes wrong.


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoint(data, tmp_path):
    settings = Settings(NANO, 20, global_batch_size=8, learning_rate=1e30, warm_up=5)
    with pytest.raises(pretraining.LossNotFinite, match="at step") as raised:
        train(data, tmp_path, settings, save_every=1)
    assert "3.33333e+29" in raised.value.fix and "longer warm-up" in raised.value.fix
    step = int(re.search(r"at step (\d+)", str(raised.value))[1])
    assert _Saved(tmp_path).steps()[0] == step - 1 > 0
    assert len(log(tmp_path).splitlines()) == step - 1


def test_a_run_that_learns_nothing_stops_and_can_be_made_to_go_on(data, tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, "CLEARLY", 1.0)  # four steps see few tokens: chance is large
    settings = Settings(NANO, 12, global_batch_size=8, learning_rate=1e-9, warm_up=5)
    for attempt in range(2):
        with pytest.raises(pretraining.NoProgress, match="frequencies alone gives") as raised:
            train(data, tmp_path, settings, patience=4 + attempt)
        assert "patience 0" in raised.value.fix
    assert _Saved(tmp_path).steps()[0] == 10
    assert train(data, tmp_path, settings, patience=0).step == 12


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        ({"steps": 15}, {"steps_per_execution": 10}, "steps is 15.*multiple of 10"),
        ({}, {"steps_per_execution": 10, "save_every": 25}, "save_every is 25.*multiple of 10"),
        ({}, {"save_every": 0}, "save_every is 0"),
        ({"accumulate": 3}, {}, "global_batch_size is 8.*multiple of 3"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(data, tmp_path, settings, options, words):
    wanted = Settings(**{"size": NANO, "steps": 20, "global_batch_size": 8, **settings})
    with pytest.raises(pretraining.BadSettings, match=f"(?s){words}"):
        train(data, tmp_path / "run", wanted, **options)
    assert not (tmp_path / "run").exists()


# Disks.


@contextlib.contextmanager
def small_files(limit):
    """Make the system refuse to write files longer than this."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_checkpoint_that_can_not_be_written_is_told_and_nothing_is_lost(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    shutil.rmtree(output / "checkpoints" / f"step-{STEPS:09d}")
    with small_files(50_000), pytest.raises(pretraining.CantSave, match="step 60 could not"):
        train(data, output)
    assert _Saved(output).steps() == [STEPS - SAVE]
    assert not list((output / "checkpoints").glob(".*"))
    train(data, output)
    assert log(output) == log(whole)


def test_a_full_disk_is_named():
    error = tf.errors.ResourceExhaustedError(None, None, "x.data; No space left on device")
    told = pretraining._cant_save("gs://b/run/The checkpoint", error)
    assert "The disk is full" in str(told) and "goes on from the last checkpoint" in told.fix


def test_a_place_where_nothing_can_be_written_is_told(data, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(files.CantWrite, match="Nothing can be written into run"):
        train(data, tmp_path / "file/run")


def test_in_a_bucket_the_run_goes_on_with_the_same_numbers(whole, data):
    with storage.embedded_gcs() as gcs:
        for path in pathlib.Path(data).iterdir():
            tf.io.gfile.copy(str(path), f"{gcs.url}/data/{path.name}")
        output = f"{gcs.url}/run"
        with pytest.raises(Ended):
            train(f"{gcs.url}/data", output, save_every=20, report=end_at(50))
        said = []
        train(f"{gcs.url}/data", output, save_every=20, say=said.append)
        assert said == ["Going on after step 40 of 60."]
        with tf.io.gfile.GFile(f"{output}/log.jsonl") as file:
            assert file.read() == log(whole)
        kept = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(f"{output}/checkpoints"))
        assert kept == ["step-000000040", "step-000000060"]


# Signals, from the command line.


def command(*words):
    from helpers import __main__

    bert.CONFIGURATIONS["nano"] = NANO
    sys.argv = ["helpers", "pretrain", "--config", "nano", *map(str, words)]
    __main__.command()


def test_ctrl_c_and_sigterm_save_and_say_how_to_go_on(tmp_path, data):
    output = tmp_path / "run"
    words = ["-o", output, "--data", data, "--steps", 2_000, "--batch", 8, "--save-every", 10_000]
    saved = 0
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        shown = tmp_path / f"shown-{status}"
        process = child(command, *words, output=shown)
        wait_for(lambda: (output / "log.jsonl").exists())
        longer = (output / "log.jsonl").stat().st_size + 500
        wait_for(lambda: (output / "log.jsonl").stat().st_size > longer)  # noqa: B023
        os.kill(process.pid, number)
        assert ended(process) == status, shown.read_text()
        assert "saving after this step" in shown.read_text()
        assert "Run the same command again to go on." in shown.read_text()
        (step,) = _Saved(output).steps()[:1]
        assert step == len(log(output).splitlines()) > saved
        if saved:
            assert f"Going on after step {saved:,} of 2,000." in shown.read_text()
        saved = step


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# Spread over replicas, and on another machine.


def on_replicas(data, output, number):
    train(
        data,
        output,
        Settings(NANO, 20, global_batch_size=8, warm_up=5),
        strategy=rehearsal.replicas(number),
        save_every=10,
    )


def with_uneven_masks():
    """One step on two replicas with 20 and 2 masked tokens, and on one: the same."""
    draw = np.random.default_rng(0)
    ids = draw.integers(5, 300, (4, 16), dtype=np.int32)
    weights = np.ones((4, 10), np.float32)
    weights[2:] = np.eye(10)[:2]
    batch = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "position_ids": np.tile(np.arange(16, dtype=np.int32), (4, 1)),
        "masked_positions": np.tile(np.arange(10, dtype=np.int32), (4, 1)),
        "masked_ids": draw.integers(5, 300, (4, 10), dtype=np.int32),
        "masked_weights": weights,
    }
    results = []
    for strategy in (rehearsal.replicas(2), tf.distribute.get_strategy()):
        with strategy.scope():
            model = bert.pretraining_model(NANO, 300, longest=16)
            optimizer = bert.adamw(model, 1e-3)
        replicas = strategy.num_replicas_in_sync
        step = bert.training_step(model, optimizer, replicas=replicas, jit=False)
        dataset = tf.data.Dataset.from_tensors(batch).repeat()
        iterator = iter(strategy.experimental_distribute_dataset(dataset))
        outcome = bert.steps_function(strategy, step)(iterator, 0, 3)
        assert outcome.tokens.numpy().tolist() == [64] * 3
        results.append(np.stack([outcome.loss, outcome.norm]))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


def test_replicas_with_20_and_2_masked_tokens_give_the_step_of_one(tmp_path):
    process = child(with_uneven_masks, output=tmp_path / "shown")
    assert ended(process) == 0, (tmp_path / "shown").read_text()


def on_a_node(data, output):
    with storage.embedded_gcs() as gcs:
        for path in pathlib.Path(data).iterdir():
            tf.io.gfile.copy(str(path), f"{gcs.url}/data/{path.name}")
        with rehearsal.remote_node(1, gcs.environment) as node:
            words = ["--tpu", node.address, "--steps", 20, "--batch", 8, "--warm-up", 5]
            words += ["--learning-rate", 1e-3, "--save-every", 10]
            with pytest.raises(SystemExit, match="2"):
                command("-o", f"{output}-2", "--data", data, *words)
            command("-o", output, "--data", f"{gcs.url}/data", *words)


def losses(output):
    return np.array([json.loads(line)["loss"] for line in log(output).splitlines()])


@pytest.mark.parametrize("where", ["replicas", "node"])
def test_replicas_and_a_node_give_the_losses_of_one_machine(data, tmp_path, where):
    settings = Settings(NANO, 20, global_batch_size=8, warm_up=5)
    expected = train(data, tmp_path / "here", settings, save_every=10).loss
    shown = tmp_path / "shown"
    if where == "replicas":
        process = child(on_replicas, data, tmp_path / "there", 2, output=shown)
    else:
        process = child(on_a_node, data, tmp_path / "there", output=shown)
    assert ended(process) == 0, shown.read_text()
    if where == "node":
        assert "the training on another machine" in shown.read_text()
    np.testing.assert_allclose(losses(tmp_path / "there"), expected, rtol=1e-5)
