"""Check 5: is everything made inside the strategy's scope, and is ``jit_compile`` off again?"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from helpers.preflight.kind import is_model
from helpers.preflight.report import Item, finding
from helpers.preflight.subject import Subject
from helpers.xla import messages


def jit_compile(subject: Subject) -> Item:
    """See whether the setting for the test on a CPU is still there: with it, ``fit`` fails."""
    marked = getattr(subject.given, "_jit_compile", None)
    if subject.model is not None and getattr(subject.given, "jit_compile", marked) is True:
        return finding(5, "left_on")
    return finding(5, "marked" if subject.model is None and marked else "not_set")


def made_again(factory: Callable[[], Any], given: object) -> Item | None:
    """Call a factory once more, inside a strategy's scope; None where it made no model.

    Args:
        factory: A function without arguments.
        given: The model or function that its first call made, outside.
    """
    if not is_model(given):
        return None
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    try:
        with strategy.scope():
            again = factory()
    except ValueError as error:
        said = messages.shortened(messages.line_of(error))
        return finding(5, "raises", said=said, where=messages.source_of(error))
    again = again[0] if isinstance(again, tuple) else again
    return finding(5, "same_model") if again is given else _outside(strategy, again)


def _outside(strategy: tf.distribute.Strategy, model: Any) -> Item:
    variables = dict(_variables(model))
    was_inside = strategy.extended.variable_created_in_scope
    if outside := [label for label, v in variables.items() if not was_inside(v)]:
        return finding(5, "outside", count=len(outside), all=len(variables), first=outside[0])
    built = any(label.startswith("model") for label in variables)
    return finding(5, "inside" if built else "inside_later", all=len(variables))


def _variables(model: Any) -> Iterator[tuple[str, tf.Variable]]:
    """List the variables of a model, its optimizer and its metrics, each under whose it is."""
    owners = []
    # A model that is not built yet has no variables, and tf-keras may raise instead of saying so;
    # fit will make them inside the scope.
    with contextlib.suppress(ValueError):
        owners.append(("model", model.variables))
    if (optimizer := getattr(model, "optimizer", None)) is not None:
        variables = optimizer.variables
        owners.append(("optimizer", variables() if callable(variables) else variables))
    owners += [(f"metric {m.name}", m.variables) for m in getattr(model, "metrics", ())]
    for owner, variables in owners:
        for variable in variables:
            inner = variable if isinstance(variable, tf.Variable) else variable.value
            yield f"{owner}: {variable.name}", inner
