"""How often XLA compiles while a block runs, as TensorFlow's profiler sees it."""

import contextlib
import pathlib
import re
import tempfile
import types
from collections.abc import Iterator
from typing import Any

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
        timed_names = []
        for path in pathlib.Path(folder).rglob("*.xplane.pb"):
            for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes:
                timed_names += _timed_names(plane, pattern)
        for _, name in sorted(timed_names):
            events.append(name)


def _timed_names(plane: Any, pattern: str) -> list[tuple[int, str]]:
    """List the events of a plane that fit a pattern, as pairs of picoseconds and group 1."""
    # A name is written once, and its events refer to it by number.
    names = {}
    for number, metadata in plane.event_metadata.items():
        match = re.fullmatch(pattern, metadata.name)
        if match:
            names[number] = match[1]
    timed_names = []
    for line in plane.lines:
        for event in line.events:
            if event.metadata_id in names:
                time = 1000 * line.timestamp_ns + event.offset_ps
                timed_names.append((time, names[event.metadata_id]))
    return timed_names


@contextlib.contextmanager
def count_compilations() -> Iterator[types.SimpleNamespace]:
    """Count how often XLA compiles a program while a block runs; read ``.count`` when it has ended.

    Counts machine code made by XLA for the CPU, not traces: TensorFlow traces a function once for
    all lengths where its signature says so, and XLA still compiles it for each length. Looking at
    a program (``hlo``) also compiles it.

    Raises `CourseError`: Another profiler runs already (no block in another), or this one was
    stopped.
    """
    compilations = types.SimpleNamespace(count=None)
    # XLA:CPU writes it once for each module that it turns into machine code.
    with recording(r"(JitCompiler::Compile)(?:#.*)?") as events:
        yield compilations
    compilations.count = len(events)
