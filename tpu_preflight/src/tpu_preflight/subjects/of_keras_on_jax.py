"""Keras 3 on JAX: a model's train step, as ``fit`` compiles it."""

import dataclasses
import sys
from typing import Any

from tpu_preflight.errors import PreflightError
from tpu_preflight.program import Program, from_jax
from tpu_preflight.program.job import Job
from tpu_preflight.report import Item
from tpu_preflight.subjects.kind import Say, Slices
from tpu_preflight.subjects.of_jax import OfJax


class OfKerasOnJax(OfJax):
    """A Keras model on JAX, with a batch or a dataset.

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
        self.name = given.name

    def data(self, batches: int, slices: Slices, node: bool, say: Say) -> list[Item]:
        """Look at the dataset as for TensorFlow, where there is one."""
        if self._dataset is None:
            return super().data(batches, slices, node, say)
        import tensorflow as tf

        from tpu_preflight.checks import dataset, pipeline

        say("reading a sample of the dataset")
        sample = pipeline.sample(self._dataset, batches, 20.0)
        self.can_go_on = bool(sample.shapes)
        structure = tf.nest.map_structure(_as_jax_takes_it, self._dataset.element_spec)
        return dataset.check(self._dataset, structure, sample, slices, node, promised=False)

    def jobs(self, slices: Slices) -> list[Job]:
        """Divide the batch over the devices, so that gradients are added up across them."""
        import jax
        from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

        jobs = []
        for target, devices in slices:
            mesh = AbstractMesh((devices,), ("replica",))
            places = (PartitionSpec(), PartitionSpec("replica"))
            rows = {x.shape[0] for x in jax.tree.leaves(self._arguments[1]) if x.shape}
            if devices == 1 or len(rows) != 1 or next(iter(rows)) % devices:
                known = rows.pop() if devices == len(rows) == 1 else None
                (job,) = super().jobs([(target, devices)])
                jobs.append(dataclasses.replace(job, rows=known))
                continue
            arguments = tuple(
                jax.tree.map(
                    lambda x, place=place, mesh=mesh: jax.ShapeDtypeStruct(
                        x.shape, x.dtype, sharding=NamedSharding(mesh, place)
                    ),
                    part,
                )
                for part, place in zip(self._arguments, places, strict=True)
            )
            self._exported = exported = from_jax.export(self._function, arguments)
            share = rows.pop() // devices
            jobs.append(Job(target, devices, share, arguments, exported.program, exported.find))
        return jobs

    def program(self, job: Job, rows: int) -> Program:
        """Export for another number of rows, on one device."""
        import jax

        state, batch = self._arguments
        old = {x.shape[0] for x in jax.tree.leaves(batch) if x.shape}
        resized = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(
                (rows, *x.shape[1:]) if x.shape and {x.shape[0]} == old else x.shape, x.dtype
            ),
            batch,
        )
        return from_jax.export(self._function, (state, resized)).program


def _as_jax_takes_it(spec: Any) -> Any:
    """Give a tensor the type that JAX makes of it: 32 bits for 64, unless jax_enable_x64."""
    import tensorflow as tf
    from jax.dtypes import canonicalize_dtype

    if not isinstance(spec, tf.TensorSpec) or spec.dtype.name not in ("float64", "int64"):
        return spec
    return tf.TensorSpec(spec.shape, canonicalize_dtype(spec.dtype.as_numpy_dtype))
