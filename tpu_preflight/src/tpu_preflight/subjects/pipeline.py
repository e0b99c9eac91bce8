"""What a ``tf.data`` pipeline will send to a TPU, and what is in its way.

Looks into the pipeline's own functions, and iterates over a sample of it.
"""

import collections
import dataclasses
import math
import pathlib
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_preflight.errors import PreflightError
from tpu_preflight.program import place_of
from tpu_preflight.subjects.operations import OPERATIONS, calls_of

MOST_NAMES = 1000
BATCHES_KEPT = 3  # to run the step on
# Classes and operations have versions of their own: a TextLineDatasetV2 runs a TextLineDataset.
VERSION = re.compile(r"V\d+$")
READERS = frozenset(VERSION.sub("", name).lower() for name in OPERATIONS["readers"])
SECONDS = 20.0  # no further batch of the dataset is asked for after so long

Batch = tuple[tf.Tensor, ...]
Shapes = tuple[tuple[int, ...], ...]
# As an element of the data has them: sizes that are open in a ragged or sparse tensor are None.
OuterShapes = tuple[tuple[int | None, ...], ...]


@dataclasses.dataclass(frozen=True)
class Sample:
    """The first batches of a pipeline: how often each set of shapes came, and how it went on."""

    shapes: dict[Shapes, int]
    batches: tuple[Batch, ...]  # the first few of the first set of shapes, flat
    ended: bool  # whether the pipeline ended within the sample
    endless: bool
    error: str = ""
    # For each set of shapes those of the whole tensors: a ragged one consists of several.
    outer_shapes: dict[Shapes, OuterShapes] = dataclasses.field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many batches were read."""
        return sum(self.shapes.values())

    @property
    def largest(self) -> Shapes:
        """The shapes with the most values."""

        def values(shapes: Shapes) -> int:
            return sum(math.prod(shape) for shape in shapes)

        return max(self.shapes, key=values)

    @property
    def outer(self) -> list[OuterShapes]:
        """The sets of shapes of whole tensors, each once."""
        return list(dict.fromkeys(self.outer_shapes[shapes] for shapes in self.shapes))

    @property
    def largest_outer(self) -> OuterShapes:
        """The shapes of whole tensors in the batch with the most values."""
        return self.outer_shapes[self.largest]


def _stages(dataset: tf.data.Dataset) -> Iterator[tuple[tf.data.Dataset, list[tf.Graph]]]:
    """List the stages of a pipeline, each with the graphs of its functions."""
    queue = [dataset]
    visited = set()
    while queue:
        stage = queue.pop()
        if id(stage) in visited:
            continue
        visited.add(id(stage))
        yield stage, [function.function.graph for function in stage._functions()]
        queue += stage._inputs()
        # A reader of lines keeps its names as a dataset of its own, which is no input.
        if isinstance(_names(stage), tf.data.Dataset):
            queue.append(_names(stage))


def _names(stage: tf.data.Dataset) -> Any:
    """Give what a reader of files was given: a dataset or a tensor of names; None of others."""
    return getattr(stage, "_filenames", None)


def python_in(dataset: tf.data.Dataset) -> list[tuple[str, str]]:
    """Name each call of Python in a pipeline, with the learner's line if there is one."""
    calls = []
    for _, graphs in _stages(dataset):
        for graph in graphs:
            # Dataset.from_generator calls Python by an operation of its own.
            kind = "a generator"
            operations = calls_of(graph, frozenset({"GeneratorDataset"}))
            if not operations:
                kind = "a Python function"
                operations = calls_of(graph, OPERATIONS["python"])
            calls += [(kind, place_of(operation)) for operation in operations]
    return calls


def files_of(dataset: tf.data.Dataset) -> list[str] | None:
    """List the files that a pipeline reads: on this disk, or with ``://`` in their names.

    Names are found where they are strings in memory. None where no file is opened.
    """
    names: list[str] = []
    reads_files = False
    for stage, graphs in _stages(dataset):
        if _is_reader(stage):
            reads_files = True
            names += _strings(_names(stage))
        spec = stage.element_spec
        # File names that are computed are not looked for: that would run the pipeline.
        is_in_memory = type(stage).__name__ in ("_TensorSliceDataset", "_TensorDataset")
        if is_in_memory and isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string:
            strings = stage.take(max(MOST_NAMES - len(names), 0)).as_numpy_iterator()
            names += [string.decode("utf-8", "replace") for string in strings]
        if any(calls_of(graph, OPERATIONS["readers"]) for graph in graphs):
            reads_files = True
    if not reads_files:
        return None
    files = []
    for name in names:
        name = name.removeprefix("file://")
        if "://" in name or pathlib.Path(name).exists():
            files.append(name)
    return files


def _is_reader(stage: tf.data.Dataset) -> bool:
    """Say whether a stage opens files, by its class, such as ``TextLineDatasetV2``."""
    name = type(stage).__name__.strip("_")
    return VERSION.sub("", name).lower() in READERS


def _strings(names: Any) -> list[str]:
    """Give the strings of a tensor in memory; none of anything else."""
    if not isinstance(names, tf.Tensor) or names.dtype != tf.string:
        return []
    flat = np.ravel(names.numpy())[:MOST_NAMES]
    return [name.decode("utf-8", "replace") for name in flat]


def sample(dataset: tf.data.Dataset, count: int, seconds: float = SECONDS) -> Sample:
    """Iterate over the first ``count`` batches, as training would, for so many ``seconds``.

    A batch that never comes can't be given up from here; run the preflight from the command line
    then, it has a time limit.

    Raises:
        PreflightError: It gives no batch, and no error either.
    """
    shapes: collections.Counter[Shapes] = collections.Counter()
    outer_shapes: dict[Shapes, OuterShapes] = {}
    batches: list[Batch] = []
    ended = False
    cardinality = tf.data.UNKNOWN_CARDINALITY
    error_text = ""
    try:
        cardinality = int(dataset.cardinality())
        start = time.monotonic()
        for batch in dataset.take(count):
            tensors = tuple(tf.nest.flatten(batch, expand_composites=True))
            signature = tuple(tuple(tensor.shape) for tensor in tensors)
            shapes[signature] += 1
            if signature not in outer_shapes:
                outer_shapes[signature] = tuple(map(_outer_shape, tf.nest.flatten(batch)))
            if len(batches) < BATCHES_KEPT and signature == next(iter(shapes)):
                batches.append(tensors)
            if time.monotonic() - start > seconds:
                break
        else:
            ended = shapes.total() < count
    except Exception as error:  # whatever the learner's pipeline raises is the finding
        error_text = f"{type(error).__name__}: {error}"
    if not shapes and not error_text:
        raise PreflightError(
            "The dataset gave no batch.",
            "It is empty, or all its rows are fewer than one batch with drop_remainder=True.",
            "Look at it: next(iter(dataset)).",
        )
    return Sample(
        shapes=dict(shapes),
        batches=tuple(batches),
        # A dataset may know its length without having been read to the end.
        ended=ended or 0 <= cardinality <= shapes.total(),
        endless=cardinality == tf.data.INFINITE_CARDINALITY,
        error=error_text,
        outer_shapes=outer_shapes,
    )


def _outer_shape(tensor: tf.Tensor | tf.RaggedTensor | tf.SparseTensor) -> tuple[int | None, ...]:
    """Give a tensor's shape; a ragged one's parts have others."""
    return tuple(tensor.shape)
