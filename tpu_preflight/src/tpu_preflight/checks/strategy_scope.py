"""Check 5: is everything made inside the strategy's scope, and is ``jit_compile`` off again?"""

import contextlib
import pathlib
import re
import tomllib
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tpu_preflight.context import Context
from tpu_preflight.program import NotCompilable, bridge, messages
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
    # Its scope and its ``run`` are real, its TPU is not.
    strategy = bridge.pretended_strategy()
    is_model = context.subject.model is not None
    key = "not_set"
    if context.subject.is_marked:
        key = "left_on" if is_model else "marked"
    items = [finding(5, key)]
    if is_model and getattr(context.subject.model, "run_eagerly", False) is True:
        items.append(finding(5, "eagerly"))
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
            kind = subject.kind
            # Of a TPU's own variables a graph lists those of random generators.
            names = _made_outside(traced.graph.variables, strategy)
            if names and subject.factory is not None:
                words = {"count": len(names), "first": names[0]}
                return [*items, finding(5, "uses_outside", kind=kind, **words)]
            try:
                subject.list_weights()
            except ValueError as error:
                line = messages.shorten(messages.line_of(error))
                return [*items, finding(5, "unlisted", said=line)]
            context.runs_in_scope = True
            return [*items, finding(5, "run", kind=kind)]
    # Without the scope, the bridge can still be asked about the operations.
    with contextlib.suppress(NotCompilable):
        context.traced_under_run = context.subject.trace(*specs, strategy=bridge.REPLICAS)
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
            fix=advice_on(line)["fix"],
        )
        return [item], None
    if subject.model is None:
        return [], remade
    # Nothing was made in the scope.
    if remade.model is subject.model:
        return [finding(5, "same_model")], None
    return [_scope_of(remade.variables, strategy)], remade


def _made_outside(variables: Iterable[tf.Variable], strategy: tf.distribute.Strategy) -> list[str]:
    """Name the variables of a graph that are not the strategy's."""
    names = []
    for variable in variables:
        if not strategy.extended.variable_created_in_scope(variable):
            names.append(variable.name.partition(":")[0])
    return names


def _refused_by_run(error: NotCompilable, kind: str, is_sure: bool) -> Item | None:
    """Say why ``run`` can't trace a step.

    None where that may come from the missing scope alone: without a factory (``is_sure`` is False)
    only an error that is known to come in a scope as well is a finding.
    """
    if error.reason == "late":
        return finding(5, "run_late", said=error.what, kind=kind)
    advice = advice_on(error.why)
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


def advice_on(line: str) -> dict[str, Any]:
    """Choose the row of ``strategy_scope.toml`` for an error's line."""
    for row in FIXES:
        if re.search(row["error"], line):
            return row
    return UNKNOWN


def _scope_of(variables: dict[str, tf.Variable], strategy: tf.distribute.Strategy) -> Item:
    """Say which variables of a model, its optimizer and its metrics are not the strategy's."""
    outside = []
    for name, variable in variables.items():
        if not strategy.extended.variable_created_in_scope(variable):
            outside.append(name)
    if outside:
        return finding(5, "outside", count=len(outside), all=len(variables), first=outside[0])
    # Of a model that is not built yet, fit will make the variables inside the scope.
    is_built = any(name.startswith("model") for name in variables)
    return finding(5, "inside" if is_built else "inside_later", all=len(variables))
