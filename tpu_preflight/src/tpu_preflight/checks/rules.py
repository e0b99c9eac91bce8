"""Check 1, on this CPU: does XLA take the step, and is every size known before it runs?"""

import math
import re

from tpu_preflight.checks.placement import Placement, is_soft
from tpu_preflight.checks.subject import Subject
from tpu_preflight.program import NotCompilable, Program, messages
from tpu_preflight.report import Item, finding

BOOL_FIX = "Write the decision with tf.where, tf.cond or an indicator variable."


def refused(subject: Subject, error: NotCompilable, placed: Placement | None) -> list[Item]:
    """Say what was refused, where, and what to write instead.

    ``placed`` is what TensorFlow's TPU bridge says, where XLA lacks a kernel.
    """
    if error.reason == "memory":
        return [finding(6, "variables_alone", message=error.what)]
    what = error.what.replace(f" at {error.where}", "")
    if error.operation != "_Arg" and not what.startswith(("XLA has no", "The size that")):
        what = f"{what} {error.why}"
    fix = BOOL_FIX if "as a Python `bool`" in error.message else error.fix
    about = {"kind": subject.kind, "what": what, "fix": fix, "where": error.where}
    if placed is None:
        return [finding(1, "refused", **about)]
    if placed.accepted:
        return [finding(1, "no_kernel_here", **about)]
    about |= {"operation": placed.strict.refused, "on_host": placed.on_host}
    if placed.on_host and is_soft():
        return [finding(1, "on_host", **about), finding(1, "rest", **about)]
    return [finding(1, "no_kernel" if placed.on_host else "refused", **about)]


def check(subject: Subject, program: Program) -> list[Item]:
    """Warn of each size that depends on values, in a step that XLA takes."""
    items = [finding(1, "compiles", kind=subject.kind)]
    for bounded in program.bounded:
        if bounded.source is not None:
            values = math.prod(map(int, re.findall(r"\d+", bounded.shape.partition("[")[2])))
            about = {"operation": bounded.operation, "shape": bounded.shape, "values": values}
            items.append(finding(1, "bounded", **about, where=bounded.source))
    if len(items) == 1:
        inside, where = "every shape is static", ""
        if program.bounded:
            inside = f"none in your code; {program.bounded[0].shape} inside a library"
            where = messages.place(None, messages.layer_of(program.bounded[0].name))
        items.append(finding(1, "no_bounded", inside=inside, where=where))
    return items
