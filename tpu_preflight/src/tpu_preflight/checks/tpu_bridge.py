"""Check 1, by TensorFlow's own TPU bridge: what a TPU takes, its host would take, or neither.

The bridge is asked about the step as ``TPUStrategy.run`` traces it, see `strategy_scope`.
"""

import dataclasses

import tensorflow as tf

from tpu_preflight.checks.xla_rules import refusal_words
from tpu_preflight.context import Context
from tpu_preflight.program import Tracing, bridge, elsewhere, graph_operations, place_of
from tpu_preflight.report import Item, finding


@dataclasses.dataclass(frozen=True)
class _Verdict:
    """What the bridge says of a step; all are empty where it accepts it."""

    operation: str = ""  # that it refuses
    message: str = ""  # why
    on_host: str = ""  # operations that the host would take over with soft device placement
    where: str = ""  # the operation is made
    elsewhere: str = ""  # it could be computed


def check(context: Context) -> list[Item]:
    """Say what the bridge says of a step that XLA takes here, or that only lacks a kernel here."""
    traced = context.traced_under_run
    if context.refusal is None and traced is not None:
        return [_accepted_here(context.subject.kind, _ask(traced))]
    if context.refusal is None or context.refusal.reason != "no kernel":
        return []
    words = refusal_words(context.refusal, is_shared=context.subject.dataset is not None)
    words["kind"] = context.subject.kind
    if traced is None:
        return [finding(1, "refused", **words)]
    # What XLA on this CPU lacks a TPU may have, or its host.
    verdict = _ask(traced)
    words["on_host"] = verdict.on_host
    words["elsewhere"] = verdict.elsewhere
    if not verdict.message:
        return [finding(1, "no_kernel_here", **words)]
    if not verdict.on_host:
        return [finding(1, "refused", **words)]
    if _is_placement_soft():
        return [finding(1, "on_host", **words), finding(1, "rest", **words)]
    return [finding(1, "no_kernel", **words)]


def _accepted_here(kind: str, verdict: _Verdict) -> Item:
    if not verdict.message:
        key = "bridge_accepts"
    elif not verdict.on_host:
        key = "bridge_refuses"
    elif _is_placement_soft():
        key = "on_host"
    else:
        key = "could_be_on_host"
    return finding(1, key, kind=kind, **dataclasses.asdict(verdict))


def _ask(traced: Tracing) -> _Verdict:
    """Ask the bridge; where it refuses, once more with soft device placement."""
    strict = bridge.split(traced.concrete, traced.name)
    if not strict.message:
        return _Verdict(operation=strict.refused)
    soft = bridge.split(traced.concrete, traced.name, soft_device_placement=True)
    place = ""
    for operation in graph_operations(traced.graph).values():
        if operation.type == strict.refused:
            place = place_of(operation)
            break
    return _Verdict(
        operation=strict.refused,
        message=strict.message,
        on_host=", ".join(soft.on_host),
        where=place,
        elsewhere=elsewhere(traced.graph, strict.refused),
    )


def _is_placement_soft() -> bool:
    """Whether soft device placement is on where ``TPUStrategy`` reads it, in a graph."""
    with tf.Graph().as_default():
        return tf.config.get_soft_device_placement()
