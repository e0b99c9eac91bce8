"""A run that is killed, stopped, moved or spread gives the losses of a run that was not."""

import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from replicas import replicas
from runs import SAVE, SETTINGS, STEPS, child, command, copy, ended, log, saved, train
from terminal import wait_for

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.bert.data import count_tokens, read, unigram
from helpers.bert.pretraining import locked
from helpers.bert.settings import Description
from helpers.text import corpus, records
from helpers.tpu import storage
from helpers.tpu.node import remote_node

pytestmark = pytest.mark.slow

SHORT = dataclasses.replace(SETTINGS, steps=20)


class Ended(Exception):
    """Stands for whatever ends a run from outside."""


def end_at(step):
    def report(progress):
        if progress.step >= step:
            raise Ended

    return report


def losses(output):
    return np.array([json.loads(line)["loss"] for line in log(output).splitlines()])


# What the log holds.


def test_every_step_has_one_line_and_learning_lowers_the_loss(whole, data, tmp_path):
    rows = [json.loads(line) for line in log(whole).splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    loss = losses(whole)
    _, baseline = unigram(count_tokens(read(data)))
    assert abs(np.mean(loss[:5]) - baseline) < 0.15  # the head start: where counting words is
    # Beside weights that stay: the same texts and masks, so the difference isn't luck.
    still = train(data, tmp_path, dataclasses.replace(SETTINGS, learning_rate=1e-12)).loss
    assert loss[0] == still[0] and np.mean(loss[-20:]) < np.mean(still[-20:]) - 0.005
    assert all(0 < row["norm"] < 10 and 400 < row["tokens"] <= 8 * 64 for row in rows)
    assert list((whole / "tensorboard").glob("events.*"))


def test_a_finished_run_only_says_so_and_another_seed_is_another_run(whole, data, tmp_path):
    said = []
    run = train(data, copy(whole, tmp_path), say=said.append, report=end_at(0))
    assert said == [f"Going on after step {STEPS} of {STEPS}."]
    assert run.step == run.resumed == STEPS and len(run.loss) == STEPS
    told = r"step 60 of 60; loss \d\.\d\d \(mean of the last 60\), unigram baseline \d\.\d\d"
    assert re.fullmatch(told, repr(run))
    other = train(data, tmp_path / "run", dataclasses.replace(SHORT, steps=2, seed=1))
    assert other.loss[0] != run.loss[0]


# Killed.


def killed(data, output, how, number):
    """Train until this process kills itself with SIGKILL."""

    def kill(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def report(progress):
        if progress.step == start + 1 and how == "at any moment":
            threading.Timer(number / 1000, kill).start()
        if how == "after a step" and progress.step == start + number:
            kill()
        time.sleep(0.005)

    start, saves, write = saved(output)[0], itertools.count(1), tf.train.CheckpointManager.save

    def save(*arguments, **options):
        if how == "while saving" and next(saves) == 2:
            threading.Timer(number / 1000, kill).start()
        return write(*arguments, **options)

    tf.train.CheckpointManager.save = save
    train(data, output, report=report)


def test_killed_again_and_again_the_run_equals_the_undisturbed_one(whole, data, tmp_path):
    draw = random.SystemRandom()  # other moments in each run of this test
    output = tmp_path / "run"
    upper = {"at any moment": 60, "after a step": 4, "while saving": 15}  # ms or steps
    moments = [(kind, draw.randint(1, most)) for kind, most in upper.items()]
    draw.shuffle(moments)
    steps = []
    for kind, number in [*moments, ("after a step", 4)]:  # the last one sees that it goes on
        process = child(killed, data, output, kind, number)
        assert ended(process) == -signal.SIGKILL, moments
        steps.append(saved(output)[0])
    assert steps == sorted(steps) and 0 < steps[-1] < STEPS
    train(data, output)
    assert log(output) == log(whole), moments
    assert saved(output) == saved(whole)


def test_more_steps_in_a_call_after_a_stop_in_between_give_the_same_numbers(whole, data, tmp_path):
    with pytest.raises(Ended):
        train(data, tmp_path, save_every=1, report=end_at(8))
    assert saved(tmp_path)[0] == 7
    run = train(data, tmp_path, steps_per_execution=10, save_every=25)
    assert (run.resumed, run.step) == (7, STEPS)
    assert log(tmp_path) == log(whole)
    assert saved(tmp_path) == [60, 50]


# Damaged.


def flip_a_bit(content):
    content[len(content) // 2] ^= 1
    return content


DATA = ".data-00000-of-00001"
DAMAGES = {
    "truncated": (DATA, lambda content: content[:-100]),
    "bit flipped": (DATA, flip_a_bit),
    "index truncated": (".index", lambda content: content[:20]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(whole, data, tmp_path, damage):
    (ending, how), said = DAMAGES[damage], []
    output = copy(whole, tmp_path)
    path = output / f"checkpoints/step-{STEPS}{ending}"
    path.write_bytes(how(bytearray(path.read_bytes())))
    run = train(data, output, say=said.append)
    assert run.resumed == STEPS - SAVE
    assert said[0].startswith(f"The checkpoint of step {STEPS} is damaged (")
    assert said[1] == f"Going on after step {STEPS - SAVE} of {STEPS}."
    assert log(output) == log(whole)
    assert train(data, output).resumed == STEPS


def test_no_whole_checkpoint_is_an_error_and_not_a_new_start(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    for path in output.glob("checkpoints/*.data*"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CourseError, match="None of the 2 checkpoints"):
        train(data, output)
    assert log(output) == log(whole)


def test_a_full_disk_is_told_and_half_a_line_of_the_log_is_taken_away(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    for path in output.glob(f"checkpoints/step-{STEPS}.*"):
        path.unlink()
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # no file may be longer
    try:
        with pytest.raises(CourseError, match="step 60 could not") as raised:
            train(data, output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert "goes on from the last checkpoint" in raised.value.fix
    assert saved(output) == [STEPS - SAVE]
    (output / "log.jsonl").write_text(log(output)[:-20])
    assert train(data, output).resumed == STEPS - SAVE
    assert log(output) == log(whole)


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoint(data, tmp_path):
    settings = dataclasses.replace(SHORT, learning_rate=1e30)
    with pytest.raises(CourseError, match="at step") as raised:
        train(data, tmp_path, settings, save_every=1)
    assert "3.33333e+29" in raised.value.fix and "longer warm-up" in raised.value.fix
    step = int(re.search(r"at step (\d+)", str(raised.value))[1])
    assert saved(tmp_path)[0] == step - 1 > 0
    assert len(log(tmp_path).splitlines()) == step - 1


# The folder of another run.


def test_other_data_is_refused_and_the_same_data_elsewhere_is_not(whole, data, tmp_path):
    moved = shutil.copytree(data, tmp_path / "moved")
    assert train(moved, copy(whole, tmp_path)).step == STEPS
    tokenizer = corpus.load_tokenizer()
    records.write(["another text " * 300] * 20, tmp_path / "other", tokenizer, shards=1)
    with pytest.raises(CourseError, match=r"sequence_length 64 there, 128 now"):
        train(tmp_path / "other", whole)


def test_after_a_failed_start_another_run_can_begin(data, tmp_path):
    settings = dataclasses.replace(SETTINGS, steps=2)
    with pytest.raises(Ended):
        train(data, tmp_path, settings, report=end_at(1))
    assert (tmp_path / "settings.json").exists() and saved(tmp_path) == [0]
    smaller = dataclasses.replace(settings, global_batch_size=4)
    curves = set((tmp_path / "tensorboard").iterdir())
    assert train(data, tmp_path, smaller).step == 2
    assert not curves & set((tmp_path / "tensorboard").iterdir())
    with pytest.raises(CourseError, match="global_batch_size 4 there, 8 now"):
        train(data, tmp_path, settings)


def test_a_finished_run_goes_on_when_more_steps_are_asked_for(whole, data, tmp_path):
    output, said = copy(whole, tmp_path), []
    longer = dataclasses.replace(SETTINGS, steps=STEPS + 4)
    run = train(data, output, longer, say=said.append)
    assert (run.resumed, run.step) == (STEPS, STEPS + 4)
    assert said[0] == "The run of 60 steps is finished and goes on to 64."
    assert log(output).startswith(log(whole))
    described = Description.read(Folder(output))
    assert (described.settings.steps, described.finished) == (64, (60,))
    # Again from the middle, as after a crash: the same numbers, and no longer a finished run.
    once = log(output)
    (output / "checkpoints/step-64.index").unlink()
    assert train(data, output, longer, say=said.append).resumed == STEPS + 2
    assert log(output) == once
    (output / "checkpoints/step-64.index").unlink()
    with pytest.raises(CourseError, match="steps 64 there, 80 now"):
        train(data, output, dataclasses.replace(SETTINGS, steps=80))


def test_two_processes_can_not_train_in_one_folder(whole, data):
    with locked(Folder(whole)), pytest.raises(CourseError, match="Another process is training"):
        train(data, whole)
    assert train(data, whole).step == STEPS


# In a bucket, from the command line, over replicas, and on another machine.


def upload(data, url):
    for path in filter(pathlib.Path.is_file, pathlib.Path(data).iterdir()):
        tf.io.gfile.copy(str(path), f"{url}/data/{path.name}")


def test_in_a_bucket_ten_steps_at_a_time_the_run_goes_on_with_the_same_numbers(whole, data):
    options = {"save_every": 20, "steps_per_execution": 10}
    with storage.embedded_gcs() as gcs:
        upload(data, gcs.url)
        output = f"{gcs.url}/run"
        with pytest.raises(Ended):
            train(f"{gcs.url}/data", output, report=end_at(50), **options)
        said = []
        train(f"{gcs.url}/data", output, say=said.append, **options)
        assert said == ["Going on after step 40 of 60."]
        assert tf.io.gfile.GFile(f"{output}/log.jsonl").read() == log(whole)
        assert saved(output) == [60, 40]


def test_ctrl_c_and_sigterm_save_and_say_how_to_go_on(tmp_path, data):
    output = tmp_path / "run"
    words = ["-o", output, "--data", data, "--steps", 2_000, "--batch", 8, "--save-every", 10_000]
    before = 0
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        shown = tmp_path / f"shown-{status}"
        process = child(command, *words, output=shown)
        assert wait_for(lambda: (output / "log.jsonl").exists(), 120)
        longer = (output / "log.jsonl").stat().st_size + 500
        assert wait_for(lambda: (output / "log.jsonl").stat().st_size > longer, 120)  # noqa: B023
        os.kill(process.pid, number)
        assert ended(process) == status, shown.read_text()
        said, step = shown.read_text(), saved(output)[0]
        assert "saving after this step" in said and "Run the same command again to go on." in said
        assert step == len(log(output).splitlines()) > before
        assert (f"Going on after step {before:,} of 2,000." in said) == (before > 0)
        before = step


def on_replicas(data, output):
    train(data, output, SHORT, strategy=replicas(2), save_every=10)


def on_a_node(data, output):
    with storage.embedded_gcs() as gcs:
        upload(data, gcs.url)
        with remote_node(1, gcs.environment) as node:
            words = ["--tpu", node.address, "--steps", 20, "--batch", 8, "--warm-up", 5]
            words += ["--learning-rate", 1e-3, "--save-every", 10]
            with pytest.raises(SystemExit, match="2"):
                command("-o", f"{output}-2", "--data", data, *words)
            command("-o", output, "--data", f"{gcs.url}/data", *words)


def test_replicas_and_a_node_give_the_losses_of_one_machine(data, tmp_path):
    expected = train(data, tmp_path / "here", SHORT, save_every=10).loss
    shown = tmp_path / "shown"
    for where in (on_replicas, on_a_node):
        there = tmp_path / where.__name__
        process = child(where, data, there, output=shown)
        assert ended(process) == 0, shown.read_text()
        np.testing.assert_allclose(losses(there), expected, rtol=1e-5)
    assert "the training on another machine" in shown.read_text()
