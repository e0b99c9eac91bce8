"""The command line: one message for bad input, an example in each help, nothing heavy imported."""

import errno
import logging
import os
import pathlib
import re
import shlex
import signal
import site
import sys
import time
import tomllib
import unittest.mock

import pytest
from conventions import ROOT
from terminal import call

import course.__main__ as commands
from course import catalog, running
from course.commands import app, notebooks
from course.commands.app import GROUPS

MISUSES = tomllib.loads((ROOT / "tests/course/misuses.toml").read_text("utf-8"))["misuses"]
LONGEST = 8  # lines of a message: what, why and fix, or typer's usage and its frame
ERRORS = [
    MemoryError(),
    RecursionError("a\nb"),
    BrokenPipeError(),
    ImportError("no x"),
    *(OSError(errno.EMFILE, "Too many", "a.txt"), UnicodeEncodeError("ascii", "é", 0, 1, "no")),
]
FILES = {
    **{"a.txt": "one\ntwo\n", "empty.txt": "", "a.jsonl": '{"body": "one"}\n'},
    **{"folder/x": "mine", "other/settings.json": '{"theme": "dark"}', "a.log.gz": "\x1f\x8b"},
}


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """The command line in a folder with some files; gives its status, output and errors."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "latin-1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["course", *words])
        with pytest.raises(SystemExit) as left:
            commands.command()
        out, err = capsys.readouterr()
        return left.value.code, out, err

    for owner, name in ((sys, "unraisablehook"), (logging, "lastResort")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(logging, "raiseExceptions", True)
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


def plain(text):
    """What is said, without frames and line ends."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("line", MISUSES)
def test_a_misuse_ends_with_one_message_and_leaves_nothing(line, command, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # its import fails
    monkeypatch.setattr("helpers.base.folders.PATIENCE", 1)
    status, out, err = command(*shlex.split(line))
    assert (status, plain(MISUSES[line]) in plain(err)) == (2, True), out + err
    assert len(err.strip().splitlines()) <= LONGEST, err
    assert {str(path) for path in pathlib.Path().rglob("*") if path.is_file()} == {*FILES}
    assert all(pathlib.Path(name).read_text("latin-1") == text for name, text in FILES.items())


def test_help_has_the_learner_s_commands_first_and_an_example_of_each(command):
    status, page, _ = command("-h")
    names = [name for group in GROUPS.values() for name in group]
    assert (status, re.findall(r"^│ (\w+) ", page, re.MULTILINE)) == (0, names)
    for name in names:
        status, out, _ = command(name, "-h")
        assert status == 0 and f"tpu-course {name}" in out.replace("Usage: tpu-course", "")


def test_a_run_tells_by_its_status_and_opens_its_page_at_a_terminal(command, monkeypatch, tmp_path):
    monkeypatch.setattr(catalog, "BUILD", tmp_path)
    given, opened = [], []
    monkeypatch.setattr(notebooks.typer, "launch", opened.append)
    failed = running.Result("02_b", "failed", 1.5, 3, "ValueError: no")
    monkeypatch.setattr(running, "run", lambda *a, **b: given.append((a, b)) or (failed,))
    page = tmp_path / "workshop/index.html"
    said = command("run", "2", "--workshop")
    assert said == (1, f"Results: {page}\n", "") and not opened
    ((((notebook,), build), options),) = given
    assert (notebook.number, build, options) == ("02", page.parent, {"workshop": True})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("DISPLAY", ":0")
    assert command("run", "2")[0] == 1 and opened == [(tmp_path / "index.html").as_uri()]


def test_a_folder_that_is_gone_is_told(command, monkeypatch):
    monkeypatch.setattr(pathlib.Path, "cwd", unittest.mock.Mock(side_effect=FileNotFoundError))
    assert "The current folder is gone." in command("prepare")[2]


def test_a_closed_output_or_input_does_no_harm(command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert command("explain")[0] == 1
    monkeypatch.setattr(sys, "stdout", None)
    assert command("prepare", "-i", "b.txt")[0] == 2


def test_a_full_disk_behind_the_output_is_told():
    done = call("sh", "-c", f"echo | {sys.executable} -m course explain > /dev/full")
    assert done.returncode == 2 and "Why: The disk is full.\n" in done.stderr
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.parametrize("owner", [running, app])  # within a command, and around them
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_whatever_happens_is_told_without_a_traceback(command, monkeypatch, owner, error):
    monkeypatch.setattr(owner, "run", unittest.mock.Mock(side_effect=error))
    status, _, err = command("run", "2")
    assert status == 2 and "Traceback" not in err and len(err.splitlines()) <= 3
    assert type(error).__name__ in err or "Too many files are open (ulimit -n) (a.txt)." in err


@pytest.mark.parametrize("lost", [False, True])
def test_sigterm_ends_a_command_in_order(command, monkeypatch, lost):
    ended = []

    class Lost:  # what is raised in a destructor, Python only writes down
        __del__ = staticmethod(lambda: signal.raise_signal(signal.SIGTERM))

    def stopped(*_, **__):
        try:
            Lost() if lost else signal.raise_signal(signal.SIGTERM)
            time.sleep(30)
        finally:
            ended.append("kernels")

    monkeypatch.setattr(running, "run", stopped)
    assert command("run", "2") == (143, "", "") and ended


def test_a_command_that_needs_no_tensorflow_and_no_jupyter_imports_neither():
    script = "import course.commands.app, course.learner_copy, sys\n"
    script += "assert not {'tensorflow', 'nbformat', 'papermill', 'babel'} & {*sys.modules}"
    assert call(sys.executable, "-c", script).returncode == 0


def test_a_flag_of_python_that_would_go_on_reading_is_dropped():
    given = {"PATH": os.environ["PATH"], "PYTHONINSPECT": "1"}  # Python would read on at its end
    done = call(sys.executable, "-m", "course", "run", "99", env=given, input="print(6 * 7)\n")
    assert done.returncode == 2 and "42" not in done.stdout


@pytest.mark.parametrize("name", ["re", "numpy"])
def test_a_file_on_pythonpath_that_hides_a_module_is_named(tmp_path, name):
    (tmp_path / f"{name}.py").write_text("")
    # Without `site`, as the command is installed: what this venv runs at each start needs `re`.
    folders = [tmp_path, ROOT, ROOT / "tpu_preflight/src", *site.getsitepackages()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    words = [sys.executable, "-S", "-m", "course", "prepare", "-o", tmp_path / "records"]
    process = call(*words, env=environment, cwd=tmp_path)
    assert process.returncode == 2 and len(process.stderr.splitlines()) == 3, process.stderr
    assert f"hides what the course imports: {name}." in process.stderr
    assert str(tmp_path / f"{name}.py") in process.stderr
