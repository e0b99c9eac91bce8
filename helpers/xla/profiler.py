"""What TensorFlow's profiler saw while a block ran. Imports TensorFlow only when it is used."""

import contextlib
import pathlib
import re
import tempfile
from collections.abc import Iterator

from helpers.base.errors import CourseError


@contextlib.contextmanager
def recording(what: str, pattern: str) -> Iterator[list[str]]:
    """Record events of TensorFlow's profiler, in a list that is filled when the block has ended.

    ``what``, such as ``Compilations``, begins an error's message. An event whose whole name fits
    the regular expression ``pattern`` is listed, as its group 1; the list is in order of time.

    Raises:
        CourseError: Another profiler runs already (these blocks can't be nested), or other code
            stopped this one.
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
                f"{what} can't be seen here: a profiler was running, or this one was stopped.",
                "TensorFlow has one profiler for the whole process, and they come from it.",
                "End the outer count_compilations block, profile or TensorBoard callback first.",
            ) from error
        found = []
        for path in pathlib.Path(folder).rglob("*.xplane.pb"):
            for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes:
                # A name is looked at once, not for each of its events.
                named = {n: re.fullmatch(pattern, m.name) for n, m in plane.event_metadata.items()}
                found += [
                    (1000 * line.timestamp_ns + event.offset_ps, named[event.metadata_id][1])
                    for line in plane.lines
                    for event in line.events
                    if named.get(event.metadata_id)
                ]
        events += [name for _, name in sorted(found)]
