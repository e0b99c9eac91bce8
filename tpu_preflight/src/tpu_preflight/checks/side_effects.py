"""Check 5: what of the step is Python alone, and so happens only while it is traced?"""

from tpu_preflight.context import Context
from tpu_preflight.report import Item, finding


def check(context: Context) -> list[Item]:
    """Warn of each kind of side effect once, with the first line or variable."""
    items = {}
    for effect in context.side_effects:
        item = finding(5, effect.kind, variable=effect.name, where=effect.source)
        items.setdefault(effect.kind, item)
    return list(items.values())
