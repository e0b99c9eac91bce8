"""The command line: one message for bad input, an example in each help, nothing heavy imported."""

import functools
import re
import shutil
import sys

import nbformat
import pytest
from made_notebooks import write
from terminal import call

import helpers.__main__ as commands
from helpers.base.settings import ROOT
from helpers.course import running, storing
from helpers.course.commands import learning

pytestmark = pytest.mark.slow


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """The command line on a course of two notebooks; gives its status, output and errors."""
    write(tmp_path, "02_quick", "print(1)", parameters="steps = 3")
    write(tmp_path, "04_other", "print(2)")
    run = functools.partial(running.run, folder=tmp_path, build=tmp_path / "build")
    monkeypatch.setattr(running, "run", run)
    monkeypatch.setattr(storing, "store", functools.partial(storing.store, folder=tmp_path))

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["helpers", *words])
        with pytest.raises(SystemExit) as left:
            commands.command()
        out, err = capsys.readouterr()
        return left.value.code, out, err

    return call


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "9"], "There is no notebook '9'"),
        (["store", "9"], "There is no notebook '9'"),
        (["run", "2", "-p", "stpes", "4"], "No chosen notebook has a parameter 'stpes'"),
        (["run", "2", "-p", "steps", "many"], "steps can't be 'many'"),
        (["run", "-p", "steps"], "-p takes a name and a value"),
        (["run", "-p", "steps=4", "2"], "-p takes a name and a value"),
        (["run", "--parameter=steps"], "write it as -p NAME VALUE"),
        (["badges", "nothing"], "'nothing' is no repository"),
    ],
)
def test_bad_input_ends_with_one_message_and_status_2(command, words, message):
    status, out, err = command(*words)
    assert (status, out) == (2, "")
    assert message in " ".join(err.split()) and "Traceback" not in err


def test_the_command_line_takes_several_parameters_and_notebooks(command, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(learning.webbrowser, "open", opened.append)
    words = ["-p", "steps", "-7", "2", "04_other", "-p", "steps", "8"]
    status, out, err = command("run", *words)
    page = tmp_path / "build/index.html"
    assert (status, err) == (0, "")
    assert out.endswith(f"2 passed. Results: {page}\n")
    node = nbformat.read(tmp_path / "build/02_quick.ipynb", 4)
    assert node.metadata.course.parameters == {"steps": 8}
    assert opened == []  # no one sits here
    assert command("run", "4", "--open")[0] == 0
    assert opened == [page.as_uri()]


def test_help_shows_an_example_and_no_command_the_list_of_commands(command):
    for name in ("run", "store", "badges"):
        status, out, _ = command(name, "--help")
        assert status == 0
        assert f"tpu-course {name}" in out.replace("Usage: tpu-course", "")
    _, out, err = command()
    assert re.search(r"(?s)run .*store .*badges ", out + err)


def test_the_module_is_the_command_line_and_a_damaged_notebook_ends_it_with_status_2(tmp_path):
    shutil.copytree(ROOT / "helpers", tmp_path / "helpers")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/02_b.ipynb").write_text('{"cells": [')
    done = call(sys.executable, "-m", "helpers", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("02_b.ipynb can't be run.\n  Why: The file is not JSON")
    assert len(done.stderr.splitlines()) == 3
