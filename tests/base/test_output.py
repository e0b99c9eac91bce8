"""Commands print on every output: one of few characters, a closed pipe, a terminal."""

import os
import re
import subprocess
import sys

import pytest
from conventions import ROOT
from terminal import call, without

from helpers.base.settings import ENVIRONMENT

REFUSED = "explain nowhere.log"


def bare() -> dict[str, str]:
    """Without what others set for Python and for colours."""
    return without("PYTHON", "NO_COLOR", "FORCE_COLOR", "LC_", "LANG")


def run(words: str, **environment: str) -> subprocess.CompletedProcess:
    """Run a command in a shell."""
    line = f"'{sys.executable}' -m helpers {words}"
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    return call("bash", "-c", line, env=bare() | environment, encoding=encoding)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["cp1252", "cp949"])
@pytest.mark.parametrize("words", ["--help", "explain <<< 'Error: ✗ ☃ 한국어'"])
def test_a_command_prints_in_few_characters(words, encoding):
    done = run(words, PYTHONIOENCODING=encoding)
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr and (done.stdout or done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_ends_quietly_when_the_reader_of_its_output_has_left(unbuffered):
    reader, writer = os.pipe()
    os.close(reader)
    line = [sys.executable, "-m", "helpers", "explain", "--page"]
    environment = bare() | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(line, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, env=environment)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.slow
@pytest.mark.parametrize(("no_colour", "coloured"), [("", True), ("1", False)])
@pytest.mark.parametrize("words", [REFUSED, "--help"])
def test_no_color_is_obeyed_on_a_terminal(words, no_colour, coloured):
    pty = pytest.importorskip("pty")
    reader, writer = pty.openpty()
    environment = bare() | {"NO_COLOR": no_colour, "TERM": "xterm-256color"}
    line = [sys.executable, "-m", "helpers", *words.split()]
    subprocess.run(line, stdout=writer, stderr=writer, cwd=ROOT, env=environment)
    said = os.read(reader, 2**16).decode(errors="replace")
    os.close(writer), os.close(reader)
    assert bool(re.search(r"\x1b\[[\d;]*(3|9)[0-7]m", said)) is coloured


@pytest.mark.slow
def test_what_tensorflow_logs_below_errors_stays_off_the_terminal():
    program = (
        "import tensorflow as tf\n"
        "from helpers.base.output import errors_only\n"
        "tf.get_logger().warning('before')\n"
        "errors_only(tf)\n"
        "tf.get_logger().warning('cos')\n"
        "tf.function(tf.cos, jit_compile=True)(1.0)\n"
    )
    done = call(sys.executable, "-c", program, env=bare() | ENVIRONMENT)
    said = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.returncode == 0 and len(said) == 1 and said[0].endswith("before"), said
