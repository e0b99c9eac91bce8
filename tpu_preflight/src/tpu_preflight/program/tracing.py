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


class NotCompilable(PreflightError):
    """A function can't become a program for a TPU; says at which operation, and where that is.

    Args:
        what: As in `PreflightError`, like ``why`` and ``fix``.
        told: What TensorFlow or JAX says, where it does. Its ``operation`` and ``source``, where
            the operation was made, are attributes of the error, too; so are ``where``, the same in
            words, and ``message``, its whole text.
        reason: ``no kernel`` (neither has a table or an iterator), ``size`` or ``argument`` (XLA
            refuses one), ``late`` (tracing took too long, and would again), ``memory``, or empty.
    """

    def __init__(
        self, what: str, why: str, fix: str, told: Refusal | None = None, reason: str = ""
    ) -> None:
        super().__init__(what, why, fix)
        told = told or Refusal("")
        self.operation, self.source, self.message = told.operation, told.source, told.text
        self.where, self.reason = told.where, reason


class _StoppedTracing(BaseException):
    """Passes through the learner's and AutoGraph's ``except Exception``."""


@dataclasses.dataclass(frozen=True)
class Resource:
    """What a graph holds beside tensors: a variable, a lookup table, an iterator."""

    name: str  # its name, such as ``dense/kernel``
    kind: str  # ``variable``, ``lookup table``, ``iterator``, or TensorFlow's name of the type
    handle: Any = dataclasses.field(repr=False)  # the tensor that stands for it
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

        named = {id(v.handle): v.name.partition(":")[0] for v in self.graph.variables}
        held = [h for h in self.concrete.captured_inputs if h.dtype == tf.resource]
        return tuple(_resource(handle, named.get(id(handle), "")) for handle in held)

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
    """Let TensorFlow build the graph of a function; arguments as for `program.export`.

    Under a ``strategy``, the graph is that of its ``run``, for `bridge.split`, not for XLA. With
    ``alike``, all replicas hold the same rows, and all rows draw the same random numbers: what
    replicas sum is a product, and the graph runs here.

    Raises:
        NotCompilable: TensorFlow refuses, the shapes aren't all known, or the time is over.
    """
    import tensorflow as tf

    name = getattr(fn, "__name__", None) or getattr(fn, "name", None) or type(fn).__name__
    plain = getattr(fn, "_autograph", True) is False  # a tf.function that asks for it
    fn = getattr(fn, "python_function", fn)
    fn = tf.autograph.experimental.do_not_convert(fn) if plain else fn
    process = os.getpid()

    specs = tf.nest.map_structure(spec_of, specs)
    flat = tuple(tf.nest.flatten(specs))
    for i, spec in enumerate(flat, 1):
        if not isinstance(spec, tf.TensorSpec) or not spec.shape.is_fully_defined():
            raise NotCompilable(
                f"Argument {i} of {name} is {spec}.",
                "XLA compiles for one shape at a time; every dimension must be a number.",
                "Give the shape of one batch, as in tf.TensorSpec([32, 128]); in a dataset "
                "drop_remainder=True makes the batch size known.",
            )

    def of_tensors(*tensors: Any) -> Any:
        arguments = tf.nest.pack_sequence_as(specs, tensors)
        return fn(*arguments) if strategy is None else strategy.run(fn, args=arguments)

    step = tf.function(of_tensors, jit_compile=strategy is None and not alike)
    adding = (
        _gradients_added(replicas, alike) if replicas > 1 or alike else contextlib.nullcontext()
    )
    try:
        with _limited(timeout, name), adding, _resources_read():
            concrete = step.get_concrete_function(*flat)
            if os.getpid() != process:  # the model forked: its copy has no business here
                os._exit(0)
    except NotCompilable:
        raise
    except Exception as error:
        raise _untraceable(error, name) from error
    return Tracing(name, flat, replicas, step, concrete)


def spec_of(given: Any) -> Any:
    """Describe a tensor or an array; what is a description already is given back."""
    import tensorflow as tf

    is_one = isinstance(given, tf.TypeSpec)
    return given if is_one else tf.TensorSpec.from_tensor(tf.convert_to_tensor(given))


def _resource(handle: Any, name: str) -> Resource:
    import tensorflow as tf
    from tensorflow.python.ops import handle_data_util

    known = handle_data_util.get_handle_data(handle)
    told = dict(re.findall(r'(\bname|\btype)="([^"]*)"', str(handle)))
    if known is not None and known.is_set:
        name = name or told.get("name", "").partition("/")[0]
        return Resource(name, "variable", handle, tf.as_dtype(known.shape_and_type[0].dtype))
    kind = told.get("type", "")
    usual = {"lookup::": "lookup table", "Iterator": "iterator", "SummaryWriter": "summary writer"}
    other = kind.rpartition("::")[2] or "resource"
    return Resource(name, next((usual[part] for part in usual if part in kind), other), handle)


def _untraceable(error: Exception, name: str) -> NotCompilable:
    told = messages.refusal(error)
    line = told.line
    # AutoGraph's own wrapper of an error says the error's name in its text.
    if not re.match(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b", line):
        line = f"{type(error).__name__}: {line}"
    return NotCompilable(
        f"TensorFlow can't trace {name}" + (f" at {told.where}." if told.where else "."),
        line[:500],
        "Make it run as tf.function(fn).get_concrete_function(...) first, on a CPU.",
        told,
    )


@contextlib.contextmanager
def _limited(seconds: float | None, name: str) -> Iterator[None]:
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

    def stop(number: int, frame: Any) -> None:
        raise _StoppedTracing(messages.nearest_line(_written_frames(frame)))

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again each second, where it is caught
    try:
        yield
    except _StoppedTracing as stopped:
        told = Refusal("", source=stopped.args[0])
        raise NotCompilable(
            f"{name} did not come back from tracing within {seconds:g} s"
            + (f"; it was at {told.source}." if told.source else "."),
            "While a graph is built, Python runs: a loop over a Python condition may never end.",
            "Make it a loop over a tensor, or bound its rounds.",
            told,
            "late",
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _written_frames(frame: Any) -> list[Frame]:
    """List a running stack (outermost first) by the lines that were written, not AutoGraph's."""
    stack = [(f, f.f_code.co_filename, line) for f, line in traceback.walk_stack(frame)][::-1]
    written = {}
    for running, _, _ in stack:  # what AutoGraph converted hangs on the function that it calls
        found = getattr(running.f_locals.get("converted_f"), "ag_source_map", None) or {}
        for at, origin in found.items():
            written[at.filename, at.lineno] = (*origin.loc[:2], origin.function_name)
    return [
        written.get((file, line), (file, line, running.f_code.co_name))
        for running, file, line in stack
    ]


def _resources_read() -> contextlib.AbstractContextManager:
    """Read a variable before elements are gathered from it, as the TPU bridge does.

    XLA has no kernel for the operation that does both (`ResourceGatherNd`, tf.gather_nd).
    """
    import tensorflow as tf
    from tensorflow.python.ops import resource_variable_ops

    return mock.patch.object(
        resource_variable_ops.BaseResourceVariable,
        "gather_nd",
        lambda self, indices, name=None: tf.gather_nd(self.value(), indices, name=name),
    )


@contextlib.contextmanager
def _gradients_added(replicas: int, alike: bool) -> Iterator[None]:
    """Let optimizers add up their gradients across replicas, as they do under a TPUStrategy.

    Keras asks the current strategy's replica context to add. TPUStrategy's own operation has no
    kernel without a TPU; a collective of the same meaning has, and becomes the same all-reduce.
    Gradients of embeddings are dense on a TPU, as there.
    """
    import tensorflow as tf

    keys = itertools.count(1)

    def added(value: Any) -> Any:
        if alike:
            value = tf.convert_to_tensor(value)
            return value * tf.cast(replicas, value.dtype)
        return tf.raw_ops.CollectiveReduceV2(
            input=tf.convert_to_tensor(value),
            group_size=replicas,
            group_key=1,
            instance_key=next(keys),
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
        )

    def all_reduce(self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        total = tf.nest.map_structure(added, value)
        mean = "MEAN" in str(reduce_op).upper()
        return tf.nest.map_structure(lambda x: x / replicas, total) if mean else total

    context = type(tf.distribute.get_replica_context())
    extended = type(tf.distribute.get_strategy().extended)
    number = {"_num_replicas_in_sync": replicas} if alike else {}
    with (
        mock.patch.object(context, "all_reduce", all_reduce),
        mock.patch.multiple(extended, _use_merge_call=lambda self: False, **number),
        _drawn_alike() if alike else contextlib.nullcontext(),
    ):
        yield


@contextlib.contextmanager
def _drawn_alike() -> Iterator[None]:
    """Let each row draw the same random numbers, however many rows there are, and in each run.

    A draw with a state, whose seed XLA ignores, is made by the same operation as one without.
    """
    import tensorflow as tf
    from tensorflow.python.ops import gen_random_ops, gen_stateless_random_ops_v2, random_ops_util

    # Of each graph from the first: one that makes variables is traced twice.
    drawn = functools.cache(lambda graph: itertools.count())

    def draws(draw: Callable, shape: Any, *about: Any, **options: Any) -> Any:
        seed = [0, next(drawn(tf.compat.v1.get_default_graph()))]
        made = random_ops_util.get_key_counter_alg(seed, "auto_select")
        # Of those with a state, type or bounds come in this order, and others aren't asked for.
        kept = {k: v for k, v in options.items() if k in ("minval", "maxval", "dtype")}
        return tf.broadcast_to(draw(shape[1:], *made, *about, **kept), shape)

    alike = {
        of: functools.partial(draws, getattr(gen_stateless_random_ops_v2, of))
        for of in _DRAWS.values()
    }
    with (
        mock.patch.multiple(gen_random_ops, **{name: alike[of] for name, of in _DRAWS.items()}),
        mock.patch.multiple(gen_stateless_random_ops_v2, **alike),
    ):
        yield
