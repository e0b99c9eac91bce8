"""What TensorFlow's profiler saw while a block ran. Imports TensorFlow only when it is used."""

import contextlib
import pathlib
import tempfile
from collections.abc import Callable, Iterator

from helpers.base.errors import CourseError


@contextlib.contextmanager
def recording(what: str, keep: Callable[[str], str | None]) -> Iterator[list[str]]:
    """Record events of TensorFlow's profiler, in a list that is filled when the block has ended.

    ``what``, such as ``Compilations``, begins an error's message. ``keep`` gives what to list for
    an event's name, or None to leave it out; the list is in order of time.

    Raises:
        CourseError: Another profiler runs already (these blocks can't be nested), or other code
            stopped this one.
    """
    import tensorflow as tf

    events: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            tf.profiler.experimental.start(folder)
        except tf.errors.AlreadyExistsError as error:
            raise CourseError(
                f"{what} can't be seen here: a profiler is running.",
                "TensorFlow has one profiler for the whole process, and they come from it.",
                "End the outer count_compilations block, profile or TensorBoard callback first.",
            ) from error
        try:
            yield events
        except BaseException:
            with contextlib.suppress(tf.errors.UnavailableError):
                tf.profiler.experimental.stop(save=False)
            raise
        try:
            tf.profiler.experimental.stop()
        except tf.errors.UnavailableError as error:
            raise CourseError(
                f"{what} were not seen: the profiler was stopped inside the block.",
                "TensorFlow has one profiler for the whole process, and other code ended it.",
                "Take the TensorBoard callback's profile_batch (or the other stop) out.",
            ) from error
        events += _read(pathlib.Path(folder), keep)


def _read(folder: pathlib.Path, keep: Callable[[str], str | None]) -> list[str]:
    """Read the events to keep from the profiles under a folder, in order of time."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    seen = []
    for path in folder.rglob("*.xplane.pb"):
        for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes:
            # A name is looked at once, not for each of its events.
            kept = {number: keep(data.name) for number, data in plane.event_metadata.items()}
            for line in plane.lines:
                start = line.timestamp_ns * 1000
                seen += [
                    (start + event.offset_ps, found)
                    for event in line.events
                    if (found := kept.get(event.metadata_id))
                ]
    return [found for _, found in sorted(seen)]
