"""Check 2: how many sets of shapes has the dataset? Each is a compilation."""

import tensorflow as tf

from tpu_preflight.context import Context
from tpu_preflight.report import FAIL, WARN, Item, finding

FEW_SHAPES = 8  # more than these make a short run wait for XLA


def check(context: Context) -> list[Item]:
    """Count the sets of shapes in the sample, and look for sizes that the dataset leaves open."""
    sample = context.subject.sample
    if sample is None or not sample.shapes:
        return []
    count = len(sample.outer)
    # Where the sample is not the whole dataset, there may be others.
    words = {"every": "the first", "least": "at least ", "so_far": " so far"}
    if sample.ended:
        words = {"every": "all", "least": "", "so_far": ""}
    words["seen"] = sample.size
    if count > 1:
        state = FAIL if count > FEW_SHAPES else WARN
        sets = f"{count} sets of shapes"
        return [finding(2, "several", state=state, count=count, sets=sets, **words)]
    items = [finding(2, "one", sets="1 set of shapes", **words)]
    # All batches that were seen may agree where the dataset promises nothing.
    specs = tf.nest.flatten(context.subject.structure)
    unknown = [spec for spec in specs if not _is_known(spec)]
    if unknown and context.subject.is_traced_by_structure:
        items.append(finding(2, "open", unknown=len(unknown), all=len(specs)))
    return items


def _is_known(spec: tf.TypeSpec) -> bool:
    return tf.TensorShape(getattr(spec, "shape", None)).is_fully_defined()
