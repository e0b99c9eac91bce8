"""What a function does in Python while it is traced: once, and not when the compiled step runs.

Only what is sure is reported: a ``print`` of traced values, traced values that stay in a variable
of the learner's module (or of a function around the step), and numbers there that have changed.
"""

import builtins
import contextlib
import dataclasses
import functools
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from unittest import mock

from tpu_preflight.program import messages
from tpu_preflight.program.messages import Source

PRINTS = "prints"
KEEPS = "keeps"
COUNTS = "counts"

LAST = 8  # entries of a list that are looked at: what tracing adds is at its end

# How traced values write themselves.
_TRACED = re.compile(r'Traced<|\w+Tracer\(|\bTensor\("')
# Where a wrapper has the function that it wraps.
_WRAPPED = ("__wrapped__", "python_function", "func", "__func__")


@dataclasses.dataclass(frozen=True)
class SideEffect:
    """Something that Python does while a function is traced."""

    kind: str  # ``prints``, ``keeps`` (a traced value) or ``counts``
    name: str = ""  # of the variable; empty of ``print``
    source: Source | None = None  # the learner's line, where it is known


@contextlib.contextmanager
def watched(functions: Iterable[object]) -> Iterator[list[SideEffect]]:
    """Give a list that holds, once the body has ended, what these functions did while traced."""
    namespaces = _namespaces(functions)
    numbers = _numbers(namespaces)
    earlier = _names_that_keep(namespaces)
    effects: list[SideEffect] = []
    original = builtins.print

    def record(*values: Any, **options: Any) -> None:
        # An f-string is text by now, so its words have to tell.
        if any(map(_is_traced, values)) or any(map(_writes_traced, values)):
            effects.append(SideEffect(PRINTS, source=_line()))
        # The learner still sees what the program prints.
        original(*values, **options)

    try:
        with mock.patch.object(builtins, "print", record):
            yield effects
    finally:
        for _, name in sorted(_names_that_keep(namespaces) - earlier):
            effects.append(SideEffect(KEEPS, name))
        # It changed while tracing, and stays as it is in each compiled step.
        for key, value in _numbers(namespaces).items():
            if numbers.get(key, value) != value:
                effects.append(SideEffect(COUNTS, key[1]))
        # A function may be traced more than once.
        effects[:] = dict.fromkeys(effects)


def _line() -> Source | None:
    """Find the learner's line that is carried out."""
    frames = []
    for frame, line in traceback.walk_stack(sys._getframe(2)):
        frames.append((frame.f_code.co_filename, line, frame.f_code.co_name))
    frames.reverse()
    # What traces is around it, and this function inside: neither is the learner's.
    return messages.learners_line(frames)


def _is_number(value: object) -> bool:
    # A flag (a `bool` is an `int`) counts nothing.
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_traced(value: object) -> bool:
    """Say whether this stands for a value that only a run has."""
    # A model of one framework shall not load the other.
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(value, jax.core.Tracer):
        return True
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and tensorflow.is_symbolic_tensor(value)


def _writes_traced(value: object) -> bool:
    return isinstance(value, str) and _TRACED.search(value) is not None


def _keeps_traced(value: object) -> bool:
    entries: list[Any] = [value]
    if type(value) is list:
        entries += value[-LAST:]
    elif type(value) is dict:
        entries += value.values()
    return any(map(_is_traced, entries))


def _names_that_keep(namespaces: Iterable[Mapping[str, Any]]) -> set[tuple[int, str]]:
    names = set()
    for number, namespace in enumerate(namespaces):
        for name, value in list(namespace.items()):
            if _keeps_traced(value):
                names.add((number, name))
    return names


def _numbers(namespaces: Iterable[Mapping[str, Any]]) -> dict[tuple[int, str], int | float]:
    numbers = {}
    for number, namespace in enumerate(namespaces):
        for name, value in list(namespace.items()):
            if _is_number(value):
                numbers[number, name] = value
    return numbers


class _Cells(Mapping[str, Any]):
    """The variables of the functions around a function."""

    def __init__(self, function: types.FunctionType) -> None:
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))

    def __getitem__(self, name: str) -> Any:
        # One that has no value yet is no number and no traced value.
        with contextlib.suppress(ValueError):
            return self._cells[name].cell_contents
        return None

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)


def _namespaces(functions: Iterable[object]) -> list[Mapping[str, Any]]:
    """List the variables that the learner's functions can reach: of their modules, and around."""
    namespaces: list[Mapping[str, Any]] = []
    visited = set()
    queue = list(functions)
    while queue:
        function = _unwrapped(queue.pop())
        if function is None or id(function) in visited:
            continue
        visited.add(id(function))
        variables = function.__globals__
        is_learners = messages.learners_line([(function.__code__.co_filename, 1, "")]) is not None
        if is_learners and not any(variables is namespace for namespace in namespaces):
            namespaces.append(variables)
        if function.__closure__:
            cells = _Cells(function)
            queue += cells.values()
            if is_learners:
                namespaces.append(cells)
    return namespaces


def _unwrapped(thing: object) -> types.FunctionType | None:
    """Give the function in a wrapper (of ``jax.jit``, ``tf.function``, ``functools``), or None."""
    for _ in range(8):  # wrappers of wrappers
        if isinstance(thing, types.FunctionType) and not hasattr(thing, "__wrapped__"):
            return thing
        inner: Callable[..., Any] | functools.partial | None = None
        for name in _WRAPPED:
            with contextlib.suppress(Exception):  # a library's object may answer in its own way
                inner = inner or getattr(thing, name, None)
        if inner is None:
            return None
        thing = inner
    return None
