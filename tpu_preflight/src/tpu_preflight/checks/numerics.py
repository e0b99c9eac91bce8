"""Check 8: are the numbers good enough when matrix products are a TPU's?

The step's own program runs on this CPU, with float32 products and with operands rounded to
bfloat16 (`tpu_preflight.numerics`).
"""

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import tensorflow as tf

from tpu_preflight import numerics
from tpu_preflight.checks import pipeline
from tpu_preflight.checks.subject import Subject
from tpu_preflight.errors import PreflightError
from tpu_preflight.numerics.results import percent, products
from tpu_preflight.program import Tracing, trace
from tpu_preflight.report import Item, finding

# Beyond these a warning, with room to spare: rounding moves a loss by parts in a thousand, and a
# gradient, a sum of many rounded numbers, by some percent.
FAR_LOSS, FAR_GRADIENT = 0.05, 0.5


def check(subject: Subject, say: Callable[[str], None]) -> list[Item]:
    """Compare loss and gradients on real batches; without a sample there are none.

    ``say`` is called with a line before it begins.
    """
    if subject.sample is None:
        return [finding(8, "not_run", what="numbers", reason="needs real batches")]
    say("running it with a TPU's products")
    try:
        return [_compared(subject)]
    except PreflightError as error:  # TensorFlow refuses, jax does, or it takes too long
        reason = f"{error.what} {error.why}"
        return [finding(8, "not_run", what="loss and gradients", reason=reason)]


def _traced(subject: Subject, batch: pipeline.Batch) -> tuple[Tracing, int]:
    """Trace a step that gives its losses and then its gradients; says how many losses there are.

    A step without a loss gives what it gives.
    """
    optimizer = getattr(subject.model, "optimizer", None)
    kind, count = type(optimizer), 0

    def step(*tensors: tf.Tensor) -> list[tf.Tensor]:
        nonlocal count
        gradients: list[tf.Tensor] = []

        def noted(self: Any, grads_and_vars: Any, *rest: Any, **options: Any) -> Any:
            pairs = list(grads_and_vars)
            if self is optimizer:
                gradients[:] = [tf.convert_to_tensor(g) for g, _ in pairs if g is not None]
            return apply(self, pairs, *rest, **options)

        noting = contextlib.nullcontext()
        if optimizer is not None:
            apply = kind.apply_gradients
            noting = mock.patch.object(kind, "apply_gradients", noted)
        with noting:
            result = subject.step(*tensors)
        losses = [result["loss"]] if isinstance(result, dict) and "loss" in result else result
        losses = [x for x in tf.nest.flatten(losses) if x is not None]
        count = len(losses)
        return [*losses, *gradients]

    step.__name__ = subject.name
    step = tf.autograph.experimental.do_not_convert(step) if subject.plain else step
    return trace(step, *batch), count


def _compared(subject: Subject) -> Item:
    batches = subject.sample.batches
    traced, count = _traced(subject, batches[0])
    # A model's metrics would make the loss a mean over all steps so far.
    metrics = [v for m in getattr(subject.model, "metrics", ()) for v in m.variables]
    found = numerics.compare_batches(traced, batches, reset=metrics)
    results = [v for one in found for v in one.results]
    if not all(v.finite for v in results):
        return finding(8, "not_run", what="loss and gradients", reason="not finite in float32")
    if not all(v.rounded_finite for v in results):
        return finding(8, "not_finite", what="loss and gradients")
    loss = max(v.share for one in found for v in one.results[:count])
    said, far = "", loss > FAR_LOSS
    if values := [v for one in found for v in (one.results[count:] or one.updates)]:
        what = "gradients" if len(found[0].results) > count else "updates"
        share = numerics.together(values)
        far = far or share > FAR_GRADIENT
        between = numerics.together(values, "between")
        others = f" (those of two batches: {percent(between)})" if between else ""
        said = f", its {what} {percent(share)} of their length{others}"
    batch = "batch" if len(batches) == 1 else "batches"
    about = {"batches": f"{len(batches)} real {batch}", "products": products(found[0].products)}
    what = subject.kind if subject.kind == "forward pass" else "loss"
    return finding(8, "far" if far else "near", loss=percent(loss), more=said, what=what, **about)
