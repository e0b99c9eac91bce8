"""JAX: a function, or what ``jax.jit`` made of one, with its arguments. Imports no TensorFlow."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpu_preflight.errors import PreflightError
from tpu_preflight.program import Program, jax_export
from tpu_preflight.program.job import Job
from tpu_preflight.subjects.results import Results
from tpu_preflight.subjects.subject import Subject, Target


class JaxSubject(Subject):
    """A function of JAX with its arguments.

    Args:
        function: A function, or what ``jax.jit`` made of one.
        data: Its arguments as a tuple: arrays or ``jax.ShapeDtypeStruct``s, or nests of them.
            A single one need not be in a tuple.

    Attributes:
        arguments: The arguments as a tuple; of modules of Flax NNX their state.
        exported: The program and what was seen in it, once `export` wrote it.

    Raises:
        PreflightError: There are no arguments, or it is no function.
    """

    library = "jax"
    data_form = "arrays"

    def __init__(self, function: Any, data: Any) -> None:
        if not callable(function):
            raise _no_arguments(f"A value of type {type(function).__name__} can't be checked.")
        if data is None:
            raise _no_arguments("There are no arguments, so there are no shapes to compile for.")
        arguments = data if isinstance(data, tuple) else (data,)
        self._function, self.arguments = jax_export.without_modules(function, arguments)
        self.exported: jax_export.Exported | None = None
        self.name = getattr(function, "__name__", type(function).__name__)

    @property
    def python_functions(self) -> tuple[Any, ...]:
        """The function; of a Keras model also its own."""
        return (self._function, *super().python_functions)

    def export(self, targets: Sequence[Target]) -> list[Job]:
        """Trace, and let JAX write the program: one for each target is the same."""
        self.exported = self._export(self.arguments)
        jobs = []
        for target in targets:
            jobs.append(job_of(target, None, self.arguments, self.exported))
        return jobs

    def _export(self, arguments: tuple[Any, ...]) -> jax_export.Exported:
        return jax_export.export(self._function, arguments)

    def export_rows(self, job: Job, rows: int) -> Program:
        """Not to be called: which argument is the batch is not known, so a job has no rows."""
        raise NotImplementedError

    def run(self, *, compiled: bool | None, growth: float = 0.0) -> Results:
        """Run it on this CPU with copies of the arguments: their memory may be given away.

        Args:
            compiled: Whether JAX compiles it; None to compile only what is inside, as loops are.
            growth: By which share floating-point arguments are made larger.
        """
        import jax

        def copied(leaf: Any) -> Any:
            # Of bfloat16 NumPy doesn't know that it is a floating-point number.
            if str(getattr(leaf, "dtype", "")).startswith(("float", "bfloat")):
                return leaf * (1 + growth)
            if isinstance(leaf, jax.Array):
                return leaf.copy()
            return leaf

        arguments = jax.tree.map(copied, self.arguments)
        function = self._function
        # A function that is compiled already keeps its static and donated arguments.
        if compiled and not jax_export.is_jitted(function):
            function = jax.jit(function)
        elif compiled is None:
            function = getattr(function, "__wrapped__", function)
        try:
            with jax.disable_jit(compiled is False):
                leaves, _ = jax.tree.flatten_with_path(function(*arguments))
                results = {}
                for path, leaf in leaves:
                    # A module of Equinox also holds functions, such as its activation.
                    if hasattr(leaf, "dtype") or isinstance(leaf, int | float | complex):
                        results[f"result{jax.tree_util.keystr(path)}"] = _as_numpy(leaf)
                return results
        except Exception as error:
            return error


def _no_arguments(what: str) -> PreflightError:
    return PreflightError(
        what,
        "XLA compiles a JAX function for one set of shapes at a time.",
        "Write preflight(step, (state, batch)), with arrays or jax.ShapeDtypeStructs.",
    )


def job_of(
    target: Target, rows: int | None, arguments: tuple[Any, ...], exported: jax_export.Exported
) -> Job:
    """Make a job of what was exported for a target; ``rows`` on each device, where it is known."""
    return Job(
        target=target.name,
        replicas=target.replicas,
        rows=rows,
        specs=arguments,
        program=exported.program,
        find=exported.find,
    )


def _as_numpy(value: Any) -> np.ndarray:
    """Read a result; of a typed key of ``jax.random`` its bits."""
    import jax

    if jax.dtypes.issubdtype(getattr(value, "dtype", float), jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)


def dtype_in_jax(dtype: Any) -> Any:
    """Give the type that JAX makes of one: 32 bits for 64, unless jax_enable_x64; a key's own."""
    from jax import dtypes

    if dtypes.issubdtype(dtype, dtypes.extended):
        return dtype
    return dtypes.canonicalize_dtype(dtype)


def is_jax(function: object, data: object) -> bool:
    """Tell a function of JAX, by its type or by its arguments; JAX is not imported for it."""
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    if jax_export.is_jitted(function):
        return True
    leaves = jax.tree.leaves(data)
    if any(isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) for leaf in leaves):
        return True
    # Arrays of NumPy are TensorFlow's as well.
    has_only_numpy = all(isinstance(leaf, np.ndarray) for leaf in leaves)
    return "tensorflow" not in sys.modules and has_only_numpy
