"""Check 4 of a function of JAX: does it give the same results without being compiled?"""

import math
from collections.abc import Callable, Iterable
from typing import Any

from tpu_preflight.context import Context
from tpu_preflight.program import Program
from tpu_preflight.program.jax_export import Exported
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects import results

MOST_ROUNDS = 100  # of a loop that is run without being compiled
MOST_VALUES = 3_000_000  # of all arguments: a step without being compiled takes long with more


def check(context: Context) -> list[Item]:
    """Run it on this CPU, operation by operation and compiled, where values were given."""
    import jax

    if context.refusal is not None:
        return [finding(4, "does_not_compile")]
    context.say("comparing eager and compiled results")
    # What only describes an array has no values to run with.
    leaves = jax.tree.leaves(context.subject.arguments)
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        return [finding(4, "no_values")]
    values = sum(math.prod(getattr(leaf, "shape", ())) for leaf in leaves)
    reason = _reason_not_to_run(context.subject.exported, values)
    if reason:
        return [finding(4, "not_run", reason=reason)]
    item = _compare(context.subject.run, context.subject.exported.program, leaves)
    return [item]


def _reason_not_to_run(exported: Exported, values: int) -> str:
    if exported.calls:
        return "it calls Python"
    if exported.rounds > MOST_ROUNDS or values > MOST_VALUES:
        return "it takes too long"
    return ""


def _compare(
    run: Callable[..., results.Results], program: Program, arguments: Iterable[Any]
) -> Item:
    """Compare runs; ``run`` is that of a `JaxSubject`, with these arguments."""
    tolerance = results.TOLERANCES["float32"]
    if b"bf16" in program.hlo:
        tolerance = results.TOLERANCES["bfloat16"]
    eager = run(compiled=False)
    repeated = run(compiled=False)
    compiled = run(compiled=True)
    if results.differing_names(eager, repeated, tolerance):
        return finding(4, "draws_in_python")
    difference = results.difference(eager, compiled, tolerance)
    if difference is not None:
        # Flax counts the rounds of a loop that runs in Python, and draws other numbers in each.
        partly_compiled = run(compiled=None)
        difference = results.difference(partly_compiled, compiled, tolerance)
    if difference is None:
        return finding(4, "same_values")
    # A gradient of zero is rounding alone, and Adam divides it by its own size.
    names = results.differing_names(eager, compiled, tolerance)
    if names:
        nudged = run(compiled=True, growth=tolerance / 100)
        if set(names) <= set(results.differing_names(compiled, nudged, tolerance)):
            return finding(4, "rounding", names=", ".join(names[:2]))
    key = difference.key
    # The best loss so far begins as infinite.
    if key in ("not_finite", "infinite"):
        kinds_of_arguments = results.non_finite_kinds(arguments)
        if results.non_finite_kinds(compiled.values()) <= kinds_of_arguments:
            return finding(4, "same_values")
    if key in ("refuses", "silent"):
        key += "_in_jax"
    return finding(4, key, step="the function on this CPU", **difference.words)
