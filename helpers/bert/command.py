"""The commands ``pretrain`` and ``export``: what is asked for is checked before TensorFlow starts.

Training shows a line that changes in a terminal, a new one now and then elsewhere.
"""

import contextlib
import dataclasses
import datetime
import os
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console

from helpers.base.errors import CourseError
from helpers.base.folders import Folder, new_folder
from helpers.base.output import errors_only
from helpers.base.settings import ENVIRONMENT
from helpers.bert.settings import Description, Settings, configuration
from helpers.text import records
from helpers.tpu.bucket import check_bucket
from helpers.tpu.connection import connect, tensorflow_environment
from helpers.tpu.place import detect

if TYPE_CHECKING:
    from helpers.bert.export import Facts
    from helpers.bert.pretraining import Progress, Run

QUIET = 10.0  # seconds between two lines where no terminal is


class Display:
    """Shows a run: a line that changes in a terminal, a new one now and then elsewhere."""

    def __init__(self) -> None:
        self.console = Console()
        self.status = self.console.status("The first step is compiled.")
        self._begin: tuple[float, int] | None = None  # time and step of the first report
        self._tokens, self._said = 0, float("-inf")

    def say(self, text: str) -> None:
        """Show a line that stays."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def report(self, progress: "Progress") -> None:
        """Show where the run is, how fast and for how long, without its first execution."""
        said, now = f"step {progress.step:,} of {progress.steps:,}", time.monotonic()
        said += f" · loss {progress.loss:.3f}"
        if self._begin is None:  # what came before was compiling
            self._begin = now, progress.step
        else:
            self._tokens += progress.tokens
            seconds, steps = now - self._begin[0], progress.step - self._begin[1]
            left = datetime.timedelta(
                seconds=round((progress.steps - progress.step) * seconds / steps)
            )
            said += f" · {self._tokens / seconds:,.0f} tokens/s · {left} left"
        if self.console.is_terminal:
            self.status.update(said)
        elif now - self._said >= QUIET or progress.step == progress.steps:
            self._said = now
            self.say(said)


def _folder(path: str, *, write: bool) -> Folder:
    """Find a folder, and whether it will do: on this disk at once, in a bucket with a question."""
    folder = Folder(path)
    if folder.remote:
        check_bucket(folder.path, write=write)
    elif write:
        folder.check()
    return folder


def pretrain(
    config: str,
    output: str,
    data: str | None,
    *,
    tpu: str | None,
    steps_per_execution: int,
    save_every: int,
    **numbers: Any,
) -> int:
    """Train as the command line asks for, show it, and give the exit status.

    Without ``data`` the shipped text is written into the output folder first; without ``tpu`` (as
    `connection.connect` takes it) this machine trains. ``numbers`` are those of `Settings`.

    Raises:
        CourseError: As `pretraining.run`; what can be known before TensorFlow starts, before.
    """
    if tpu is not None and not tpu.strip():
        raise CourseError(
            "The TPU has no name.",
            "What follows --tpu is empty: a variable in the command has no value, probably.",
            "Write --tpu local, an address, or a TPU's name; or leave it out to use the CPU.",
        )
    wanted, display = Settings(configuration(config), **numbers), Display()
    try:
        folder = _folder(output, write=True)
        Description.read(folder)
        if data is not None:
            manifest = records.manifest(_folder(data, write=False).path)
            records.steps_per_epoch(manifest, wanted.global_batch_size)
        options = {"steps_per_execution": steps_per_execution, "save_every": save_every}
        run = _train(wanted, folder, data, tpu, display, options)
    except KeyboardInterrupt:
        display.say("Stopped at once. Run the same command again: it goes on from the last save.")
        return 130
    display.say(f"Saved in {folder.path}: {run!r}.")
    if run.stopped is None:
        return 0
    display.say("Run the same command again to go on.")
    return 128 + run.stopped  # as shells have it


def _train(
    wanted: Settings,
    folder: Folder,
    data: str | None,
    tpu: str | None,
    display: Display,
    options: dict[str, int],
) -> "Run":
    os.environ.update(ENVIRONMENT | tensorflow_environment(detect()))
    display.say("Starting TensorFlow.")
    import tensorflow as tf

    errors_only(tf)
    from helpers.bert import export, pretraining
    from helpers.bert.data import prepare_shipped

    strategy = connect(tpu) if tpu else None
    if isinstance(strategy, tf.distribute.TPUStrategy):
        wanted = dataclasses.replace(wanted, precision="mixed_bfloat16")
    if data is None:
        data = prepare_shipped(folder.at(export.PREPARED))
        display.say("The data: the shipped Korean and English text, nine paragraphs of ten.")
    shown = {"strategy": strategy, "say": display.say, "report": display.report}
    try:
        with display.status if display.console.is_terminal else contextlib.nullcontext():
            return pretraining.run(wanted, data, folder.path, **shown, **options)
    except tf.errors.DataLossError:
        records.verify(data)  # names the shard
        raise
    except tf.errors.ResourceExhaustedError as error:
        raise CourseError(
            "A step needs more memory than there is.",
            str(error).strip().splitlines()[0][:200],
            "Take fewer rows (--batch).",
        ) from error


def export(run: str, folder: str, data: str | None) -> "Facts":
    """Write a run's model as `export.export` does, and give what its card says.

    Raises:
        CourseError: As `export.export`; what can be known before TensorFlow starts, before.
    """
    new_folder(folder)
    Description.of_trained(_folder(run, write=False))
    if data is not None:
        _folder(data, write=False)
    os.environ.update(ENVIRONMENT)
    import tensorflow as tf

    errors_only(tf)
    from helpers.bert import export as exporting

    return exporting.export(run, folder, data)
