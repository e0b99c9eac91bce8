"""Exercises with an answer at once: ``check("02-1", answer)`` and ``hint("02-1")``.

Digits name exercises, letters questions: ``check("02-a", "b")``. The texts of notebook 02's are in
``notebook_02.toml`` beside this file, the checks of its exercises in ``notebook_02.py``, and so on.
Stub, hints, solution and typical wrong answers stand together, so the editions of the course can't
drift.
"""

import copy
import dataclasses
import functools
import importlib
import pathlib
import re
import tomllib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from helpers.base import html
from helpers.base.errors import CourseError
from helpers.base.language import translated

if TYPE_CHECKING:
    import nbformat  # it would take a second of each notebook's setup


class UnknownExercise(CourseError):
    """No exercise or question has this name."""


class Wrong(Exception):
    """Raised by an exercise's check: says what is not right and why, without the solution."""


def returned(value: object) -> object:
    """Pass on what the learner's function returned; `Wrong` if it is None."""
    if value is None:
        raise Wrong("Your function returns None: the return is missing.")
    return value


def filled(answer: object, asked: Collection[str]) -> dict:
    """Call an answer that returns a dictionary; `Wrong` if its keys are not those asked for."""
    given = answer()
    if not isinstance(given, dict) or set(given) != set(asked):
        raise Wrong("Return the dictionary with its keys unchanged.")
    return given


def check_compiles(answer: object, *specs: object) -> None:
    """Let XLA compile an answer for arguments of these tf.TensorSpecs; `Wrong` if it refuses."""
    from helpers.xla.compare import compare

    row = compare(answer, *specs)["XLA:CPU"]
    if row.refused_by:
        raise Wrong(f"It is refused by {row.refused_by}: {row.message}")


@dataclasses.dataclass(frozen=True)
class Exercise:
    """One exercise."""

    stub: str  # source of the cell to complete; it raises NotImplementedError with its name
    answer: str  # name that the stub defines and that ``check`` is given
    # Takes the answer, raises ``Wrong``, or returns what the answer has shown.
    check: Callable[[object], str]
    hints: tuple[str, ...]  # from a nudge to nearly the solution, which comes after them
    solution: str  # source that replaces the stub
    wrong: dict[str, str]  # typical wrong answers: source by words that the verdict must contain


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

    def check(self, name: str, answer: object) -> "Verdict":
        """Judge an answer: one of the letters, or None as long as there is none."""
        choice = " or ".join(f'"{letter}"' for letter in self.letters)
        if answer is None:
            return Verdict(name, "not yet", f"Guess: answer = {choice}. Then run this cell again.")
        letter = str(answer).strip().lower()
        if letter == self.right:
            return Verdict(name, "right", self.because)
        return Verdict(name, "not right", self.wrong.get(letter, f"Answer with {choice}."))


@functools.cache
def _texts(number: str) -> dict[str, dict]:
    path = pathlib.Path(__file__).with_name(f"notebook_{number}.toml")
    return tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}


def questions(number: str) -> dict[str, Question]:
    """Give a notebook's questions by name, such as ``02-a``."""
    return {name: Question(**text) for name, text in _texts(number).items() if "because" in text}


def read(number: str, *checks: Callable[[object], str]) -> dict[str, Exercise]:
    """Join the texts of a notebook's exercises, by name, with their checks, in the same order."""
    texts = {name: text for name, text in _texts(number).items() if "because" not in text}
    return {
        name: Exercise(**text | {"check": check, "hints": tuple(text["hints"])})
        for (name, text), check in zip(texts.items(), checks, strict=True)
    }


# How each state of a verdict is shown: the card's colour, and a sign beside the word.
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
        return html.render(
            "card.html", kind=kind, title=self.title, words=words, text=text, code=""
        )


def find(name: str) -> Exercise:
    """Look up an exercise by the notebook's number and its own, such as ``02-1``.

    Raises:
        UnknownExercise: There is none of this name.
    """
    exercises: dict[str, Exercise] = {}
    if (pathlib.Path(__file__).parent / f"notebook_{name[:2]}.py").is_file():
        exercises = importlib.import_module(f"helpers.exercises.notebook_{name[:2]}").EXERCISES
    if name not in exercises:
        raise UnknownExercise(
            f"There is no exercise {name!r}.",
            "Names are the notebook's number and the exercise's, such as 02-1.",
            "Copy the name from the exercise's own cell.",
        )
    return exercises[name]


def check(name: str, answer: object) -> Verdict:
    """Judge an answer: a letter to a question, a function or a value to an exercise.

    A wrong answer raises nothing, whatever its code does, so the notebook runs on.

    Raises:
        UnknownExercise: There is no exercise or question of this name.
    """
    if question := questions(name[:2]).get(name):
        return question.check(name, answer)
    exercise = find(name)
    try:
        verdict = Verdict(name, "right", exercise.check(answer))
    except NotImplementedError:
        message = f'Replace the line that raises NotImplementedError; hint("{name}") helps.'
        return Verdict(name, "not yet", message)
    except Wrong as wrong:
        return Verdict(name, "not right", str(wrong))
    except Exception as error:  # whatever the learner's code raises is an answer, too
        lines = [line for line in str(error).splitlines() if line.strip()] or ["no message"]
        message = f"Your code raised {type(error).__name__}: {lines[-1].strip()[:300]}"
        return Verdict(name, "not right", message)
    return verdict


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
        words = f"{'?' if self.text else '='} {self.title}"
        return html.render(
            "card.html", kind="hint", title="", words=words, text=self.text, code=self.solution
        )


def hint(name: str) -> Hint:
    """Give the next hint to an exercise, numbered; after the last comes the solution.

    Raises:
        UnknownExercise: There is no exercise of this name.
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


def solve(notebook: "nbformat.NotebookNode") -> "nbformat.NotebookNode":
    """Copy a notebook with each exercise solved and each question answered: the teacher's edition.

    The verdict stored below it is taken out: it belongs to the stub.

    Raises:
        UnknownExercise: The notebook asks for an exercise or a question that is not there.
    """
    solved = copy.deepcopy(notebook)
    stub = None
    for cell in solved.cells:
        tags = cell.metadata.get("tags", ())
        if "exercise" in tags:
            stub = cell
        elif "question" in tags:
            name = re.search(r'check\("(\d\d-[a-z])"', cell.source)[1]
            if name not in (known := questions(name[:2])):
                find(name)  # says that there is none
            cell.source = cell.source.replace("answer = None", f'answer = "{known[name].right}"', 1)
            cell.outputs = []
        elif stub is not None and (asked := re.match(r'check\("(\d\d-\d+)"', cell.source)):
            stub.source = find(asked[1]).solution.rstrip()
            cell.outputs, stub = [], None
    return solved
