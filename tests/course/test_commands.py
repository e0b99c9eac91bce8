"""The command line: one message for bad input, an example in each help, nothing heavy imported."""

import functools
import json
import re
import sys

import nbformat
import pytest
from made_notebooks import write

import helpers.__main__ as commands
from helpers.course import running, storing
from helpers.course.commands import learning

pytestmark = pytest.mark.slow

GROUPS = {
    "The course": ["lab", "run", "explain", "doctor"],
    "Your own model and text": ["ops", "prepare", "pretrain", "export"],
    "For teachers": ["slides", "solutions"],
    "For authors": ["store", "translate", "badges", "models"],
}


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """The command line on a course of two notebooks; gives its status, output and errors."""
    write(tmp_path, "02_quick", "print(1)", parameters="steps = 3")
    write(tmp_path, "04_other", "print(2)")
    known = functools.partial(learning.course.notebooks, tmp_path)
    monkeypatch.setattr(learning.course, "notebooks", known)
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


def test_help_has_the_learner_s_commands_first_and_fits_80_columns(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, page, _ = command("-h")
    assert status == 0 and max(map(len, page.splitlines())) <= 80
    assert re.findall(r"╭─ (.+?) ─", page) == ["Options", *GROUPS]
    assert re.findall(r"^│ (\w+) ", page, re.MULTILINE) == [n for g in GROUPS.values() for n in g]
    assert command()[1].split() == command("--help")[1].split() == page.split()
    for name in (name for group in GROUPS.values() for name in group):
        status, out, _ = command(name, "-h")
        assert (status, command(name, "--help")[1]) == (0, out)
        assert f"tpu-course {name}" in out.replace("Usage: tpu-course", ""), "no example"
        assert max(map(len, out.splitlines())) <= 80


def test_a_shell_completes_commands_options_and_notebooks(command, monkeypatch):
    monkeypatch.setenv("_TPU_COURSE_COMPLETE", "complete_bash")

    def completed(*words):
        monkeypatch.setenv("COMP_WORDS", " ".join(("tpu-course", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        return command()[1].split()

    assert completed("pre") == ["prepare", "pretrain"]
    assert completed("run", "--work") == ["--workshop"]
    assert completed("run", "02") == ["02_quick"]


def test_json_and_quiet_leave_nothing_else_on_the_output(command, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    status, out, err = command("run", "2", "--json")
    (result,) = json.loads(out)["results"]
    assert (status, result["name"], result["state"]) == (0, "02_quick", "passed")
    assert "02_quick: running" in err
    status, out, err = command("run", "2", "--quiet")
    assert (status, out, err) == (0, f"1 passed. Results: {tmp_path / 'build/index.html'}\n", "")
    (tmp_path / "log").write_text("RuntimeError: Nobody knows this.\n")
    status, out, _ = command("explain", str(tmp_path / "log"), "--json")
    unknown = {"known": [], "line": "RuntimeError: Nobody knows this."}
    assert (status, json.loads(out)) == (1, unknown)
    (tmp_path / "log").write_text("ModuleNotFoundError: No module named 'tensorflow'\n")
    status, out, _ = command("explain", str(tmp_path / "log"), "--json")
    assert status == 0 and {"name", "seen", "sure", "why", "fix"} < {*json.loads(out)["known"][0]}
