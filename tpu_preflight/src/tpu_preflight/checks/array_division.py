"""Check 3 of a Keras model on JAX: can the batch be divided over each target's devices?"""

from collections.abc import Sequence
from typing import Any

from tpu_preflight.context import Context
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects.subject import Target

PARTS = ("x", "y", "sample_weight")  # of a batch, as fit takes it


def check(context: Context) -> list[Item]:
    """Divide a batch of arrays, as ``fit`` does; a function of JAX has one device's."""
    import jax

    if context.subject.model is None:
        return []
    _, batch = context.subject.arguments
    leaves, _ = jax.tree.flatten_with_path(batch)
    shapes = [array.shape for _, array in leaves]
    names = [_name(path) for path, _ in leaves]
    return division(shapes, context.targets, names)


def _name(path: Sequence[Any]) -> str:
    """Name an array of a batch ``(x, y, sample_weight)`` by its place there: ``x['ids']``."""
    import jax

    part = getattr(path[0], "idx", None) if path else None
    if part is None or part >= len(PARTS):
        return jax.tree_util.keystr(path)
    return PARTS[part] + jax.tree_util.keystr(path[1:])


def division(
    shapes: Sequence[Sequence[int]], targets: Sequence[Target], names: Sequence[str] = ()
) -> list[Item]:
    """Say for each number of replicas whether it divides the first sizes of a batch's arrays.

    Where they have several, the first that can't be divided is named.
    """
    sizes = [shape[0] for shape in shapes if len(shape)]
    items = []
    for replicas in sorted({target.replicas for target in targets} - {1}):
        target_names = [target.name for target in targets if target.replicas == replicas]
        words = {"replicas": replicas, "target": ", ".join(target_names)}
        has_rows = len(set(sizes)) == 1
        if not has_rows:  # each array is divided by itself
            items.append(finding(3, "no_rows", **words))
        indivisible = [size for size in sizes if size % replicas or not size]
        if indivisible:
            size = indivisible[0]
            next_multiple = max(1, -(-size // replicas)) * replicas
            words["of"] = ""
            if names and not has_rows:
                named = zip(names, shapes, strict=True)
                alike = [name for name, shape in named if size in shape[:1]]
                words["of"] = f" rows in {alike[0]}"
            items.append(finding(3, "indivisible", rows=size, more=next_multiple, **words))
        elif has_rows:
            share = sizes[0] // replicas
            items.append(finding(3, "divisible", rows=sizes[0], share=share, **words))
    return items
