"""What a kernel of Pallas computes: its matrix products, counted over its grid.

XLA doesn't look into a kernel, which is a program by itself, so its cost model has no time for it.
Which blocks a mask skips is computed as the kernel does, for all points of its grid at once.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

FLOPS_KEY = "preflight_flops"  # what a kernel's metadata call them


def kernel_flops(jaxpr: Any, known: Mapping[Any, Any]) -> Iterator[tuple[int, float]]:
    """Give each kernel's place in memory, and its floating-point operations.

    Args:
        jaxpr: The traced function that calls the kernels.
        known: The values of some variables: masks come to a kernel as constants.

    Yields:
        The ``id`` of a kernel's jaxpr, and a number; not a number where it can't be told. Kernels
        that can't be counted are left out.
    """
    for operation in jaxpr.eqns:
        values = [_value(variable, known) for variable in operation.invars]
        if operation.primitive.name == "pallas_call":
            with contextlib.suppress(Exception):  # a kernel written otherwise: its time is missing
                yield id(operation.params["jaxpr"]), _flops_over_grid(operation.params, values)
            continue
        for inner in inside(operation.params):
            yield from kernel_flops(inner, _arguments_of_same_shape(inner, values))


def inside(parameters: Mapping[str, Any]) -> Iterator[Any]:
    """Give the functions that an operation of a jaxpr holds."""
    for value in parameters.values():
        candidates = value if isinstance(value, tuple | list) else (value,)
        for candidate in candidates:
            inner = getattr(candidate, "jaxpr", candidate)
            if hasattr(inner, "eqns"):
                yield inner


def counting_rule(entry: Any, flops: Mapping[int, float]) -> Any:
    """Make a rule that lowers kernels, and writes their operations into their metadata.

    Args:
        entry: JAX's own rule.
        flops: What `kernel_flops` gives.
    """

    def lower(context: Any, *arguments: Any, **parameters: Any) -> Any:
        count = flops.get(id(parameters["jaxpr"]), math.nan)
        if not math.isnan(count):
            metadata = parameters["metadata"] or {}
            parameters["metadata"] = {**metadata, FLOPS_KEY: f"{count:.0f}"}
        return entry.rule(context, *arguments, **parameters)

    return type(entry)(lower, entry.inline)


def _value(variable: Any, known: Mapping[Any, Any]) -> Any:
    """Give a literal's value, or that of a variable; None where it isn't known."""
    if hasattr(variable, "val"):
        return variable.val
    return known.get(variable)


def _arguments_of_same_shape(jaxpr: Any, values: Sequence[Any]) -> dict[Any, Any]:
    """Hand on an operation's values to a function in it, where its parameters are the same."""
    arguments: dict[Any, Any] = {}
    if len(jaxpr.invars) != len(values):
        return arguments
    for variable, value in zip(jaxpr.invars, values, strict=True):
        if np.shape(value) == variable.aval.shape:
            arguments[variable] = value
    return arguments


def _flops_over_grid(parameters: Mapping[str, Any], values: list[Any]) -> float:
    mapping = parameters["grid_mapping"]
    jaxpr = parameters["jaxpr"]
    if not all(isinstance(size, int) for size in mapping.grid):
        return math.nan
    # What the grid's own indices depend on comes first; arrays in blocks aren't known.
    arguments = dict(zip(jaxpr.invars, values[: mapping.num_index_operands], strict=False))
    # The kernel doesn't know of axes that jax.vmap added.
    grid = [size for i, size in enumerate(mapping.grid) if i not in mapping.vmapped_dims]
    repetitions = math.prod(mapping.grid) / math.prod(grid)
    return _flops(jaxpr, arguments, np.ones(grid)) * repetitions


def _flops(jaxpr: Any, known: dict[Any, Any], runs: np.ndarray) -> float:
    """Count the operations of matrix products.

    Args:
        jaxpr: A kernel, or a function in it.
        known: Values of its variables, one for each point of the grid; more are added here.
        runs: How often this function runs at each point of the grid.
    """
    total = 0.0
    for operation in jaxpr.eqns:
        name = operation.primitive.name
        values = [_value(variable, known) for variable in operation.invars]
        result = operation.outvars[0] if operation.outvars else None
        all_known = all(value is not None for value in values)
        functions = list(inside(operation.params))
        if name == "program_id":
            # Where on the grid a point is: a kernel's masks begin with it.
            indices = np.indices(runs.shape, np.int32, sparse=True)
            known[result] = indices[operation.params["axis"]]
        elif name == "dot_general":
            total += _product_flops(operation) * runs.sum()
        elif name == "get" and values[0] is not None and len(values) == 1 + values[0].ndim:
            # One element of an array, at another index for each point of the grid.
            if all_known:
                array, *indices = values
                known[result] = np.asarray(array)[tuple(indices)]
        elif name == "cond":
            total += _branch_flops(operation, values, runs)
        elif functions:
            for function in functions:
                total += _function_flops(operation, function, values, known, runs)
        elif all_known and not any(variable.aval.shape for variable in operation.outvars):
            # Arithmetic on indices, done for the whole grid at once.
            arrays = np.broadcast_arrays(*values)
            known[result] = np.asarray(operation.primitive.bind(*arrays, **operation.params))
    return total


def _product_flops(operation: Any) -> float:
    (contracted, _), _ = operation.params["dimension_numbers"]
    shape = operation.invars[0].aval.shape
    depth = math.prod(shape[dimension] for dimension in contracted)
    return 2.0 * math.prod(operation.outvars[0].aval.shape) * depth


def _branch_flops(operation: Any, values: list[Any], runs: np.ndarray) -> float:
    """Count a ``cond``: each branch where it is taken, the largest where that isn't known."""
    choice, *arguments = values
    branches = []
    for i, branch in enumerate(operation.params["branches"]):
        branch_runs = runs if choice is None else runs * (choice == i)
        branch_values = dict(zip(branch.jaxpr.invars, arguments, strict=True))
        branches.append(_flops(branch.jaxpr, branch_values, branch_runs))
    if choice is None:
        return max(branches)
    return sum(branches)


def _function_flops(
    operation: Any, function: Any, values: list[Any], known: dict[Any, Any], runs: np.ndarray
) -> float:
    """Count a function in an operation, a loop's as often as it runs; adds to what is known."""
    rounds = operation.params.get("length", 1)
    if operation.primitive.name == "while":
        rounds = math.nan
    # A scan hands on slices of its arguments, which aren't known here.
    is_call = operation.primitive.name != "scan" and len(function.invars) == len(values)
    inner_known = {}
    if is_call:
        inner_known = dict(zip(function.invars, values, strict=True))
    flops = _flops(function, inner_known, runs)
    if is_call:
        results = [_value(variable, inner_known) for variable in function.outvars]
        known.update(zip(operation.outvars, results, strict=False))
    # Without products in it a loop counts nothing, however often it runs.
    return flops * rounds if flops else 0.0
