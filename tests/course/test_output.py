"""Commands print on every output: one of few characters, a closed pipe, a terminal."""

import os
import pty
import re
import subprocess
import sys

import pytest
from conventions import ROOT
from terminal import call, without

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "course"]


def bare() -> dict[str, str]:
    """Without what others set for Python and for colours."""
    return without("PYTHON", "NO_COLOR", "FORCE_COLOR", "LC_", "LANG")


def test_a_command_prints_in_few_characters():
    environment = bare() | {"PYTHONIOENCODING": "cp949"}
    text = "Error: ✗ ☃ 한국어".encode()
    process = call(*COMMAND, "explain", input=text, env=environment, text=False)
    assert process.returncode in (0, 1)
    assert process.stdout
    assert b"Traceback" not in process.stderr


def test_a_command_ends_quietly_when_the_reader_of_its_output_has_left():
    reader, writer = os.pipe()
    os.close(reader)
    line = [*COMMAND, "explain", "--page"]
    process = subprocess.run(line, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, env=bare())
    os.close(writer)
    assert process.returncode == 0
    assert process.stderr == b""


@pytest.mark.parametrize(("no_color", "is_colored"), [("", True), ("1", False)])
@pytest.mark.parametrize("words", ["explain nowhere.log", "--help"])
def test_no_color_is_obeyed_on_a_terminal(words, no_color, is_colored):
    reader, writer = pty.openpty()
    environment = bare() | {"NO_COLOR": no_color, "TERM": "xterm-256color"}
    line = [*COMMAND, *words.split()]
    subprocess.run(line, stdout=writer, stderr=writer, cwd=ROOT, env=environment)
    output = os.read(reader, 2**16).decode(errors="replace")
    os.close(writer)
    os.close(reader)
    assert bool(re.search(r"\x1b\[[\d;]*(3|9)[0-7]m", output)) is is_colored
