"""What XLA makes of a Python function: a table beside eager and graph.

The TPU runs nothing but programs that XLA compiled, so both questions here ("does it compile?",
"is the answer still right?") are put to XLA itself, on a CPU.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from helpers.base.errors import CourseError
from tpu_preflight import compiler
from tpu_preflight.chips import hardware
from tpu_preflight.display import Displayable, Heading, Table
from tpu_preflight.program import messages
from tpu_preflight.text import translated

# Its own frames are no part of the learner's function.
messages.MACHINERY.append(__file__)

# How XLA writes TensorFlow's types: ``f32``, ``s64`` (https://openxla.org/xla/shapes).
_TYPES = {"float": "f", "uint": "u", "int": "s", "complex": "c", "bool": "pred"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to run a function, and what came of it."""

    how: str  # ``eager``, ``graph``, ``XLA:CPU``, or a TPU's name
    # Type and shape of each result as XLA writes them: ``f32[3]``; ``f32[?]`` where a graph leaves
    # a dimension open, ``f32[<=8]`` where XLA knows only an upper bound. Empty where it didn't run.
    shapes: tuple[str, ...] = ()
    values: tuple[np.ndarray, ...] | None = None  # None where it was refused, or only compiled
    # ``tracing`` (Python, rewritten by AutoGraph, while it builds the graph), ``TensorFlow`` (an
    # operation while it runs), ``Python`` (other errors of an eager run) or the compiler's name.
    refused_by: str = ""
    message: str = ""  # the first useful line of the refusal

    @property
    def result(self) -> str:
        """The values in one short line, rounded; a dash where there are none."""
        if self.values is None:
            return "–"
        return ", ".join(map(_short, self.values))


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison(Displayable):
    """The same function run in several ways, one row for each; the first is the reference."""

    name: str
    rows: tuple[Row, ...]

    def __getitem__(self, how: str) -> Row:
        """Look up a row by name, such as ``XLA:CPU``."""
        for row in self.rows:
            if row.how == how:
                return row
        raise KeyError(how)

    def verdict(self, row: Row) -> str:
        """Say how a row compares with the first: ``✓ same``, ``✗ refused by XLA``."""
        if row.refused_by:
            return f"✗ refused by {row.refused_by}"
        if row.values is None and row.shapes:
            return "✓ accepted"
        if row.values is None:
            return "not run"
        if row is self.rows[0]:
            return "reference"
        reference = self.rows[0].values or ()
        if len(reference) == len(row.values) and all(map(_equal, reference, row.values)):
            return "✓ same"
        return "✗ differs"

    def blocks(self) -> Iterator[Any]:
        """Give its parts in order; see `Displayable`."""
        yield Heading(self.name)
        yield Table(
            {
                "": row.how,
                "verdict": self.verdict(row),
                "result": row.result,
                "shape": ", ".join(row.shapes) or "–",
            }
            for row in self.rows
        )
        # Two rows are often refused for the same reason, which then stands once, after both names.
        names_by_message: dict[str, list[str]] = {}
        for row in self.rows:
            if row.message:
                names_by_message.setdefault(row.message, []).append(translated(row.how))
        for message, names in names_by_message.items():
            yield f"{', '.join(names)}: {message}"


def _short(value: np.ndarray) -> str:
    """Write an array in one short line, rounded to four digits and without rounding noise."""
    formatter = str
    if np.issubdtype(value.dtype, np.inexact):
        finite = np.abs(value[np.isfinite(value)])
        value = np.where(np.abs(value) < 1e-6 * finite.max(initial=0.0), 0.0, value)
        formatter = "{:.4g}".format
    text = np.array2string(value, formatter={"all": formatter}, threshold=8, edgeitems=2)
    text = " ".join(text.split())
    if len(text) > 64:
        text = f"{text[:63]}…"
    return text


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether results agree but for the rounding that another order of additions brings."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not np.issubdtype(a.dtype, np.inexact):
        return np.array_equal(a, b)
    return np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True)


def xla_shape(tensor: object) -> str:
    """Write a tensor's type and shape as XLA does: ``f32[3,?]``, with ``?`` for an open size."""
    name = tensor.dtype.name
    for tensorflow_name, xla_name in _TYPES.items():
        name = name.replace(tensorflow_name, xla_name)
    if tensor.shape.rank is None:
        return f"{name}[…]"
    sizes = ",".join(map(str, tensor.shape))
    return f"{name}[{sizes.replace('None', '?')}]"


@dataclasses.dataclass(frozen=True)
class _Subject:
    """What is compared: a function of tensors alone, and what it is called with."""

    function: Callable
    specs: tuple[tf.TensorSpec, ...]
    tensors: tuple[tf.Tensor, ...] | None  # None where an argument is only described


def _subject(fn: Callable, args: tuple) -> _Subject:
    specs = []
    for i, arg in enumerate(args, 1):
        if not isinstance(arg, tf.TensorSpec | tf.Tensor | np.ndarray | np.generic):
            raise CourseError(
                f"Argument {i} is of type {type(arg).__name__}.",
                "Only a tensor's shape and type reach the compiler; a Python value becomes part "
                "of the program.",
                "Give tf.constant(...) for data, or fix the value: compare(lambda x: f(x, 3), x).",
            )
        specs.append(tf.TensorSpec(arg.shape, arg.dtype))
    # Where one argument is only described, nothing can be run.
    tensors = None
    if not any(isinstance(arg, tf.TensorSpec) for arg in args):
        tensors = tuple(map(tf.convert_to_tensor, args))
    fn = getattr(fn, "python_function", fn)

    # TensorFlow's export needs a plain signature.
    def function(*tensors: tf.Tensor) -> object:
        return fn(*tensors)

    return _Subject(function, tuple(specs), tensors)


def _flat(results: object) -> list[tf.Tensor]:
    """List a function's results, none of which may be missing."""
    tensors = []
    for number, result in enumerate(tf.nest.flatten(results), 1):
        if result is None:
            raise CourseError(
                f"Result {number} of the function is None.",
                "Its `return` is missing, or it is the gradient of something the loss doesn't use.",
                "Return the tensors to compare, and no others.",
            )
        tensors.append(tf.convert_to_tensor(result))
    return tensors


def _refused(how: str, error: Exception, layer: str = "") -> Row:
    if not layer:
        layer = "TensorFlow" if isinstance(error, tf.errors.OpError) else "Python"
    return Row(how, refused_by=layer, message=messages.shorten(messages.line_of(error)))


def _eager(subject: _Subject) -> Row:
    if subject.tensors is None:
        return Row("eager")
    setting = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        results = subject.function(*subject.tensors)
    except Exception as error:  # whatever it raises is the answer
        return _refused("eager", error)
    finally:
        tf.config.run_functions_eagerly(setting)
    tensors = _flat(results)
    return Row("eager", tuple(map(xla_shape, tensors)), tuple(map(np.asarray, tensors)))


def _traced(how: str, subject: _Subject) -> Row:
    on_xla = how == "XLA:CPU"
    function = tf.function(subject.function, jit_compile=on_xla)
    layer = "tracing"
    values = None
    try:
        concrete = function.get_concrete_function(*subject.specs)
        shapes = list(map(xla_shape, _flat(concrete.structured_outputs)))
        layer = "XLA" if on_xla else ""
        if on_xla:
            hlo = function.experimental_get_compiler_ir(*subject.specs)(stage="hlo")
            # After the function's own results, XLA's list holds the variables that it changed.
            shapes = _result_shapes(hlo)[: len(shapes)]
        if subject.tensors is not None:
            values = tuple(map(np.asarray, _flat(concrete(*subject.tensors))))
    except CourseError:
        raise
    except Exception as error:
        return _refused(how, error, layer)
    return Row(how, tuple(shapes), values)


def _result_shapes(hlo: str) -> list[str]:
    """Read the types and shapes of a program's results from its first line."""
    first_line = hlo.partition("\n")[0]
    layout = re.search(r"entry_computation_layout=\{(.*)\}", first_line)[1]
    results = layout.rpartition("->")[2]
    return re.findall(r"\w+\[[^\]]*\]", results)


def _tpu(subject: _Subject, target: str, xla: Row) -> Row:
    """Ask Google's compiler; nothing is run. ``xla`` is the row of XLA:CPU."""
    how = f"TPU {hardware.slice_of(target).chip.name}"
    try:
        program = compiler.export(subject.function, *subject.specs)
    except compiler.NotCompilable as error:  # before the TPU is asked, for the reason in that row
        return Row(how, refused_by=xla.refused_by or "XLA", message=xla.message or error.what)
    compiled = compiler.compile(program, target)
    if compiled.verdict == "compiles":
        # The last results are the variables that the function changed.
        own_results = len(program.results) - len(program.donated)
        return Row(how, program.results[:own_results])
    if compiled.verdict in ("refused", "out of memory"):
        message = compiled.message.partition(": %")[0]  # the instruction has numbers of its own
        return Row(how, refused_by=f"the compiler of {how}", message=message)
    return Row(how, message=compiled.message)


def compare(
    fn: Callable, *args: tf.Tensor | np.ndarray | tf.TensorSpec, target: str | None = None
) -> Comparison:
    """Run a function eagerly, as a graph and compiled by XLA, and show the three side by side.

    Graph and compiled program are made from the arguments' shapes and types alone. With the
    tensors at hand TensorFlow would read sizes out of them, and ``tf.range(n)`` would pass here
    and fail on a TPU. (The values are computed from the tensors, once XLA has accepted.)

    A function that changes a variable changes it once in each way it runs.

    Args:
        fn: Takes and returns tensors (or nests of them). AutoGraph rewrites it, unless it is
            marked with ``tf.autograph.experimental.do_not_convert``.
        *args: Tensors or NumPy arrays; or a ``tf.TensorSpec`` where only its shape and type
            matter, in which case nothing is run and no values are shown.
        target: A TPU, such as ``v5e-1``: Google's compiler is asked as well, in a fourth row. It
            compiles and runs nothing, so there are no values.

    Raises `CourseError`: An argument is something else, such as a Python number; the function
    returned None, alone or among its results; there is no such target.
    """
    subject = _subject(fn, args)
    rows = [_eager(subject), _traced("graph", subject), _traced("XLA:CPU", subject)]
    if target is not None:
        rows.append(_tpu(subject, target, rows[-1]))
    return Comparison(getattr(fn, "__name__", type(fn).__name__), tuple(rows))
