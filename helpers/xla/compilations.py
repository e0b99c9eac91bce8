"""How often XLA compiles while a block runs, as TensorFlow's profiler sees it."""

import contextlib
import pathlib
import re
import tempfile
import types
from collections.abc import Iterator

from helpers.base.errors import CourseError


@contextlib.contextmanager
def recording(pattern: str) -> Iterator[list[str]]:
    """Record events of TensorFlow's profiler, in a list that is filled when the block has ended.

    An event whose whole name fits the regular expression ``pattern`` is listed, as its group 1; the
    list is in order of time.

    Raises `CourseError`: Another profiler runs already (no block in another), or this one was
    stopped.
    """
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    events: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tf.profiler.experimental.Profile(folder):
                yield events
        except (tf.errors.AlreadyExistsError, tf.errors.UnavailableError) as error:
            raise CourseError(
                "Nothing can be recorded here: a profiler was running, or this one was stopped.",
                "TensorFlow has one profiler for the whole process.",
                "End the outer count_compilations block, profile or TensorBoard callback first.",
            ) from error
        found = []
        for path in pathlib.Path(folder).rglob("*.xplane.pb"):
            for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes:
                named = {n: re.fullmatch(pattern, m.name) for n, m in plane.event_metadata.items()}
                found += [
                    (1000 * line.timestamp_ns + event.offset_ps, named[event.metadata_id][1])
                    for line in plane.lines
                    for event in line.events
                    if named.get(event.metadata_id)
                ]
        events += [name for _, name in sorted(found)]


@contextlib.contextmanager
def count_compilations() -> Iterator[types.SimpleNamespace]:
    """Count how often XLA compiles a program while a block runs; read ``.count`` when it has ended.

    Counts machine code made by XLA for the CPU, not traces: TensorFlow traces a function once for
    all lengths where its signature says so, and XLA still compiles it for each length. Looking at
    a program (``hlo``) compiles it, too.

    Raises `CourseError`: Another profiler runs already (no block in another), or this one was
    stopped.
    """
    compilations = types.SimpleNamespace(count=None)
    # XLA:CPU writes it once for each module that it turns into machine code.
    with recording(r"(JitCompiler::Compile)(?:#.*)?") as seen:
        yield compilations
    compilations.count = len(seen)
