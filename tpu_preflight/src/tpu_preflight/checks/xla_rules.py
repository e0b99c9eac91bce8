"""Check 1, on this CPU: does XLA take the step, and is every size known before it runs?"""

import math
import re
from typing import Any

from tpu_preflight.context import Context
from tpu_preflight.program import Bounded, NotCompilable, Program, messages
from tpu_preflight.report import Item, finding

BOOL_FIX = "Write the decision with tf.where, tf.cond or an indicator variable."
SHARE_FIX = (
    "Each replica gets its share of the global batch, so take its rows from a tensor "
    "(tf.shape(x)[0]) and no number that was set for the global batch."
)


def check(context: Context) -> list[Item]:
    """Say what was refused, where; or warn of each size that depends on values.

    Where XLA on this CPU lacks a kernel, a TPU may have one: `tpu_bridge` says what was refused.
    """
    if context.refusal is None:
        kind = context.subject.kind
        return [finding(1, "compiles", kind=kind), *_sizes(context.jobs[0].program)]
    if context.refusal.reason == "no kernel":
        return []
    is_shared = context.subject.dataset is not None
    words = refusal_words(context.refusal, is_shared=is_shared)
    return [finding(1, "refused", kind=context.subject.kind, **words)]


def refusal_words(refusal: NotCompilable, is_shared: bool) -> dict[str, Any]:
    """Say what was refused, where, and what to write instead.

    ``is_shared`` is whether each replica gets its share of a global batch.
    """
    # The place has a line of its own in a report.
    what = refusal.what
    for place in (f"; it was at {refusal.where}", f" at {refusal.where}"):
        what = what.replace(place, "")
    if refusal.operation != "_Arg" and not what.startswith(("XLA has no", "The size that")):
        what = f"{what} {refusal.why}"
    return {"what": what, "fix": _fix(refusal, is_shared), "where": refusal.where}


def _fix(refusal: NotCompilable, is_shared: bool) -> str:
    if "as a Python `bool`" in refusal.message:
        return BOOL_FIX
    if is_shared and re.search(r"Cannot.reshape|must.be.equal", refusal.why):
        return SHARE_FIX
    return refusal.fix


def _sizes(program: Program) -> list[Item]:
    # Of one operation on one line the largest says it for all.
    largest: dict[tuple[str, Any], Bounded] = {}
    for size in program.bounded:
        if size.source is None:
            continue
        key = size.operation, size.source
        if _values(size) > _values(largest.setdefault(key, size)):
            largest[key] = size
    if largest:
        return [_bounded(size) for size in largest.values()]
    if not program.bounded:
        return [finding(1, "no_bounded", inside="every shape is static")]
    # What no line of the learner makes is not theirs to change.
    in_library = program.bounded[0]
    inside = f"none in your code; {in_library.shape} inside a library"
    where = messages.place(None, messages.layer_of(in_library.name))
    return [finding(1, "no_bounded", inside=inside, where=where)]


def _values(size: Bounded) -> int:
    """Count the elements at most: of f32[<=8,4] they are 32."""
    _, _, dimensions = size.shape.partition("[")
    return math.prod(map(int, re.findall(r"\d+", dimensions)))


def _bounded(size: Bounded) -> Item:
    return finding(
        1,
        "bounded",
        operation=size.operation,
        shape=size.shape,
        values=_values(size),
        where=size.source,
    )
