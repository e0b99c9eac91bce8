"""What a kernel of Pallas computes: its products and its vector work, counted over its grid.

XLA doesn't look into a kernel, which is a program by itself, so its cost model has no time for it.
Which blocks a mask skips is computed as the kernel does, for all points of its grid at once.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# What a kernel's metadata call the fields of `KernelWork`.
FLOPS_KEY = "preflight_flops"
VECTOR_KEY = "preflight_vector"
POINTS_KEY = "preflight_points"

_VECTOR_SIZE = 1024  # values in a register of the vector unit; what is smaller isn't counted
# What computes nothing in the vector unit: reads and writes, or a value repeated or renamed.
_NO_VECTOR_WORK = frozenset(
    ("get", "swap", "dot_general", "broadcast_in_dim", "reshape", "squeeze", "iota", "tile")
)


class KernelWork(NamedTuple):
    """What a kernel computes in one run."""

    flops: float = 0.0  # floating-point operations of its matrix products
    vector: float = 0.0  # operations of its vector unit, one for each value
    points: int = 0  # of its grid, the blocks that a mask skips included

    def plus(self, other: "KernelWork") -> "KernelWork":
        """Add what another part of the kernel computes."""
        return self._replace(flops=self.flops + other.flops, vector=self.vector + other.vector)

    def times(self, rounds: float) -> "KernelWork":
        """Multiply by the rounds of a loop."""
        return self._replace(flops=self.flops * rounds, vector=self.vector * rounds)


def kernel_work(jaxpr: Any, known: Mapping[Any, Any]) -> Iterator[tuple[int, KernelWork]]:
    """Give each kernel's place in memory, and what it computes.

    Args:
        jaxpr: The traced function that calls the kernels.
        known: The values of some variables: masks come to a kernel as constants.

    Yields:
        The ``id`` of a kernel's jaxpr, and its work; not a number where it can't be told. Kernels
        that can't be counted are left out.
    """
    for operation in jaxpr.eqns:
        values = [_value(variable, known) for variable in operation.invars]
        if operation.primitive.name == "pallas_call":
            with contextlib.suppress(Exception):  # a kernel written otherwise: its time is missing
                yield id(operation.params["jaxpr"]), _work_over_grid(operation.params, values)
            continue
        for inner in inside(operation.params):
            yield from kernel_work(inner, _arguments_of_same_shape(inner, values))


def inside(parameters: Mapping[str, Any]) -> Iterator[Any]:
    """Give the functions that an operation of a jaxpr holds."""
    for value in parameters.values():
        candidates = value if isinstance(value, tuple | list) else (value,)
        for candidate in candidates:
            inner = getattr(candidate, "jaxpr", candidate)
            if hasattr(inner, "eqns"):
                yield inner


def counting_rule(entry: Any, works: Mapping[int, KernelWork]) -> Any:
    """Make a rule that lowers kernels, and writes what they compute into their metadata.

    Args:
        entry: JAX's own rule.
        works: What `kernel_work` gives.
    """

    def lower(context: Any, *arguments: Any, **parameters: Any) -> Any:
        work = works.get(id(parameters["jaxpr"]))
        if work is not None and not math.isnan(work.flops):
            metadata = parameters["metadata"] or {}
            counts = {
                FLOPS_KEY: f"{work.flops:.0f}",
                VECTOR_KEY: f"{work.vector:.0f}",
                POINTS_KEY: f"{work.points}",
            }
            parameters["metadata"] = {**metadata, **counts}
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


def _work_over_grid(parameters: Mapping[str, Any], values: list[Any]) -> KernelWork:
    mapping = parameters["grid_mapping"]
    jaxpr = parameters["jaxpr"]
    if not all(isinstance(size, int) for size in mapping.grid):
        return KernelWork(flops=math.nan)
    # What the grid's own indices depend on comes first; arrays in blocks aren't known.
    arguments = dict(zip(jaxpr.invars, values[: mapping.num_index_operands], strict=False))
    # The kernel doesn't know of axes that jax.vmap added.
    grid = [size for i, size in enumerate(mapping.grid) if i not in mapping.vmapped_dims]
    points = math.prod(mapping.grid)
    work = _work(jaxpr, arguments, np.ones(grid)).times(points / math.prod(grid))
    return work._replace(points=points)


def _work(jaxpr: Any, known: dict[Any, Any], runs: np.ndarray) -> KernelWork:
    """Count the operations of matrix products and of the vector unit.

    Args:
        jaxpr: A kernel, or a function in it.
        known: Values of its variables, one for each point of the grid; more are added here.
        runs: How often this function runs at each point of the grid.
    """
    total = KernelWork()
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
            total = total.plus(KernelWork(flops=_product_flops(operation) * runs.sum()))
        elif name == "get" and values[0] is not None and len(values) == 1 + values[0].ndim:
            # One element of an array, at another index for each point of the grid.
            if all_known:
                array, *indices = values
                known[result] = np.asarray(array)[tuple(indices)]
        elif name == "cond":
            total = total.plus(_branch_work(operation, values, runs))
        elif functions:
            for function in functions:
                total = total.plus(_function_work(operation, function, values, known, runs))
        elif all_known and not any(variable.aval.shape for variable in operation.outvars):
            # Arithmetic on indices, done for the whole grid at once.
            arrays = np.broadcast_arrays(*values)
            known[result] = np.asarray(operation.primitive.bind(*arrays, **operation.params))
        else:
            total = total.plus(KernelWork(vector=_vector_operations(operation) * runs.sum()))
    return total


def _product_flops(operation: Any) -> float:
    (contracted, _), _ = operation.params["dimension_numbers"]
    shape = operation.invars[0].aval.shape
    depth = math.prod(shape[dimension] for dimension in contracted)
    return 2.0 * math.prod(operation.outvars[0].aval.shape) * depth


def _vector_operations(operation: Any) -> float:
    """Count one operation for each value that is computed, or that a reduction reads."""
    if operation.primitive.name in _NO_VECTOR_WORK:
        return 0.0
    sizes = [0.0]
    for variable in (*operation.invars, *operation.outvars):
        sizes.append(float(math.prod(getattr(variable.aval, "shape", ()))))
    largest = max(sizes)
    return largest if largest >= _VECTOR_SIZE else 0.0


def _branch_work(operation: Any, values: list[Any], runs: np.ndarray) -> KernelWork:
    """Count a ``cond``: each branch where it is taken, the largest where that isn't known."""
    choice, *arguments = values
    branches = []
    for i, branch in enumerate(operation.params["branches"]):
        branch_runs = runs if choice is None else runs * (choice == i)
        branch_values = dict(zip(branch.jaxpr.invars, arguments, strict=True))
        branches.append(_work(branch.jaxpr, branch_values, branch_runs))
    if choice is None:
        return max(branches)
    total = KernelWork()
    for branch in branches:
        total = total.plus(branch)
    return total


def _function_work(
    operation: Any, function: Any, values: list[Any], known: dict[Any, Any], runs: np.ndarray
) -> KernelWork:
    """Count a function in an operation, a loop's as often as it runs; adds to what is known."""
    rounds = operation.params.get("length", 1)
    if operation.primitive.name == "while":
        rounds = math.nan
    # A scan hands on slices of its arguments, which aren't known here.
    is_call = operation.primitive.name != "scan" and len(function.invars) == len(values)
    inner_known = {}
    if is_call:
        inner_known = dict(zip(function.invars, values, strict=True))
    work = _work(function, inner_known, runs)
    if is_call:
        results = [_value(variable, inner_known) for variable in function.outvars]
        known.update(zip(operation.outvars, results, strict=False))
    # Without products in it, a loop of unknown length counts nothing.
    if math.isnan(rounds) and not work.flops:
        return KernelWork()
    return work.times(rounds)
