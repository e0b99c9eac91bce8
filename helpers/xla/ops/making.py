"""Compiling the cases, for this CPU and for a TPU. Imports TensorFlow only when it is asked to."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from helpers.base.errors import CourseError
from helpers.base.output import errors_only
from helpers.xla.ops.table import TARGET, Row, Table
from helpers.xla.tables import short
from tpu_preflight.program import messages

if TYPE_CHECKING:
    from helpers.xla.ops.cases import Case

# Cases compiled together: few enough that a progress line moves.
_BATCH = 20


def _on_cpu(case: "Case") -> str:
    """Let XLA compile for this CPU; say its refusal."""
    import tensorflow as tf

    fn = case.function
    step = tf.function(lambda *tensors: fn(*tensors), jit_compile=True)
    try:
        step.experimental_get_compiler_ir(*case.specs)(stage="optimized_hlo")
    except Exception as error:
        return messages.line_of(error)
    return ""


def _first_line(text: str) -> str:
    return short(re.sub(r" \(defined @ [^)]*\)", "", text))  # a line number of functions.py


def rows(cases: Sequence["Case"]) -> Iterator[Row]:
    """Compile cases for this CPU and for a TPU, a row for each, in order.

    Raises:
        CourseError: jax or libtpu is missing.
    """
    from helpers.xla.bridge import verdict
    from tpu_preflight import compiler

    programs, refusals, cpu = [], {}, {}
    for case in cases:
        try:
            program = compiler.export(case.function, *case.specs)
            programs.append(dataclasses.replace(program, name=case.name))
            cpu[case.name] = _on_cpu(case)
        except compiler.NotCompilable as error:
            refusals[case.name] = error.why
    with compiler.started():
        compiled = {p.name: compiler.compile(p, TARGET) for p in programs}
    bounded = {p.name: bool(p.bounded) for p in programs}
    for case in cases:
        told = (case.subject, case.name, case.shown, re.sub(r"\w+: ", "", case.arguments))
        bridged = verdict(case.function, *case.specs)
        if case.name in refusals:
            first = _first_line(refusals[case.name])
            yield Row(*told, "refused", "not reached", bridged, False, first)
            continue
        result = compiled[case.name]
        if result.verdict == "not available":
            raise CourseError(
                "The table of operations can't be made here.",
                result.message,
                "Install it, or read the stored table: tpu-course ops --stored",
            )
        message = _first_line(cpu[case.name] or result.message)
        on_cpu = "refused" if cpu[case.name] else "compiles"
        yield Row(*told, on_cpu, result.verdict, bridged, bounded[case.name], message)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what cases print, and TensorFlow's own words about refused ones, off the terminal."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # noqa: PTH123
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def make(progress: Callable[[int, int], None] | None = None) -> Table:
    """Compile every case; ``progress`` is told the number of cases that are done, and of all.

    Raises:
        CourseError: jax or libtpu is missing.
    """
    import tensorflow as tf

    errors_only(tf)
    from helpers.xla.ops.cases import cases
    from tpu_preflight import compiler

    todo = cases()
    done: list[Row] = []
    for start in range(0, len(todo), _BATCH):
        with _quiet():
            done += rows(todo[start : start + _BATCH])
        if progress is not None:
            progress(len(done), len(todo))
    found = {"TensorFlow": tf.__version__} | compiler.versions()
    versions = ", ".join(f"{name} {found[name]}" for name in ("TensorFlow", "jax", "libtpu"))
    return Table(versions, tuple(done))
