"""What a ``tf.data`` pipeline will send to a TPU, and what stands in its way.

Looks into the pipeline's own functions, and iterates over a sample of it.
"""

import collections
import dataclasses
import math
import pathlib
import time
import tomllib

import tensorflow as tf

from tpu_preflight.program import messages

_FILE = pathlib.Path(__file__).with_name("operations.toml")
OPERATIONS = {what: set(names) for what, names in tomllib.loads(_FILE.read_text("utf-8")).items()}

MOST_NAMES = 1000
KEPT = 3  # batches to run
MUCH_MEMORY = 200e6  # bytes of batches; no further one is kept

Batch = tuple[tf.Tensor, ...]

Signature = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Python:
    """A call of Python in the pipeline: what it is, and the learner's line if there is one."""

    what: str
    where: str


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a pipeline is made of; ``names`` are strings in memory that may be names of files."""

    python: tuple[Python, ...]
    reads_files: bool
    names: tuple[str, ...]

    @property
    def local(self) -> tuple[str, ...]:
        """The names of files on this machine; empty where none is read."""
        if not self.reads_files:
            return ()
        return tuple(n for n in self.names if "://" not in n and pathlib.Path(n).exists())

    @property
    def remote(self) -> tuple[str, ...]:
        """The names at gs://."""
        return tuple(n for n in self.names if n.startswith("gs://")) if self.reads_files else ()


@dataclasses.dataclass(frozen=True)
class Sample:
    """The first batches of a pipeline: how often each set of shapes came, and how it went on.

    ``batches`` are a few, flat, that share the first set of shapes. ``length`` is batches
    in an epoch: None where unknown, -1 where it never ends. ``ended`` tells whether the pipeline
    ended within the sample, ``slow`` whether the time limit cut it short.
    """

    shapes: dict[Signature, int]
    batches: tuple[Batch, ...]
    ended: bool
    length: int | None
    error: str = ""
    slow: bool = False

    @property
    def seen(self) -> int:
        """How many batches were looked at."""
        return sum(self.shapes.values())

    @property
    def largest(self) -> Signature:
        """The shapes with the most values."""
        return max(self.shapes, key=lambda shapes: sum(map(math.prod, shapes)))


def parts(dataset: tf.data.Dataset) -> Parts:
    """Look into every stage of a pipeline without running it."""
    python: list[Python] = []
    names: list[str] = []
    reads = False
    queue, known = [dataset], set()
    while queue:
        stage = queue.pop()
        if id(stage) in known:
            continue
        known.add(id(stage))
        if type(stage).__name__.strip("_") in OPERATIONS["readers"]:
            reads = True
        if _holds_names(stage):
            taken = stage.take(MOST_NAMES - len(names)).as_numpy_iterator()
            names += [name.decode("utf-8", "replace") for name in taken]
        for function in stage._functions():
            graph = function.function.graph
            found = leading_to(graph, {"GeneratorDataset"})
            what = "a generator" if found else "a Python function"
            found = found or leading_to(graph, OPERATIONS["python"])
            python += [Python(what, made_at(op)) for op in found]
            reads = reads or bool(leading_to(graph, OPERATIONS["readers"]))
        queue += stage._inputs()
    return Parts(tuple(python), reads, tuple(names))


def _holds_names(stage: tf.data.Dataset) -> bool:
    spec = stage.element_spec
    source = type(stage).__name__ in ("_TensorSliceDataset", "_TensorDataset")
    return source and isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string


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


def made_at(operation: tf.Operation) -> str:
    """Write the learner's line that made an operation; empty where no line is near."""
    frames = ((frame.filename, frame.lineno, frame.name) for frame in operation.traceback)
    return str(messages.nearest_line(frames) or "")


def sample(dataset: tf.data.Dataset, batches: int, seconds: float) -> Sample:
    """Iterate over the first ``batches``, as training would, for so many ``seconds``.

    A batch that never comes can't be given up from here; run the preflight from the command line
    then, it has a time limit.
    """
    shapes, kept = collections.Counter(), []
    ended, slow, length, error = False, False, None, ""
    try:
        cardinality = int(dataset.cardinality())
        length = {-1: -1, -2: None}.get(cardinality, cardinality)
        start = time.monotonic()
        for batch in dataset.take(batches):
            flat = tuple(tf.nest.flatten(batch, expand_composites=True))
            signature = tuple(tuple(x.shape) for x in flat)
            shapes[signature] += 1
            size = sum(x.dtype.size * x.shape.num_elements() for x in flat if x.dtype.size)
            fits = len(kept) < KEPT or (len(kept) + 1) * size < MUCH_MEMORY
            if fits and signature == next(iter(shapes)):
                kept.append(flat)
            if time.monotonic() - start > seconds:
                slow = True
                break
        else:
            ended = sum(shapes.values()) < batches
    except Exception as raised:  # whatever the learner's pipeline raises is the finding
        error = f"{type(raised).__name__}: {raised}"
    if length is not None and 0 <= length <= sum(shapes.values()):
        ended = True
    return Sample(dict(shapes), tuple(kept), ended, length, error, slow)
