"""Check 1, on this CPU: does XLA take the step, and is every size known before it runs?

TensorFlow's own TPU bridge is asked, too: what a TPU takes, its host would take, or neither.
"""

import math
import re

import tensorflow as tf

from tpu_preflight.checks.subject import Subject
from tpu_preflight.program import (
    NotCompilable,
    Program,
    Tracing,
    bridge,
    graph_operations,
    messages,
    place_of,
)
from tpu_preflight.report import Item, finding

BOOL_FIX = "Write the decision with tf.where, tf.cond or an indicator variable."
SHARE_FIX = (
    "Each replica gets its share of the global batch, so take its rows from a tensor "
    "(tf.shape(x)[0]) and no number that was set for the global batch."
)


def bridged(kind: str, traced: Tracing) -> Item:
    """Say what the bridge says of a step that XLA takes on this CPU, traced under ``run``."""
    about = _asked(traced)
    key = "could_be_on_host" if about["on_host"] else "bridge_refuses"
    if not about["message"]:
        key = "bridge_accepts"
    elif about["on_host"] and _is_soft():
        key = "on_host"
    return finding(1, key, kind=kind, **about)


def refused(subject: Subject, error: NotCompilable, traced: Tracing | None) -> list[Item]:
    """Say what was refused, where, and what to write instead.

    ``traced`` is the step under ``run``, for TensorFlow's TPU bridge, where XLA lacks a kernel.
    """
    what = error.what.replace(f" at {error.where}", "")
    if error.operation != "_Arg" and not what.startswith(("XLA has no", "The size that")):
        what = f"{what} {error.why}"
    sizes = subject.is_dataset and re.search(r"Cannot.reshape|must.be.equal", error.why)
    fix = BOOL_FIX if "as a Python `bool`" in error.message else SHARE_FIX if sizes else error.fix
    about = {"kind": subject.kind, "what": what, "fix": fix, "where": error.where}
    if traced is None:
        return [finding(1, "refused", **about)]
    about = _asked(traced) | about
    if not about["message"]:
        return [finding(1, "no_kernel_here", **about)]
    if about["on_host"] and _is_soft():
        return [finding(1, "on_host", **about), finding(1, "rest", **about)]
    return [finding(1, "no_kernel" if about["on_host"] else "refused", **about)]


def _asked(traced: Tracing) -> dict[str, str]:
    """Ask the bridge; where it refuses, once more with soft device placement.

    Gives the operation that it refuses, its message, what the host would take over with soft
    placement (each empty where there is none), and where the operation is made.
    """
    strict = bridge.split(traced.concrete, traced.name)
    about = {"operation": strict.refused, "message": strict.message, "on_host": "", "where": ""}
    if strict.message:
        soft = bridge.split(traced.concrete, traced.name, soft_device_placement=True)
        operations = graph_operations(traced.graph).values()
        refused = (op for op in operations if op.type == strict.refused)
        about |= {"on_host": ", ".join(soft.on_host), "where": next(map(place_of, refused), "")}
    return about


def _is_soft() -> bool:
    """Whether soft device placement is on where ``TPUStrategy`` reads it, in a graph."""
    with tf.Graph().as_default():
        return tf.config.get_soft_device_placement()


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
