"""What a kernel of Pallas computes: its matrix products, counted over its grid.

A kernel is a program of its own, which XLA doesn't look into, so its cost model has no time for
it. Which blocks a mask skips is computed as the kernel does, for all points of its grid at once.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

PRODUCTS = "preflight_flops"  # what a kernel's metadata call them


def counted(jaxpr: Any, known: Mapping[Any, Any]) -> Iterator[tuple[int, float]]:
    """Give each kernel's place in memory, and its operations; not a number where it can't be told.

    ``known`` has the values of some variables: masks come to a kernel as constants.
    """
    for operation in jaxpr.eqns:
        values = [_value(v, known) for v in operation.invars]
        if operation.primitive.name == "pallas_call":
            with contextlib.suppress(Exception):  # a kernel written otherwise: its time is missing
                yield id(operation.params["jaxpr"]), _whole(operation.params, values)
            continue
        for inner in inside(operation.params):
            alike = len(inner.invars) == len(values)
            pairs = zip(inner.invars, values, strict=True) if alike else ()
            yield from counted(inner, {v: x for v, x in pairs if np.shape(x) == v.aval.shape})


def inside(parameters: Mapping[str, Any]) -> Iterator[Any]:
    """Give the functions that an operation of a jaxpr holds."""
    for value in parameters.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield inner


def lowering(entry: Any, found: Mapping[int, float]) -> Any:
    """Make a lowering of kernels that writes their operations into their metadata."""

    def lower(context: Any, *arguments: Any, **given: Any) -> Any:
        count = found.get(id(given["jaxpr"]), math.nan)
        if not math.isnan(count):
            given["metadata"] = {**(given["metadata"] or {}), PRODUCTS: f"{count:.0f}"}
        return entry.rule(context, *arguments, **given)

    return type(entry)(lower, entry.inline)


def _value(variable: Any, known: Mapping[Any, Any]) -> Any:
    return variable.val if hasattr(variable, "val") else known.get(variable)


def _whole(given: Mapping[str, Any], values: list[Any]) -> float:
    mapping, jaxpr = given["grid_mapping"], given["jaxpr"]
    if not all(isinstance(n, int) for n in mapping.grid):
        return math.nan
    known = dict(zip(jaxpr.invars, values[: mapping.num_index_operands], strict=False))
    # The kernel doesn't know of axes that jax.vmap added.
    own = [n for at, n in enumerate(mapping.grid) if at not in mapping.vmapped_dims]
    return _products(jaxpr, known, np.ones(own)) * math.prod(mapping.grid) / math.prod(own)


def _products(jaxpr: Any, known: dict[Any, Any], runs: np.ndarray) -> float:
    """Count the operations of matrix products; ``runs`` is how often each point's block runs.

    Sets what is known of variables: one value for each point of the grid.
    """
    total = 0.0
    for e in jaxpr.eqns:
        values = [_value(v, known) for v in e.invars]
        name, result = e.primitive.name, (e.outvars or [None])[0]
        if name == "program_id":
            known[result] = np.indices(runs.shape, np.int32, sparse=True)[e.params["axis"]]
        elif name == "dot_general":
            (contracted, _), _ = e.params["dimension_numbers"]
            depth = math.prod(e.invars[0].aval.shape[at] for at in contracted)
            total += 2.0 * math.prod(result.aval.shape) * depth * runs.sum()
        elif name == "get" and values[0] is not None and len(values) == 1 + values[0].ndim:
            if all(x is not None for x in values):
                known[result] = np.asarray(values[0])[tuple(values[1:])]
        elif name == "cond":
            ways = []
            for n, branch in enumerate(e.params["branches"]):
                share = runs if values[0] is None else runs * (values[0] == n)
                given = zip(branch.jaxpr.invars, values[1:], strict=True)
                ways.append(_products(branch.jaxpr, dict(given), share))
            total += max(ways) if values[0] is None else sum(ways)
        elif parts := [*inside(e.params)]:
            rounds = math.nan if name == "while" else e.params.get("length", 1)
            for part in parts:
                alike = name != "scan" and len(part.invars) == len(values)
                within = dict(zip(part.invars, values, strict=True)) if alike else {}
                computed = _products(part, within, runs)
                total += computed * rounds if computed else 0.0
                if alike:
                    given = (_value(v, within) for v in part.outvars)
                    known |= dict(zip(e.outvars, given, strict=False))
        elif all(x is not None for x in values) and all(not v.aval.shape for v in e.outvars):
            known[result] = np.asarray(e.primitive.bind(*np.broadcast_arrays(*values), **e.params))
    return total
