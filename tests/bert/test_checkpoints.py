"""What a run keeps in its folder, damaged, lost, locked, of another run, or on a full disk."""

import contextlib
import dataclasses
import pathlib
import resource
import shutil
import signal

import pytest
import tensorflow as tf
from runs import SAVE, SETTINGS, STEPS, copy, log, saved, train

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.bert.checkpoints import Checkpoints, locked
from helpers.bert.settings import Description
from helpers.text import corpus, records

pytestmark = pytest.mark.slow

NEWEST = f"checkpoints/step-{STEPS:09d}"


def change(name, how):
    """Change a file of the newest checkpoint."""

    def damage(output):
        path = output / NEWEST / name
        path.write_bytes(how(bytearray(path.read_bytes())))

    return damage


def flip_a_bit(content):
    content[len(content) // 2] ^= 1
    return content


DATA, INDEX = "state.data-00000-of-00001", "state.index"
DAMAGES = {
    "truncated": change(DATA, lambda content: content[:-100]),
    "bit flipped": change(DATA, flip_a_bit),
    "index truncated": change(INDEX, lambda content: content[:20]),
    "without index": lambda output: (output / NEWEST / INDEX).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(whole, data, tmp_path, damage):
    output, said = copy(whole, tmp_path), []
    DAMAGES[damage](output)
    run = train(data, output, say=said.append)
    assert run.resumed == STEPS - SAVE
    assert said[0].startswith(f"The checkpoint of step {STEPS} is damaged (")
    assert said[1] == f"Going on after step {STEPS - SAVE} of {STEPS}."
    assert log(output) == log(whole)
    assert Checkpoints(Folder(output)).newest() == STEPS


def test_no_whole_checkpoint_is_an_error_and_not_a_new_start(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    for index in output.glob("checkpoints/*/state.index"):
        index.unlink()
    with pytest.raises(CourseError, match="None of the 2 checkpoints"):
        train(data, output)
    assert log(output) == log(whole)


def test_a_checkpoint_that_can_not_be_reached_is_not_taken_for_damaged(whole, monkeypatch):
    def silent(*_, **__):
        raise tf.errors.UnavailableError(None, None, "Could not resolve the host")

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    folder, said = Folder(whole), []
    monkeypatch.setattr(tf.train, "load_checkpoint", silent)
    with pytest.raises(CourseError, match="None of the 2 checkpoints"):
        Checkpoints(folder).newest(said.append)
    assert "Could not resolve the host" in said[0]
    monkeypatch.setattr(folder._files, "cat_file", refused)
    with pytest.raises(CourseError, match=r"could not be read(.|\n)*nothing was changed"):
        Checkpoints(folder).newest(said.append)


# The folder of another run.


def test_other_data_is_refused_and_the_same_data_elsewhere_is_not(whole, data, tmp_path):
    moved = shutil.copytree(data, tmp_path / "moved")
    assert train(moved, whole).step == STEPS
    tokenizer = corpus.load_tokenizer()
    records.write(["another text " * 300] * 20, tmp_path / "other", tokenizer, shards=1)
    with pytest.raises(CourseError, match=r"sequence_length 64 there, 128 now"):
        train(tmp_path / "other", whole)


def test_a_folder_that_lacks_the_log_of_its_run_is_refused(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    (output / "log.jsonl").unlink()
    with pytest.raises(CourseError, match="no line for 60 of the 60 steps"):
        train(data, output)


def test_after_a_failed_start_another_run_can_begin(data, tmp_path):
    def fail(progress):
        raise RuntimeError("out of memory")

    settings = dataclasses.replace(SETTINGS, steps=2)
    with pytest.raises(RuntimeError):
        train(data, tmp_path, settings, report=fail, save_every=2)
    assert (tmp_path / "settings.json").exists() and saved(tmp_path) == [0]
    smaller = dataclasses.replace(settings, global_batch_size=4)
    curves = set((tmp_path / "tensorboard").iterdir())
    assert train(data, tmp_path, smaller).step == 2
    assert not curves & set((tmp_path / "tensorboard").iterdir())
    assert len(log(tmp_path).splitlines()) == 2
    with pytest.raises(CourseError, match="global_batch_size 4 there, 8 now"):
        train(data, tmp_path, settings)


def test_a_finished_run_goes_on_when_more_steps_are_asked_for(whole, data, tmp_path):
    output, said = copy(whole, tmp_path), []
    longer = dataclasses.replace(SETTINGS, steps=STEPS + 4)
    run = train(data, output, longer, say=said.append)
    assert (run.resumed, run.step) == (STEPS, STEPS + 4)
    assert said[0] == (
        "The run of 60 steps is finished and goes on to 64, with the learning rate of a run so "
        "long."
    )
    assert log(output).startswith(log(whole))
    described = Description.read(Folder(output))
    assert (described.settings["steps"], described.finished) == (64, (60,))
    # Again from the middle, as after a crash: the same numbers, and no longer a finished run.
    once = log(output)
    shutil.rmtree(output / f"checkpoints/step-{STEPS + 4:09d}")
    assert train(data, output, longer, say=said.append).resumed == STEPS + 2
    assert log(output) == once
    shutil.rmtree(output / f"checkpoints/step-{STEPS + 4:09d}")
    with pytest.raises(CourseError, match="planned for 64 steps and has done 62"):
        train(data, output, dataclasses.replace(SETTINGS, steps=80))


def test_records_are_remembered_from_the_run_or_from_the_root(data, tmp_path):
    settings, root = dataclasses.replace(SETTINGS, steps=1), tmp_path / "run"
    train(data, root, settings)
    assert Description.read(Folder(root)).records_in(Folder(root)) == str(data)
    inside = shutil.copytree(data, root / "data")
    train(inside, root, settings)
    moved = Folder(root.rename(tmp_path / "moved"))
    described = Description.read(moved)
    assert described.records_at == "data" and described.records_in(moved) == f"{moved.path}/data"


def test_two_processes_can_not_train_in_one_folder(whole, data):
    with locked(Folder(whole)), pytest.raises(CourseError, match="Another process is training"):
        train(data, whole)
    assert train(data, whole).step == STEPS


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


def test_a_failed_checkpoint_is_told_and_leftovers_are_taken_away(whole, data, tmp_path):
    output = copy(whole, tmp_path)
    shutil.rmtree(output / NEWEST)
    with small_files(50_000), pytest.raises(CourseError, match="step 60 could not"):
        train(data, output)
    assert saved(output) == [STEPS - SAVE]
    assert not list((output / "checkpoints").glob(".*"))
    # A crash in the middle of writing would leave more.
    (output / "checkpoints/.writing-000000060").mkdir()
    lines = log(output).splitlines(keepends=True)
    (output / "log.jsonl").write_text("".join(lines[:-1]) + lines[-1][:20])
    train(data, output)
    assert log(output) == log(whole)
    assert not list((output / "checkpoints").glob(".*"))


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (tf.train.Checkpoint, "write", tf.errors.ResourceExhaustedError(None, None, "x.data")),
        (pathlib.Path, "rename", OSError(28, "No space left on device")),
    ],
)
def test_a_full_disk_is_named(tmp_path, monkeypatch, owner, name, error):
    def full(*_):
        raise error

    monkeypatch.setattr(owner, name, full)
    with pytest.raises(CourseError, match="The disk is full") as raised:
        Checkpoints(Folder(tmp_path)).save(1, tf.train.Checkpoint(x=tf.Variable(1.0)))
    assert "goes on from the last checkpoint" in raised.value.fix
    assert not list((tmp_path / "checkpoints").iterdir())
