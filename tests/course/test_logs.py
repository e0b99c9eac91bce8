"""Any paste is read: bytes of any encoding, colours, prompts, broken lines; in linear time."""

import os
import pty
import re
import sys

import nbformat
import pytest
from cases import cases
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from terminal import call, without
from typer.testing import CliRunner

from helpers.course.commands.app import app
from helpers.course.help import logs
from helpers.course.help.explain import SYMPTOMS, explain
from helpers.course.help.logs import Log, Words

SAID = "ValueError: Please provide a TPU Name to connect to."
NAME = "The resolver doesn't know which TPU"


@pytest.mark.parametrize(
    "data",
    [
        SAID.encode(),
        b"\xef\xbb\xbf" + SAID.encode(),
        b"\xff\xfe" + SAID.encode("utf-16-le"),
        b"\xfe\xff" + SAID.encode("utf-16-be"),
        b"\xff\xfe" + SAID.encode("utf-16-le") + b"\n",  # half a character at the end
        SAID.encode("utf-16-le"),  # the mark is lost
        "텐서플로: ".encode("cp949") + SAID.encode(),
        "Fehler für ".encode("cp1252") + SAID.encode() + b"\x80\x00",
        b"\xff\xfe" + SAID.encode(),  # no UTF-16, whatever the mark says
        b"first\n" + ("\n" + SAID).encode("utf-16-le"),  # PowerShell's >> on a file of UTF-8
    ],
)
def test_bytes_of_any_encoding_become_text(data):
    assert explain(logs.decode(data)).matches[0].symptom.name == NAME


def test_korean_in_utf_16_stays_readable():
    text = "오류: Please provide a TPU Name to connect to."
    assert explain(logs.decode(b"\xff\xfe" + text.encode("utf-16-le"))).matches[0].evidence == text


@pytest.mark.parametrize("text", cases(__file__, "spelled"))
def test_colours_prompts_times_and_broken_lines_are_read(text):
    assert [match.symptom.name for match in explain(text).matches] == [NAME]


@pytest.mark.parametrize("text", cases(__file__, "quoted"))
def test_quotation_marks_are_read_however_they_were_written(text):
    assert explain(text).matches[0].symptom.name == "TensorFlow is not installed here"


def test_an_index_in_brackets_is_no_colour_and_no_prefix():
    assert logs.clean("indices[0] = 5 f32[3;4] [0] = x") == ["indices[0] = 5 f32[3;4] [0] = x"]


def test_what_stands_between_and_near_is_bounded():
    log = Log("alpha" + "x" * 200 + "omega")
    assert log.find(Words("alpha…omega"))
    assert not Log("alpha" + "x" * 201 + "omega").find(Words("alpha…omega"))
    for distance, found in ((1400, True), (1600, False)):
        text = "alpha" + " x" * (distance // 2) + " omega " + " y" * 1000
        assert bool(Log(text).find(Words("alpha", near=("omega",)))) is found
        assert bool(Log(text).find(Words("alpha", unless=("omega",)))) is not found
    assert Log("size 8 GB").find(Words("size", then=r" \d"))
    assert not Log("size x GB").find(Words("size", then=r" \d"))
    # A place that fails doesn't hide a later one.
    assert Log("alpha beta" + " x" * 2000 + " alpha").find(Words("alpha", unless=("beta",)))


def test_the_evidence_is_the_line_and_a_long_one_keeps_the_place_in_sight():
    assert Log("one\ntwo alpha\nthree").find(Words("alpha")) == "two alpha"
    assert Log("one\ntwo al\npha x\nthree").find(Words("alpha")) == "two alpha x"
    long = Log("x " * 300 + "alpha" + " y" * 300).find(Words("alpha"))
    assert len(long) <= 160 and " alpha y" in long and long[0] == long[-1] == "…"


@pytest.mark.parametrize(("text", "line"), cases(__file__, "last_line"))
def test_the_line_that_matters_is_the_last_errors(text, line):
    assert Log(text).last_error() == line


def test_the_search_is_for_the_errors_own_words():
    line = "a.b.InvalidArgumentError: Shapes (3, 4) of 'x' do not broadcast well {{node a/b}}"
    assert logs.search_address(line).endswith("type=issues&q=%22do+not+broadcast+well%22")


@pytest.mark.slow
def test_a_long_log_takes_time_in_proportion_to_its_length():
    """Half a megabyte of each; with a pattern that is quadratic, one of them took half a minute."""
    script = (
        "import sys\nfrom helpers.course.help.explain import explain\n"
        f"for unit in {cases(__file__, 'repeated')!r}:\n"
        "    explain(unit * (500_000 // len(unit)))\n"
        "print('done')"
    )
    assert call(sys.executable, "-c", script, timeout=60).stdout == "done\n"


def test_no_expression_reads_further_than_its_bound():
    from re import _parser as parser  # the expression's width, as Python itself computes it

    expressions = [words.then for symptom in SYMPTOMS for words in symptom.seen if words.then]
    assert expressions
    for expression in expressions:
        assert parser.parse(expression).getwidth()[1] <= 200, expression


def test_of_a_notebook_the_outputs_are_read_and_not_what_it_teaches(tmp_path):
    path = tmp_path / "my.ipynb"
    prose = new_markdown_cell("`Socket closed`, UNAVAILABLE: Socket closed")
    error = new_output("error", ename="ValueError", evalue=SAID, traceback=["..."])
    printed = new_output("stream", name="stderr", text="val_loss: nan\n")
    cells = [prose, new_code_cell("x", outputs=[printed]), new_code_cell("y", outputs=[error])]
    nbformat.write(new_notebook(cells=cells), path)
    names = {match.symptom.name for match in explain(logs.read(path)).matches}
    assert names == {NAME, "Only the validation loss is not a number"}
    for text in ("not JSON: ", "[1] ", '{"cells": [3]} '):
        path.write_text(text + SAID)
        assert explain(logs.read(path)).matches[0].symptom.name == NAME


def test_the_command_reads_a_file(tmp_path):
    path = tmp_path / "train.log"
    path.write_bytes(b"\xff\xfe" + SAID.encode("utf-16-le"))
    for word, given in ((str(path), None), ("-", SAID)):
        done = CliRunner().invoke(app, ["explain", word], input=given)
        assert (done.exit_code, done.stdout.splitlines()[0]) == (0, NAME)
        assert "\x1b" not in done.stdout and "https://github.com/tensorflow" in done.stdout


def test_a_terminal_gets_colours_and_links(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(SAID)
    master, slave = pty.openpty()
    environment = without("NO_COLOR", "FORCE_COLOR") | {"TERM": "xterm-256color"}
    words = sys.executable, "-m", "helpers", "explain", path
    call(*words, stdin=-3, stdout=slave, capture_output=False, env=environment)
    os.close(slave)
    shown = b""
    try:
        while part := os.read(master, 65536):
            shown += part
    except OSError:  # Linux says so where the other end is closed
        pass
    os.close(master)
    link = rb"\x1b\]8;[^;]*;https://github\.com/tensorflow/tensorflow/issues/\d+\x1b"
    assert re.search(link, shown) and b"\x1b[36m" in shown
