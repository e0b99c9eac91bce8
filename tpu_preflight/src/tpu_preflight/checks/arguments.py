"""Checks 2 and 3 of a function of JAX: no pipeline comes with it, its arguments have types."""

import numpy as np

from tpu_preflight.context import Context
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects.jax_subject import dtype_in_jax


def check(context: Context) -> list[Item]:
    """Name the arguments of 64 bits, or the types of all."""
    import jax

    items = []
    types = set()
    leaves, _ = jax.tree.flatten_with_path(context.subject.arguments)
    for path, leaf in leaves:
        # A number of Python is no array yet, and JAX chooses its type.
        if not hasattr(leaf, "dtype"):
            continue
        dtype = dtype_in_jax(leaf.dtype)
        # A key's type is written key<fry>, after the algorithm.
        types.add("random keys" if "<" in str(dtype) else str(dtype))
        if dtype == np.float64:
            name = jax.tree_util.keystr(path[1:]) or str(path[0])
            items.append(finding(3, "float64", name=name))
    if not items:
        items.append(finding(3, "types", dtypes=", ".join(sorted(types))))
    return [finding(2, "arguments"), finding(3, "arguments"), *items]
