"""Exercises with an answer at once: ``check("02-1", answer)`` and ``hint("02-1")``.

Digits name exercises, letters questions: ``check("02-a", "b")``. The texts of notebook 02's are in
``notebook_02.toml`` beside this file; the exercise that asks for ``clip`` is checked by
``_check_clip`` in ``notebook_02.py``.
"""

import copy
import dataclasses
import functools
import importlib
import pathlib
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from helpers.base import html
from helpers.base.errors import CourseError, unreadable
from helpers.base.language import translated


class Wrong(Exception):
    """Raised by an exercise's check: says what is not right and why, without the solution."""


def returned(value: object) -> object:
    """Pass on what the learner's function returned; `Wrong` if it is None."""
    if value is None:
        raise Wrong("Your function returns None: the return is missing.")
    return value


def check_table(answer: Callable[[], dict], truth: Mapping[str, tuple[object, str]]) -> None:
    """Compare the dictionary that an answer returns; `Wrong` tells the first value that differs.

    ``truth`` has for each key what is right, and what to think about where something else is given.
    """
    given = answer()
    if not isinstance(given, dict) or set(given) != set(truth):
        raise Wrong("Return the dictionary with its keys unchanged.")
    for key, (right, why) in truth.items():
        if given[key] != right:
            raise Wrong(f"{key}: it is not {given[key]}. {why}")


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
    if "<=" in hlo(answer, *specs):
        raise Wrong("The number is right, but XLA's program holds a bounded shape (<=).")


def check_cases(answer: Callable, solution: Callable, cases: list) -> None:
    """Compare an answer with the solution in some cases, and let XLA compile it for the last.

    Each of ``cases`` has a call's arguments; ``[[1.0, 2.0], 3]`` are float32 [2] and an int32.
    """
    import numpy as np
    import tensorflow as tf

    for case in cases:
        arguments = [tf.constant(value) for value in case]
        right, given = np.asarray(solution(*arguments)), np.asarray(returned(answer(*arguments)))
        given_for, shape = str(case)[1:-1], [*right.shape]
        if [*given.shape] != shape:
            raise Wrong(f"For {given_for} the shape should be {shape}, not {[*given.shape]}.")
        if not np.allclose(given, right, atol=1e-3):
            expected, mine = (np.round(np.float64(x), 3).tolist() for x in (right, given))
            raise Wrong(f"For {given_for} it should give {expected}, not {mine}.")
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
    cases: list = dataclasses.field(default_factory=list)
    why: dict[str, str] | str = ""
    because: str = ""

    def judge(self, name: str, answer: Callable) -> str:
        """Say what an answer has shown; `Wrong` if it is not right."""
        module = importlib.import_module(f"helpers.exercises.notebook_{name[:2]}")
        if not self.because:
            return getattr(module, f"_check_{self.answer}")(answer)
        names: dict = {}
        exec(self.solution, names)
        if self.cases:
            names["tf"] = importlib.import_module("tensorflow")
            check_cases(answer, names[self.answer], self.cases)
            return self.because
        truth, why = names[self.answer](), self.why
        reasons = why if isinstance(why, dict) else dict.fromkeys(truth, why)
        check_table(answer, {key: (right, reasons[key]) for key, right in truth.items()})
        return self.because


@dataclasses.dataclass(frozen=True)
class Question:
    """What will the next cell print? To be answered before it runs."""

    right: str  # letter of the right answer
    because: str  # why it is right, told with the verdict
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
        letter = str(answer).strip().lower()
        if letter == self.right:
            return "right", self.because
        return "not right", self.wrong.get(letter, f"Answer with {choice}.")


@functools.cache
def read(number: str) -> dict[str, Exercise | Question]:
    """Read a notebook's exercises, such as ``02-1``, and its questions, such as ``02-a``."""
    path = pathlib.Path(__file__).with_name(f"notebook_{number}.toml")
    with unreadable(f"{path.name} can't be read.", "Repair it, or bring it back (git restore)."):
        texts = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
    return {name: (Exercise if "stub" in x else Question)(**x) for name, x in texts.items()}


# How each state of a verdict is shown: the card's color, and a sign beside the word.
_SHOWN = {"right": ("good", "✓"), "not yet": ("wait", "…"), "not right": ("bad", "✗")}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What ``check`` says of an answer."""

    name: str  # the exercise, such as ``02-1``, or the question, such as ``02-a``
    state: str  # ``right``, ``not yet`` (untouched stub) or ``not right``
    message: str  # what is right, or what is not and why

    @property
    def title(self) -> str:
        """What was answered: ``Exercise 02-1`` or ``Question 02-a``."""
        kind = "Question" if self.name[3:].isalpha() else "Exercise"
        return f"{translated(kind)} {self.name}"

    def __repr__(self) -> str:
        return f"{self.title}: {translated(self.state)}. {translated(self.message)}"

    def _repr_html_(self) -> str:
        kind, sign = _SHOWN[self.state]
        words, text = f"{sign} {translated(self.state)}", translated(self.message)
        return html.render("card.html", kind=kind, title=self.title, words=words, text=text)


def find(name: str) -> Exercise:
    """Look up an exercise by the notebook's number and its own, such as ``02-1``.

    Raises `CourseError`: There is none of this name.
    """
    found = read(str(name)[:2]).get(name)
    if not isinstance(found, Exercise):
        raise CourseError(
            f"There is no exercise {name!r}.",
            "Names are the notebook's number and the exercise's, such as 02-1.",
            "Copy the name from the exercise's own cell.",
        )
    return found


def check(name: str, answer: object) -> Verdict:
    """Judge an answer: a letter to a question, a function to an exercise.

    A wrong answer raises nothing, whatever its code does, so the notebook runs on.

    Raises `CourseError`: There is no exercise or question of this name.
    """
    question = read(str(name)[:2]).get(name)
    if isinstance(question, Question):
        return Verdict(name, *question.judge(answer))
    exercise = find(name)
    if not callable(answer) and not isinstance(answer, pathlib.PurePath):
        call = f'check("{name}", {exercise.answer})'
        said = f"Give check the function itself, not what it returns: {call}."
        return Verdict(name, "not right", said)
    try:
        return Verdict(name, "right", exercise.judge(name, answer))
    except Wrong as wrong:
        return Verdict(name, "not right", str(wrong))
    except (Exception, SystemExit) as error:  # whatever the learner's code raises is an answer
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
        # Raised while a graph is made, the code that led there comes before the message.
        said = lines[-1 if lines[0] == "in user code:" else 0]
        if said.removeprefix("NotImplementedError: ") == name:  # the stub's own, nobody else's
            message = f'Replace the line that raises NotImplementedError; hint("{name}") helps.'
            if not callable(answer):
                message = f'The file is as it was given; hint("{name}") helps.'
            return Verdict(name, "not yet", message)
        message = f"Your code raised {type(error).__name__}: {said[:300]}"
        return Verdict(name, "not right", message)


_shown: dict[str, int] = {}


@dataclasses.dataclass(frozen=True)
class Hint:
    """One hint, or after the last the solution."""

    title: str  # such as ``Hint 1 of 3``
    text: str = ""
    solution: str = ""  # its source

    def __repr__(self) -> str:
        return f"{self.title}: {self.text}" if self.text else f"{self.title}:\n\n{self.solution}"

    def _repr_html_(self) -> str:
        words, card = f"{'?' if self.text else '='} {self.title}", "card.html"
        return html.render(card, kind="hint", words=words, text=self.text, code=self.solution)


def hint(name: str) -> Hint:
    """Give the next hint to an exercise, numbered; after the last comes the solution.

    Raises `CourseError`: There is no exercise of this name.
    """
    exercise = find(name)
    count = len(exercise.hints)
    number = min(_shown.get(name, 0) + 1, count + 1)
    _shown[name] = number
    if number > count:
        return Hint(translated(f"Solution of {name}"), solution=exercise.solution.strip())
    more = translated(f'Ask hint("{name}") once more, and you will see the solution.')
    text = translated(exercise.hints[number - 1]) + (f"\n{more}" if number == count else "")
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
            name = re.search(r'(?:NotImplementedError\("|# Exercise )(\d\d-\d)', cell.source)
            cell.source = find(name[1] if name else cell.source[:40]).solution.rstrip()
        elif asked := re.search(r'^check\("((\d\d)-\w+)"', cell.source, re.MULTILINE):
            cell.outputs = []
            if "question" in tags:
                with unreadable(f"There is no question {asked[1]!r}.", "Take its tag away."):
                    right = read(asked[2])[asked[1]].right
                cell.source = cell.source.replace("answer = None", f'answer = "{right}"', 1)
    return solved
