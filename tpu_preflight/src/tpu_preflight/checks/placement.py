"""Check 1, with TensorFlow's own TPU bridge: what a TPU takes, its host would take, or neither."""

import dataclasses

import tensorflow as tf

from tpu_preflight.program import Tracing, bridge, graph_operations, place_of
from tpu_preflight.report import Item, finding


@dataclasses.dataclass(frozen=True)
class Placement:
    """What the bridge says of a step, as it was traced under ``run``."""

    traced: Tracing  # the step
    # Its answer without soft device placement, the default in a ``tf.function``.
    strict: bridge.Bridged
    soft: bridge.Bridged | None  # its answer with it; asked only where the strict one is a refusal

    @property
    def on_host(self) -> str:
        """What the host would take over; empty where that is nothing, or would not help."""
        return ", ".join(self.soft.on_host) if self.soft is not None else ""

    @property
    def accepted(self) -> bool:
        """Whether all of it is for the TPU."""
        return not self.strict.message

    @property
    def where(self) -> str:
        """The line, else the layer, of what is refused."""
        for operation in graph_operations(self.traced.graph).values():
            if operation.type == self.strict.refused:
                return place_of(operation)
        return ""


def ask(traced: Tracing) -> Placement:
    """Let the bridge split a step; where it refuses, once more with soft device placement."""
    strict = bridge.split(traced.concrete, traced.name)
    soft = None
    if strict.message:
        soft = bridge.split(traced.concrete, traced.name, soft_device_placement=True)
    return Placement(traced, strict, soft)


def is_soft() -> bool:
    """Whether soft device placement is on where ``TPUStrategy`` reads it, in a graph."""
    with tf.Graph().as_default():
        return tf.config.get_soft_device_placement()


def check(kind: str, placement: Placement) -> list[Item]:
    """Say what the bridge says of a step that XLA takes on this CPU."""
    if placement.accepted:
        return [finding(1, "bridge_accepts", kind=kind)]
    about = {"kind": kind, "operation": placement.strict.refused, "on_host": placement.on_host}
    about |= {"where": placement.where, "message": placement.strict.message}
    if not placement.on_host:
        return [finding(1, "bridge_refuses", **about)]
    return [finding(1, "on_host" if is_soft() else "could_be_on_host", **about)]
