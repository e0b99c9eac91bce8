"""What a run keeps of its training: a log, and checkpoints that are whole or absent."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import filelock
import tensorflow as tf

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.bert.settings import CHECKPOINTS, LOG, saved_steps

KEEP = 2


@contextlib.contextmanager
def locked(folder: Folder) -> Iterator[None]:
    """Keep other processes out; the system opens the lock when this process ends, however.

    Raises:
        CourseError: Another process trains in the folder, or the folder is not writable.
    """
    if folder.remote:
        yield
        return
    path = pathlib.Path(folder.path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path / ".lock").acquire(blocking=False)
    except filelock.Timeout:
        raise CourseError(
            f"Another process is training in {path.name}.",
            "Two would overwrite each other's checkpoints.",
            "Wait until it ends, or stop it (Ctrl-C there): then run this again to go on.",
        ) from None
    except OSError as error:
        raise files.cant_write(path, error) from error
    with lock:
        yield


class Log:
    """The losses, one line of JSON per step, each step once: also after a crash.

    A line is appended when its step is done. Steps after the last checkpoint are computed again
    after a crash, so their lines (and half a line, the last) are taken away at the start. In a
    bucket, where nothing can be appended, the whole log is written with each checkpoint.

    Raises:
        CourseError: The file has no line for some of the ``step`` steps done by the checkpoint.
    """

    def __init__(self, folder: Folder, step: int) -> None:
        self._folder = folder
        self.rows: list[dict] = []
        for line in (folder.read(LOG) or b"").decode().splitlines():
            try:
                row = json.loads(line)
                if not row["step"] == len(self.rows) + 1 <= step:
                    break
            except (ValueError, KeyError, TypeError):
                break
            self.rows.append(row)
        if missing := step - len(self.rows):
            raise CourseError(
                f"The log has no line for {missing:,} of the {step:,} steps done.",
                f"{LOG} was removed or changed since the checkpoint was written.",
                "Bring it back from a copy, or start again in another output folder.",
            )
        folder.write(LOG, _lines(self.rows))

    def add(self, rows: list[dict]) -> None:
        """Append what steps gave."""
        self.rows += rows
        if not self._folder.remote:
            self._folder.append(LOG, _lines(rows))

    def commit(self) -> None:
        """Make sure that what was added is there before the checkpoint that comes after it."""
        if self._folder.remote:
            self._folder.write(LOG, _lines(self.rows))
        else:
            self._folder.sync(LOG)


def _lines(rows: Iterable[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


class Checkpoints:
    """The newest two checkpoints of a run, whole or absent.

    Here a checkpoint is written into a folder of another name, which is renamed when all of it is
    on the disk. In a bucket TensorFlow writes the index last: without it, a checkpoint is none.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        # The client's disk, or its way to the bucket, also where the weights are elsewhere.
        self._options = tf.train.CheckpointOptions(experimental_io_device="/job:localhost")

    def steps(self) -> list[int]:
        """Steps of all checkpoints, newest first."""
        return saved_steps(self._folder)

    def save(self, step: int, state: tf.train.Checkpoint) -> None:
        """Write one; then remove what is older than the two newest.

        Raises:
            CourseError: It could not be written; the ones before stay.
        """
        final = _name(step)
        writing = final if self._folder.remote else f"{CHECKPOINTS}/.writing-{step:09d}"
        for leftover in {writing, final}:
            self._folder.delete(leftover)
        try:
            tf.io.gfile.makedirs(self._folder.at(writing))
            state.write(self._folder.at(f"{writing}/state"), self._options)
            if not self._folder.remote:
                self._folder.rename(writing, final)
        except (tf.errors.OpError, files.CantWrite) as error:
            with contextlib.suppress(files.CantWrite):
                self._folder.delete(writing)
            why = str(error).strip().splitlines()[0][:300]
            if isinstance(error, files.CantWrite):
                why = error.why
            elif isinstance(error, tf.errors.ResourceExhaustedError) or "No space left" in why:
                why = "The disk is full."
            raise CourseError(
                f"The checkpoint of step {step:,} could not be written.",
                why,
                "Make room, or mend what is named here, then run the same command again: it goes "
                "on from the last checkpoint.",
            ) from error
        for old in self.steps()[KEEP:]:
            self._folder.delete(_name(old))

    def newest(self, say: Callable[[str], None] = lambda text: None) -> int:
        """Give the step of the newest whole checkpoint, 0 where there is none at all.

        Says a line for each damaged one that is passed over.

        Raises:
            CourseError: There are some and none is whole, or where they are does not answer.
        """
        steps = self.steps()
        for step in steps:
            damage = self._damage(step)
            if not damage:
                return step
            say(f"The checkpoint of step {step:,} is damaged ({damage}); trying the one before.")
        if steps:
            raise CourseError(
                f"None of the {len(steps)} checkpoints can be read.",
                "Their files were changed, cut off or removed after they were written.",
                "Bring them back from a copy, or start again in another output folder.",
            )
        return 0

    def _damage(self, step: int) -> str:
        """Read every byte that a restore would use; TensorFlow compares the checksums."""
        try:
            reader = tf.train.load_checkpoint(self._folder.at(f"{_name(step)}/state"))
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
        # The reader gives most of what can happen the same type, some of it types of Python's.
        except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
            # A checkpoint that can't be reached says nothing of its bytes: then this raises.
            for name in self._folder.list(_name(step)):
                self._folder.read(f"{_name(step)}/{name}", limit=1)
            return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120]}"
        return ""

    def load(self, step: int, state: tf.train.Checkpoint) -> Any:
        """Read a checkpoint into ``state``; give TensorFlow's status of what was read."""
        return state.read(self._folder.at(f"{_name(step)}/state"), self._options)

    def clean(self, newest: int) -> None:
        """Remove half-written checkpoints and damaged ones, newer than the newest whole one."""
        for name in self._folder.list(CHECKPOINTS):
            if name.startswith(".writing-"):
                self._folder.delete(f"{CHECKPOINTS}/{name}")
        for step in self.steps():
            if step > newest:
                self._folder.delete(_name(step))


def _name(step: int) -> str:
    return f"{CHECKPOINTS}/step-{step:09d}"
