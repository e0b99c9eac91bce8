"""Check 3 of a Keras model on JAX: can the batch be divided over each target's devices?"""

from collections.abc import Sequence

from tpu_preflight.context import Context
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects.subject import Target


def check(context: Context) -> list[Item]:
    """Divide a batch of arrays, as ``fit`` does; a function of JAX has one device's."""
    import jax

    if context.subject.model is None:
        return []
    _, batch = context.subject.arguments
    return division([array.shape for array in jax.tree.leaves(batch)], context.targets)


def division(shapes: Sequence[Sequence[int]], targets: Sequence[Target]) -> list[Item]:
    """Say for each number of replicas whether it divides the first sizes of a batch's arrays."""
    sizes = [shape[0] for shape in shapes if len(shape)]
    items = []
    for replicas in sorted({target.replicas for target in targets} - {1}):
        names = [target.name for target in targets if target.replicas == replicas]
        words = {"replicas": replicas, "target": ", ".join(names)}
        has_rows = len(set(sizes)) == 1
        if not has_rows:  # each array is divided by itself
            items.append(finding(3, "no_rows", **words))
        indivisible = [size for size in sizes if size % replicas or not size]
        if indivisible:
            size = indivisible[0]
            next_multiple = max(1, -(-size // replicas)) * replicas
            items.append(finding(3, "indivisible", rows=size, more=next_multiple, **words))
        elif has_rows:
            share = sizes[0] // replicas
            items.append(finding(3, "divisible", rows=sizes[0], share=share, **words))
    return items
