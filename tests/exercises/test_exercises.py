"""Every exercise of the course, from one source: stub, solution, typical wrong answers, hints."""

import functools
import importlib
import pathlib
import re

import nbformat
import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from helpers import exercises
from helpers.__main__ import app

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOKS = {path.stem[:2]: path for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))}
MODULES = sorted(path.stem for path in (ROOT / "helpers/exercises").glob("notebook_*.py"))
EXERCISES = {
    name: exercise
    for module in MODULES
    for name, exercise in importlib.import_module(f"helpers.exercises.{module}").EXERCISES.items()
}
WRONG = [
    pytest.param(name, at, words, id=f"{name}-{at + 1}")
    for name, exercise in EXERCISES.items()
    for at, words in enumerate(exercise.wrong)
]


def answer(name, source):
    """Give what a learner who typed this source would hand to ``check``."""
    namespace = {"tf": tf, "np": np}
    exec(compile(source, f"<{name}>", "exec"), namespace)
    return namespace[EXERCISES[name].answer]


def test_every_notebook_has_its_exercises_and_the_reverse():
    assert MODULES
    assert [module.removeprefix("notebook_") for module in MODULES] == list(NOTEBOOKS)


@pytest.mark.parametrize("module", MODULES)
def test_names_are_the_notebooks_number_and_consecutive(module):
    number = module.removeprefix("notebook_")
    own = list(importlib.import_module(f"helpers.exercises.{module}").EXERCISES)
    assert own == [f"{number}-{at}" for at in range(1, len(own) + 1)]
    assert len(own) >= 3


@pytest.mark.parametrize("number", NOTEBOOKS)
def test_the_notebook_shows_each_stub_then_its_check(number):
    cells = nbformat.read(NOTEBOOKS[number], 4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    own = {name: e for name, e in EXERCISES.items() if name.startswith(f"{number}-")}
    at = [i for i, cell in enumerate(code) if "exercise" in cell.metadata.get("tags", [])]
    assert [code[i].source.rstrip() for i in at] == [e.stub.rstrip() for e in own.values()]
    for i, (name, exercise) in zip(at, own.items(), strict=True):
        asked = code[i + 1]
        assert asked.source.strip() == f'check("{name}", {exercise.answer})'
        shown = asked.outputs[0]["data"]["text/plain"]
        assert shown.startswith(f"Exercise {name}: not yet.")


@pytest.mark.parametrize("number", NOTEBOOKS)
def test_a_notebook_asks_to_recall_then_to_change_then_to_build(number):
    cells = nbformat.read(NOTEBOOKS[number], 4).cells
    at = [i for i, cell in enumerate(cells) if "exercise" in cell.metadata.get("tags", [])]
    asked = [
        re.match(r"\*\*(\d\d-\d+) · (Recall|Change|Build)\.\*\* \S", cells[i - 1].source)
        for i in at
    ]
    assert all(asked), [
        cells[i - 1].source for i, found in zip(at, asked, strict=True) if not found
    ]
    assert [found[1] for found in asked] == [n for n in EXERCISES if n.startswith(number)]
    kinds = [found[2] for found in asked]
    assert list(dict.fromkeys(kinds)) == ["Recall", "Change", "Build"]


@pytest.mark.parametrize("number", NOTEBOOKS)
def test_the_teachers_edition_differs_in_the_cells_of_exercises_only(number):
    learners = nbformat.read(NOTEBOOKS[number], 4)
    before = nbformat.writes(learners)
    teachers = exercises.solve(learners)
    assert nbformat.writes(learners) == before
    assert teachers.metadata == learners.metadata
    solutions = [e.solution.rstrip() for name, e in EXERCISES.items() if name.startswith(number)]
    shown = []
    for mine, theirs in zip(learners.cells, teachers.cells, strict=True):
        if "exercise" in mine.metadata.get("tags", []):
            shown.append(theirs.source)
            theirs.source = mine.source
        elif mine.source.startswith("check("):
            assert theirs.outputs == []
            theirs.outputs = mine.outputs
        assert theirs == mine
    assert shown == solutions


def test_an_edited_stub_is_solved_by_the_name_in_its_check():
    stub = nbformat.v4.new_code_cell("x = 1", metadata={"tags": ["exercise"]})
    between = nbformat.v4.new_code_cell("x")
    asked = nbformat.v4.new_code_cell('check("03-3", may_attend)')
    solved = exercises.solve(nbformat.v4.new_notebook(cells=[stub, between, asked]))
    assert solved.cells[0].source == EXERCISES["03-3"].solution.rstrip()
    assert solved.cells[1] == between
    asked.source = 'check("03-77", f)'
    with pytest.raises(exercises.UnknownExercise, match="03-77"):
        exercises.solve(nbformat.v4.new_notebook(cells=[stub, asked]))


def test_the_command_writes_the_teachers_edition(tmp_path, monkeypatch):
    monkeypatch.setattr("helpers.course.map.BUILD", tmp_path)
    result = CliRunner().invoke(app, ["solutions"])
    assert result.exit_code == 0, result.output
    written = sorted((tmp_path / "solutions").iterdir())
    assert [path.name for path in written] == [path.name for path in NOTEBOOKS.values()]
    assert str(tmp_path / "solutions") in result.stdout
    for path in written:
        nbformat.validate(nbformat.read(path, 4))
    assert EXERCISES["05-2"].solution.rstrip() in [
        cell.source for cell in nbformat.read(written[5], 4).cells
    ]


@pytest.mark.parametrize("name", EXERCISES)
def test_an_untouched_stub_is_not_yet_and_no_error(name):
    verdict = exercises.check(name, answer(name, EXERCISES[name].stub))
    assert verdict.state == "not yet", verdict
    assert f'hint("{name}")' in verdict.message


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_is_right(name):
    verdict = exercises.check(name, answer(name, EXERCISES[name].solution))
    assert verdict.state == "right", verdict


@functools.cache
def refusals(name):
    """What is said of each typical wrong answer."""
    return [
        exercises.check(name, answer(name, source)) for source in EXERCISES[name].wrong.values()
    ]


@pytest.mark.parametrize(("name", "at", "words"), WRONG)
def test_a_typical_wrong_answer_is_refused_with_its_own_words(name, at, words):
    assert refusals(name)[at].state == "not right"
    assert [words in verdict.message for verdict in refusals(name)] == [
        other == at for other in range(len(refusals(name)))
    ]


def signature(source):
    """The first line of the function that a stub asks for."""
    return re.search(r"^def .*:$", source, re.MULTILINE)[0]


@pytest.mark.parametrize("name", EXERCISES)
def test_a_forgotten_return_is_said(name):
    verdict = exercises.check(name, answer(name, f"{signature(EXERCISES[name].stub)}\n    ...\n"))
    assert verdict.state == "not right"
    assert re.search(
        "the return is missing|Return the dictionary|Return one|Return a pair|must give an|"
        "return rows, shards",
        verdict.message,
    ), verdict


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_has_wrong_answers_and_hints_in_steps(name, monkeypatch):
    monkeypatch.setattr(exercises, "_shown", {})
    exercise = EXERCISES[name]
    assert len(exercise.wrong) >= 2
    count = len(exercise.hints)
    assert count >= 2
    given = [repr(exercises.hint(name)) for _ in range(count + 1)]
    for at, (shown, text) in enumerate(zip(given[:-1], exercise.hints, strict=True), 1):
        assert shown == f"Hint {at} of {count}: {text}"
    assert given[-1] == given[-2]  # the last one is repeated


@pytest.mark.parametrize("name", EXERCISES)
def test_the_first_hint_does_not_give_the_solution_away(name):
    exercise = EXERCISES[name]
    new = set(exercise.solution.splitlines()) - set(exercise.stub.splitlines())
    lines = [re.sub(r"\s+", " ", line).strip() for line in new]
    first = re.sub(r"\s+", " ", exercise.hints[0])
    assert not [line for line in lines if len(line) > 12 and line in first]


@pytest.mark.parametrize("name", ["02-99", "99-1", "2-1", "", "02"])
def test_an_unknown_exercise_is_told(name):
    for ask in (exercises.find, exercises.hint, lambda x: exercises.check(x, None)):
        with pytest.raises(exercises.UnknownExercise, match=r"(?s)no exercise.*such as 02-1"):
            ask(name)


@pytest.fixture
def made(monkeypatch):
    """An exercise that is not of the course: to show that check and hint tell things apart."""

    def check(value):
        if value() != 42:
            raise exercises.Wrong("It is not the answer.")
        return "It is."

    exercise = exercises.Exercise(
        stub="def f():\n    raise NotImplementedError\n",
        answer="f",
        check=check,
        hints=("think", "think twice"),
        solution="def f():\n    return 42\n",
        wrong=(("def f():\n    return 41\n", "not the answer"),),
    )
    monkeypatch.setattr(exercises, "find", lambda name: exercise)
    monkeypatch.setattr(exercises, "_shown", {})


def raiser(error):
    def f():
        raise error

    return f


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (lambda: 42, "Exercise 99-1: right. It is."),
        (lambda: 41, "Exercise 99-1: not right. It is not the answer."),
        (raiser(NotImplementedError()), "Exercise 99-1: not yet. Replace the line that raises"),
        (raiser(ZeroDivisionError("by 0")), "not right. Your code raised ZeroDivisionError: by 0"),
        (raiser(ValueError()), "not right. Your code raised ValueError: no message"),
        (None, "not right. Your code raised TypeError: 'NoneType' object is not callable"),
    ],
)
def test_check_tells_right_not_right_and_not_yet_apart(made, given, verdict):
    assert verdict in repr(exercises.check("99-1", given))
