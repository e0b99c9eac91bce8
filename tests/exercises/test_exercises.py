"""Every exercise of the course, from one source: stub, solution, typical wrong answers, hints."""

import json
import pathlib
import re
import sys
import tempfile
import types

import jax
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
from helpers.display.explain import explain_last

pytestmark = pytest.mark.slow
# While tests are collected: later, after TensorFlow's first operation, the CPU can't be split.
CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 2)
# 11-3 is compiled for eight.
jax.config.update("jax_num_cpu_devices", 8)

# Their checks train or compile for seconds; with all wrong answers this is a minute and a half.
COSTLY = ("00-3", "05-3", "08-2", "10-1", "11-2", "12-4")

HERE = pathlib.Path(__file__).parent
NUMBERED = {path.stem[:2]: path for path in NOTEBOOKS}
EXERCISES = {}
for number in NUMBERED:
    for name, text in exercises.read(number).items():
        if isinstance(text, exercises.Exercise):
            EXERCISES[name] = text
# Answers of people who had not seen the checks: {"01-2": {"right": [source], "wrong": [source]}}.
BLIND = {}
for path in sorted(HERE.glob("blind/*.json")):
    BLIND |= json.loads(path.read_text("utf-8"))


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
    names = [name for name in EXERCISES if name.startswith(f"{number}-")]
    assert names == [f"{number}-{position}" for position in range(1, len(names) + 1)]
    kinds = []
    for index, name in zip(tagged(notebook, "exercise"), names, strict=True):
        text, stub, check = notebook.cells[index - 1 : index + 2]
        kinds.append(re.match(rf"\*\*{name} · (Recall|Change|Build)\.\*\* \S", text.source)[1])
        assert stub.source.rstrip() == EXERCISES[name].stub.strip()
        assert check.source.strip() == f'check("{name}", {EXERCISES[name].answer})'
        assert check.outputs[0]["data"]["text/plain"].startswith(f"Exercise {name}: not yet.")
    assert kinds == sorted(kinds, key=["Recall", "Change", "Build"].index)


@pytest.mark.parametrize("number", NUMBERED)
def test_a_hint_comes_right_after_the_check_of_its_exercise(number):
    sources = [cell.source for cell in nbformat.read(NUMBERED[number], 4).cells]
    for name in EXERCISES:
        if name.startswith(f"{number}-"):
            place = sources.index(f'check("{name}", {EXERCISES[name].answer})')
            assert sources[place + 1] == f'hint("{name}")'
            assert sources.count(f'hint("{name}")') == 1


@pytest.mark.parametrize("number", NUMBERED)
def test_the_teachers_edition_differs_in_the_answers_only(number):
    learners = nbformat.read(NUMBERED[number], 4)
    teachers = exercises.solve(learners)
    texts = exercises.read(number)
    for learners_cell, teachers_cell in zip(learners.cells, teachers.cells, strict=True):
        tags = learners_cell.metadata.get("tags", [])
        expected = learners_cell.source
        if "exercise" in tags:
            name = re.search(r"\d\d-\d", expected)[0]
            expected = texts[name].solution.rstrip()
        elif "question" in tags:
            name = re.search(r"\d\d-[a-z]", expected)[0]
            expected = expected.replace("None", f'"{texts[name].right}"')
        if 'check("' in expected:
            assert teachers_cell.outputs == []
            learners_cell.outputs = []
        assert teachers_cell == learners_cell | {"source": expected}


def test_a_cell_without_what_its_tag_says_is_told():
    for source, tag in (("def f(): ...", "exercise"), ('check("02-z", x)', "question")):
        cell = nbformat.v4.new_code_cell(source, metadata={"tags": [tag]})
        with pytest.raises(CourseError, match=f"There is no {tag} '(02-z|def f)"):
            exercises.solve(nbformat.v4.new_notebook(cells=[cell]))


def test_the_command_writes_the_teachers_edition(tmp_path, monkeypatch):
    monkeypatch.setattr("course.catalog.BUILD", tmp_path)
    result = CliRunner().invoke(app, ["solutions"])
    assert result.exit_code == 0
    assert str(tmp_path / "solutions") in result.stdout
    paths = sorted((tmp_path / "solutions").glob("*.ipynb"))
    assert [path.name for path in paths] == [path.name for path in NOTEBOOKS]
    assert "all_reduce(tf.reduce_sum(real))" in paths[5].read_text("utf-8")


@pytest.mark.parametrize("name", EXERCISES)
def test_an_untouched_stub_is_not_yet_and_the_solution_is_right(name):
    stub = exercises.check(name, answer(name, EXERCISES[name].stub))
    assert stub.state == "not yet", stub
    assert f'hint("{name}")' in stub.message, stub
    solution = exercises.check(name, answer(name, EXERCISES[name].solution))
    assert solution.state == "right", solution


def with_marks(names):
    """Mark those of costly exercises as long."""
    parameters = []
    for name in names:
        marks = []
        if name in COSTLY:
            marks.append(pytest.mark.long)
        parameters.append(pytest.param(name, marks=marks))
    return parameters


@pytest.mark.parametrize("name", with_marks(EXERCISES))
def test_a_typical_wrong_answer_is_refused_with_its_own_words(name):
    verdicts = {}
    for words, source in EXERCISES[name].wrong.items():
        verdicts[words] = exercises.check(name, answer(name, source))
    for words, verdict in verdicts.items():
        assert verdict.state == "not right", verdict
        matches = [other for other in verdicts if words in verdicts[other].message]
        assert matches == [words], verdict


@pytest.mark.long
@pytest.mark.parametrize("name", BLIND)
def test_five_right_answers_and_five_wrong_ones_are_told_apart(name):
    exercise = EXERCISES[name]
    answers = BLIND[name]
    assert len({exercise.solution, *answers["right"]}) >= 5, "right"
    assert len({*exercise.wrong.values(), *answers["wrong"]}) >= 5, "wrong"
    for source in answers["right"]:
        verdict = exercises.check(name, answer(name, source))
        assert verdict.state == "right", f"{source}\n{verdict}"
    for source in answers["wrong"]:
        verdict = exercises.check(name, answer(name, source))
        assert verdict.state == "not right", f"{source}\n{verdict}"


# Exercise, what its message says, and what comes in the place of a part of its solution.
MEAN = "mean = tf.reduce_sum(hidden, 1) / tf.reduce_sum(mask, 1)"
LOSS = "loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
LSTSQ = """
def fit(x, y):
    weights = np.linalg.lstsq(np.c_[x, x[:, :1] * x[:, 1:]], y)[0]
    return lambda x: np.c_[x, x[:, :1] * x[:, 1:]] @ weights
"""
REASONS = [
    ("00-3", "divide the sum by", MEAN, "mean = tf.reduce_sum(hidden, 1)"),
    ("00-3", "divide the sum by", MEAN, "mean = tf.reduce_sum(hidden, 1) / 24.0"),
    ("00-3", "counts once", MEAN, "mean = tf.reduce_max(hidden - 9.0 * (1.0 - mask), 1)"),
    ("00-3", "take a cross-entropy", LOSS, 'loss = "mse"'),
    ("00-3", "two scores, not 3", "Dense(2)", "Dense(3)"),
    ("01-2", "After the mean is subtracted", "reduce_max", "reduce_mean"),
    ("02-4", "stays hidden", "texts.map(checked)", "texts.filter(lambda x: x[-1] < 100)"),
    ("05-1", "made 6 steps", "strategy.num_replicas_in_sync", "1"),
    ("05-1", "made 1 steps", "strategy.num_replicas_in_sync", "2"),
    ("10-1", "with a learning rate of 5e-05 ten epochs", "1e-2", "5e-5"),
    ("11-2", "no module of Flax NNX took part", None, LSTSQ),
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "words", "part", "other"), REASONS)
def test_a_wrong_answer_is_told_its_own_reason(name, words, part, other):
    source = other
    if part is not None:
        assert part in EXERCISES[name].solution
        source = EXERCISES[name].solution.replace(part, other)
    verdict = exercises.check(name, answer(name, source))
    assert verdict.state == "not right", verdict
    assert words in verdict.message, verdict


@pytest.mark.parametrize("name", EXERCISES)
def test_a_forgotten_return_is_said(name):
    signature = re.search(r"^def .*:$", EXERCISES[name].stub, re.MULTILINE)[0]
    verdict = exercises.check(name, answer(name, f"{signature}\n    ...\n"))
    assert verdict.state == "not right"
    # In a file there is a function to find.
    assert re.search("[Rr]eturn|has no 'build'", verdict.message), verdict


@pytest.mark.parametrize("name", EXERCISES)
def test_hints_come_in_steps_and_end_in_the_solution(name, monkeypatch):
    monkeypatch.setattr(exercises, "_hint_counts", {})
    exercise = EXERCISES[name]
    count = len(exercise.hints)
    for number, text in enumerate(exercise.hints, 1):
        hint = repr(exercises.hint(name))
        assert hint.startswith(f"Hint {number} of {count}: {text}")
        assert ("you will see the solution" in hint) == (number == count)
    solution = f"Solution of {name}:\n\n{exercise.solution.strip()}"
    assert repr(exercises.hint(name)) == repr(exercises.hint(name)) == solution


@pytest.mark.parametrize("name", ["02-99", "99-1", "2-1", "", 2, None])
def test_an_unknown_exercise_is_told(name):
    for ask in (exercises.hint, lambda x: exercises.check(x, print)):
        with pytest.raises(CourseError, match=r"(?s)no exercise.*such as 02-1"):
            ask(name)


# As AutoGraph writes it.
STACK = 'in user code:\n\n    File "a.py", line 1, in f  *\n        a\n\n    '
TRACED = f"raise NotImplementedError({STACK + 'NotImplementedError: 99-1'!r})"
NODE = "{{function_node __wrapped__MatMul_device_/job:localhost/device:CPU:0}}"
MESSAGES = {  # what the answer does with a graph's text, and what it is told
    "return": "not right. Your function returns None: the return is missing.",
    "raise NotImplementedError('99-1')": "not yet. Replace the line that raises NotImpl",
    TRACED: 'not yet. Replace the line that raises NotImplementedError; hint("99-1") helps.',
    "raise NotImplementedError('see 99-1')": "not right. Your code raised NotImplementedError: see",
    "return np.char.lower(x)": "not right. Your code raised NotImplementedError: Cannot",
    "return x.T": "has no attribute 'T'",
    "raise ZeroDivisionError('by 0')": "not right. Your code raised ZeroDivisionError: by 0",
    "raise KeyError('Exception encountered when calling a.\\n\\nb')": "raised KeyError: b",
    "raise KeyError('b')": "raised KeyError: 'b'",
    "raise ValueError": "raised ValueError: no message",
    "raise SystemExit(3)": "raised SystemExit: 3",
    f"raise ValueError({STACK + 'ValueError: b'!r})": "not right. Your code raised ValueError: b",
    f"raise ValueError({STACK + 'KeyError: b'!r})": "not right. Your code raised KeyError: b",
    f"raise ValueError('{NODE} In[0] [Op:MatMul] name: ')": "raised ValueError: In[0]",
    "return exercises.check_table(lambda: {}, {'a': (1, '')})": "keys unchanged",
    "return exercises.check_table(lambda: {'a': '1'}, {'a': (1, '')})": "it is not '1'",
}


@pytest.mark.parametrize("does", MESSAGES)
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
    assert MESSAGES[does] in repr(exercises.check("99-1", names["f"]))
    assert 'not what it returns: check("99-1", f)' in repr(exercises.check("99-1", {}))


CELL = """
def double(x):
    return x * numbr

def replicas(accelerator):
    return double(accelerator)
"""
TRACED_CELL = """
@tf.function
def masked_mean(hidden, length):
    if tf.reduce_sum(length) > 0:
        hidden = hidden + numbr
    return hidden
"""


@pytest.mark.parametrize(
    ("name", "source", "lines"),
    [
        (
            "00-1",
            CELL,
            "line 6, in replicas\n    return double(accelerator)\n"
            "line 3, in double\n    return x * numbr",
        ),
        ("00-2", TRACED_CELL, "line 5, in masked_mean\n    hidden = hidden + numbr"),
    ],
)
def test_an_error_is_shown_with_the_learners_own_lines_and_explained(
    name, source, lines, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    file = tmp_path / "ipykernel_1" / "2.py"  # as Jupyter names a cell
    file.parent.mkdir()
    file.write_text(source, "utf-8")
    names = {"tf": tf}
    exec(compile(source, str(file), "exec"), names)
    verdict = exercises.check(name, names[EXERCISES[name].answer])
    assert verdict.message == "Your code raised NameError: name 'numbr' is not defined"
    assert repr(verdict).endswith(f"is not defined\n{verdict.lines}")
    assert verdict.lines.endswith(lines)
    assert "helpers" not in verdict.lines
    assert "    hidden = " in verdict._repr_html_() or "return x * numbr</pre>" in (
        verdict._repr_html_()
    )
    assert "numbr" in repr(explain_last())


def test_the_stub_is_no_failure_that_explain_knows(monkeypatch):
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    exercises.check("00-1", answer("00-1", EXERCISES["00-1"].stub))
    assert sys.last_value is None


def test_a_card_has_sign_and_word_and_escapes_what_it_says_but_for_code():
    card = exercises.Verdict("99-1", "not right", "Not `a < b`, <b> `c`.")._repr_html_()
    assert "<strong>Exercise 99-1</strong>" in card
    assert ">✗ not right</strong>" in card
    assert ">Not <code>a &lt; b</code>, &lt;b&gt; <code>c</code>.</p>" in card
    assert ">? Hint 1 of 2</strong>" in exercises.Hint("Hint 1 of 2", "think")._repr_html_()
    card = exercises.Hint("Solution of 99-1", solution="if a < b:\n    c")._repr_html_()
    assert ">= Solution of 99-1</strong>" in card
    assert "if a &lt; b:\n    c</pre>" in card


def test_a_question_is_answered_with_a_letter(monkeypatch):
    question = exercises.Question("b", "Shapes are fixed.", {"a": "It compiles once.", "c": "No."})
    monkeypatch.setattr(exercises, "read", lambda number: {f"{number}-a": question})

    def verdict(letter):
        return repr(exercises.check("99-a", letter))

    assert verdict(None).startswith('Question 99-a: not yet. Guess: answer = "a" or "b" or "c".')
    for letter in ("b", " B", "(b)", "b)"):
        assert verdict(letter) == "Question 99-a: right. Shapes are fixed."
    assert verdict("a") == "Question 99-a: not right. It compiles once."
    for letter in ("d", 4, ""):
        assert verdict(letter) == 'Question 99-a: not right. Answer with "a" or "b" or "c".'
