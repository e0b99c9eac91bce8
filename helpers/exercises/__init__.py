"""Exercises with an answer at once: ``check("02-1", answer)`` and ``hint("02-1")``.

The texts of notebook 02's exercises are in ``notebook_02.toml`` beside this file, their checks in
``notebook_02.py``, and so on. Stub, hints, solution and typical wrong answers stand together, so
the editions of the course can't drift.
"""

import dataclasses
import importlib
import pathlib
import re
import tomllib
from collections.abc import Callable, Collection

import nbformat

from helpers.base.errors import CourseError
from helpers.exercises import progress


class UnknownExercise(CourseError):
    """No exercise has this name."""


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

    stub: str  # source of the cell that the learner completes; its body raises NotImplementedError
    answer: str  # name that the stub defines and that ``check`` is given
    # Takes the answer, raises ``Wrong``, or returns what the answer has shown.
    check: Callable[[object], str]
    hints: tuple[str, ...]  # from a nudge to nearly the solution
    solution: str  # source that replaces the stub
    wrong: dict[str, str]  # typical wrong answers: source by words that the verdict must contain


def read(number: str, *checks: Callable[[object], str]) -> dict[str, Exercise]:
    """Join the texts of a notebook's exercises, by name, with their checks, in the same order."""
    path = pathlib.Path(__file__).with_name(f"notebook_{number}.toml")
    texts = tomllib.loads(path.read_text("utf-8"))
    return {
        name: Exercise(check=check, hints=tuple(text.pop("hints")), **text)
        for (name, text), check in zip(texts.items(), checks, strict=True)
    }


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What ``check`` says of an answer."""

    name: str  # the exercise, such as ``02-1``
    state: str  # ``right``, ``not yet`` (untouched stub) or ``not right``
    message: str  # what is right, or what is not and why

    def __repr__(self) -> str:
        return f"Exercise {self.name}: {self.state}. {self.message}"


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
    """Judge an answer, a function or a value; ``helpers.exercises.progress`` keeps a right one.

    A wrong answer raises nothing, whatever its code does, so the notebook runs on.

    Raises:
        UnknownExercise: There is no exercise of this name.
    """
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
    progress.exercise_done(name)
    return verdict


_shown: dict[str, int] = {}


@dataclasses.dataclass(frozen=True)
class Hint:
    """One hint, shown by its text."""

    text: str

    def __repr__(self) -> str:
        return self.text


def hint(name: str) -> Hint:
    """Give the next hint to an exercise, numbered; the last one is repeated.

    Raises:
        UnknownExercise: There is no exercise of this name.
    """
    hints = find(name).hints
    number = min(_shown.get(name, 0) + 1, len(hints))
    _shown[name] = number
    return Hint(f"Hint {number} of {len(hints)}: {hints[number - 1]}")


def solve(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Copy a notebook with the solution in each exercise's cell: the teacher's edition.

    The verdict stored below it is taken out: it belongs to the stub.

    Raises:
        UnknownExercise: The notebook asks for an exercise that is not there.
    """
    solved = nbformat.from_dict(notebook)
    stub = None
    for cell in solved.cells:
        if "exercise" in cell.metadata.get("tags", ()):
            stub = cell
        elif stub is not None and (asked := re.match(r'check\("(\d\d-\d+)"', cell.source)):
            stub.source = find(asked[1]).solution.rstrip()
            cell.outputs, stub = [], None
    return solved
