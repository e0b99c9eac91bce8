"""A TensorFlow function as TensorFlow's own graph, built without running anything.

Building a graph runs the function's Python, which may refuse, loop for ever, or fork. A refusal
says at which operation, and on which of the learner's lines.

Imports TensorFlow only inside `trace`.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from tpu_preflight.errors import PreflightError
from tpu_preflight.program import messages
from tpu_preflight.program.messages import Frame, Refusal

TIMEOUT = 600.0  # seconds after which tracing is given up

# TensorFlow's operations that draw random numbers, with a state and without.
_DRAWS = {
    "random_uniform": "stateless_random_uniform_v2",
    "random_uniform_int": "stateless_random_uniform_int_v2",
    "random_standard_normal": "stateless_random_normal_v2",
    "truncated_normal": "stateless_truncated_normal_v2",
}
_DRAW_OPTIONS = ("minval", "maxval", "dtype")

# Parts of TensorFlow's names of types, and what a message calls such a resource.
_RESOURCE_KINDS = {
    "lookup::": "lookup table",
    "Iterator": "iterator",
    "SummaryWriter": "summary writer",
}


class NotCompilable(PreflightError):
    """A function can't become a program for a TPU; says at which operation, and where that is.

    Args:
        what: As in `PreflightError`, like ``why`` and ``fix``.
        refusal: What TensorFlow or JAX says, where it does. Its ``operation`` and ``source``, where
            the operation was made, are also attributes of the error; so are ``where``, the same in
            words, and ``message``, its whole text.
        reason: ``no kernel`` (neither has a table or an iterator), ``size`` or ``argument`` (XLA
            refuses one), ``late`` (tracing took too long, and would again), ``memory``, ``limit``
            (only the preflight can't, which says nothing of the function), or empty.
    """

    def __init__(
        self, what: str, why: str, fix: str, refusal: Refusal | None = None, reason: str = ""
    ) -> None:
        super().__init__(what, why, fix)
        refusal = refusal or Refusal("")
        self.operation = refusal.operation
        self.source = refusal.source
        self.message = refusal.text
        self.where = refusal.where
        self.reason = reason


class _StoppedTracing(BaseException):
    """Passes through the learner's and AutoGraph's ``except Exception``."""


@dataclasses.dataclass(frozen=True)
class Resource:
    """What a graph holds apart from tensors: a variable, a lookup table, an iterator."""

    name: str  # its name, such as ``dense/kernel``
    kind: str  # ``variable``, ``lookup table``, ``iterator``, or TensorFlow's name of the type
    handle: Any = dataclasses.field(repr=False)  # the tensor that refers to it
    dtype: Any = None  # of a variable's values; None for the others

    def read(self) -> np.ndarray:
        """Give a copy of a variable's value."""
        import tensorflow as tf

        return np.array(tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype))


@dataclasses.dataclass(frozen=True)
class Tracing:
    """A TensorFlow function as TensorFlow's own graph."""

    name: str  # the function's name
    specs: tuple[Any, ...]  # its arguments' ``tf.TensorSpec``s, flat
    replicas: int  # how many devices run it together
    function: Any = dataclasses.field(repr=False)  # the ``tf.function``
    concrete: Any = dataclasses.field(repr=False)  # its concrete function

    @property
    def graph(self) -> Any:
        """The graph, a ``tf.Graph``."""
        return self.concrete.graph

    @functools.cached_property
    def resources(self) -> tuple[Resource, ...]:
        """What the graph holds, by handle: a graph's own list lacks what an operation only updates.

        So do the slots of Keras' older optimizers.
        """
        import tensorflow as tf

        names = {}
        for variable in self.graph.variables:
            names[id(variable.handle)] = variable.name.partition(":")[0]
        resources = []
        for handle in self.concrete.captured_inputs:
            if handle.dtype == tf.resource:
                resources.append(_resource(handle, names.get(id(handle), "")))
        return tuple(resources)

    @property
    def variables(self) -> tuple[Resource, ...]:
        """The variables among the resources."""
        return tuple(r for r in self.resources if r.kind == "variable")


def trace(
    fn: Callable,
    *specs: Any,
    replicas: int = 1,
    timeout: float | None = TIMEOUT,
    strategy: Any = None,
    alike: bool = False,
) -> Tracing:
    """Let TensorFlow build the graph of a function, without running it.

    Args:
        fn: As for `program.export`.
        *specs: As for `program.export`.
        replicas: As for `program.export`.
        timeout: Seconds after which tracing is given up; None for no limit. Kept in the main thread
            only.
        strategy: Under a strategy, the graph is that of its ``run``, for `bridge.split`, not for
            XLA.
        alike: Whether all replicas hold the same rows, and all rows draw the same random numbers:
            what replicas sum is then a product, and the graph runs here.

    Raises:
        NotCompilable: TensorFlow refuses, the shapes aren't all known, or the time is over.
    """
    import tensorflow as tf

    name = getattr(fn, "__name__", None) or getattr(fn, "name", None) or type(fn).__name__
    wants_no_autograph = getattr(fn, "_autograph", True) is False  # a tf.function may ask for it
    fn = getattr(fn, "python_function", fn)
    if wants_no_autograph:
        fn = tf.autograph.experimental.do_not_convert(fn)

    # Refused before anything is traced, as XLA's own message says less.
    specs = tf.nest.map_structure(spec_of, specs)
    flat_specs = tuple(tf.nest.flatten(specs))
    _check_shapes(flat_specs, name)

    def of_tensors(*tensors: Any) -> Any:
        arguments = tf.nest.pack_sequence_as(specs, tensors)
        if strategy is not None:
            return strategy.run(fn, args=arguments)
        return fn(*arguments)

    # XLA compiles neither what the bridge splits nor what is run here, replicas in one.
    step = tf.function(of_tensors, jit_compile=strategy is None and not alike)
    process = os.getpid()
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(limited(timeout, name))
            if replicas > 1 or alike:
                stack.enter_context(_gradients_added(replicas, alike))
            stack.enter_context(_resources_read())
            concrete = step.get_concrete_function(*flat_specs)
            if os.getpid() != process:  # the model forked: its copy has no business here
                os._exit(0)
    except NotCompilable:
        raise
    except Exception as error:
        raise _untraceable(error, name) from error
    return Tracing(name, flat_specs, replicas, function=step, concrete=concrete)


def _check_shapes(specs: tuple[Any, ...], name: str) -> None:
    import tensorflow as tf

    for i, spec in enumerate(specs, 1):
        if not isinstance(spec, tf.TensorSpec) or not spec.shape.is_fully_defined():
            raise NotCompilable(
                f"Argument {i} of {name} is {spec}.",
                "XLA compiles for one shape at a time; every dimension must be a number.",
                "Give the shape of one batch, as in tf.TensorSpec([32, 128]); in a dataset "
                "drop_remainder=True makes the batch size known.",
            )


def spec_of(value: Any) -> Any:
    """Describe a tensor or an array; what is a description already is given back."""
    import tensorflow as tf

    if isinstance(value, tf.TypeSpec):
        return value
    return tf.TensorSpec.from_tensor(tf.convert_to_tensor(value))


def _resource(handle: Any, name: str) -> Resource:
    import tensorflow as tf
    from tensorflow.python.ops import handle_data_util

    # What a handle is for is in its own data, or at least in its text.
    data = handle_data_util.get_handle_data(handle)
    attributes = dict(re.findall(r'(\bname|\btype)="([^"]*)"', str(handle)))
    if data is not None and data.is_set:
        dtype = tf.as_dtype(data.shape_and_type[0].dtype)
        name = name or attributes.get("name", "").partition("/")[0]
        return Resource(name, "variable", handle, dtype)
    type_name = attributes.get("type", "")
    for part, kind in _RESOURCE_KINDS.items():
        if part in type_name:
            return Resource(name, kind, handle)
    return Resource(name, type_name.rpartition("::")[2] or "resource", handle)


def _untraceable(error: Exception, name: str) -> NotCompilable:
    refusal = messages.refusal(error)
    line = refusal.line
    # AutoGraph's own wrapper of an error says the error's name in its text.
    if not re.match(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b", line):
        line = f"{type(error).__name__}: {line}"
    fix = "Make it run as tf.function(fn).get_concrete_function(...) first, on a CPU."
    if "singleton tf.Variable" in line:
        fix = (
            "Make the variable once: in the layer's __init__ or build (self.add_weight), or before "
            "the function. A value that lasts for one call needs no tf.Variable."
        )
    what = f"TensorFlow can't trace {name}"
    if refusal.where:
        what += f" at {refusal.where}"
    return NotCompilable(
        f"{what}.",
        line[:500],
        fix,
        refusal,
    )


@contextlib.contextmanager
def limited(seconds: float | None, name: str) -> Iterator[None]:
    """Interrupt Python code that takes too long; only the main thread can be interrupted."""
    usable = (
        seconds is not None
        and hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    )
    if not usable:
        yield
        return

    places = []  # where it was each time that it was interrupted

    def stop(number: int, frame: Any) -> None:
        places.append(messages.nearest_line(_written_frames(frame)))
        raise _StoppedTracing(places[-1])

    previous_handler = signal.signal(signal.SIGALRM, stop)
    # Again each second, as the learner's code may catch what interrupts it.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    except BaseException as error:
        # What a library makes of the interruption (a bare except, a context that is left half
        # entered) is no error of the learner's.
        if not places or not isinstance(error, _StoppedTracing | Exception):
            raise
        source = error.args[0] if isinstance(error, _StoppedTracing) else places[-1]
        what = f"{name} was not traced within {seconds:g} s"
        what += f"; it was at {source}." if source is not None else "."
        raise NotCompilable(
            what,
            why="While a graph is built, Python runs: "
            "a loop over a Python condition may never end.",
            fix="Make it a loop over a tensor, or limit its rounds.",
            refusal=Refusal("", source=source),
            reason="late",
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)


def _written_frames(frame: Any) -> list[Frame]:
    """List a running stack (outermost first) by the lines that were written, not AutoGraph's."""
    stack = list(traceback.walk_stack(frame))
    stack.reverse()
    # AutoGraph leaves the original lines with the function that it made, which its caller holds.
    originals: dict[tuple[str, int], Frame] = {}
    for running, _ in stack:
        converted = running.f_locals.get("converted_f")
        source_map = getattr(converted, "ag_source_map", None) or {}
        for generated, origin in source_map.items():
            file, line = origin.loc[:2]
            originals[generated.filename, generated.lineno] = (file, line, origin.function_name)
    frames = []
    for running, line in stack:
        code = running.f_code
        as_run = (code.co_filename, line, code.co_name)
        frames.append(originals.get((code.co_filename, line), as_run))
    return frames


def _resources_read() -> contextlib.AbstractContextManager:
    """Read a variable before elements are gathered from it, as the TPU bridge does.

    XLA has no kernel for the operation that does both (`ResourceGatherNd`, tf.gather_nd).
    """
    import tensorflow as tf
    from tensorflow.python.ops import resource_variable_ops

    def gather_nd(self: Any, indices: Any, name: str | None = None) -> Any:
        return tf.gather_nd(self.value(), indices, name=name)

    return mock.patch.object(resource_variable_ops.BaseResourceVariable, "gather_nd", gather_nd)


@contextlib.contextmanager
def _gradients_added(replicas: int, alike: bool) -> Iterator[None]:
    """Let optimizers add up their gradients across replicas, as they do under a TPUStrategy.

    Keras asks the current strategy's replica context to add. TPUStrategy's own operation has no
    kernel without a TPU; a collective of the same meaning has, and becomes the same all-reduce.
    Gradients of embeddings are dense on a TPU, as there.
    """
    import tensorflow as tf

    keys = itertools.count(1)

    def add_up(value: Any) -> Any:
        value = tf.convert_to_tensor(value)
        if alike:
            return value * tf.cast(replicas, value.dtype)
        return tf.raw_ops.CollectiveReduceV2(
            input=value,
            group_size=replicas,
            group_key=1,
            instance_key=next(keys),
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
        )

    def all_reduce(self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        total = tf.nest.map_structure(add_up, value)
        if "MEAN" in str(reduce_op).upper():
            return tf.nest.map_structure(lambda x: x / replicas, total)
        return total

    def use_merge_call(self: Any) -> bool:
        return False

    # Of the default strategy, which Keras finds where there is no other.
    context = type(tf.distribute.get_replica_context())
    extended = type(tf.distribute.get_strategy().extended)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(context, "all_reduce", all_reduce))
        stack.enter_context(mock.patch.object(extended, "_use_merge_call", use_merge_call))
        if alike:
            stack.enter_context(mock.patch.object(extended, "_num_replicas_in_sync", replicas))
            stack.enter_context(_drawn_alike())
        yield


@contextlib.contextmanager
def _drawn_alike() -> Iterator[None]:
    """Let each row draw the same random numbers, however many rows there are, and in each run.

    A draw with a state, whose seed XLA ignores, is made by the same operation as one without.
    """
    import tensorflow as tf
    from tensorflow.python.ops import gen_random_ops, gen_stateless_random_ops_v2, random_ops_util

    # Of each graph from 0: one that makes variables is traced twice.
    @functools.cache
    def draw_numbers(graph: Any) -> Iterator[int]:
        return itertools.count()

    def draw_row(draw: Callable, shape: Any, *arguments: Any, **options: Any) -> Any:
        seed = [0, next(draw_numbers(tf.compat.v1.get_default_graph()))]
        generator = random_ops_util.get_key_counter_alg(seed, "auto_select")
        # Operations with a state have their type or bounds in the same order; they also have
        # seeds, which one without a state doesn't take.
        options = {name: value for name, value in options.items() if name in _DRAW_OPTIONS}
        row = draw(shape[1:], *generator, *arguments, **options)
        return tf.broadcast_to(row, shape)

    with contextlib.ExitStack() as stack:
        for stateful, stateless in _DRAWS.items():
            draw = getattr(gen_stateless_random_ops_v2, stateless)
            draw_alike = functools.partial(draw_row, draw)
            stack.enter_context(mock.patch.object(gen_random_ops, stateful, draw_alike))
            stack.enter_context(
                mock.patch.object(gen_stateless_random_ops_v2, stateless, draw_alike)
            )
        yield
