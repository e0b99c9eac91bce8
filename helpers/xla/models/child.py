"""The process in which models are built and traced; `making` starts it and talks to it.

A model may crash the process, take all memory, or never come back from tracing. TensorFlow is
imported only in here.
"""

import contextlib
import dataclasses
import gc
import multiprocessing.connection
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

from helpers.base.settings import ENVIRONMENT
from tpu_preflight.program import NotCompilable, Program, messages


@dataclasses.dataclass(frozen=True)
class Told:
    """What was said of a step of a model."""

    program: Program | None = None  # XLA's program of it; None where TensorFlow refused
    message: str = ""  # the refusal, one line; empty where there is a program
    where: str = ""  # the line of transformers that is refused, or makes the first bounded shape
    # The package that transformers needs for it and that isn't installed; mostly empty.
    lacks: str = ""


# transformers imports it only where it is installed, and then uses it under this name.
_PROBABILITY = "name 'tfp' is not defined"


@dataclasses.dataclass(frozen=True)
class Examined:
    """What TensorFlow and XLA's compiler for the CPU say of a model."""

    built: str = ""  # why it can't even be built; empty where it can
    forward: Told = Told()  # its forward step
    cpu: str = ""  # why XLA's compiler for the CPU refuses the forward step; empty where it doesn't
    training: Told = Told()  # its training step
    # What TensorFlow's TPU bridge says of the training step, as `bridge.verdict`.
    bridge: str = "not traced"


def _place(source: messages.Source | None) -> str:
    """Write a line of transformers as ``models/bert/modeling_tf_bert.py:12 call``."""
    if source is None:
        return ""
    _, found, file = source.file.rpartition("/transformers/")
    file = file if found else pathlib.Path(file).name
    return f"{file}:{source.line} {source.function}".rstrip()


def _made_at(name: str, traced: Any) -> str:
    """Find the line that made an operation, by its name; for a gradient's, what it belongs to.

    ``gradient_tape/x/transpose/InvertPermutation``, or in a branch
    ``gradient_tape/x/cond/gradients/x/cond/transpose_grad/InvertPermutation``, belongs to
    ``x/cond/transpose``.
    """
    from tpu_preflight.program import graph_operations

    of_gradient = name.rpartition("/gradients/")[2].removeprefix("gradient_tape/")
    if of_gradient != name:
        name = of_gradient.rpartition("/")[0].removesuffix("_grad")
    made = graph_operations(traced.graph).get(name)
    stack = made.traceback if made is not None else ()
    return _place(messages.nearest_line((f.filename, f.lineno, f.name) for f in stack))


def _asked(step: Callable, specs: dict[str, Any]) -> tuple[Told, Any]:
    """Let TensorFlow make XLA's program of a step; give the graph, too, where there is one."""
    from tpu_preflight.program import program, trace

    traced = None
    try:
        traced = trace(step, specs, timeout=None)
        made = program(traced)
    except NotCompilable as error:
        lacks = "tensorflow_probability" if _PROBABILITY in error.why else ""
        where = _place(error.source)
        node = re.search(r"\{\{node ([^}]*)\}\}", error.message)
        if traced is not None and node and not where:
            where = _made_at(node[1], traced)
        said = error.why
        if re.fullmatch(r"\w+", error.operation) and error.operation not in said:
            said = f"{error.operation}: {said}"
        return Told(None, said, where, lacks), traced
    where = _made_at(made.bounded[0].name, traced) if made.bounded else ""
    return Told(made, where=where), traced


def examine(name: str) -> Examined:
    """Build a model, trace its steps, and ask XLA for the CPU and TensorFlow's TPU bridge."""
    import tensorflow as tf

    from helpers.xla.bridge import verdict
    from helpers.xla.models import building

    try:
        tiny = building.build(name)
    except Exception as error:
        return Examined(built=f"{type(error).__name__}: {messages.line_of(error)}")
    forward, traced = _asked(tiny.forward, tiny.inputs)
    cpu = forward.message
    if forward.program is not None:
        try:
            compiler = traced.function.experimental_get_compiler_ir(*traced.specs)
            compiler(stage="optimized_hlo")
        except Exception as error:
            cpu = messages.line_of(error)
    training, _ = _asked(tiny.training, tiny.examples)

    def flat(*tensors: Any) -> list[Any]:
        return tiny.training(tf.nest.pack_sequence_as(tiny.examples, tensors))

    bridged = verdict(flat, *tf.nest.flatten(tiny.examples))
    return Examined("", forward, cpu, training, bridged)


def serve(pipe: multiprocessing.connection.Connection) -> None:
    """Answer with what `examine` finds for each name; to an empty one with the list of names."""
    os.environ.update(ENVIRONMENT)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # what models print, and TensorFlow's own words about refused ones
        os.dup2(nowhere, stream)
    import tensorflow as tf

    from helpers.xla.models import building

    with contextlib.suppress(EOFError):  # the parent has ended
        while True:
            name = pipe.recv()
            pipe.send(examine(name) if name else building.classes())
            tf.keras.backend.clear_session()
            gc.collect()
