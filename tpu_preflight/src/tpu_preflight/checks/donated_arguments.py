"""Check 1: does a function of JAX give the memory of one array away twice?"""

from tpu_preflight.context import Context
from tpu_preflight.report import Item, finding


def check(context: Context) -> list[Item]:
    """Name the first two arguments that are one array."""
    if context.refusal is not None or not context.subject.exported.donated_twice:
        return []
    first, second = context.subject.exported.donated_twice[0]
    return [finding(1, "donated_twice", first=first, second=second)]
