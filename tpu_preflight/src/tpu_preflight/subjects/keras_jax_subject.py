"""A Keras 3 model on JAX. Imports TensorFlow only where a dataset comes with the model."""

import contextlib
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tpu_preflight.errors import PreflightError
from tpu_preflight.program import NotCompilable, Program, jax_export
from tpu_preflight.program.job import Job
from tpu_preflight.program.models import is_py_dataset
from tpu_preflight.subjects.jax_subject import JaxSubject, dtype_in_jax, job_of
from tpu_preflight.subjects.subject import Target


class KerasJaxSubject(JaxSubject):
    """A Keras 3 model's train step, as ``fit`` compiles it, with a batch or a dataset.

    Args:
        model: The model, compiled with an optimizer and a loss.
        data: A ``tf.data.Dataset`` of global batches, or one batch, of arrays or
            ``jax.ShapeDtypeStruct``s, as ``fit`` takes it: ``(x, y)``. The target's devices divide
            it, as ``keras.distribution.DataParallel`` does.

    Raises:
        PreflightError: The model is not compiled, or there are no data.
    """

    kind = "train step"
    keras = "Keras 3 on jax"
    is_traced_by_structure = False

    def __init__(self, model: Any, data: Any) -> None:
        import jax

        if data is None:
            raise _not_trainable("There are no data.")
        if getattr(model, "optimizer", None) is None:
            raise _not_trainable("The model has no optimizer.")
        batch = data[0] if is_py_dataset(data) else data
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow and isinstance(data, tensorflow.data.Dataset):
            batch = next(data.as_numpy_iterator())
            self.dataset = data
            self.data_form = "tensors"
            self.structure = tensorflow.nest.map_structure(_spec_in_jax, data.element_spec)
        self.model = model
        self._purges = True
        self._is_built = True
        try:
            model._symbolic_build(data_batch=batch)  # as fit does: model, optimizer and metrics
        except Exception:  # fit would raise it: the finding of the trace
            self._is_built = False

            def train_step(state: Any, batch: Any) -> Any:
                try:
                    model._symbolic_build(data_batch=batch)
                except RuntimeError as error:
                    # Keras only says that it can't build the model. Why, and where, is the first.
                    while error.__context__ is not None:
                        error = error.__context__
                    raise error from None

            super().__init__(jax.jit(train_step), ((), batch))
            self.name = model.name
            return
        parts = (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
        # The order in which Keras' own ``train_step`` takes its state.
        state = tuple([variable.value for variable in part] for part in parts)

        def train_step(state: Any, batch: Any) -> Any:
            if not self._purges:
                return model.train_step(state, batch)
            with _purged(itertools.chain(*parts)):
                return model.train_step(state, batch)

        super().__init__(jax.jit(train_step, donate_argnums=0), (state, batch))
        self.name = model.name

    def export(self, targets: Sequence[Target]) -> list[Job]:
        """Divide the batch over the devices, so that gradients are added up across them."""
        rows = self._rows
        jobs = []
        for target in targets:
            # A batch that can't be divided is compiled whole, for one device.
            share = None
            arguments = self.arguments
            if rows is not None and rows % target.replicas == 0:
                share = rows // target.replicas
                if target.replicas > 1:
                    arguments = self._sharded(target.replicas)
            self.exported = self._export(arguments)
            jobs.append(job_of(target, share, arguments, self.exported))
        return jobs

    def _export(self, arguments: tuple[Any, ...]) -> jax_export.Exported:
        try:
            return super()._export(arguments)
        except NotCompilable as error:
            refusal = error
        if not self._is_built:
            refusal.what = _as_of_fit(refusal.what)
            raise refusal from None
        # Does it need values that ``fit`` takes out of the variables?
        self._purges = False
        try:
            super()._export(arguments)
        except NotCompilable:
            raise refusal from None
        finally:
            self._purges = True
        refusal.what = _as_of_fit(refusal.what)
        refusal.why = (
            "It reads a variable from the model; fit takes the values out of the model's variables "
            f"and hands them over as the step's state ({refusal.why})"
        )
        refusal.fix = (
            "Take the values from the state: self.stateless_call, "
            "self.optimizer.stateless_apply, or keras.StatelessScope(state_mapping=...)."
        )
        raise refusal from None

    @property
    def _rows(self) -> int | None:
        """The rows of the batch; None where its arrays have no common first size."""
        import jax

        _, batch = self.arguments
        sizes = {array.shape[0] for array in jax.tree.leaves(batch) if array.shape}
        return sizes.pop() if len(sizes) == 1 else None

    def _sharded(self, devices: int) -> tuple[Any, ...]:
        """Describe the state on each device, and the batch divided over them."""
        import jax
        from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

        # Devices that need not be there.
        mesh = AbstractMesh((devices,), ("replica",))
        replicated = NamedSharding(mesh, PartitionSpec())
        divided = NamedSharding(mesh, PartitionSpec("replica"))

        def described(part: Any, sharding: NamedSharding) -> Any:
            return jax.tree.map(
                lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding),
                part,
            )

        state, batch = self.arguments
        return described(state, replicated), described(batch, divided)

    def export_rows(self, job: Job, rows: int) -> Program:
        """Export a job's program for another number of rows, on one device."""
        import jax

        def resized(array: Any) -> Any:
            # Of the arrays of a batch, those that have its rows.
            shape = array.shape
            if shape and shape[0] == self._rows:
                shape = (rows, *shape[1:])
            return jax.ShapeDtypeStruct(shape, array.dtype)

        state, batch = self.arguments
        return self._export((state, jax.tree.map(resized, batch))).program


@contextlib.contextmanager
def _purged(variables: Iterable[Any]) -> Iterator[None]:
    """Take the values out of variables, as ``fit`` does for the time of its steps."""
    values = [(variable, variable._value) for variable in variables]
    for variable, _ in values:
        variable._value = None
    try:
        yield
    finally:
        for variable, value in values:
            variable._value = value


def _as_of_fit(what: str) -> str:
    return what.replace("JAX can't trace train_step", "fit would raise", 1)


def _not_trainable(what: str) -> PreflightError:
    return PreflightError(
        what,
        "What is checked is one step of training, on one batch.",
        "Call model.compile(...), then preflight(model, (x, y)), or give a dataset.",
    )


def _spec_in_jax(spec: Any) -> Any:
    """Give a tensor the type that JAX makes of it."""
    import tensorflow as tf

    if not isinstance(spec, tf.TensorSpec) or spec.dtype.name not in ("float64", "int64"):
        return spec
    return tf.TensorSpec(spec.shape, dtype_in_jax(spec.dtype.as_numpy_dtype))
