"""Check 5: is everything made inside the strategy's scope, and is ``jit_compile`` off again?"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from helpers.preflight.report import FAIL, PASS, WARN, Item
from helpers.preflight.subject import Subject, is_model
from helpers.xla import messages

SCOPE = "made inside strategy.scope()"

NO_SCOPE = Item(
    5,
    SCOPE,
    WARN,
    "made without a strategy, so there is no scope to look at",
    "For the TPU make model, optimizer and metrics inside strategy.scope(). Hand in the function "
    "that makes them, and this is tried.",
)


def jit_compile(subject: Subject) -> Item:
    """See whether the setting for the test on a CPU is still there: with it, ``fit`` fails."""
    marked = getattr(subject.given, "_jit_compile", None)
    if subject.model is not None and getattr(subject.given, "jit_compile", marked) is True:
        said = (
            "compile(jit_compile=True): right for the test on a CPU, but TPUStrategy compiles "
            "the whole step itself, and under a strategy this setting fails (keras#19005)"
        )
        fix = "Take jit_compile=True out again: model.compile(...) without it."
        return Item(5, "jit_compile", FAIL, said, fix)
    if subject.model is None and marked:
        said = "the function is marked jit_compile=True; TPUStrategy compiles what strategy.run "
        return Item(5, "jit_compile", WARN, said + "is given", "Take it out again for the TPU.")
    said = "not set: TPUStrategy compiles the whole step itself"
    return Item(5, "jit_compile", PASS, said)


def made(factory: Callable[[], Any]) -> tuple[Any, Any, Item | None]:
    """Call a factory: once as it is, and once inside a strategy's scope.

    Args:
        factory: Gives a model or a function, or a pair of that and its data.

    Returns:
        The first call's model or function, its data or None, and what was seen of the scope: None
        for a function.
    """
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    result = factory()
    given, data = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not is_model(given):
        return given, data, None
    try:
        with strategy.scope():
            again = factory()
    except ValueError as error:
        fix = "Move what makes model, optimizer and metrics inside strategy.scope()."
        where = str(messages.source_of(error) or "")
        said = messages.shortened(messages.line_of(error))
        return given, data, Item(5, SCOPE, FAIL, said, fix, where)
    again = again[0] if isinstance(again, tuple) else again
    if again is given:
        said = "the factory gives the same model twice, so there is no scope to look at"
        return given, data, Item(5, SCOPE, WARN, said, "Make the model inside the factory.")
    return given, data, _outside(strategy, again)


def _outside(strategy: tf.distribute.Strategy, model: Any) -> Item:
    variables = dict(_variables(model))
    was_inside = strategy.extended.variable_created_in_scope
    if outside := [label for label, v in variables.items() if not was_inside(v)]:
        said = f"{len(outside)} of {len(variables)} variables were made outside, such as "
        fix = "Move what makes them (model, optimizer, metrics, compile) inside strategy.scope()."
        return Item(5, SCOPE, FAIL, said + outside[0], fix)
    return Item(5, SCOPE, PASS, f"every variable that exists before fit ({len(variables)})")


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
