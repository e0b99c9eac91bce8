"""A run that is killed, stopped, moved or spread gives the losses of a run that was not."""

import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import signal
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from runs import SETTINGS, STEPS, child, command, copy, ended, log, saved, train
from terminal import wait_for

from helpers.base.errors import CourseError
from helpers.bert import compiled, pretraining
from helpers.bert.command import pretrain
from helpers.bert.data import count_tokens, read, unigram
from helpers.tpu import storage
from helpers.tpu.node import remote_node
from helpers.tpu.replicas import replicas

pytestmark = pytest.mark.slow

SHORT = dataclasses.replace(SETTINGS, steps=20)
PAIRED = dataclasses.replace(SHORT, next_sentence=True)


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


def test_every_step_has_one_line_and_the_loss_falls(whole, data):
    rows = [json.loads(line) for line in log(whole).splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    loss = losses(whole)
    _, baseline = unigram(count_tokens(read(data)))
    assert abs(np.mean(loss[:5]) - baseline) < 0.15  # the head start: where counting words is
    assert np.mean(loss[-10:]) < np.mean(loss[:10]) - 0.03
    assert all(0 < row["norm"] < 10 and 400 < row["tokens"] <= 8 * 64 for row in rows)
    assert list((whole / "tensorboard").glob("events.*"))


def test_a_finished_run_only_says_so(whole, data, tmp_path):
    said = []
    run = train(data, copy(whole, tmp_path), say=said.append, report=end_at(0))
    assert said == [f"Going on after step {STEPS} of {STEPS}."]
    assert run.step == run.resumed == STEPS and len(run.loss) == STEPS
    told = r"step 60 of 60; loss \d\.\d\d \(mean of the last 60\), unigram baseline \d\.\d\d"
    assert re.fullmatch(told, repr(run))


def test_another_seed_is_another_run(whole, data, tmp_path):
    run = train(data, tmp_path / "run", dataclasses.replace(SHORT, steps=2, seed=1))
    assert run.loss[0] != losses(whole)[0]


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

    start = saved(output)[0]
    if how == "while saving":
        moments = itertools.count(1)

        def event(name, arguments):
            paths = [str(argument) for argument in arguments[:2]]
            touched = name in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "open")
            if not touched or not any("checkpoints/" in path for path in paths):
                return
            if next(moments) == number:
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


def test_killed_again_and_again_the_run_equals_the_undisturbed_one(whole, data, tmp_path):
    draw = random.SystemRandom()  # other moments in each run of this test
    output = tmp_path / "run"
    upper = {"at any moment": 60, "after a step": 4, "while saving": 12}
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
    run = train(data, tmp_path, steps_per_execution=10, save_every=20)
    assert (run.resumed, run.step) == (7, STEPS)
    assert log(tmp_path) == log(whole)
    assert saved(tmp_path) == [60, 40]


# With next sentence prediction.


def test_with_next_sentence_a_killed_run_equals_the_undisturbed_one(paired, tmp_path):
    whole = train(paired, tmp_path / "whole", PAIRED)
    assert abs(np.mean(whole.loss[:5]) - whole.unigram) < 0.2  # counting words, and a coin
    without = unigram(count_tokens(read(paired)))[1]
    assert whole.unigram == pytest.approx(without + np.log(2))
    process = child(killed, paired, tmp_path / "run", "after a step", 7, PAIRED)
    assert ended(process) == -signal.SIGKILL
    assert saved(tmp_path / "run")[0] == 6
    assert train(paired, tmp_path / "run", PAIRED).resumed == 6
    assert log(tmp_path / "run") == log(tmp_path / "whole")
    with pytest.raises(CourseError, match="next_sentence True there, False now"):
        train(paired, tmp_path / "run", dataclasses.replace(PAIRED, next_sentence=False))


# Training that goes wrong.


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoint(data, tmp_path):
    settings = dataclasses.replace(SHORT, learning_rate=1e30)
    with pytest.raises(CourseError, match="at step") as raised:
        train(data, tmp_path, settings, save_every=1)
    assert "3.33333e+29" in raised.value.fix and "longer warm-up" in raised.value.fix
    step = int(re.search(r"at step (\d+)", str(raised.value))[1])
    assert saved(tmp_path)[0] == step - 1 > 0
    assert len(log(tmp_path).splitlines()) == step - 1


def test_a_run_that_learns_nothing_stops_and_can_be_made_to_go_on(data, tmp_path, monkeypatch):
    # Four steps see few tokens: chance is large.
    monkeypatch.setattr("helpers.bert.pretraining.CLEARLY", 1.0)
    settings = dataclasses.replace(SHORT, steps=12, learning_rate=1e-9)
    with pytest.raises(CourseError, match="frequencies alone gives") as raised:
        train(data, tmp_path, settings, patience=4)
    assert "patience 0" in raised.value.fix
    assert saved(tmp_path)[0] == SETTINGS.warm_up + 4
    assert train(data, tmp_path, settings, patience=0).step == 12


# In a bucket.


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


# Signals, from the command line.


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


# Spread over replicas, and on another machine.


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


# What TensorFlow raises while it trains.


def test_a_damaged_shard_and_too_little_memory_are_told_in_a_sentence(data, tmp_path, monkeypatch):
    def raising(error):
        def run(*_, **__):
            raise error(None, None, "corrupted record at 8\nand a stack")

        monkeypatch.setattr(pretraining, "run", run)
        options = {"steps_per_execution": 1, "save_every": 1, "patience": 0, "steps": 2}
        with pytest.raises(CourseError) as caught:
            pretrain("tiny", str(tmp_path / "run"), str(records_there), tpu=None, **options)
        return caught.value

    monkeypatch.setattr(compiled.Kept, "environment", lambda _: {})
    records_there = copy(data, tmp_path)
    told = raising(tf.errors.ResourceExhaustedError)
    assert told.why == "corrupted record at 8" and "--batch" in told.fix
    shard = sorted(records_there.glob("*.tfrecord"))[1]
    shard.write_bytes(shard.read_bytes().replace(b"\x02", b"\x03", 1))
    assert raising(tf.errors.DataLossError).what == f"{shard.name} is damaged."
