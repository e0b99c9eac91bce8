"""Every exercise of the course, from one source: stub, solution, typical wrong answers, hints."""

import importlib
import re

import nbformat
import numpy as np
import pytest
import tensorflow as tf
from conventions import NOTEBOOKS, ROOT, tagged
from nbformat.v4 import new_code_cell, new_notebook
from typer.testing import CliRunner

from helpers import exercises
from helpers.course.commands.app import app

pytestmark = pytest.mark.slow

NUMBERED = {path.stem[:2]: path for path in NOTEBOOKS}
MODULES = sorted(path.stem for path in (ROOT / "helpers/exercises").glob("notebook_*.py"))
EXERCISES = {
    name: exercise
    for module in MODULES
    for name, exercise in importlib.import_module(f"helpers.exercises.{module}").EXERCISES.items()
}


def answer(name, source):
    """Give what a learner who typed this source would hand to ``check``."""
    namespace = {"tf": tf, "np": np}
    exec(compile(source, f"<{name}>", "exec"), namespace)
    return namespace[EXERCISES[name].answer]


def own(number):
    """The exercises of a notebook."""
    return {name: e for name, e in EXERCISES.items() if name.startswith(f"{number}-")}


@pytest.mark.parametrize("number", NUMBERED)
def test_the_names_of_exercises_are_the_notebooks_number_and_consecutive(number):
    assert [module.removeprefix("notebook_") for module in MODULES] == list(NUMBERED)
    assert list(own(number)) == [f"{number}-{at}" for at in range(1, len(own(number)) + 1)]
    assert len(own(number)) >= 3


@pytest.mark.parametrize("number", NUMBERED)
def test_the_notebook_shows_each_stub_then_its_check(number):
    cells = nbformat.read(NUMBERED[number], 4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    at = [i for i, cell in enumerate(code) if "exercise" in cell.metadata.get("tags", [])]
    assert [code[i].source.rstrip() for i in at] == [e.stub.rstrip() for e in own(number).values()]
    for i, (name, exercise) in zip(at, own(number).items(), strict=True):
        asked = code[i + 1]
        assert asked.source.strip() == f'check("{name}", {exercise.answer})'
        shown = asked.outputs[0]["data"]["text/plain"]
        assert shown.startswith(f"Exercise {name}: not yet.")


@pytest.mark.parametrize("number", NUMBERED)
def test_a_notebook_asks_to_recall_then_to_change_then_to_build(number):
    notebook = nbformat.read(NUMBERED[number], 4)
    texts = [notebook.cells[at - 1].source for at in tagged(notebook, "exercise")]
    pattern = re.compile(r"\*\*(\d\d-\d+) · (Recall|Change|Build)\.\*\* \S")
    asked = [pattern.match(text) for text in texts]
    assert all(asked), texts
    assert [found[1] for found in asked] == list(own(number))
    assert list(dict.fromkeys(found[2] for found in asked)) == ["Recall", "Change", "Build"]


@pytest.mark.parametrize("number", NUMBERED)
def test_the_teachers_edition_differs_in_the_cells_of_exercises_only(number):
    learners = nbformat.read(NUMBERED[number], 4)
    before = nbformat.writes(learners)
    teachers = exercises.solve(learners)
    assert nbformat.writes(learners) == before
    assert teachers.metadata == learners.metadata
    shown = []
    for mine, theirs in zip(learners.cells, teachers.cells, strict=True):
        if "exercise" in mine.metadata.get("tags", []):
            shown.append(theirs.source)
            theirs.source = mine.source
        elif "question" in mine.metadata.get("tags", []):
            name = re.search(r"\d\d-[a-z]", mine.source)[0]
            letter = exercises.questions(number)[name].right
            assert theirs.source == mine.source.replace("None", f'"{letter}"')
            theirs.update(source=mine.source, outputs=mine.outputs)
        elif mine.source.startswith("check("):
            assert theirs.outputs == []
            theirs.outputs = mine.outputs
        assert theirs == mine
    assert shown == [e.solution.rstrip() for e in own(number).values()]


def test_an_edited_stub_is_solved_by_the_name_in_its_check():
    stub = new_code_cell("x = 1", metadata={"tags": ["exercise"]})
    between, asked = new_code_cell("x"), new_code_cell('check("03-3", may_attend)')
    solved = exercises.solve(new_notebook(cells=[stub, between, asked]))
    assert solved.cells[0].source == EXERCISES["03-3"].solution.rstrip()
    assert solved.cells[1] == between
    asked.source = 'check("03-77", f)'
    question = new_code_cell('check("03-z", answer)', metadata={"tags": ["question"]})
    for cells, name in ([stub, asked], "03-77"), ([question], "03-z"):
        with pytest.raises(exercises.UnknownExercise, match=name):
            exercises.solve(new_notebook(cells=cells))


def test_the_command_writes_the_teachers_edition(tmp_path, monkeypatch):
    monkeypatch.setattr("helpers.course.map.BUILD", tmp_path)
    result = CliRunner().invoke(app, ["solutions"])
    assert result.exit_code == 0, result.output
    written = sorted((tmp_path / "solutions").iterdir())
    assert [path.name for path in written] == [path.name for path in NOTEBOOKS]
    assert str(tmp_path / "solutions") in result.stdout
    teachers = [nbformat.read(path, 4) for path in written]
    for notebook in teachers:
        nbformat.validate(notebook)
    assert EXERCISES["05-2"].solution.rstrip() in [cell.source for cell in teachers[5].cells]


@pytest.mark.parametrize("name", EXERCISES)
def test_an_untouched_stub_is_not_yet_and_the_solution_is_right(name):
    stub = exercises.check(name, answer(name, EXERCISES[name].stub))
    assert stub.state == "not yet" and f'hint("{name}")' in stub.message, stub
    solution = exercises.check(name, answer(name, EXERCISES[name].solution))
    assert solution.state == "right", solution


@pytest.mark.parametrize("name", EXERCISES)
def test_a_typical_wrong_answer_is_refused_with_its_own_words(name):
    wrong = EXERCISES[name].wrong
    verdicts = [exercises.check(name, answer(name, source)) for source in wrong.values()]
    assert len(wrong) >= 2
    for at, words in enumerate(wrong):
        assert verdicts[at].state == "not right", verdicts[at]
        assert [i for i, said in enumerate(verdicts) if words in said.message] == [at], words


NO_RETURN = (
    "the return is missing|Return the dictionary|Return one|Return a pair|must give an|"
    "return rows, shards"
)


@pytest.mark.parametrize("name", EXERCISES)
def test_a_forgotten_return_is_said(name):
    signature = re.search(r"^def .*:$", EXERCISES[name].stub, re.MULTILINE)[0]
    verdict = exercises.check(name, answer(name, f"{signature}\n    ...\n"))
    assert verdict.state == "not right" and re.search(NO_RETURN, verdict.message), verdict


@pytest.mark.parametrize("name", EXERCISES)
def test_hints_come_in_steps_and_the_first_does_not_give_the_solution_away(name, monkeypatch):
    monkeypatch.setattr(exercises, "_shown", {})
    exercise = EXERCISES[name]
    count = len(exercise.hints)
    assert count >= 2
    *given, solution, again = [repr(exercises.hint(name)) for _ in range(count + 2)]
    for at, (shown, text) in enumerate(zip(given, exercise.hints, strict=True), 1):
        assert shown.startswith(f"Hint {at} of {count}: {text}")
        assert ("you will see the solution" in shown) == (at == count)
    assert solution == again == f"Solution of {name}:\n\n{exercise.solution.strip()}"
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

    exercise = exercises.Exercise("", "f", check, ("think", "think twice"), "", {})
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


def test_a_card_has_sign_and_word_and_escapes_what_it_says_but_for_code():
    for state, words in {
        "right": "✓ right",
        "not yet": "… not yet",
        "not right": "✗ not right",
    }.items():
        card = exercises.Verdict("99-1", state, "Not `a < b`, <b> `c`.")._repr_html_()
        assert "<strong>Exercise 99-1</strong>" in card and f">{words}</strong>" in card
        assert ">Not <code>a &lt; b</code>, &lt;b&gt; <code>c</code>.</p>" in card
    assert ">? Hint 1 of 2</strong>" in exercises.Hint("Hint 1 of 2", "think")._repr_html_()
    card = exercises.Hint("Solution of 99-1", solution="if a < b:\n    c")._repr_html_()
    assert ">= Solution of 99-1</strong>" in card and "if a &lt; b:\n    c</pre>" in card


def test_a_question_is_answered_with_a_letter(monkeypatch):
    question = exercises.Question("b", "Shapes are fixed.", {"a": "It compiles once.", "c": "No."})
    monkeypatch.setattr(exercises, "questions", lambda number: {f"{number}-a": question})
    said = {given: repr(exercises.check("99-a", given)) for given in (None, "b", " B", "a", "d", 4)}
    assert said[None].startswith('Question 99-a: not yet. Guess: answer = "a" or "b" or "c".')
    assert said["b"] == said[" B"] == "Question 99-a: right. Shapes are fixed."
    assert said["a"] == "Question 99-a: not right. It compiles once."
    assert said["d"] == said[4] == 'Question 99-a: not right. Answer with "a" or "b" or "c".'


@pytest.mark.parametrize("number", NUMBERED)
def test_each_question_says_why_whatever_is_answered(number):
    for name, question in exercises.questions(number).items():
        assert len(question.wrong) in (1, 2, 3) and question.right not in question.wrong, name
        assert all(
            text.strip()[-1] in ".?" for text in (question.because, *question.wrong.values())
        )
