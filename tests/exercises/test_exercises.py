"""Every exercise of the course, from one source: stub, solution, typical wrong answers, hints."""

import json
import pathlib
import re
import sys
import tempfile
import types

import nbformat
import numpy as np
import pytest
import tensorflow as tf
from conventions import NOTEBOOKS, tagged
from replicas import replicas
from typer.testing import CliRunner

from course.commands.app import app
from helpers import exercises
from helpers.base.errors import CourseError

pytestmark = pytest.mark.slow
# While tests are collected: later, after TensorFlow's first operation, the CPU can't be split.
CPU, PART = tf.config.list_physical_devices("CPU")[0], tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(CPU, [PART, PART])

HERE = pathlib.Path(__file__).parent
NUMBERED = {path.stem[:2]: path for path in NOTEBOOKS}
EXERCISES = {
    name: text
    for number in NUMBERED
    for name, text in exercises.read(number).items()
    if isinstance(text, exercises.Exercise)
}


def answer(name, source):
    """Give what a learner who typed this source would hand to ``check``."""
    if EXERCISES[name].stub.startswith("%%writefile"):
        file = pathlib.Path(tempfile.mkdtemp(), "my_model.py")
        file.write_text(source.removeprefix("%%writefile my_model.py\n"), "utf-8")
        return file
    namespace = {"tf": tf, "np": np, "strategy": replicas(2)}
    exec(compile(source, f"<{name}>", "exec"), namespace)
    return namespace[EXERCISES[name].answer]


@pytest.mark.parametrize("number", NUMBERED)
def test_the_notebook_asks_with_each_stub_then_its_check(number):
    notebook = nbformat.read(NUMBERED[number], 4)
    own = {name: exercise for name, exercise in EXERCISES.items() if name[:2] == number}
    assert list(own) == [f"{number}-{at}" for at in range(1, len(own) + 1)]
    kinds = []
    for at, (name, exercise) in zip(tagged(notebook, "exercise"), own.items(), strict=True):
        text, stub, asked = notebook.cells[at - 1 : at + 2]
        kinds.append(re.match(rf"\*\*{name} · (Recall|Change|Build)\.\*\* \S", text.source)[1])
        assert stub.source.rstrip() == exercise.stub.strip()
        assert asked.source.strip() == f'check("{name}", {exercise.answer})'
        assert asked.outputs[0]["data"]["text/plain"].startswith(f"Exercise {name}: not yet.")
    assert kinds == sorted(kinds, key=["Recall", "Change", "Build"].index)


@pytest.mark.parametrize("number", NUMBERED)
def test_the_teachers_edition_differs_in_the_answers_only(number):
    learners = nbformat.read(NUMBERED[number], 4)
    teachers = exercises.solve(learners)
    texts = exercises.read(number)
    for mine, theirs in zip(learners.cells, teachers.cells, strict=True):
        expected = mine.source
        if "exercise" in mine.metadata.get("tags", []):
            name = re.search(r"\d\d-\d", expected)[0]
            expected = texts[name].solution.rstrip()
        elif "question" in mine.metadata.get("tags", []):
            name = re.search(r"\d\d-[a-z]", expected)[0]
            expected = expected.replace("None", f'"{texts[name].right}"')
        if 'check("' in expected:
            assert theirs.outputs == []
            mine.outputs = []
        assert theirs == mine | {"source": expected}


def test_a_cell_without_what_its_tag_says_is_told():
    for source, tag in (("def f(): ...", "exercise"), ('check("02-z", x)', "question")):
        cell = nbformat.v4.new_code_cell(source, metadata={"tags": [tag]})
        with pytest.raises(CourseError, match=f"There is no {tag} '(02-z|def f)"):
            exercises.solve(nbformat.v4.new_notebook(cells=[cell]))


def test_the_command_writes_the_teachers_edition(tmp_path, monkeypatch):
    monkeypatch.setattr("course.catalog.BUILD", tmp_path)
    result = CliRunner().invoke(app, ["solutions"])
    assert result.exit_code == 0 and str(tmp_path / "solutions") in result.stdout
    written = sorted((tmp_path / "solutions").glob("*.ipynb"))
    assert [path.name for path in written] == [path.name for path in NOTEBOOKS]
    assert "all_reduce(tf.reduce_sum(real))" in written[5].read_text("utf-8")


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
    for at, words in enumerate(wrong):
        assert verdicts[at].state == "not right", verdicts[at]
        assert [i for i, said in enumerate(verdicts) if words in said.message] == [at], words


# Answers of people who had not seen the checks: {"01-2": {"right": [source], "wrong": [source]}}.
BLIND = {path.stem: json.loads(path.read_text("utf-8")) for path in HERE.glob("blind/*.json")}


@pytest.mark.long
@pytest.mark.parametrize("name", [name for texts in BLIND.values() for name in texts])
def test_five_right_answers_and_five_wrong_ones_are_told_apart(name):
    given, exercise = BLIND[name[:2]][name], EXERCISES[name]
    assert len({exercise.solution, *given["right"]}) >= 5, "right"
    assert len({*exercise.wrong.values(), *given["wrong"]}) >= 5, "wrong"
    for state, sources in (("right", given["right"]), ("not right", given["wrong"])):
        for source in sources:
            verdict = exercises.check(name, answer(name, source))
            assert verdict.state == state, f"{source}\n{verdict}"


@pytest.mark.parametrize("name", EXERCISES)
def test_a_forgotten_return_is_said(name):
    signature = re.search(r"^def .*:$", EXERCISES[name].stub, re.MULTILINE)[0]
    verdict = exercises.check(name, answer(name, f"{signature}\n    ...\n"))
    said = re.search("[Rr]eturn|has no 'build'", verdict.message)  # a file has a function to find
    assert verdict.state == "not right" and said, verdict


@pytest.mark.parametrize("name", EXERCISES)
def test_hints_come_in_steps_and_end_in_the_solution(name, monkeypatch):
    monkeypatch.setattr(exercises, "_shown", {})
    exercise = EXERCISES[name]
    count = len(exercise.hints)
    *given, solution, again = [repr(exercises.hint(name)) for _ in range(count + 2)]
    for at, (shown, text) in enumerate(zip(given, exercise.hints, strict=True), 1):
        assert shown.startswith(f"Hint {at} of {count}: {text}")
        assert ("you will see the solution" in shown) == (at == count)
    assert solution == again == f"Solution of {name}:\n\n{exercise.solution.strip()}"


@pytest.mark.parametrize("name", ["02-99", "99-1", "2-1", "", 2, None])
def test_an_unknown_exercise_is_told(name):
    for ask in (exercises.hint, lambda x: exercises.check(x, print)):
        with pytest.raises(CourseError, match=r"(?s)no exercise.*such as 02-1"):
            ask(name)


TRACED = "raise NotImplementedError('in user code:\\n\\n  a\\n\\n  NotImplementedError: 99-1')"
SAID = {  # what the answer does with a graph's text, and what it is told
    "return": "not right. Your function returns None: the return is missing.",
    "raise NotImplementedError('99-1')": "not yet. Replace the line that raises NotImpl",
    TRACED: 'not yet. Replace the line that raises NotImplementedError; hint("99-1") helps.',
    "raise NotImplementedError('see 99-1')": "not right. Your code raised NotImplementedError: see",
    "return np.char.lower(x)": "not right. Your code raised NotImplementedError: Cannot",
    "return x.T": "has no attribute 'T'",
    "raise ZeroDivisionError('by 0')": "not right. Your code raised ZeroDivisionError: by 0",
    "raise ValueError": "raised ValueError: no message",
    "raise SystemExit(3)": "raised SystemExit: 3",
    "raise ValueError('in user code:\\n\\n  a\\n\\n  b\\n')": "raised ValueError: b",
    "return exercises.check_table(lambda: {}, {'a': (1, '')})": "keys unchanged",
}


@pytest.mark.parametrize("does", SAID)
def test_what_an_answer_returns_or_raises_is_said(does, monkeypatch):
    text = tf.TensorSpec([1], tf.string)

    def judge(answer):
        graph = tf.function(answer, autograph=False).get_concrete_function(text)
        return exercises.returned(graph.structured_outputs)

    module = types.SimpleNamespace(_check_f=judge)
    monkeypatch.setitem(sys.modules, "helpers.exercises.notebook_99", module)
    exercise = exercises.Exercise("", "f", [], "", {})
    monkeypatch.setattr(exercises, "read", lambda number: {"99-1": exercise})
    names = {"np": np, "exercises": exercises}
    exec(f"def f(x):\n    {does}", names)
    assert SAID[does] in repr(exercises.check("99-1", names["f"]))
    assert 'not what it returns: check("99-1", f)' in repr(exercises.check("99-1", {}))


def test_a_card_has_sign_and_word_and_escapes_what_it_says_but_for_code():
    card = exercises.Verdict("99-1", "not right", "Not `a < b`, <b> `c`.")._repr_html_()
    assert "<strong>Exercise 99-1</strong>" in card and ">✗ not right</strong>" in card
    assert ">Not <code>a &lt; b</code>, &lt;b&gt; <code>c</code>.</p>" in card
    assert ">? Hint 1 of 2</strong>" in exercises.Hint("Hint 1 of 2", "think")._repr_html_()
    card = exercises.Hint("Solution of 99-1", solution="if a < b:\n    c")._repr_html_()
    assert ">= Solution of 99-1</strong>" in card and "if a &lt; b:\n    c</pre>" in card


def test_a_question_is_answered_with_a_letter(monkeypatch):
    question = exercises.Question("b", "Shapes are fixed.", {"a": "It compiles once.", "c": "No."})
    monkeypatch.setattr(exercises, "read", lambda number: {f"{number}-a": question})
    said = {given: repr(exercises.check("99-a", given)) for given in (None, "b", " B", "a", "d", 4)}
    assert said[None].startswith('Question 99-a: not yet. Guess: answer = "a" or "b" or "c".')
    assert said["b"] == said[" B"] == "Question 99-a: right. Shapes are fixed."
    assert said["a"] == "Question 99-a: not right. It compiles once."
    assert said["d"] == said[4] == 'Question 99-a: not right. Answer with "a" or "b" or "c".'
