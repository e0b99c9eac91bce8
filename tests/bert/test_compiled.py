"""What XLA compiled is used only where it was seen to work, and changes no number."""

import shutil

import pytest
from runs import NANO, child, command, ended, log
from typer.testing import CliRunner

from helpers.bert import compiled, pretraining
from helpers.bert.command import pretrain
from helpers.course.commands.app import app

pytestmark = pytest.mark.slow


def kept(tmp_path, files=("one", "two")):
    """A sealed folder, made without XLA."""
    folder = tmp_path / compiled.FOLDER
    folder.mkdir()
    for name in files:
        (folder / name).write_bytes(name.encode() * 100)
    compiled.Kept(tmp_path).seal()
    return folder


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != compiled.SUMS)


def test_what_was_sealed_is_kept_and_all_else_is_deleted(tmp_path):
    folder = kept(tmp_path, ("good", "cut", "flipped"))
    (folder / "cut").write_bytes((folder / "cut").read_bytes()[:-1])
    (folder / "flipped").write_bytes(b"F" + (folder / "flipped").read_bytes()[1:])
    (folder / "of a killed run").write_bytes(b"?")
    again = compiled.Kept(tmp_path)
    again.environment()
    again.seal()
    assert names(folder) == ["good"]
    (folder / "cut").write_bytes(b"compiled again, with the same name: the others are old")
    again.seal()
    compiled.Kept(tmp_path).environment()
    assert names(folder) == ["cut"]


def rewritten(change):
    return lambda sums, _: sums.write_text(change(sums.read_text()))


@pytest.mark.parametrize(
    "damage",
    [
        rewritten(lambda text: ""),
        rewritten(lambda text: text[:-5]),
        rewritten(lambda text: "[1]"),
        rewritten(lambda text: text.replace('"machine": "', '"machine": "0')),
        lambda _, patch: patch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true"),
        lambda _, patch: patch.setattr(compiled.importlib.metadata, "version", lambda _: "9.9"),
    ],
)
def test_without_sound_checksums_of_this_machine_nothing_is_used(tmp_path, monkeypatch, damage):
    folder = kept(tmp_path)
    compiled.Kept(tmp_path).environment()
    assert names(folder) == ["one", "two"]
    damage(folder / compiled.SUMS, monkeypatch)
    compiled.Kept(tmp_path).environment()
    assert names(folder) == []


def test_a_folder_of_someone_else_is_left_alone(tmp_path):
    (tmp_path / compiled.FOLDER).mkdir()
    (tmp_path / compiled.FOLDER / "mine.o").write_text("mine")
    assert not compiled.Kept(tmp_path).environment()
    assert names(tmp_path / compiled.FOLDER) == ["mine.o"]
    (tmp_path / "settings.json").touch()  # what a run that was killed had compiled
    assert compiled.Kept(tmp_path).environment()
    assert names(tmp_path / compiled.FOLDER) == []


def test_the_users_own_flags_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_clustering_debug")
    wanted = compiled.Kept(tmp_path).environment()["TF_XLA_FLAGS"]
    assert wanted.startswith("--tf_xla_clustering_debug ") and f"'{tmp_path}/compiled'" in wanted
    assert not compiled.Kept(tmp_path / "it's").environment()
    monkeypatch.setenv("TF_XLA_FLAGS", f"{compiled.FLAG}=/elsewhere")
    assert not compiled.Kept(tmp_path).environment()
    assert not list(tmp_path.iterdir())


STEPS = 6


def test_from_the_cache_without_it_and_with_a_damaged_one_the_losses_are_the_same(data, tmp_path):
    """The command compiles; goes on from the cache; goes on from a damaged one."""
    settings = pretraining.Settings(NANO, STEPS, global_batch_size=8, learning_rate=2e-3)
    pretraining.run(settings, data, tmp_path / "without", patience=0)
    output = tmp_path / "a run"
    words = ["-o", output, "--data", data, "--steps", STEPS, "--batch", 8, "--save-every", 2]
    shown = tmp_path / "shown"

    def go_on():
        if output.exists():
            shutil.rmtree(output / "checkpoints" / f"step-{STEPS:09d}")
        process = child(command, *words, output=shown)
        assert ended(process, 600) == 0, shown.read_text()
        assert log(output) == log(tmp_path / "without")
        (path,) = (path for path in (output / compiled.FOLDER).glob("xla_compile_cache*"))
        return path, path.stat().st_mtime_ns, path.read_bytes()

    first, second = go_on(), go_on()
    assert first == second  # used, and not compiled again
    path, _, content = first
    half = len(content) // 2
    path.write_bytes(content[:half] + bytes(64) + content[half + 64 :])
    assert path.read_bytes() != content
    assert go_on()[1] != first[1]
    assert shown.read_text().count(f"Going on after step {STEPS - 2} of {STEPS}.") == 2


def test_in_a_bucket_and_on_a_tpu_nothing_is_kept_and_help_says_so(monkeypatch):
    class Stopped(Exception):
        pass

    def stop(*_, **__):
        raise Stopped

    assert "without compiling" in CliRunner().invoke(app, ["pretrain", "--help"]).output
    monkeypatch.delattr(compiled, "Kept")
    monkeypatch.setattr("helpers.bert.command._checked", lambda *_: None)
    monkeypatch.setattr("helpers.bert.command.connect", stop)
    monkeypatch.setattr(pretraining, "run", stop)
    options = {"steps_per_execution": 1, "save_every": 1, "patience": 0, "steps": 2}
    for output, tpu in (("gs://course/run", None), ("run", "local")):
        with pytest.raises(Stopped):
            pretrain("tiny", output, "data", tpu=tpu, **options)
