"""The command line: one message for bad input, an example in each help, nothing heavy imported."""

import errno
import logging
import os
import pathlib
import re
import shlex
import signal
import site
import subprocess
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
    OSError(errno.EMFILE, "Too many", "a.txt"),
    UnicodeEncodeError("ascii", "é", 0, 1, "no"),
]
FILES = {
    "a.txt": "one\ntwo\n",
    "empty.txt": "",
    "a.jsonl": '{"body": "one"}\n',
    "folder/x": "mine",
    "other/settings.json": '{"theme": "dark"}',
    "a.log.gz": "\x1f\x8b",
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
        with pytest.raises(SystemExit) as ending:
            commands.command()
        output, errors = capsys.readouterr()
        return ending.value.code, output, errors

    for owner, name in ((sys, "unraisablehook"), (logging, "lastResort")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(logging, "raiseExceptions", True)
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def plain(text):
    """A message without frames and line ends."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("line", MISUSES)
def test_a_misuse_ends_with_one_message_and_leaves_nothing(line, command, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # its import fails
    monkeypatch.setattr("helpers.base.folders.PATIENCE", 1)
    status, output, errors = command(*shlex.split(line))
    assert status == 2, output + errors
    assert plain(MISUSES[line]) in plain(errors)
    assert len(errors.strip().splitlines()) <= LONGEST, errors
    texts = {}
    for path in pathlib.Path().rglob("*"):
        if path.is_file():
            texts[str(path)] = path.read_text("latin-1")
    assert texts == FILES


def test_help_has_the_learner_s_commands_first_and_an_example_of_each(command):
    status, page, _ = command("-h")
    names = []
    for group in GROUPS.values():
        names += group
    assert status == 0
    assert re.findall(r"^│ (\w+) ", page, re.MULTILINE) == names
    for name in names:
        status, output, _ = command(name, "-h")
        assert status == 0
        assert f"tpu-course {name}" in output.replace("Usage: tpu-course", "")


@pytest.fixture
def opened_pages(monkeypatch) -> list[str]:
    """The addresses that a command opens in a browser."""
    addresses = []
    monkeypatch.setattr(notebooks.typer, "launch", addresses.append)
    return addresses


def test_a_run_tells_by_its_status_that_a_notebook_failed(
    command, monkeypatch, tmp_path, opened_pages
):
    calls = []

    def run(*arguments, **options):
        calls.append((arguments, options))
        return (running.Result("02_b", "failed", 1.5, 3, "ValueError: no"),)

    monkeypatch.setattr(catalog, "BUILD", tmp_path)
    monkeypatch.setattr(running, "run", run)
    page = tmp_path / "workshop/index.html"
    assert command("run", "2", "--workshop") == (1, f"Results: {page}\n", "")
    assert opened_pages == []
    (((selection, build), options),) = calls
    assert [notebook.number for notebook in selection] == ["02"]
    assert build == page.parent
    assert options == {"workshop": True}


def test_a_run_opens_its_page_at_a_terminal(command, monkeypatch, tmp_path, opened_pages):
    monkeypatch.setattr(catalog, "BUILD", tmp_path)
    monkeypatch.setattr(running, "run", lambda *_, **__: ())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("DISPLAY", ":0")
    assert command("run", "2")[0] == 0
    assert opened_pages == [(tmp_path / "index.html").as_uri()]


def test_a_folder_that_is_gone_is_told(command, monkeypatch):
    monkeypatch.setattr(pathlib.Path, "cwd", unittest.mock.Mock(side_effect=FileNotFoundError))
    assert "The current folder is gone." in command("prepare")[2]


def test_a_closed_output_or_input_does_no_harm(command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert command("explain")[0] == 1
    monkeypatch.setattr(sys, "stdout", None)
    assert command("prepare", "-i", "b.txt")[0] == 2


def test_a_full_disk_behind_the_output_is_told():
    process = call("sh", "-c", f"echo | {sys.executable} -m course explain > /dev/full")
    assert process.returncode == 2
    assert "Why: The disk is full.\n" in process.stderr
    assert len(process.stderr.splitlines()) == 3


@pytest.mark.parametrize(
    ("stream", "words", "status"),
    [("stdout", ["explain", "--page"], 0), ("stderr", ["run", "99"], 2)],
)
def test_a_reader_that_has_ended_ends_no_command(stream, words, status):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: pipe}
        command = [sys.executable, "-m", "course", *words]
        process = subprocess.run(command, cwd=ROOT, text=True, **streams)
    assert process.returncode == status
    assert not process.stdout and not process.stderr


@pytest.mark.parametrize("owner", [running, app])  # within a command, and around them
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_whatever_happens_is_told_without_a_traceback(command, monkeypatch, owner, error):
    monkeypatch.setattr(owner, "run", unittest.mock.Mock(side_effect=error))
    status, _, message = command("run", "2")
    assert status == 2
    assert "Traceback" not in message
    assert len(message.splitlines()) <= 3
    causes = type(error).__name__, "Too many files are open (ulimit -n) (a.txt)."
    assert any(cause in message for cause in causes)


class RaisesWhenCollected:
    """Sends SIGTERM in a destructor, where Python can't raise: it only writes the error down."""

    def __del__(self):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("send", [RaisesWhenCollected, lambda: signal.raise_signal(signal.SIGTERM)])
def test_sigterm_ends_a_command_in_order(command, monkeypatch, send):
    endings = []

    def run(*_, **__):
        try:
            send()
            time.sleep(30)
        finally:
            endings.append("kernels")

    monkeypatch.setattr(running, "run", run)
    assert command("run", "2") == (143, "", "")
    assert endings == ["kernels"]


# Before the shards, where only Typer hears of it; while they are written.
@pytest.mark.parametrize("function", ["course.documents.find", "helpers.text.records.write"])
def test_ctrl_c_is_told_once(command, monkeypatch, function):
    def interrupt(*_, **__):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(function, interrupt)
    status, _, errors = command("prepare", "-i", "a.txt", "-o", "out")
    assert status == 130
    assert errors.count("Stopped.") == 1


def test_a_command_that_needs_no_tensorflow_and_no_jupyter_imports_neither():
    script = "import course.commands.app, course.learner_copy, sys\n"
    script += "assert not {'tensorflow', 'nbformat', 'papermill', 'babel'} & {*sys.modules}"
    assert call(sys.executable, "-c", script).returncode == 0


def test_a_flag_of_python_that_would_go_on_reading_is_dropped():
    environment = {"PATH": os.environ["PATH"], "PYTHONINSPECT": "1"}
    words = [sys.executable, "-m", "course", "run", "99"]
    process = call(*words, env=environment, input="print(6 * 7)\n")
    assert process.returncode == 2
    assert "42" not in process.stdout


@pytest.mark.parametrize("name", ["re", "numpy"])
def test_a_file_on_pythonpath_that_hides_a_module_is_named(tmp_path, name):
    (tmp_path / f"{name}.py").write_text("")
    # Without `site`, as the command is installed: what this venv runs at each start needs `re`.
    folders = [tmp_path, ROOT, ROOT / "tpu_preflight/src", *site.getsitepackages()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    words = [sys.executable, "-S", "-m", "course", "prepare", "-o", tmp_path / "records"]
    process = call(*words, env=environment, cwd=tmp_path)
    assert process.returncode == 2, process.stderr
    assert len(process.stderr.splitlines()) == 3, process.stderr
    assert f"hides what the course imports: {name}." in process.stderr
    assert str(tmp_path / f"{name}.py") in process.stderr
