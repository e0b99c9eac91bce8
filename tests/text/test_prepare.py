"""The command prepare, and what Ctrl-C leaves of it."""

import io
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from conventions import ROOT
from plain import finished, plain
from terminal import call

from helpers.base.errors import CourseError
from helpers.text import corpus, prepare, records, sources

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "helpers", "prepare")


def prepared(*words, status=0):
    done = call(*COMMAND, *map(str, words))
    assert done.returncode == status, done.stderr
    return done


def test_prepare_holds_out_one_document_in_ten(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"문서 {number}번\u200b입니다.\n\n" for number in range(40)), "utf-8")
    said = prepared("-i", text, "-o", tmp_path / "out", "--shards", 3).stdout
    assert "40 texts: 0 not in NFC, 0 control and 40 invisible characters" in said
    assert "36 documents" in said
    held_out = records.manifest(tmp_path / "out" / prepare.HELD_OUT)
    assert held_out.documents == 4
    tokenizer = corpus.load_tokenizer()
    shown = tokenizer.decode(plain(held_out)["input_ids"][0], skip_special_tokens=True)
    assert "문서 9번입니다" in shown.replace(" 번", "번")


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(tmp_path, texts):
    workers, text, output = 2, tmp_path / "text.txt", tmp_path / "out"
    text.write_text("\n".join(texts * 100), "utf-8")
    words = ["-i", text, "-o", output, "--shards", 60, "--workers", workers]
    run = subprocess.Popen(
        [*COMMAND, *map(str, words)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not finished(output):
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all processes
    told = run.communicate(timeout=60)[1]
    assert run.returncode == 130, told
    assert "Finished shards are kept: run the same command again to go on." in told
    assert "Traceback" not in told and "KeyboardInterrupt" not in told
    kept = finished(output)
    written = {path.name for path in output.glob("*.tfrecord")}
    # One may be whole and not yet described: it counts as missing, and is written again.
    assert 0 < len(kept) < 60 and set(kept) <= written and len(written - set(kept)) <= workers


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_has_a_rate_and_the_time_left(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with prepare._bars(4_000_000) as done:
        for _ in range(2):
            done("read", 1_000_000)
            time.sleep(0.05)
    shown = re.sub(r"\x1b\[[\d;]*m", "", sys.stderr.getvalue())
    assert re.search(r"2 of 4 MB, [\d.,]+ MB/s +0:\d\d:\d\d", shown)


def test_a_run_that_fails_at_its_options_reads_no_text(tmp_path, monkeypatch):
    def read(*_, **__):
        raise AssertionError("text is read")

    monkeypatch.setattr(sources.Source, "documents", read)
    wanted = {"texts": [str(corpus.DATA / "ko.txt")], "tokenizer": None, "sequence_length": 128}
    wanted |= {"shards": 8, "workers": 1, "seed": 0}
    for wrong in ({"seed": -1}, {"shards": 0}, {"texts": [str(tmp_path / "none")]}):
        with pytest.raises(CourseError):
            list(prepare.prepare(str(tmp_path / "out"), **wanted | wrong))
    with pytest.raises(CourseError):
        list(prepare.prepare("s3://mine", **wanted))
    with pytest.raises(AssertionError, match="text is read"):
        list(prepare.prepare(str(tmp_path / "out"), **wanted))
    assert not list(tmp_path.iterdir())
