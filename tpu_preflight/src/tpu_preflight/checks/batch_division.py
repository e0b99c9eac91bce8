"""Check 3: can a global batch be divided over each target's replicas, the last one as well?"""

import tensorflow as tf

from tpu_preflight.checks.array_division import division
from tpu_preflight.context import Context
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects.pipeline import Sample
from tpu_preflight.subjects.tensorflow_subject import rows_of


def check(context: Context) -> list[Item]:
    """Divide the sample's largest batch, and look for a smaller one at the end of an epoch."""
    sample = context.subject.sample
    if sample is None or not sample.shapes:
        return []
    items = division(sample.largest_outer, context.targets)
    rows = rows_of(sample.largest_outer)
    if rows is not None:
        items.append(_remainder(sample, rows, context.subject.structure))
    return items


def _remainder(sample: Sample, rows: int, structure: object) -> Item:
    smaller = {rows_of(shapes) for shapes in sample.outer} - {rows, None}
    if smaller:
        return finding(3, "partial", least=min(smaller), rows=rows)
    is_open = any(_has_open_rows(spec) for spec in tf.nest.flatten(structure))
    if is_open and not sample.ended and not sample.endless:
        return finding(3, "maybe_partial", rows=rows)
    return finding(3, "whole", rows=rows)


def _has_open_rows(spec: tf.TypeSpec) -> bool:
    return isinstance(spec, tf.TensorSpec) and bool(spec.shape.rank) and spec.shape[0] is None
