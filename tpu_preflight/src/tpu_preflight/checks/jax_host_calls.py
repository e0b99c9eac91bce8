"""Check 5 of a function of JAX: what in it calls Python? A strategy's scope has no meaning here."""

from tpu_preflight.context import Context
from tpu_preflight.report import Item, finding


def check(context: Context) -> list[Item]:
    """Name each call of Python, for which the step waits."""
    items = []
    if context.refusal is None:
        for what, source in context.subject.exported.calls:
            items.append(finding(5, "calls_python", what=what, where=source))
    return [*items, finding(5, "no_strategy")]
