"""JAX: a function, or what ``jax.jit`` made of one, with its arguments; a Keras model on JAX.

Imports TensorFlow only where a ``tf.data.Dataset`` comes with the model.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tpu_preflight.checks import differences
from tpu_preflight.errors import PreflightError
from tpu_preflight.program import NotCompilable, Program, jax_export
from tpu_preflight.program.job import Job
from tpu_preflight.report import Item, finding

MOST_ROUNDS = 100  # of a loop that is run without being compiled
MOST_VALUES = 3_000_000  # of all arguments: a step without being compiled takes long with more
LARGE_CONSTANT = 1_000_000  # bytes of arrays that are part of the program


class OfJax:
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
    model: Any = None  # of Keras
    program: Any = None  # not asked for: which argument is the batch is not known

    def __init__(self, given: Any, data: Any) -> None:
        if data is None or not callable(given):
            raise PreflightError(
                "There are no arguments, so there are no shapes to compile for."
                if callable(given)
                else f"A value of type {type(given).__name__} can't be checked.",
                "XLA compiles a function of JAX for one set of shapes at a time.",
                "Write preflight(step, (state, batch)), with arrays or jax.ShapeDtypeStructs.",
            )
        arguments = data if isinstance(data, tuple) else (data,)
        self._function, self._arguments = jax_export.without_modules(given, arguments)
        self._exported: jax_export.Exported | None = None
        self.name = getattr(given, "__name__", type(given).__name__)

    def check_data(
        self, batches: int, slices: Sequence[tuple[str, int]], node: bool, say: Callable
    ) -> tuple[list[Item], bool]:
        """Look at the arguments' types: no pipeline comes with a function of JAX."""
        import jax

        paths, _ = jax.tree.flatten_with_path(self._arguments)
        leaves = [(jax.tree_util.keystr(p[1:]) or str(p[0]), x) for p, x in paths]
        types = [(name, _as_taken(x.dtype)) for name, x in leaves if hasattr(x, "dtype")]
        found = [finding(3, "float64", name=name) for name, t in types if t == np.float64]
        dtypes = ", ".join(sorted({"random keys" if "<" in str(t) else str(t) for _, t in types}))
        found = found or [finding(3, "types", dtypes=dtypes)]
        return [finding(2, "arguments"), finding(3, "arguments"), *found], True

    def jobs(self, slices: Sequence[tuple[str, int]]) -> list[Job]:
        """Trace, and let JAX write the program: one for each target is the same."""
        self._exported = of = jax_export.export(self._function, self._arguments)
        return [Job(*target, None, self._arguments, of.program, of.find) for target in slices]

    def check_refused(self, error: NotCompilable) -> list[Item]:
        """Say what JAX refused, on which line."""
        about = {"kind": self.kind, "what": f"{error.what} {error.why}", "fix": error.fix}
        key = "no_backend" if "initialize backend" in error.why else "refused_by_jax"
        refused = finding(1, key, **about, where=error.source)
        return [refused, finding(5, "no_strategy")]

    def check_step(self, job: Job, say: Callable[[str], None]) -> list[Item]:
        """Say what JAX took, what in it is slow on a TPU, and whether it gives the same compiled.

        Each call of Python is named; a strategy's scope has no meaning here.
        """
        exported = self._exported
        alone = job.replicas > 1 and not exported.program.mesh
        part = "; asked about for one device: the arguments carry no shardings" if alone else ""
        items = [finding(1, "traced", kind=self.kind, part=part)]
        if exported.float64:
            operation, source = exported.float64
            items.append(finding(1, "wide_inside", operation=operation, where=source))
        if exported.constants > LARGE_CONSTANT:
            items.append(finding(1, "constants", megabytes=f"{exported.constants / 1e6:.0f}"))
        say("comparing eager and compiled results")
        items.append(self._answers())
        items += [finding(5, "calls_python", what=w, where=at) for w, at in exported.calls]
        return [*items, finding(5, "no_strategy")]

    def _answers(self) -> Item:
        """Run it on this CPU, operation by operation and compiled, where values were given."""
        import jax

        leaves = jax.tree.leaves(self._arguments)
        exported, values = self._exported, sum(math.prod(getattr(x, "shape", ())) for x in leaves)
        if any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves):
            return finding(4, "no_values")
        if exported.calls or exported.rounds > MOST_ROUNDS or values > MOST_VALUES:
            return finding(
                4, "not_run", reason="it calls Python" if exported.calls else "it takes long"
            )
        eager, again, compiled = (self._run(compiled=way) for way in (False, False, True))
        lowest = "bfloat16" if b"bf16" in exported.program.hlo else "float32"
        step, relative = "the function on this CPU", differences.RELATIVE[lowest]
        if differences.differ(eager, again, relative):
            return finding(4, "draws_in_python")
        # Flax counts the rounds of a loop that runs in Python, and draws other numbers in each.
        item = differences.difference(step, eager, compiled, relative) and differences.difference(
            step, self._run(compiled=None), compiled, relative
        )
        # A gradient of zero is rounding alone, and Adam divides it by its own size.
        names = differences.differ(eager, compiled, relative) if item else []
        if names and {*names} <= {
            *differences.differ(compiled, self._run(compiled=True, nudge=relative / 100), relative)
        }:
            return finding(4, "rounding", names=", ".join(names[:2]))
        return item or finding(4, "same_values")

    def _run(self, compiled: bool | None, nudge: float = 0.0) -> differences.Results:
        """Run with copies of the arguments: their memory may be given away.

        ``compiled`` is whether JAX compiles it; None to compile only what is inside, as loops are.
        Floating-point arguments are larger by the share ``nudge``.
        """
        import jax

        arguments = jax.tree.map(
            lambda x: (
                x * (1 + nudge)
                if str(getattr(x, "dtype", "")).startswith(("float", "bfloat"))
                else x.copy()
                if isinstance(x, jax.Array)
                else x
            ),
            self._arguments,
        )
        given = self._function
        jitted = given if jax_export.is_jitted(given) else jax.jit(given)
        ways = {None: getattr(given, "__wrapped__", given), True: jitted, False: given}
        try:
            with jax.disable_jit(compiled is False):
                flat, _ = jax.tree.flatten_with_path(ways[compiled](*arguments))
                return {f"result{jax.tree_util.keystr(p)}": _array(x) for p, x in flat}
        except Exception as error:
            return error


class OfKerasOnJax(OfJax):
    """A Keras 3 model's train step, as ``fit`` compiles it, with a batch or a dataset.

    Args:
        given: The model, compiled with an optimizer and a loss.
        data: A ``tf.data.Dataset`` of global batches, or one batch, of arrays or
            ``jax.ShapeDtypeStruct``s, as ``fit`` takes it: ``(x, y)``. The target's devices divide
            it, as ``keras.distribution.DataParallel`` does.

    Raises:
        PreflightError: The model is not compiled, or there are no data.
    """

    kind = "train step"

    def __init__(self, given: Any, data: Any) -> None:
        import jax

        if data is None or getattr(given, "optimizer", None) is None:
            raise PreflightError(
                "There are no data." if data is None else "The model has no optimizer.",
                "What is checked is one step of training, on one batch.",
                "Call model.compile(...), and hand in preflight(model, (x, y)) or a dataset.",
            )
        tf = sys.modules.get("tensorflow")
        self._dataset = data if tf and isinstance(data, tf.data.Dataset) else None
        batch = next(data.as_numpy_iterator()) if self._dataset is not None else data
        given._symbolic_build(data_batch=batch)  # as fit does: model, optimizer and metrics
        parts = (
            given.trainable_variables,
            given.non_trainable_variables,
            given.optimizer.variables,
            given.metrics_variables,
        )
        state = tuple([variable.value for variable in part] for part in parts)

        def train_step(state: Any, batch: Any) -> Any:
            return given.train_step(state, batch)

        super().__init__(jax.jit(train_step, donate_argnums=0), (state, batch))
        self.name, self.model = given.name, given

    def check_data(
        self, batches: int, slices: Sequence[tuple[str, int]], node: bool, say: Callable
    ) -> tuple[list[Item], bool]:
        """Look at the dataset as for TensorFlow, where there is one."""
        if self._dataset is None:
            return super().check_data(batches, slices, node, say)
        import tensorflow as tf

        from tpu_preflight.checks import dataset

        given = self._dataset
        structure = tf.nest.map_structure(_as_jax_takes_it, given.element_spec)
        found, sample = dataset.check(given, structure, batches, slices, node, say, promised=False)
        return found, bool(sample.shapes)

    def jobs(self, slices: Sequence[tuple[str, int]]) -> list[Job]:
        """Divide the batch over the devices, so that gradients are added up across them."""
        jobs = []
        for target, devices in slices:
            even = self._rows is not None and self._rows % devices == 0
            arguments = self._over(devices) if even and devices > 1 else self._arguments
            share = self._rows // devices if even else None
            self._exported = of = jax_export.export(self._function, arguments)
            jobs.append(Job(target, devices, share, arguments, of.program, of.find))
        return jobs

    @property
    def _rows(self) -> int | None:
        """The rows of the batch; None where its arrays have no common first size."""
        import jax

        sizes = {x.shape[0] for x in jax.tree.leaves(self._arguments[1]) if x.shape}
        return sizes.pop() if len(sizes) == 1 else None

    def _over(self, devices: int) -> tuple[Any, ...]:
        """Describe the state on each device, and the batch divided over them."""
        import jax
        from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

        mesh = AbstractMesh((devices,), ("replica",))

        def placed(part: Any, place: PartitionSpec) -> Any:
            sharding = NamedSharding(mesh, place)
            return jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), part
            )

        state, batch = self._arguments
        return placed(state, PartitionSpec()), placed(batch, PartitionSpec("replica"))

    def program(self, job: Job, rows: int) -> Program:
        """Export for another number of rows, on one device."""
        import jax

        def resized(x: Any) -> Any:
            shape = (rows, *x.shape[1:]) if x.shape and x.shape[0] == self._rows else x.shape
            return jax.ShapeDtypeStruct(shape, x.dtype)

        state, batch = self._arguments
        return jax_export.export(self._function, (state, jax.tree.map(resized, batch))).program


def _as_taken(dtype: Any) -> Any:
    """Give the type that JAX makes of one: 32 bits for 64, unless jax_enable_x64; a key's own."""
    from jax import dtypes

    is_key = dtypes.issubdtype(dtype, dtypes.extended)
    return dtype if is_key else dtypes.canonicalize_dtype(dtype)


def _array(value: Any) -> np.ndarray:
    """Read a result; of a typed key of ``jax.random`` its bits."""
    import jax

    is_key = jax.dtypes.issubdtype(getattr(value, "dtype", float), jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(value) if is_key else value)


def _as_jax_takes_it(spec: Any) -> Any:
    """Give a tensor the type that JAX makes of it."""
    import tensorflow as tf

    if not isinstance(spec, tf.TensorSpec) or spec.dtype.name not in ("float64", "int64"):
        return spec
    return tf.TensorSpec(spec.shape, _as_taken(spec.dtype.as_numpy_dtype))


def is_of_jax(given: object, data: object) -> bool:
    """Tell a function of JAX, by its type or by its arguments; JAX is not imported for it."""
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    if jax_export.is_jitted(given):
        return True
    leaves = jax.tree.leaves(data)
    if any(isinstance(x, jax.Array | jax.ShapeDtypeStruct) for x in leaves):
        return True
    return "tensorflow" not in sys.modules and all(isinstance(x, np.ndarray) for x in leaves)
