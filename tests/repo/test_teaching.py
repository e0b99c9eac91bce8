"""The teacher's plans by the clock: no row asks for more than fits into its minutes."""

import json
import math
import pathlib
import re
import tomllib

import pytest
from conventions import NOTEBOOKS, ROOT, is_appendix, source, tags

TEACHING = (ROOT / "notebooks/TEACHING.md").read_text("utf-8")

# The pace that TEACHING.md names.
WORDS_A_MINUTE = 130
MINUTES_OF_A_CELL = 1.5
MINUTES_OF_A_QUESTION = 2
MINUTES_OF_AN_EXERCISE = {"Recall": 5, "Change": 10, "Build": 20}

PLANS = {"90 minutes": 90, "Half a day": 240, "Day one": 360, "Day two": 360}
EXERCISE = re.compile(r"\*\*(\d\d-\d) · (\w+)\.\*\*")


def cells_of(path: pathlib.Path) -> list[dict]:
    return json.loads(path.read_text("utf-8"))["cells"]


def exercises() -> dict[str, int]:
    """The minutes of each exercise of the course."""
    minutes = {}
    for path in NOTEBOOKS:
        for cell in cells_of(path):
            if heading := EXERCISE.match(source(cell)):
                minutes[heading[1]] = MINUTES_OF_AN_EXERCISE[heading[2]]
    return minutes


def section(cells: list[dict], title: str) -> list[dict]:
    """The cells below a heading, as far as the next one, a new sitting or an exercise."""
    titles = [source(cell).partition("\n")[0] for cell in cells]
    begin = titles.index(f"## {title}")
    end = begin + 1
    while end < len(cells) and not titles[end].startswith("## "):
        if EXERCISE.match(titles[end]):
            break
        end += 1
    return cells[begin:end]


def words(text: str) -> int:
    """What is read aloud: neither the address of a link nor a tag of HTML."""
    return len(re.sub(r"\]\([^)]*\)|<[^>]*>", "", text).split())


def is_run_in_class(cell: dict) -> bool:
    """Code that a class reads: neither folded, nor an exercise with its check and hints."""
    if {"hide-input", "exercise", "parameters"}.intersection(tags(cell)):
        return False
    return not re.match(r"check\(|hint\(", source(cell))


def minutes_of(cells: list[dict]) -> float:
    """How long a class takes for the core of these cells; exercises count apart."""
    minutes = 0.0
    for cell in cells:
        if "beyond-core" in tags(cell):
            continue
        if cell["cell_type"] == "markdown":
            minutes += words(source(cell)) / WORDS_A_MINUTE
        elif "question" in tags(cell):
            minutes += MINUTES_OF_A_QUESTION
        elif is_run_in_class(cell):
            minutes += MINUTES_OF_A_CELL
    return minutes


def rows(plan: str) -> list[list[str]]:
    """The cells of a plan's table: minutes, notebook, section, sentence."""
    text = re.search(rf"^###? {plan}\n(.*?)(?=^##|\Z)", TEACHING, re.MULTILINE | re.DOTALL)[1]
    lines = [line for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    return [[field.strip() for field in line.split("|")[1:5]] for line in lines]


def needed(row: list[str]) -> float:
    """The minutes that a row's sections or exercises take."""
    link = re.search(r"\((\d\d_\w+\.ipynb)\)", row[1])
    if not link:
        return 0.0
    if row[2].startswith("Exercise"):
        all_exercises = exercises()
        return sum(all_exercises[name] for name in re.findall(r"\d\d-\d", row[2]))
    cells = cells_of(ROOT / "notebooks" / link[1])
    return sum(minutes_of(section(cells, title)) for title in row[2].split("; "))


@pytest.mark.parametrize("plan", PLANS)
def test_each_row_of_a_plan_has_the_minutes_that_it_needs(plan):
    short = []
    for row in rows(plan):
        if needed(row) > int(row[0]) + 1:  # a sentence more or less changes no plan
            short.append(f"{row[2]}: {row[0]} minutes, needs {needed(row):.1f}")
    assert short == []


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_is_as_long_as_it_says(plan):
    assert sum(int(row[0]) for row in rows(plan)) == PLANS[plan]


def test_a_row_that_is_too_short_is_found():
    (row,) = [row for row in rows("90 minutes") if row[2].startswith("Rule 1")]
    assert 17 < needed(row) < 25  # a plan once gave it 16


def test_the_teacher_reads_the_pace_that_is_checked():
    pace = TEACHING.partition("We count ")[2].partition("\n\n")[0]
    numbers = re.findall(r"\d+(?:\.\d)?", pace)
    recall, change, build = MINUTES_OF_AN_EXERCISE.values()
    counted = [WORDS_A_MINUTE, MINUTES_OF_A_CELL, MINUTES_OF_A_QUESTION, recall, change, build]
    assert [float(number) for number in numbers] == counted


def test_the_notes_give_the_answers_that_the_course_takes():
    notes = TEACHING.partition("## Notes for the speaker\n")[2].partition("\n## ")[0]
    answers = re.findall(r"(\d\d-[a-z]): \((\w)\)", notes)
    assert [name for name, _ in answers] == ["00-a", "02-a", "02-b", "02-c"]
    for name, answer in answers:
        path = ROOT / f"helpers/exercises/notebook_{name[:2]}.toml"
        assert tomllib.loads(path.read_text("utf-8"))[name]["right"] == answer


def sittings() -> list[int]:
    """The minutes of each sitting of the course, in class: its core, then its exercises."""
    minutes = []
    for path in NOTEBOOKS:
        cells = cells_of(path)
        if is_appendix(cells):
            continue
        parts: list[list[dict]] = [[]]
        for cell in cells:
            if "sitting" in tags(cell):
                parts.append([])
            parts[-1].append(cell)
        for part in parts:
            total = minutes_of(part)
            for cell in part:
                if heading := EXERCISE.match(source(cell)):
                    total += MINUTES_OF_AN_EXERCISE[heading[2]]
            minutes.append(5 * math.ceil(total / 5))
    return minutes


def test_each_sitting_says_its_minutes_in_class():
    table = TEACHING.partition("| sitting | exercises | minutes |")[2].partition("\n\n")[0]
    stated = re.findall(r"^\| \[?\d\d.*? \| .*?\| (\d+) \| ", table, re.MULTILINE)
    for minutes, counted in zip(stated, sittings(), strict=True):
        assert abs(int(minutes) - counted) <= 5  # a sentence more or less changes no plan
