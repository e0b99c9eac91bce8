"""JAX: a function, or what ``jax.jit`` made of one, with its arguments. Imports no TensorFlow."""

import contextlib
import math
import sys
from typing import Any

import numpy as np

from tpu_preflight.checks import differences
from tpu_preflight.errors import PreflightError
from tpu_preflight.program import NotCompilable, Program, from_jax
from tpu_preflight.program.job import Job
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects.kind import Kind, Say, Slices

MOST_ROUNDS = 100  # of a loop that is run without being compiled
MOST_VALUES = 3_000_000  # of all arguments: a step without being compiled takes long with more
LARGE_CONSTANT = 1_000_000  # bytes of arrays that are part of the program


class OfJax(Kind):
    """A function of JAX with its arguments.

    Args:
        given: A function, or what ``jax.jit`` made of one.
        data: Its arguments as a tuple: arrays or ``jax.ShapeDtypeStruct``s, or nests of them.
            A single one need not be in a tuple.

    Raises:
        PreflightError: There are no arguments, or it is no function.
    """

    is_jax = True
    kind = "function"  # as a report calls what it judges

    def __init__(self, given: Any, data: Any) -> None:
        if data is None or not callable(given):
            raise PreflightError(
                "There are no arguments, so there are no shapes to compile for."
                if callable(given)
                else f"A value of type {type(given).__name__} can't be checked.",
                "XLA compiles a function of JAX for one set of shapes at a time.",
                "Write preflight(step, (state, batch)), with arrays or jax.ShapeDtypeStructs.",
            )
        self._function = given
        self._arguments = data if isinstance(data, tuple) else (data,)
        self._exported: from_jax.Exported | None = None
        self.name = getattr(given, "__name__", type(given).__name__)

    def data(self, batches: int, slices: Slices, node: bool, say: Say) -> list[Item]:
        """Look at the arguments' types: no pipeline comes with a function of JAX."""
        import jax

        paths, _ = jax.tree.flatten_with_path(self._arguments)
        leaves = [(jax.tree_util.keystr(p[1:]) or str(p[0]), x) for p, x in paths]
        as_taken = jax.dtypes.canonicalize_dtype  # 32 bits for NumPy's 64, unless jax_enable_x64
        types = [(name, as_taken(x.dtype)) for name, x in leaves if hasattr(x, "dtype")]
        wide = [finding(3, "float64", name=name) for name, t in types if t == np.float64]
        dtypes = ", ".join(sorted({str(t) for _, t in types}))
        good = [] if wide else [finding(3, "types", dtypes=dtypes)]
        return [finding(2, "arguments"), finding(3, "arguments"), *wide, *good]

    def jobs(self, slices: Slices) -> list[Job]:
        """Trace, and let JAX write the program: one for each target is the same."""
        self._exported = exported = from_jax.export(self._function, self._arguments)
        program = exported.program
        for target, devices in slices:
            if program.replicas not in (1, devices):
                raise PreflightError(
                    f"The arguments lie over {program.replicas} devices; {target} has {devices}.",
                    "A program with shardings is compiled for all devices of a target together.",
                    f"Make the mesh of {devices}, or take the shardings out to ask about one "
                    "device.",
                )
        find = exported.find
        return [
            Job(target, devices, None, self._arguments, program, find) for target, devices in slices
        ]

    def refused(self, error: NotCompilable) -> list[Item]:
        """Say what JAX refused, on which line."""
        about = {"kind": self.kind, "what": f"{error.what} {error.why}", "fix": error.fix}
        return [finding(1, "refused_by_jax", **about, where=error.source)]

    def rules(self, job: Job) -> list[Item]:
        """Say what JAX took, and what in it is slow on a TPU."""
        exported = self._exported
        alone = job.replicas > 1 and not exported.program.mesh
        part = "; asked about for one device: the arguments carry no shardings" if alone else ""
        items = [finding(1, "traced", kind=self.kind, part=part)]
        if exported.float64:
            operation, source = exported.float64
            items.append(finding(1, "wide_inside", operation=operation, where=source))
        if exported.constants > LARGE_CONSTANT:
            items.append(finding(1, "constants", megabytes=f"{exported.constants / 1e6:.0f}"))
        return items

    def answers(self, job: Job) -> list[Item]:
        """Run it on this CPU, operation by operation and compiled, where values were given."""
        import jax

        leaves = jax.tree.leaves(self._arguments)
        values = sum(math.prod(getattr(x, "shape", ())) for x in leaves)
        exported = self._exported
        if any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves):
            return [finding(4, "no_values")]
        if exported.calls or exported.rounds > MOST_ROUNDS or values > MOST_VALUES:
            reason = "it calls Python" if exported.calls else "it takes long"
            return [finding(4, "not_run", reason=reason)]
        eager, again, compiled = (self._run(compiled=way) for way in (False, False, True))
        if differences.differ(eager, again):
            return [finding(4, "draws_in_python")]
        item = differences.difference("the function on this CPU", eager, compiled)
        return [item or finding(4, "same_values")]

    def _run(self, compiled: bool) -> differences.Results | Exception:
        """Run with copies of the arguments: their memory may be given away."""
        import jax

        arguments = jax.tree.map(
            lambda x: x.copy() if isinstance(x, jax.Array) else x, self._arguments
        )
        try:
            with contextlib.nullcontext() if compiled else jax.disable_jit():
                function = self._function
                if compiled and not from_jax.is_jitted(function):
                    function = jax.jit(function)
                flat, _ = jax.tree.flatten_with_path(function(*arguments))
                return {f"result{jax.tree_util.keystr(p)}": np.asarray(x) for p, x in flat}
        except Exception as error:
            return error

    def way(self) -> list[Item]:
        """Name each call of Python; a strategy's scope has no meaning here."""
        calls = self._exported.calls if self._exported else ()
        items = [finding(5, "calls_python", what=c.what, where=c.source) for c in calls]
        return [*items, finding(5, "no_strategy")]

    def program(self, job: Job, rows: int) -> Program:
        """Not asked for: which argument is the batch is not known, so no job has rows."""
        raise NotImplementedError


def is_of_jax(given: object, data: object) -> bool:
    """Tell a function of JAX, by its type or by its arguments; JAX is not imported for it."""
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    if from_jax.is_jitted(given):
        return True
    leaves = jax.tree.leaves(data)
    if any(isinstance(x, jax.Array | jax.ShapeDtypeStruct) for x in leaves):
        return True
    return "tensorflow" not in sys.modules and all(isinstance(x, np.ndarray) for x in leaves)
