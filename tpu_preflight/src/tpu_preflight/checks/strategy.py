"""Check 5: is everything made inside the strategy's scope, and is ``jit_compile`` off again?"""

import contextlib
import pathlib
import re
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values

from tpu_preflight.checks.subject import Subject, variables_of
from tpu_preflight.program import NotCompilable, Tracing, bridge, messages, trace
from tpu_preflight.report import Item, finding

LARGE = 1_000_000  # values of a variable
FIXES = tomllib.loads(pathlib.Path(__file__).with_name("strategy.toml").read_text("utf-8"))["fixes"]
UNKNOWN = {"fix": "TPUStrategy raises the same on a TPU: change what the error names."}


def check(
    subject: Subject, specs: Sequence[tf.TensorSpec], refused: str = ""
) -> tuple[list[Item], Tracing | None]:
    """Look for settings, at the strategy's scope, and at the step under the strategy's ``run``.

    Gives the step as ``run`` traces it, too, if it does.

    Args:
        subject: What was handed in, or what the factory made first.
        specs: What one replica gets.
        refused: Why XLA refused the step; empty where it did not. What can't be traced alone can't
            in a scope either.
    """
    given, model = subject.given, subject.model
    marked = getattr(given, "_jit_compile", None)
    if model is None:
        items = [finding(5, "marked" if marked else "not_set")]
    else:  # settings that are right on a CPU
        left_on = getattr(given, "jit_compile", marked) is True
        items = [finding(5, "left_on" if left_on else "not_set")]
        if getattr(given, "run_eagerly", False) is True:
            items.append(finding(5, "eagerly"))
    made, strategy, inside = _made_again(subject, specs)
    items += made
    if refused not in ("", "no kernel"):
        return items, None
    found, traced = _run(inside, specs, strategy)
    return items + found, traced


def _made_again(
    subject: Subject, specs: Sequence[tf.TensorSpec]
) -> tuple[list[Item], Any, Subject]:
    """Call the factory, if any, once more, inside the scope of a ``TPUStrategy`` without a TPU.

    Nothing runs what is made there, so its large variables hold no values of their own. Gives what
    was seen (nothing of a function), the strategy and what was made; no strategy and the first
    where that can't be used.
    """
    strategy = bridge.pretended_strategy()
    if subject.factory is None:
        return [finding(5, "no_scope")] if subject.model is not None else [], strategy, subject
    try:
        with strategy.scope(), tf.variable_creator_scope(_creator()):
            again = subject.factory()
            again = again[0] if isinstance(again, tuple) else again
            _build(again, subject, specs)
    except tf.errors.OpError:  # it computes something, for which there is no TPU here
        return [finding(5, "runs_in_scope")], None, subject
    except Exception as error:  # whatever a scope makes the factory raise is the finding
        line = f"{type(error).__name__}: {messages.line_of(error)}"
        about = {"where": messages.source_of(error), "fix": _advice(line)["fix"]}
        return [finding(5, "raises", said=messages.shortened(line), **about)], None, subject
    if subject.model is None:
        return [], strategy, subject.of(again)
    if again is subject.model:
        return [finding(5, "same_model")], None, subject
    return [_outside(strategy, again)], strategy, subject.of(again)


def _build(model: Any, subject: Subject, specs: Sequence[tf.TensorSpec]) -> None:
    """Let Keras 3 build a model from a replica's rows, as its ``fit`` does under a strategy alone.

    Two replicas are handed over. Keras asks for the mean of theirs: a ``TPUStrategy`` gives the
    first's, a ``MirroredStrategy`` means, which makes floating-point numbers of whole ones.
    """
    if subject.sample is not None and hasattr(model, "_maybe_symbolic_build"):
        part = [
            x[: spec.shape[0]] if spec.shape.rank else x
            for x, spec in zip(subject.sample.batches[0], specs, strict=True)
        ]
        of_two = tf.nest.map_structure(lambda x: values.PerReplica((x, x)), subject.packed(part))
        model._maybe_symbolic_build(iterator=[(0, 0, iter([of_two]))])


def _creator() -> Callable[..., Any]:
    """Give a maker of variables in which large ones of a shape share the memory of one zero tensor.

    A second model of two billion weights would take as long to draw, and as much memory, as the
    first. TensorFlow copies a variable's memory only when the variable changes.
    """
    zeros: dict[tuple[Any, Any], tf.Tensor] = {}

    def create(next_creator: Callable[..., Any], **about: Any) -> Any:
        if not tf.executing_eagerly():
            return next_creator(**about)
        value, shape = about.get("initial_value"), tf.TensorShape(about.get("shape"))
        if callable(value) and not (shape.is_fully_defined() and about.get("dtype")):
            value = about["initial_value"] = value()
        if tf.is_tensor(value):
            shape, about["dtype"] = value.shape, value.dtype
        made = callable(value) or tf.is_tensor(value)  # an array is there already
        if made and shape.is_fully_defined() and shape.num_elements() >= LARGE:
            key = tuple(shape), tf.as_dtype(about["dtype"])
            about["initial_value"] = zeros[key] = zeros[key] if key in zeros else tf.zeros(*key)
        return next_creator(**about)

    return create


def _run(
    subject: Subject, specs: Sequence[tf.TensorSpec], strategy: Any
) -> tuple[list[Item], Tracing | None]:
    """Trace a step as ``strategy.run`` does on a TPU: what was seen, and the graph if any.

    Without a factory an error may come from the missing scope, so only a known one is told.
    """
    alone = subject.factory is None
    create = contextlib.nullcontext() if alone else tf.variable_creator_scope(_creator())
    about = {"kind": subject.kind}
    try:
        if strategy is not None:
            with create:
                traced = trace(subject.step, *specs, strategy=strategy, timeout=subject.seconds)
            # Of a TPU's own variables a graph lists those of random generators.
            outside = [
                v.name.partition(":")[0]
                for v in ([] if alone else traced.graph.variables)
                if not strategy.extended.variable_created_in_scope(v)
            ]
            if outside:
                about |= {"count": len(outside), "first": outside[0]}
            elif hasattr(getattr(subject.model, "optimizer", None), "finalize_variable_values"):
                _ = subject.model.trainable_variables  # as fit lists them when it ends
            return [finding(5, "uses_outside" if outside else "run", **about)], traced
    except ValueError as error:  # of tf-keras: the step never called a part of the model
        return [finding(5, "unlisted", said=messages.shortened(messages.line_of(error)))], traced
    except NotCompilable as error:
        if error.reason == "late":
            return [finding(5, "run_late", said=error.what, **about)], None
        advice = _advice(error.why)
        if not alone or advice.get("sure"):
            about |= {"said": messages.shortened(error.why), "where": error.where}
            return [finding(5, "run_raises", **about, fix=advice["fix"])], None
    with contextlib.suppress(NotCompilable):
        return [], trace(subject.step, *specs, strategy=bridge.REPLICAS)
    return [], None


def _advice(said: str) -> dict[str, Any]:
    return next((row for row in FIXES if re.search(row["error"], said)), UNKNOWN)


def _outside(strategy: tf.distribute.Strategy, model: Any) -> Item:
    """Look which variables of a model, its optimizer and its metrics are not the strategy's."""
    variables = {}
    metrics = [(f"metric {m.name}", m) for m in getattr(model, "metrics", ())]
    optimizer = getattr(model, "optimizer", None)
    for label, owner in [("model", model), ("optimizer", optimizer), *metrics]:
        for variable in variables_of(owner):
            # A vocabulary is listed, too, and is no variable; Keras 3's own hold TensorFlow's.
            held = getattr(variable, "value", None)
            held = variable if isinstance(variable, tf.Variable) else held
            if isinstance(held, tf.Variable):
                variables[f"{label}: {variable.name}"] = held
    was_inside = strategy.extended.variable_created_in_scope
    if outside := [label for label, held in variables.items() if not was_inside(held)]:
        return finding(5, "outside", count=len(outside), all=len(variables), first=outside[0])
    # Of a model that is not built yet, fit will make the variables inside the scope.
    built = any(label.startswith("model") for label in variables)
    return finding(5, "inside" if built else "inside_later", all=len(variables))
