"""Commands print on every output: one of few characters, a closed pipe, a full disk."""

import io
import json
import os
import subprocess
import sys

import pytest
from conventions import ROOT
from terminal import call, without

from helpers.base import output  # noqa: F401 - names its way with what an encoding lacks
from helpers.base.settings import ENVIRONMENT

REFUSED = "explain nowhere.log"
COMMANDS = ["--help", "explain --page", "ops --stored", REFUSED, "doctor --bucket b"]
ENCODINGS = ["ascii", "cp1252", "cp949"]
FULL = "There is no room for what this command writes.\n  Why: No space left on device.\n"


def bare() -> dict[str, str]:
    """Without what others set for Python and for colours."""
    return without("PYTHON", "NO_COLOR", "FORCE_COLOR", "LC_", "LANG")


def run(words: str, *redirections: str, **environment: str) -> subprocess.CompletedProcess:
    """Run a command in a shell, after whose redirections only its own words are kept."""
    line = f"'{sys.executable}' -m helpers {words} {' '.join(redirections)}"
    # Typer takes ASCII for a mistake of the settings and writes UTF-8; rich writes ASCII.
    encoding = environment.get("PYTHONIOENCODING", "utf-8").replace("ascii", "utf-8")
    return call("bash", "-c", line, env=bare() | environment, encoding=encoding)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp949", "shift_jis", "utf-8"])
def test_what_an_encoding_lacks_is_written_in_ascii(encoding):
    kept = io.BytesIO()
    stream = io.TextIOWrapper(kept, encoding, "helpers.plain", newline="")
    text = "✓ ✗ “a” → b… – 5 × 3 · ½ café \udcff 한국어 ⠋"
    stream.write(json.dumps(text, ensure_ascii=False))
    stream.flush()
    said = json.loads(kept.getvalue().decode(encoding))
    assert len(said) >= len(text)
    if encoding == "ascii":
        assert said == "+ x 'a' -> b... - 5 x 3 . 1/2 cafe ? ??? ?"
    else:
        known = [x for x in text if x.encode(encoding, "ignore")]
        assert [x for x in known if x not in said] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "encoding"),
    [*zip([*COMMANDS, "explain <<< 'Error: ✗ ☃ 한국어'"], ENCODINGS * 3, strict=False)],
)
def test_a_command_prints_in_few_characters(words, encoding):
    done = run(words, PYTHONIOENCODING=encoding)
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr and (done.stdout or done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [("--help", ""), (REFUSED, ""), ("explain --page", "1")],
)
def test_a_command_ends_quietly_when_its_output_goes_nowhere(words, unbuffered):
    refused = words == REFUSED  # says why on stderr, which still works
    reader, writer = os.pipe()
    os.close(reader)
    line = [sys.executable, "-m", "helpers", *words.split()]
    environment = bare() | {"PYTHONUNBUFFERED": unbuffered}
    both = subprocess.run(line, stdout=writer, stderr=writer, cwd=ROOT, env=environment)
    os.close(writer)
    assert both.returncode == 1
    full = run(words, ">/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert full.returncode == 2
    assert FULL in full.stderr or refused
    assert "Traceback" not in full.stderr and len(full.stderr.splitlines()) <= 6
    assert run(words, ">/dev/full", "2>&1", PYTHONUNBUFFERED=unbuffered).returncode == 2
    closed = run(words, ">&-", "<&-", PYTHONUNBUFFERED=unbuffered)
    assert (closed.returncode, closed.stderr != "") == (2 * refused, refused)


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
    colours = [code for code in output_codes(said) if 30 <= code <= 37 or 90 <= code <= 97]
    assert bool(colours) is coloured


def output_codes(said: str) -> list[int]:
    """Numbers in the terminal's control sequences for style."""
    sequences = [part.partition("m")[0] for part in said.split("\x1b[")[1:]]
    return [int(number) for part in sequences for number in part.split(";") if number.isdigit()]


@pytest.mark.slow
def test_another_files_error_keeps_its_traceback():
    program = (
        "from helpers.base.output import on_any_output\n"
        "with on_any_output():\n"
        "    open('/no-such-folder/file')\n"
    )
    done = call(sys.executable, "-c", program)
    assert "Traceback" in done.stderr and "no-such-folder" in done.stderr


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
