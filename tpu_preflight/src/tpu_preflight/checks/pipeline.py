"""What a ``tf.data`` pipeline will send to a TPU, and what stands in its way.

Looks into the pipeline's own functions, and iterates over a sample of it.
"""

import collections
import dataclasses
import math
import pathlib
import time
import tomllib
from collections.abc import Iterator

import tensorflow as tf

from tpu_preflight.errors import PreflightError
from tpu_preflight.program import place_of

_FILE = pathlib.Path(__file__).with_name("operations.toml")
OPERATIONS = {what: set(names) for what, names in tomllib.loads(_FILE.read_text("utf-8")).items()}

MOST_NAMES = 1000
KEPT = 3  # batches to run
SECONDS = 20.0  # no further batch of the dataset is asked for after so long

Batch = tuple[tf.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class Sample:
    """The first batches of a pipeline: how often each set of shapes came, and how it went on."""

    shapes: dict[tuple[tuple[int, ...], ...], int]
    batches: tuple[Batch, ...]  # the first few of the first set of shapes, flat
    ended: bool  # whether the pipeline ended within the sample
    endless: bool
    error: str = ""

    @property
    def seen(self) -> int:
        """How many batches were looked at."""
        return sum(self.shapes.values())

    @property
    def largest(self) -> tuple[tuple[int, ...], ...]:
        """The shapes with the most values."""
        return max(self.shapes, key=lambda shapes: sum(map(math.prod, shapes)))


def _stages(dataset: tf.data.Dataset) -> Iterator[tuple[tf.data.Dataset, list[tf.Graph]]]:
    """List the stages of a pipeline, each with the graphs of its functions."""
    queue, known = [dataset], set()
    while queue:
        stage = queue.pop()
        if id(stage) not in known:
            known.add(id(stage))
            yield stage, [function.function.graph for function in stage._functions()]
            queue += stage._inputs()


def python_in(dataset: tf.data.Dataset) -> list[tuple[str, str]]:
    """Name each call of Python in a pipeline, with the learner's line if there is one."""
    found = []
    for _, graphs in _stages(dataset):
        for graph in graphs:
            generators = leading_to(graph, {"GeneratorDataset"})
            what = "a generator" if generators else "a Python function"
            calls = generators or leading_to(graph, OPERATIONS["python"])
            found += [(what, place_of(call)) for call in calls]
    return found


def files_of(dataset: tf.data.Dataset) -> list[str] | None:
    """List the files that a pipeline reads: on this disk, or with ``://`` in their names.

    Names are found where they are strings in memory. None where no file is opened.
    """
    names: list[str] = []
    reads = False
    for stage, graphs in _stages(dataset):
        spec = stage.element_spec
        in_memory = type(stage).__name__ in ("_TensorSliceDataset", "_TensorDataset")
        if in_memory and isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string:
            taken = stage.take(MOST_NAMES - len(names)).as_numpy_iterator()
            names += [name.decode("utf-8", "replace") for name in taken]
        reads = reads or type(stage).__name__.strip("_") in OPERATIONS["readers"]
        reads = reads or any(leading_to(graph, OPERATIONS["readers"]) for graph in graphs)
    if not reads:
        return None
    return [name for name in names if "://" in name or pathlib.Path(name).exists()]


def leading_to(graph: tf.Graph, kinds: set[str]) -> list[tf.Operation]:
    """Find a function's operations of types such as ``{"PyFunc"}``, and the calls of such."""
    library = {f.signature.name: f.node_def for f in graph.as_graph_def().library.function}
    guilty: set[str] = set()
    while more := {
        name
        for name, nodes in library.items()
        if name not in guilty and any(n.op in kinds or _called(n) & guilty for n in nodes)
    }:
        guilty |= more
    return [
        op for op in graph.get_operations() if op.type in kinds or _called(op.node_def) & guilty
    ]


def _called(node: object) -> set[str]:
    """Names of the functions that a node hands its work to."""
    names = {node.op}
    for value in node.attr.values():
        names |= {value.func.name, *(f.name for f in value.list.func)}
    return names


def sample(dataset: tf.data.Dataset, batches: int, seconds: float = SECONDS) -> Sample:
    """Iterate over the first ``batches``, as training would, for so many ``seconds``.

    A batch that never comes can't be given up from here; run the preflight from the command line
    then, it has a time limit.

    Raises:
        PreflightError: It gave no batch, and no error either.
    """
    shapes, kept = collections.Counter(), []
    ended, cardinality, error = False, tf.data.UNKNOWN_CARDINALITY, ""
    try:
        cardinality = int(dataset.cardinality())
        start = time.monotonic()
        for batch in dataset.take(batches):
            flat = tuple(tf.nest.flatten(batch, expand_composites=True))
            signature = tuple(tuple(x.shape) for x in flat)
            shapes[signature] += 1
            if len(kept) < KEPT and signature == next(iter(shapes)):
                kept.append(flat)
            if time.monotonic() - start > seconds:
                break
        else:
            ended = shapes.total() < batches
    except Exception as raised:  # whatever the learner's pipeline raises is the finding
        error = f"{type(raised).__name__}: {raised}"
    if not shapes and not error:
        raise PreflightError(
            "The dataset gave no batch.",
            "It is empty, or all its rows are fewer than one batch with drop_remainder=True.",
            "Look at it: next(iter(dataset)).",
        )
    ended = ended or 0 <= cardinality <= shapes.total()
    endless = cardinality == tf.data.INFINITE_CARDINALITY
    return Sample(dict(shapes), tuple(kept), ended, endless, error)
