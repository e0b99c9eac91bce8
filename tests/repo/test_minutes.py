"""The minutes in notebooks and README are counted."""

import json
import re
import shutil

import pytest
from conventions import NOTEBOOKS, ROOT
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell
from typer.testing import CliRunner

from helpers.course import upkeep
from helpers.course.commands.app import app


def code(source, *tags):
    return new_code_cell(source, metadata={"tags": [*tags]})


def test_words_lines_and_exercises_are_counted():
    cells = [
        new_markdown_cell("# Two words\n\n[a *link*](https://x.invalid/not/counted) don't 3.5"),
        code("import a\nimport b", "setup"),
        code("x = 1\n\n# why\ny = 2\n"),
        new_markdown_cell("```sh\nls -l\n\nrm x\n```\none"),
        code("def f():\n    raise NotImplementedError", "exercise"),
        code('check("01-1", f)'),
        code('hint("01-1")'),
        code("# @title Optional\nassert x", "hide-input"),
        code("answer = None", "question"),
    ]
    counted = upkeep.length(cells, 60)
    assert (counted.words, counted.lines, counted.exercises, counted.questions) == (7, 5, 1, 1)
    by_hand = 7 / 175 + 5 * 60 / 500 + 5 + 1 + 1
    assert counted.minutes == pytest.approx(by_hand)
    assert repr(counted) == "7 words, 5 lines, 1 exercises, 1 questions, 60 s to run: 8 minutes"
    more = [new_markdown_cell("five more words of text", metadata={"tags": ["sitting"]}), *cells]
    parts = upkeep.sittings(cells + more + cells, 63)
    assert [(part.words, part.run_seconds) for part in parts] == [(7, 21), (19, 42)]
    whole = upkeep.whole(parts)
    assert (whole.words, whole.exercises, whole.run_seconds) == (26, 3, 63)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_sitting_takes_forty_minutes_at_most_and_says_how_long(path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    parts = upkeep.sittings(cells, upkeep.RUN_SECONDS[path.name[:2]])
    assert max(part.rounded_as_sitting for part in parts) <= upkeep.LONGEST_SITTING
    texts = ["".join(c["source"]) for c in cells if "sitting" in c["metadata"].get("tags", ())]
    said = [int(re.search(r"\*\*Time\*\* about (\d+) minutes\.", text)[1]) for text in texts]
    off = [abs(x - part.minutes) for x, part in zip(said, parts[1:], strict=True)]
    assert max(off, default=0) < 0.8 * upkeep.STEP_OF_SITTING, "write it again: tpu-course minutes"


@given(st.integers(0, 20_000), st.integers(0, 2_000), st.integers(0, 9), st.floats(0, 600))
def test_the_printed_number_is_round_and_near(words, lines, exercises, seconds):
    counted = upkeep.Length(words, lines, exercises, seconds)
    assert counted.rounded % upkeep.STEP == 0 and counted.rounded > 0
    assert abs(counted.rounded - max(counted.minutes, upkeep.STEP)) <= upkeep.STEP / 2


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(10, "less than a minute"), (62, "about a minute"), (104, "about 2 minutes")],
)
def test_the_time_to_run_is_said_in_words(seconds, words):
    counted = upkeep.Length(1750, 0, 0, seconds)
    assert counted.words_to_say_it() == f"about 10 minutes to read and try; {words} to run"
    assert counted.words_to_say_it(2) == (
        f"about 10 minutes to read and try, in 2 sittings; {words} to run"
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_time_line_and_the_readme_say_what_was_counted(path):
    assert path.name[:2] in upkeep.RUN_SECONDS, "it was not measured"
    parts = upkeep.lengths()[path.name[:2]]
    counted = upkeep.whole(parts)
    first = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])
    said = re.search(r"\*\*Time\*\* (about (\d+) minutes .*?) · ", first)
    readme = (ROOT / "README.md").read_text("utf-8")
    in_readme = re.search(rf"\| \[{path.name[:2]}\].*?\| (\d+) min(?:, (\d) sittings)? \|", readme)
    # A few words more or less must not send an author to the command.
    command = "write it again: tpu-course minutes"
    assert abs(int(said[2]) - counted.minutes) < 0.8 * upkeep.STEP, command
    assert said[1] == counted.words_to_say_it(len(parts)).replace(
        str(counted.rounded), said[2], 1
    ), command
    assert (said[2], len(parts)) == (in_readme[1], int(in_readme[2] or 1)), command


def test_the_readme_says_how_long_the_whole_course_takes():
    readme = (ROOT / "README.md").read_text("utf-8")
    minutes = [int(found) for found in re.findall(r"\| (\d+) min[^|]*\|", readme)]
    hours = int(re.search(r"About (\d+) hours in all", readme)[1])
    assert len(minutes) == len(NOTEBOOKS) and abs(sum(minutes) / 60 - hours) < 1


def test_the_command_writes_them_again_and_only_then(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    for path in (ROOT / "README.md", *NOTEBOOKS):
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    upkeep.write_lengths(tmp_path)
    right = {path: path.read_text("utf-8") for path in tmp_path.rglob("*.*") if path.is_file()}
    assert upkeep.write_lengths(tmp_path) == []
    third, readme = tmp_path / "notebooks" / NOTEBOOKS[3].name, tmp_path / "README.md"
    third.write_text(right[third].replace("**Time** about ", "**Time** about 1", 1), "utf-8")
    readme.write_text(re.sub(r"\d+ min\b[^|]* \|", "1 min |", right[readme]), "utf-8")
    assert upkeep.write_lengths(tmp_path) == [readme, third]
    assert {path: path.read_text("utf-8") for path in right} == right
    monkeypatch.setattr(upkeep, "lengths", lambda: {"00": [upkeep.Length(1, 2, 3, 4.0)] * 2})
    monkeypatch.setattr(upkeep, "write_lengths", lambda: [third])
    said = CliRunner().invoke(app, ["minutes"]).stdout
    assert said == (
        "00: 2 words, 4 lines, 6 exercises, 0 questions, 8 s to run: 31 minutes\n"
        "  sitting 1: 1 words, 2 lines, 3 exercises, 0 questions, 4 s to run: 15 minutes\n"
        "  sitting 2: 1 words, 2 lines, 3 exercises, 0 questions, 4 s to run: 15 minutes\n"
        f"changed {third.name}\n"
    )
