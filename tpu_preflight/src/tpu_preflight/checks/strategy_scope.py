"""Check 5: is everything made inside the strategy's scope, and is ``jit_compile`` off again?"""

import contextlib
import pathlib
import re
import tomllib
from typing import Any

import tensorflow as tf

from tpu_preflight.context import Context
from tpu_preflight.program import NotCompilable, Tracing, bridge, messages
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects.tensorflow_subject import TensorflowSubject

FIXES = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text("utf-8"))["fixes"]
UNKNOWN = {"fix": "TPUStrategy raises the same on a TPU: change what the error names."}


def check(context: Context) -> list[Item]:
    """Look for settings, at the strategy's scope, and at the step under the strategy's ``run``.

    The step as ``run`` traces it is kept for other checks, as `Context.traced_under_run`.
    """
    if context.refusal is None:
        context.say("tracing as on a TPU")
        specs = context.jobs[0].specs
    else:
        specs = context.subject.specs
    strategy = bridge.pretended_strategy()
    items = _settings(context.subject.model, context.subject.function)
    scope_items, subject = _made_in_scope(context.subject, strategy, specs)
    items += scope_items
    # What can't be traced alone can't be in a scope either.
    if context.refusal is not None and context.refusal.reason != "no kernel":
        return items
    if subject is not None:
        try:
            traced = subject.trace(*specs, strategy=strategy, timeout=subject.seconds)
        except NotCompilable as error:
            is_sure = context.subject.factory is not None
            refusal = _refused_by_run(error, subject.kind, is_sure)
            if refusal is not None:
                return [*items, refusal]
        else:
            context.traced_under_run = traced
            return [*items, _traced_by_run(subject, traced, strategy)]
    # Without the scope, the bridge can still be asked about the operations.
    with contextlib.suppress(NotCompilable):
        context.traced_under_run = context.subject.trace(*specs, strategy=bridge.REPLICAS)
    return items


def _settings(model: Any, function: Any) -> list[Item]:
    """Look for settings that are right on a CPU, of a model, or of a function without one."""
    if model is None:
        is_marked = getattr(function, "_jit_compile", None)
        return [finding(5, "marked" if is_marked else "not_set")]
    # Keras 3 calls it jit_compile, tf-keras has it as a private attribute.
    is_left_on = getattr(model, "jit_compile", getattr(model, "_jit_compile", None)) is True
    items = [finding(5, "left_on" if is_left_on else "not_set")]
    if getattr(model, "run_eagerly", False) is True:
        items.append(finding(5, "eagerly"))
    return items


def _made_in_scope(
    subject: TensorflowSubject, strategy: Any, specs: tuple[tf.TensorSpec, ...]
) -> tuple[list[Item], TensorflowSubject | None]:
    """Call the factory, if any, once more, inside the scope of a ``TPUStrategy`` without a TPU.

    Gives findings (none of a function), and what is to be traced under the strategy: what was made
    there, the subject itself without a factory, None where nothing can be.
    """
    if subject.factory is None:
        # A function has no variables of its own to look at.
        items = []
        if subject.model is not None:
            items.append(finding(5, "no_scope"))
        return items, subject
    try:
        remade = subject.remade(strategy, specs)
    except tf.errors.OpError:  # it computes something, for which there is no TPU here
        return [finding(5, "runs_in_scope")], None
    except Exception as error:  # whatever a scope makes the factory raise is the finding
        line = f"{type(error).__name__}: {messages.line_of(error)}"
        item = finding(
            5,
            "raises",
            said=messages.shorten(line),
            where=messages.source_of(error),
            fix=_advice(line)["fix"],
        )
        return [item], None
    if subject.model is None:
        return [], remade
    if remade.model is subject.model:
        return [finding(5, "same_model")], None
    return [_variables_outside(strategy, remade.model)], remade


def _traced_by_run(subject: TensorflowSubject, traced: Tracing, strategy: Any) -> Item:
    """Say whether a step that ``run`` traces would run, and whether ``fit`` would end."""
    outside = []
    if subject.factory is not None:
        # Of a TPU's own variables a graph lists those of random generators.
        for variable in traced.graph.variables:
            if not strategy.extended.variable_created_in_scope(variable):
                outside.append(variable.name.partition(":")[0])
    if outside:
        words = {"count": len(outside), "first": outside[0]}
        return finding(5, "uses_outside", kind=subject.kind, **words)
    optimizer = getattr(subject.model, "optimizer", None)
    if hasattr(optimizer, "finalize_variable_values"):  # of tf-keras
        try:
            _ = subject.model.trainable_variables  # as fit lists them when it ends
        except ValueError as error:  # the step never called a part of the model
            return finding(5, "unlisted", said=messages.shorten(messages.line_of(error)))
    return finding(5, "run", kind=subject.kind)


def _refused_by_run(error: NotCompilable, kind: str, is_sure: bool) -> Item | None:
    """Say why ``run`` can't trace a step.

    None where that may come from the missing scope alone: without a factory (``is_sure`` is False)
    only an error that is known to come in a scope as well is a finding.
    """
    if error.reason == "late":
        return finding(5, "run_late", said=error.what, kind=kind)
    advice = _advice(error.why)
    if not is_sure and not advice.get("sure"):
        return None
    return finding(
        5,
        "run_raises",
        kind=kind,
        said=messages.shorten(error.why),
        where=error.where,
        fix=advice["fix"],
    )


def _advice(line: str) -> dict[str, Any]:
    """Choose the row of ``strategy_scope.toml`` for an error's line."""
    for row in FIXES:
        if re.search(row["error"], line):
            return row
    return UNKNOWN


def _variables_outside(strategy: tf.distribute.Strategy, model: Any) -> Item:
    """Look which variables of a model, its optimizer and its metrics are not the strategy's."""
    owners = {"model": model, "optimizer": getattr(model, "optimizer", None)}
    for metric in getattr(model, "metrics", ()):
        owners[f"metric {metric.name}"] = metric
    variables = {}
    for label, owner in owners.items():
        for variable in _variables_of(owner):
            tf_variable = variable
            if not isinstance(variable, tf.Variable):
                tf_variable = getattr(variable, "value", None)  # Keras 3's own hold TensorFlow's
            # A vocabulary is listed as well, and is no variable.
            if isinstance(tf_variable, tf.Variable):
                variables[f"{label}: {variable.name}"] = tf_variable
    outside = []
    for name, variable in variables.items():
        if not strategy.extended.variable_created_in_scope(variable):
            outside.append(name)
    if outside:
        return finding(5, "outside", count=len(outside), all=len(variables), first=outside[0])
    # Of a model that is not built yet, fit will make the variables inside the scope.
    is_built = any(name.startswith("model") for name in variables)
    return finding(5, "inside" if is_built else "inside_later", all=len(variables))


def _variables_of(owner: Any) -> list[Any]:
    """List the variables of a model, an optimizer or a metric; none where it isn't built yet."""
    try:
        variables = getattr(owner, "variables", ())
        if callable(variables):  # of an optimizer of tf-keras
            variables = variables()
        return list(variables)
    except ValueError:  # tf-keras may raise before it is built
        return []
