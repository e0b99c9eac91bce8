"""A run that is killed, stopped, moved or spread gives the losses of a run that was not."""

import dataclasses
import json
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
from replicas import replicas
from small_runs import NANO, SAVE, SETTINGS, STEPS, child, copy, ended, log, saved, train
from terminal import wait_for

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.bert import pretraining
from helpers.bert.data import read, unigram
from helpers.bert.program import current_program
from helpers.bert.settings import CONFIGURATIONS
from helpers.text import corpus, records
from helpers.tpu import storage
from helpers.tpu.node import remote_node

pytestmark = pytest.mark.long

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


def test_every_step_has_one_line_and_learning_lowers_the_loss(whole, data, tmp_path):
    rows = [json.loads(line) for line in log(whole).splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    loss = losses(whole)
    _, baseline = unigram(read(data))
    # The head start: where counting words is, and not at the logarithm of the vocabulary (8.0).
    assert abs(np.mean(loss[:5]) - baseline) < 0.4
    # Compared with weights that stay: the same texts and masks, so the difference isn't luck.
    frozen = train(data, tmp_path, dataclasses.replace(SETTINGS, learning_rate=1e-12)).loss
    assert loss[0] == frozen[0]
    assert np.mean(loss[-20:]) < np.mean(frozen[-20:]) - 0.005
    for row in rows:
        assert 0 < row["norm"] < 10
        assert 400 < row["tokens"] <= 8 * 64


def test_records_that_are_exchanged_meanwhile_are_told(tmp_path):
    folder = tmp_path / "data"
    replacement = tmp_path / "replacement"

    def replace(progress):
        if progress.step == SAVE + 1:
            shutil.rmtree(folder)
            shutil.copytree(replacement, folder)

    texts = [f"{number} 문서" for number in range(400)]
    options = {"tokenizer": corpus.kept_tokenizer(), "sequence_length": 64, "shards": 1}
    records.write(texts, folder, **options)
    records.write(texts[::-1], replacement, **options)
    with pytest.raises(CourseError, match="were replaced while the run read them"):
        train(folder, tmp_path / "run", SHORT, report=replace)
    assert saved(tmp_path / "run") == [SAVE]


def killed(data, output, milliseconds):
    """Train until this process kills itself with SIGKILL; every second step it saves."""

    def report(progress):
        if progress.step == start + 1:
            threading.Timer(milliseconds / 1000, os.kill, (os.getpid(), signal.SIGKILL)).start()
        time.sleep(0.005)

    start = saved(output)[0]
    train(data, output, report=report)


def test_killed_again_and_again_the_run_equals_the_undisturbed_one(whole, data, tmp_path):
    draw = random.SystemRandom()  # other moments in each run of this test
    output = tmp_path / "run"
    steps = []
    moments = [draw.randint(1, 60) for _ in range(4)]
    for milliseconds in moments:
        assert ended(child(killed, data, output, milliseconds)) == -signal.SIGKILL, moments
        steps.append(saved(output)[0])
    assert steps == sorted(steps)
    assert steps[-1] < STEPS
    train(data, output)
    assert log(output) == log(whole), moments
    assert saved(output) == saved(whole)


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
    ending, damaged = DAMAGES[damage]
    messages = []
    output = copy(whole, tmp_path)
    path = output / f"checkpoints/step-{STEPS}{ending}"
    path.write_bytes(damaged(bytearray(path.read_bytes())))
    run = train(data, output, say=messages.append)
    assert run.resumed == STEPS - SAVE
    assert messages[0].startswith(f"The checkpoint of step {STEPS} is damaged (")
    assert messages[1] == f"Going on after step {STEPS - SAVE} of {STEPS}."
    assert log(output) == log(whole)


def test_no_whole_checkpoint_is_an_error_and_not_a_new_start(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    for path in output.glob("checkpoints/*.data*"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CourseError, match="None of the 2 checkpoints"):
        train(data, output)
    assert log(output) == log(whole)


@pytest.mark.parametrize("path", ["", "../../mine"])
def test_a_pointer_that_was_changed_harms_nothing(whole, data, tmp_path, path):
    output = copy(whole, tmp_path)
    users_file = tmp_path / "mine.index"
    users_file.touch()
    for checkpoint in output.glob(f"checkpoints/step-{STEPS}.*"):
        checkpoint.unlink()
    pointer = ""
    if path:
        pointer = f'model_checkpoint_path: "{path}"\nall_model_checkpoint_paths: "{path}"\n'
    (output / "checkpoints/checkpoint").write_text(pointer)
    train(data, output)
    assert users_file.exists()
    assert saved(output) == saved(whole)


def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_room(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    for path in output.glob(f"checkpoints/step-{STEPS}.*"):
        path.unlink()
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # no file may be longer
    try:
        with pytest.raises(CourseError, match=r"step-60 could not(.|\n)*nothing .* is lost"):
            train(data, output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(output.glob("checkpoints/*_temp"))
    (output / "checkpoints/step-9-mine_temp").mkdir()
    assert train(data, output).resumed == STEPS - SAVE
    assert list(output.glob("checkpoints/*_temp"))
    assert log(output) == log(whole)


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoint(data, tmp_path):
    settings = dataclasses.replace(SHORT, learning_rate=1e30)
    with pytest.raises(CourseError, match="at step") as raised:
        train(data, tmp_path, settings, save_every=1)
    assert "3.33333e+29" in raised.value.fix
    assert "longer warm-up" in raised.value.fix
    step = int(re.search(r"at step (\d+)", str(raised.value))[1])
    assert saved(tmp_path)[0] == len(log(tmp_path).splitlines()) == step - 1 > 0


def test_another_run_is_refused_and_the_same_data_elsewhere_is_not(whole, data, tmp_path):
    moved = shutil.copytree(data, tmp_path / "moved")
    assert train(moved, copy(whole, tmp_path)).step == STEPS
    with Folder(moved).alone(), pytest.raises(CourseError, match="Another process writes"):
        train(data, moved)
    assert not Folder(moved).exists("settings.json")
    with pytest.raises(CourseError, match="steps 60 there, 20 now"):
        train(data, whole, SHORT)
    tokenizer = corpus.load_tokenizer()
    records.write(["another text " * 300] * 20, tmp_path / "other", tokenizer, shards=1)
    with pytest.raises(CourseError, match=r"sequence_length 64 there, 128 now"):
        train(tmp_path / "other", whole)


OTHER_PROGRAM = {"sources": "0123456789abcdef", "tensorflow": "2.99.0"}


def test_another_program_is_refused_or_recorded_with_its_first_step(data, tmp_path, monkeypatch):
    with pytest.raises(Ended):
        train(data, tmp_path, SHORT, report=end_at(9))
    monkeypatch.setattr(pretraining, "current_program", lambda: OTHER_PROGRAM)
    with pytest.raises(CourseError, match=r"tensorflow .* there, 2\.99\.0 now") as refused:
        train(data, tmp_path, SHORT)
    assert "--changed-program" in refused.value.fix
    messages = []
    run = train(data, tmp_path, SHORT, changed_program=True, say=messages.append)
    assert run.resumed == 8
    assert messages[1:] == ["From step 9 on another program computes this run."]
    programs = json.loads((tmp_path / "settings.json").read_text())["programs"]
    assert programs == [
        {"from_step": 1} | current_program(),
        {"from_step": 9} | OTHER_PROGRAM,
    ]
    # From here on it is the program of the run, and the first one isn't any more.
    assert train(data, tmp_path, SHORT).resumed == SHORT.steps
    monkeypatch.undo()
    with pytest.raises(CourseError, match="Another program computed this run"):
        train(data, tmp_path, SHORT)


def test_a_checkpoint_that_is_a_pipe_is_passed_over(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    path = output / f"checkpoints/step-{STEPS}{DATA}"
    path.unlink()
    os.mkfifo(path)
    assert train(data, output).resumed == STEPS - SAVE


@pytest.mark.parametrize("name", ["log.jsonl", "checkpoints/checkpoint"])
def test_files_of_somebody_else_are_not_taken_for_a_run(data, tmp_path, name):
    Folder(tmp_path).write(name, "mine")
    with pytest.raises(CourseError, match=r"and no settings.json"):
        train(data, tmp_path)
    assert Folder(tmp_path).read(name) == b"mine"
    assert not Folder(tmp_path).exists(".lock")
    with pytest.raises(CourseError, match=r"the \[ in its path for a pattern"):
        train(data, tmp_path / "run[1]")


def test_a_folder_that_is_deleted_or_renamed_while_it_trains_is_written_anew(data, tmp_path):
    output = tmp_path / "run"

    def move(progress):
        if progress.step == 5:
            shutil.rmtree(output)
        elif progress.step == 9:
            output.rename(tmp_path / "moved")

    train(data, output, SHORT, report=move)
    assert train(data, output, SHORT).resumed == len(losses(output)) == 20
    assert train(data, tmp_path / "moved", SHORT).resumed == 8


@pytest.mark.parametrize(
    ("deleted", "message"),
    [("the folder", "no finished records"), ("shard-00001*.tfrecord", "shard-00001")],
)
def test_records_that_are_deleted_while_it_trains_are_told(data, tmp_path, deleted, message):
    copied_data = pathlib.Path(shutil.copytree(data, tmp_path / "data"))
    output = tmp_path / "run"

    def delete(progress):
        if progress.step != 5:
            return
        if deleted == "the folder":
            shutil.rmtree(copied_data)
        else:
            next(copied_data.glob(deleted)).unlink()

    settings = dataclasses.replace(SETTINGS, steps=1_000, global_batch_size=64)
    with pytest.raises(CourseError, match=message):
        train(copied_data, output, settings, report=delete)
    step = saved(output)[0]
    messages = []
    with pytest.raises(Ended):  # with the records brought back it goes on
        train(data, output, settings, report=end_at(step + 1), say=messages.append)
    assert step >= 4
    assert messages == [f"Going on after step {step} of 1,000."]


def upload(data, url):
    for path in filter(pathlib.Path.is_file, pathlib.Path(data).iterdir()):
        tf.io.gfile.copy(str(path), f"{url}/data/{path.name}")


def test_in_a_bucket_ten_steps_at_a_time_the_run_goes_on_with_the_same_numbers(whole, data):
    options = {"save_every": 25, "steps_per_execution": 10}
    with storage.embedded_gcs() as gcs:
        upload(data, gcs.url)
        output = f"{gcs.url}/run"
        with pytest.raises(Ended):
            train(f"{gcs.url}/data", output, report=end_at(40), **options)
        messages = []
        train(f"{gcs.url}/data", output, say=messages.append, **options)
        assert messages == ["Going on after step 25 of 60."]
        assert tf.io.gfile.GFile(f"{output}/log.jsonl").read() == log(whole)
        assert saved(output) == [60, 50]


def command(*words):
    """Run ``tpu-course pretrain`` in this process."""
    CONFIGURATIONS["nano"] = NANO
    from course import __main__

    sys.argv = ["course", "pretrain", "--config", "nano", "--batch", "8", *map(str, words)]
    __main__.command()


def test_ctrl_c_and_sigterm_save_and_say_how_to_go_on(tmp_path, data):
    output = tmp_path / "run"
    words = ["-o", output, "--data", data, "--steps", 2_000, "--save-every", 10_000]
    earlier_step = 0
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        shown = tmp_path / f"shown-{status}"
        process = child(command, *words, output=shown)
        wait_for(lambda: shown.exists() and "tokens/s" in shown.read_text(), 120)  # noqa: B023
        os.kill(process.pid, number)
        assert ended(process) == status, shown.read_text()
        output_text = shown.read_text()
        assert "saving after this step" in output_text
        assert "Run the same command again to go on." in output_text
        step = saved(output)[0]
        assert step == len(log(output).splitlines()) > earlier_step
        is_resumed = f"Going on after step {earlier_step:,} of 2,000." in output_text
        assert is_resumed == (earlier_step > 0)
        earlier_step = step


def on_replicas(data, output):
    train(data, output, SHORT, strategy=replicas(2), save_every=10)


def on_a_node(data, output):
    with storage.embedded_gcs() as gcs:
        upload(data, gcs.url)
        with remote_node(1, gcs.environment) as node:
            words = ["--tpu", node.address, "--steps", 20, "--warm-up", 5]
            words += ["--learning-rate", 1e-3, "--save-every", 10]
            with pytest.raises(SystemExit, match="2"):
                command("-o", f"{output}-2", "--data", data, *words)
            command("-o", output, "--data", f"{gcs.url}/data", *words)


def test_replicas_and_a_node_give_the_losses_of_one_machine(data, tmp_path):
    expected = train(data, tmp_path / "here", SHORT, save_every=10).loss
    shown = tmp_path / "shown"
    for train_elsewhere in (on_replicas, on_a_node):
        output = tmp_path / train_elsewhere.__name__
        process = child(train_elsewhere, data, output, output=shown)
        assert ended(process) == 0, shown.read_text()
        np.testing.assert_allclose(losses(output), expected, rtol=1e-5)
    assert "the training on another machine" in shown.read_text()
