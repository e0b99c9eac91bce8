"""Check 5: is everything made inside the strategy's scope, and is ``jit_compile`` off again?"""

import contextlib
import dataclasses
import pathlib
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tpu_preflight.checks.subject import Subject
from tpu_preflight.program import NotCompilable, Tracing, bridge, messages, trace
from tpu_preflight.program.models import is_model
from tpu_preflight.report import Item, finding

LARGE = 1_000_000  # values of a variable
FIXES = tomllib.loads(pathlib.Path(__file__).with_name("strategy.toml").read_text("utf-8"))["fixes"]


def jit_compile(subject: Subject) -> Item:
    """See whether the setting for the test on a CPU is still there: with it, ``fit`` fails."""
    marked = getattr(subject.given, "_jit_compile", None)
    if subject.model is not None and getattr(subject.given, "jit_compile", marked) is True:
        return finding(5, "left_on")
    return finding(5, "marked" if subject.model is None and marked else "not_set")


@dataclasses.dataclass(frozen=True)
class Scope:
    """What a factory made inside a ``TPUStrategy``'s scope."""

    strategy: Any  # the strategy; None where nothing was made in its scope
    made: Any  # the model or function
    item: Item | None  # what was seen; None where it made a function


def made_again(factory: Callable[[], Any], given: object) -> Scope:
    """Call a factory once more, inside the scope of a ``TPUStrategy`` that has no TPU.

    ``given`` is the model or function that its first call made, outside. Nothing runs what is made
    here, so its large variables hold no values of their own.
    """
    strategy = bridge.pretended_strategy()
    try:
        with strategy.scope(), tf.variable_creator_scope(_creator()):
            again = factory()
    except tf.errors.OpError:  # it computes something, for which there is no TPU here
        return Scope(None, None, finding(5, "runs_in_scope"))
    except Exception as error:  # whatever a scope makes the factory raise is the finding
        return Scope(None, None, _raised("raises", error))
    again = again[0] if isinstance(again, tuple) else again
    if not is_model(given):
        return Scope(strategy, again, None)
    if again is given:
        return Scope(None, None, finding(5, "same_model"))
    return Scope(strategy, again, _outside(strategy, again))


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


def run(
    subject: Subject, specs: Sequence[tf.TensorSpec], scope: Scope | None, seconds: float
) -> tuple[list[Item], Tracing | None]:
    """Trace a step as ``strategy.run`` does on a TPU: what was seen, and the graph if any.

    Args:
        subject: What the scope's factory made; without a scope, what was handed in.
        specs: What one replica gets.
        scope: Where the subject was made; None without a factory. Then an error may come from that,
            and only a known one is told.
        seconds: After which tracing is given up.
    """
    strategy = bridge.pretended_strategy() if scope is None else scope.strategy
    create = tf.variable_creator_scope(_creator()) if scope else contextlib.nullcontext()
    try:
        if strategy is not None:
            passed = [finding(5, "run", kind=subject.kind)]
            with create:
                return passed, trace(subject.step, *specs, strategy=strategy, timeout=seconds)
    except NotCompilable as error:
        if error.reason == "late":
            return [finding(5, "run_late", kind=subject.kind, said=error.what)], None
        if scope is not None or _row(error.why).get("sure"):
            about = {"kind": subject.kind, "where": error.where, "fix": _fix(error.why)}
            return [finding(5, "run_raises", said=messages.shortened(error.why), **about)], None
    with contextlib.suppress(NotCompilable):
        return [], trace(subject.step, *specs, strategy=bridge.REPLICAS)
    return [], None


def eagerly(model: Any) -> list[Item]:
    """Look for a setting with which ``TPUStrategy.run`` refuses each step."""
    return [finding(5, "eagerly")] if getattr(model, "run_eagerly", False) is True else []


def _raised(key: str, error: Exception) -> Item:
    line = f"{type(error).__name__}: {messages.line_of(error)}"
    where = messages.source_of(error)
    return finding(5, key, said=messages.shortened(line), where=where, fix=_fix(line))


def _row(said: str) -> dict[str, Any]:
    return next((row for row in FIXES if re.search(row["error"], said)), {})


def _fix(said: str) -> str:
    unknown = "TPUStrategy raises the same on a TPU: change what the error names."
    return _row(said).get("fix", unknown)


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
            # A vocabulary is listed, too, and is no variable.
            inner = getattr(variable, "value", None)
            inner = variable if isinstance(variable, tf.Variable) else inner
            if isinstance(inner, tf.Variable):
                yield f"{owner}: {variable.name}", inner
