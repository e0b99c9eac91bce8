"""Check 8: are the numbers good enough when matrix products are a TPU's?

The step's own program runs on this CPU, with float32 products and with operands rounded to
bfloat16 (`helpers.xla.numerics`).
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import tensorflow as tf

from helpers.base.errors import CourseError
from helpers.preflight import pipeline
from helpers.preflight.report import Item, finding
from helpers.preflight.subject import Subject, subject_of
from helpers.xla import numerics
from helpers.xla.numerics.results import percent, products
from helpers.xla.program import NotCompilable, Tracing, trace

# Beyond these a warning, with room to spare: rounding moves a loss by parts in a thousand, and a
# gradient, a sum of many rounded numbers, by some percent.
FAR_LOSS, FAR_GRADIENT = 0.05, 0.5
FAR_SEEDS = 2.0  # times the distance between two seeds
NEAR = 0.01  # of the loss: nearer curves need no seed to compare with


def check(
    subject: Subject,
    sample: pipeline.Sample | None,
    steps: int,
    again: Callable[[], Any] | None,
    say: Callable[[str], None],
) -> tuple[list[Item], numerics.Training | None]:
    """Compare loss and gradients on real batches, and for more than one step two trainings.

    Only shapes were given where there is no ``sample``. ``again`` makes the model anew, with
    another seed's weights; None where that can't be done. ``say`` is called with a line at each
    stage.
    """
    if sample is None:
        return [finding(8, "not_run", what="numbers", reason="needs real batches")], None
    items: list[Item] = []
    what = "loss and gradients"
    try:
        say("running it with a TPU's products")
        items.append(_compared(subject, sample))
        if steps > 1:
            what = "a short training"
            say(f"training {steps} steps with a TPU's products")
            training = _trained(subject, sample, steps, again)
            return [*items, _judged(training)], training
    except CourseError as error:  # TensorFlow refuses, jax does, or it takes too long
        items.append(finding(8, "not_run", what=what, reason=f"{error.what} {error.why}"))
    return items, None


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
    if subject.model is not None:  # as `helpers.preflight.subject.exported` does, for its reason
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


def _trained(
    subject: Subject, sample: pipeline.Sample, steps: int, again: Callable[[], Any] | None
) -> numerics.Training:
    batches = sample.batches
    other = None
    if again is not None and (anew := _anew(subject, again())) is not None:
        other = _traced(anew, batches[0], [])
    options = {"reset": _metrics(subject), "other": other}
    return numerics.train_traced(_traced(subject, batches[0], []), batches, steps, **options)


def _anew(subject: Subject, made: Any) -> Subject | None:
    """Describe the model that a factory made again; None where it has the same weights."""
    given = made[0] if isinstance(made, tuple) else made
    if given is subject.given or subject.model is None:
        return None
    anew = subject_of(given, subject.structure)
    pairs = zip(subject.model.get_weights(), given.get_weights(), strict=False)
    return None if all((a == b).all() for a, b in pairs) else anew


def _judged(training: numerics.Training) -> Item:
    about = {"said": training.summary}
    if not all(map(math.isfinite, training.exact)):
        reason = "the loss is not finite with float32 products either"
        return finding(8, "not_run", what="a short training", reason=reason)
    if not training.finite:
        return finding(8, "not_finite", what=f"a training of {len(training.exact)} steps")
    near = NEAR * abs(training.smooth(training.exact)[-1])
    far = training.apart > max(near, FAR_SEEDS * training.between_seeds)
    return finding(8, "curves_apart" if far else "curves", **about)
