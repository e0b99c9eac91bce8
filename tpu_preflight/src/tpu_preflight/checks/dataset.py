"""Checks 2 and 3: is there a dataset, and can it be read?"""

from tpu_preflight.context import Context
from tpu_preflight.report import Item, finding
from tpu_preflight.text import steady


def check(context: Context) -> list[Item]:
    """Say what could not be looked at without a dataset, or what reading it raised."""
    sample = context.subject.sample
    if sample is None:
        return [finding(2, "no_dataset"), finding(3, "no_dataset")]
    # Batches that were read before the error still count: other checks look at them.
    if sample.error:
        return [finding(3, "raises", seen=sample.size, error=steady(sample.error)[:200])]
    return []
