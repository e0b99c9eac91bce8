"""Check 5 of a Keras 3 model: does it compute in float16, as on a GPU?"""

from tpu_preflight.context import Context
from tpu_preflight.report import Item, finding


def check(context: Context) -> list[Item]:
    """Warn of layers with the policy mixed_float16; of tf-keras, TPUStrategy refuses it."""
    subject = context.subject
    if not subject.keras.startswith("Keras 3"):
        return []
    names = []
    for layer in subject.model._flatten_layers():
        if getattr(layer, "compute_dtype", None) == "float16":
            names.append(layer.name)
    if not names:
        return []
    return [finding(5, "float16", count=len(names), first=names[-1])]
