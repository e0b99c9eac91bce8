"""A report is published: what a failed check says in it tells no path of the machine."""

import pathlib
import types

import pytest

from helpers.base.text import without_paths
from helpers.confirm import checks
from helpers.confirm.machine import JAX, TENSORFLOW, Machine

FOLDER = "/data/alice smith"
PLACE = types.SimpleNamespace(kind="cpu", accelerator=None)
MESSAGES = {
    "a checkpoint": (
        f"{FOLDER}/tmp1/step-1_temp/part-0; No space left [Op:SaveV2]",
        "No space left",
    ),
    "a folder at the end": (f"Permission denied: {FOLDER}", "Permission denied"),
    "quoted": (f"can't open '{FOLDER}/a b' to write", "to write"),
    "behind a colon": (f"folder:{FOLDER}/c: it is full", "it is full"),
    "a comma, a colon, a bracket": (
        "/data/smith, alice/a: b (smith)/c d: it is full",
        "it is full",
    ),
    "an apostrophe": ("/data/alice o'smith: it is full", "it is full"),
    "an address": (f"file://{FOLDER}/x: not found", "not found"),
    "two paths": (f"from {FOLDER}/x to {FOLDER}/y: not found", "not found"),
    "two lines": (f"in {FOLDER}/x.py\nvalue: not found", "not found"),
}


def assert_anonymous(evidence: str) -> None:
    for name in ("alice", "smith", "data/"):
        assert name not in evidence


@pytest.mark.parametrize("name", MESSAGES)
def test_a_check_that_fails_tells_no_path(name, monkeypatch):
    message, words = MESSAGES[name]

    def fail(trial):
        raise ValueError(message)

    monkeypatch.setattr(checks, "jax_alone", fail)
    machine = Machine(PLACE, JAX, "v5e", devices=1, rehearsed=True)
    verdicts = checks.check_all(machine, (), {})
    evidence = {verdict.id: verdict.evidence for verdict in verdicts}["11-jax"]
    assert evidence.startswith("the check itself failed: ValueError: ")
    assert words in evidence
    assert_anonymous(evidence)


@pytest.mark.parametrize("check", [checks.jit_compile, checks.small_integers])
def test_a_function_that_the_tpu_refuses_tells_no_path(check):
    def refuse(*_, **__):
        raise ValueError(f"{FOLDER}/hlo.txt: refused")

    machine = Machine(
        PLACE,
        TENSORFLOW,
        "v5e",
        devices=1,
        rehearsed=True,
        strategy=types.SimpleNamespace(run=refuse),
    )
    _, evidence = check(checks.Trial(machine, {}))
    assert_anonymous(evidence)
    assert str(pathlib.Path(__file__).parent) not in evidence


def test_a_folder_of_one_part_is_a_path_as_well(monkeypatch):
    monkeypatch.setenv("HOME", "/alice smith")
    assert without_paths("/alice smith: it is full") == "…: it is full"


@pytest.mark.parametrize(
    "message",
    [
        "Input/output error on /job:localhost/replica:0/task:0/device:CPU:0",
        "1 / 2, 3/4 and [5] / [6]/7",
        "https://www.tensorflow.org/guide/tpu says so",
    ],
)
def test_what_is_no_path_stays(message):
    assert without_paths(message) == message
