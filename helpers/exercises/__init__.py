"""Exercises with immediate feedback: ``check("02-1", answer)`` and ``hint("02-1")``.

Digits name exercises, letters questions: ``check("02-a", "b")``. The texts of notebook 02's are in
``notebook_02.toml`` next to this file; the exercise that asks for ``clip`` is checked by
``_check_clip`` in ``notebook_02.py``.
"""

import copy
import dataclasses
import functools
import importlib
import pathlib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helpers.base import html
from helpers.base.errors import CourseError, unreadable
from helpers.base.language import translated
from helpers.exercises.failures import read_failure, remember


class Wrong(Exception):
    """Raised by an exercise's check: says what is not right and why, without the solution."""


def returned(value: object) -> object:
    """Pass on what the learner's function returned; `Wrong` if it is None."""
    if value is None:
        raise Wrong("Your function returns None: the return is missing.")
    return value


def check_table(answer: Callable[[], dict], truth: Mapping[str, tuple[object, str]]) -> None:
    """Compare the dictionary that an answer returns; `Wrong` names the first value that differs.

    ``truth`` has for each key what is right, and what to think about where the value is another.
    """
    table = answer()
    if not isinstance(table, dict) or set(table) != set(truth):
        raise Wrong("Return the dictionary with its keys unchanged.")
    # The first that differs is enough: several at once would be a list to copy.
    for key, (expected, why) in truth.items():
        if table[key] != expected:
            # A text in the place of a number looks like the right one without its quotes.
            shown = repr(table[key]) if isinstance(table[key], str) else table[key]
            raise Wrong(f"{key}: it is not {shown}. {why}")


def hlo(answer: Callable, *specs: object) -> str:
    """Let TensorFlow write an answer in XLA's operations, for these tf.TensorSpecs."""
    import tensorflow as tf

    return tf.function(answer, jit_compile=True).experimental_get_compiler_ir(*specs)(stage="hlo")


def check_compiles(answer: Callable, *specs: object) -> None:
    """Let XLA compile an answer for these tf.TensorSpecs; `Wrong` if a shape isn't static."""
    from helpers.xla.compare import compare

    row = compare(answer, *specs)["XLA:CPU"]
    if row.refused_by:
        raise Wrong(f"It is refused by {row.refused_by}: {row.message}")
    # It compiles, but room for the largest size is paid for in each step.
    if "<=" in hlo(answer, *specs):
        raise Wrong("The number is right, but XLA's program holds a bounded shape (<=).")


@dataclasses.dataclass(frozen=True)
class Case:
    """A call whose result is compared with the solution's."""

    name: str  # what must hold here, as a sentence: it follows what is wrong
    arguments: list  # ``[[1.0, 2.0], 3]`` are float32 [2] and an int32


def check_cases(answer: Callable, solution: Callable, cases: Sequence[Case]) -> None:
    """Compare an answer with the solution in some cases, and let XLA compile it for the last.

    `Wrong` says the first case that differs, what is right there, and why.
    """
    import numpy as np
    import tensorflow as tf

    for case in cases:
        arguments = [tf.constant(value) for value in case.arguments]
        expected = np.asarray(solution(*arguments))
        result = np.asarray(returned(answer(*arguments)))
        call = str(case.arguments)[1:-1]
        shape = list(expected.shape)
        # Before the numbers: NumPy would stretch one shape to the other and find them equal.
        if list(result.shape) != shape:
            raise Wrong(
                f"For {call} the shape should be {shape}, not {list(result.shape)}. {case.name}"
            )
        # An answer may add up in another order than the solution.
        if not np.allclose(result, expected, atol=1e-3):
            numbers = np.round(np.float64(expected), 3).tolist()
            other_numbers = np.round(np.float64(result), 3).tolist()
            raise Wrong(f"For {call} it should give {numbers}, not {other_numbers}. {case.name}")
    check_compiles(answer, *map(tf.type_spec_from_value, arguments))


@dataclasses.dataclass(frozen=True)
class Exercise:
    """One exercise."""

    stub: str  # source of the cell to complete; it raises NotImplementedError with its name
    answer: str  # name that the stub defines and that ``check`` is given
    hints: list[str]  # from a nudge to nearly the solution, which comes after them
    solution: str  # source that replaces the stub
    wrong: dict[str, str]  # typical wrong answers: source by words that the verdict must contain
    # One that is compared with its solution needs no check of its own: the function of tensors in
    # some cases, or the dictionary, with what to think about where a value is wrong (for each key,
    # or for all). What is said if all is right is ``because``.
    cases: list[Case] = dataclasses.field(default_factory=list)
    why: dict[str, str] | str = ""
    because: str = ""

    def judge(self, name: str, answer: Callable) -> str:
        """Say what an answer has shown; `Wrong` if it is not right."""
        module = importlib.import_module(f"helpers.exercises.notebook_{name[:2]}")
        # An exercise with a check of its own, which also says what was right.
        if not self.because:
            return getattr(module, f"_check_{self.answer}")(answer)
        names: dict = {}
        # Text of the course, from its TOML: nothing that a learner wrote.
        exec(self.solution, names)
        solution = names[self.answer]
        if self.cases:
            names["tf"] = importlib.import_module("tensorflow")
            check_cases(answer, solution, self.cases)
            return self.because
        truth = {}
        for key, value in solution().items():
            why = self.why[key] if isinstance(self.why, dict) else self.why
            truth[key] = (value, why)
        check_table(answer, truth)
        return self.because


@dataclasses.dataclass(frozen=True)
class Question:
    """What will the next cell print? To be answered before it runs."""

    right: str  # letter of the right answer
    because: str  # why it is right, shown with the verdict
    wrong: dict[str, str]  # why not, for each other letter

    @property
    def letters(self) -> list[str]:
        """The letters to choose from, in order."""
        return sorted({self.right, *self.wrong})

    def judge(self, answer: object) -> tuple[str, str]:
        """Give state and message for a letter, or for None as long as there is no answer."""
        choice = " or ".join(f'"{letter}"' for letter in self.letters)
        if answer is None:
            return "not yet", f"Guess: answer = {choice}. Then run this cell again."
        # Anything may be typed here, a number as well.
        # The text names its answers (a) and (b), so some are typed with brackets.
        letter = str(answer).lower().strip("() \t\n")
        if letter == self.right:
            return "right", self.because
        return "not right", self.wrong.get(letter, f"Answer with {choice}.")


@functools.cache
def read(number: str) -> dict[str, Exercise | Question]:
    """Read a notebook's exercises, such as ``02-1``, and its questions, such as ``02-a``."""
    path = pathlib.Path(__file__).with_name(f"notebook_{number}.toml")
    with unreadable(f"{path.name} can't be read.", "Repair it, or bring it back (git restore)."):
        tables = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
    subjects: dict[str, Exercise | Question] = {}
    for name, table in tables.items():
        if "stub" in table:
            cases = [Case(**case) for case in table.pop("cases", [])]
            subjects[name] = Exercise(**table, cases=cases)
        else:
            subjects[name] = Question(**table)
    return subjects


# How each state of a verdict is shown: the card's color, and a sign beside the word.
_STATES = {"right": ("good", "✓"), "not yet": ("wait", "…"), "not right": ("bad", "✗")}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What ``check`` says of an answer."""

    name: str  # the exercise, such as ``02-1``, or the question, such as ``02-a``
    state: str  # ``right``, ``not yet`` (untouched stub) or ``not right``
    message: str  # what is right, or what is not and why
    lines: str = ""  # the learner's own lines that raised an error, as a traceback writes them

    @property
    def title(self) -> str:
        """What was answered: ``Exercise 02-1`` or ``Question 02-a``."""
        kind = "Question" if self.name[3:].isalpha() else "Exercise"
        return f"{translated(kind)} {self.name}"

    def __repr__(self) -> str:
        text = f"{self.title}: {translated(self.state)}. {translated(self.message)}"
        if self.lines:
            text += f"\n{self.lines}"
        return text

    def _repr_html_(self) -> str:
        color, sign = _STATES[self.state]
        return html.render(
            "card.html",
            kind=color,
            title=self.title,
            words=f"{sign} {translated(self.state)}",
            text=translated(self.message),
            code=self.lines,
        )


def find(name: str) -> Exercise:
    """Look up an exercise by the notebook's number and its own, such as ``02-1``.

    Raises `CourseError`: There is none of this name.
    """
    exercise = read(str(name)[:2]).get(name)
    if not isinstance(exercise, Exercise):
        raise CourseError(
            f"There is no exercise {name!r}.",
            "Names are the notebook's number and the exercise's, such as 02-1.",
            "Copy the name from the exercise's own cell.",
        )
    return exercise


def check(name: str, answer: object) -> Verdict:
    """Judge an answer: a letter to a question, a function to an exercise.

    A wrong answer raises nothing, whatever its code does, so the notebook runs on. An error of the
    learner's code is shown with their own lines; ``%explain`` then knows it.

    Raises `CourseError`: There is no exercise or question of this name.
    """
    question = read(str(name)[:2]).get(name)
    if isinstance(question, Question):
        state, message = question.judge(answer)
        return Verdict(name, state, message)
    exercise = find(name)
    is_file = isinstance(answer, pathlib.PurePath)
    if not callable(answer) and not is_file:
        call = f'check("{name}", {exercise.answer})'
        message = f"Give check the function itself, not what it returns: {call}."
        return Verdict(name, "not right", message)
    try:
        return Verdict(name, "right", exercise.judge(name, answer))
    except Wrong as wrong:
        return Verdict(name, "not right", str(wrong))
    except (Exception, SystemExit) as error:  # whatever the learner's code raises is an answer
        failure = read_failure(error, answer)
        if failure.type == "NotImplementedError" and failure.message == name:  # the stub's own
            message = f'Replace the line that raises NotImplementedError; hint("{name}") helps.'
            if is_file:
                message = f'The file is as it was given; hint("{name}") helps.'
            return Verdict(name, "not yet", message)
        remember(error)
        message = f"Your code raised {failure.type}: {failure.message}"
        return Verdict(name, "not right", message, failure.lines)


# How many hints of each exercise were shown since the kernel started.
_hint_counts: dict[str, int] = {}


@dataclasses.dataclass(frozen=True)
class Hint:
    """One hint, or after the last the solution."""

    title: str  # such as ``Hint 1 of 3``
    text: str = ""
    solution: str = ""  # its source

    def __repr__(self) -> str:
        if self.text:
            return f"{self.title}: {self.text}"
        return f"{self.title}:\n\n{self.solution}"

    def _repr_html_(self) -> str:
        sign = "?" if self.text else "="
        return html.render(
            "card.html",
            kind="hint",
            words=f"{sign} {self.title}",
            text=self.text,
            code=self.solution,
        )


def hint(name: str) -> Hint:
    """Give the next hint to an exercise, numbered; after the last comes the solution.

    Raises `CourseError`: There is no exercise of this name.
    """
    exercise = find(name)
    count = len(exercise.hints)
    number = min(_hint_counts.get(name, 0) + 1, count + 1)
    _hint_counts[name] = number
    if number > count:
        return Hint(translated(f"Solution of {name}"), solution=exercise.solution.strip())
    text = translated(exercise.hints[number - 1])
    if number == count:
        more = translated(f'Ask hint("{name}") once more, and you will see the solution.')
        text += f"\n{more}"
    return Hint(translated(f"Hint {number} of {count}"), text)


def solve(notebook: Any) -> Any:
    """Copy a notebook with each exercise solved and each question answered: the teacher's edition.

    It is an nbformat.NotebookNode. The stored verdict is taken out: it belongs to the stub.

    Raises `CourseError`: The notebook asks for an exercise that is not there.
    """
    solved = copy.deepcopy(notebook)
    for cell in solved.cells:
        tags = cell.metadata.get("tags", ())
        if "exercise" in tags:
            cell.source = find(_stub_name(cell.source)).solution.rstrip()
            continue
        call = re.search(r'^check\("((\d\d)-\w+)"', cell.source, re.MULTILINE)
        if call is None:
            continue
        cell.outputs = []
        if "question" in tags:
            name, number = call.groups()
            with unreadable(f"There is no question {name!r}.", "Take its tag away."):
                letter = read(number)[name].right
            cell.source = cell.source.replace("answer = None", f'answer = "{letter}"', 1)
    return solved


def _stub_name(source: str) -> str:
    """Give the name that a stub raises or is headed with; its first words where it has none."""
    name = re.search(r'(?:NotImplementedError\("|# Exercise )(\d\d-\d)', source)
    if name is None:
        return source[:40]
    return name[1]
