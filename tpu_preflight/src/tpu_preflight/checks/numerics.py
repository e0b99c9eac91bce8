"""Check 8: are the numbers good enough when matrix products are a TPU's?

The step's own program runs on this CPU, with float32 products and with operands rounded to
bfloat16 (`tpu_preflight.numerics`).
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import tensorflow as tf

from tpu_preflight import numerics
from tpu_preflight.checks import pipeline
from tpu_preflight.checks.subject import Subject
from tpu_preflight.errors import PreflightError
from tpu_preflight.numerics.results import percent, products
from tpu_preflight.program import NotCompilable, Tracing, trace
from tpu_preflight.report import Item, finding

# Beyond these a warning, with room to spare: rounding moves a loss by parts in a thousand, and a
# gradient, a sum of many rounded numbers, by some percent.
FAR_LOSS, FAR_GRADIENT = 0.05, 0.5


def check(
    subject: Subject, sample: pipeline.Sample | None, say: Callable[[str], None]
) -> list[Item]:
    """Compare loss and gradients on real batches; without a ``sample`` there are none.

    ``say`` is called with a line before it begins.
    """
    if sample is None:
        return [finding(8, "not_run", what="numbers", reason="needs real batches")]
    say("running it with a TPU's products")
    try:
        return [_compared(subject, sample)]
    except PreflightError as error:  # TensorFlow refuses, jax does, or it takes too long
        reason = f"{error.what} {error.why}"
        return [finding(8, "not_run", what="loss and gradients", reason=reason)]


@contextlib.contextmanager
def _recorded(optimizer: Any) -> Iterator[list[tuple[str, tf.Tensor]]]:
    """Note the gradients that an optimizer is given, with their variables' names."""
    found: list[tuple[str, tf.Tensor]] = []
    if optimizer is None:
        yield found
        return
    kind = type(optimizer)
    apply = kind.apply_gradients

    def noted(self: Any, grads_and_vars: Any, *rest: Any, **options: Any) -> Any:
        pairs = list(grads_and_vars)
        if self is optimizer:
            given = [(g, getattr(v, "path", v.name)) for g, v in pairs if g is not None]
            found[:] = [(name.partition(":")[0], tf.convert_to_tensor(g)) for g, name in given]
        return apply(self, pairs, *rest, **options)

    with mock.patch.object(kind, "apply_gradients", noted):
        yield found


def _traced(subject: Subject, batch: pipeline.Batch, names: list[str]) -> Tracing:
    """Trace a step that gives its loss and its gradients; a step without a loss, what it gives."""
    optimizer = getattr(subject.model, "optimizer", None)

    def step(*tensors: tf.Tensor) -> list[tf.Tensor]:
        with _recorded(optimizer) as gradients:
            result = subject.step(*tensors)
        losses = [result["loss"]] if isinstance(result, dict) and "loss" in result else result
        losses = [x for x in tf.nest.flatten(losses) if x is not None]
        names[:] = [*("" for _ in losses), *(name for name, _ in gradients)]
        return [*losses, *(gradient for _, gradient in gradients)]

    step.__name__ = subject.name
    if subject.model is not None:  # as `tpu_preflight.checks.subject.exported` does, for its reason
        with contextlib.suppress(NotCompilable):
            return trace(tf.autograph.experimental.do_not_convert(step), *batch)
    return trace(step, *batch)


def _metrics(subject: Subject) -> list[Any]:
    """A model's metrics, which would make the loss a mean over all steps so far."""
    return [v for m in getattr(subject.model, "metrics", ()) for v in m.variables]


def _compared(subject: Subject, sample: pipeline.Sample) -> Item:
    names: list[str] = []
    batches = sample.batches[: pipeline.KEPT]
    traced = _traced(subject, batches[0], names)
    found = numerics.compare_batches(traced, batches, reset=_metrics(subject))
    results = [v for one in found for v in one.results]
    if not all(v.finite for v in results):
        return finding(8, "not_run", what="loss and gradients", reason="not finite in float32")
    if not all(v.rounded_finite for v in results):
        return finding(8, "not_finite", what="loss and gradients")
    count = names.count("")
    loss = max(v.share for one in found for v in one.results[:count])
    said, far = "", loss > FAR_LOSS
    if values := [v for one in found for v in (one.results[count:] or one.updates)]:
        what = "gradients" if len(names) > count else "updates"
        share = numerics.together(values)
        far = far or share > FAR_GRADIENT
        between = numerics.together(values, "between")
        others = f" (those of two batches: {percent(between)})" if between else ""
        said = f", its {what} {percent(share)} of their length{others}"
    batch = "batch" if len(batches) == 1 else "batches"
    about = {"batches": f"{len(batches)} real {batch}", "products": products(found[0].products)}
    what = subject.kind if subject.kind == "forward pass" else "loss"
    return finding(8, "far" if far else "near", loss=percent(loss), more=said, what=what, **about)
