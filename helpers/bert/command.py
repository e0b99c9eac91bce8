"""The commands ``pretrain`` and ``export``: they check what they can before TensorFlow starts."""

import dataclasses
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
    from helpers.bert.pretraining import Progress, Run

QUIET = 10.0  # seconds between two lines


class Display:
    """Tells where a run is, a line now and then."""

    def __init__(self) -> None:
        self._console = Console()
        self._begin = self._last = float("-inf")  # of the speed, and of the last line
        self._tokens = 0

    def say(self, text: str) -> None:
        """Show a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def report(self, progress: "Progress") -> None:
        """Show where the run is, and how fast, without its first execution, which compiles."""
        said, now = f"step {progress.step:,} of {progress.steps:,}", time.monotonic()
        said += f" · loss {progress.loss:.3f}"
        if self._begin > 0:
            self._tokens += progress.tokens
            said += f" · {self._tokens / (now - self._begin):,.0f} tokens/s"
        else:
            self._begin = now
        if now - self._last >= QUIET or progress.step == progress.steps:
            self._last = now
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
    of_run: dict[str, int],
    **numbers: Any,
) -> int:
    """Train as the command line asks for, show it, and give the exit status.

    Without ``data`` the shipped text is written into the output folder first; without ``tpu`` (as
    `connection.connect` takes it) this machine trains. ``of_run`` are numbers of `pretraining.run`,
    ``numbers`` those of `Settings`.

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
        shown = {"say": display.say, "report": display.report}
        run = _train(wanted, folder, data, tpu, **shown, **of_run)
    except KeyboardInterrupt:
        display.say("Stopped at once. Run the same command again: it goes on from the last save.")
        return 130
    display.say(f"Saved in {folder.path}: {run!r}.")
    if run.stopped is None:
        return 0
    display.say("Run the same command again to go on.")
    return 128 + run.stopped  # as shells have it


def _train(
    wanted: Settings, folder: Folder, data: str | None, tpu: str | None, **options: Any
) -> "Run":
    os.environ.update(ENVIRONMENT | tensorflow_environment(detect()))
    say = options["say"]
    say("Starting TensorFlow.")
    import tensorflow as tf

    errors_only(tf)
    from helpers.bert import export, pretraining
    from helpers.bert.data import prepare_shipped

    strategy = connect(tpu) if tpu else None
    if isinstance(strategy, tf.distribute.TPUStrategy):
        wanted = dataclasses.replace(wanted, precision="mixed_bfloat16")
    if data is None:
        data = prepare_shipped(folder.at(export.PREPARED))
        say("The data: the shipped Korean and English text, nine paragraphs of ten.")
    try:
        return pretraining.run(wanted, data, folder.path, strategy=strategy, **options)
    except tf.errors.DataLossError:
        records.verify(data)  # names the shard
        raise
    except tf.errors.ResourceExhaustedError as error:
        raise CourseError(
            "A step needs more memory than there is.",
            str(error).strip().splitlines()[0][:200],
            "Take fewer rows (--batch).",
        ) from error


def export(run: str, folder: str, data: str | None) -> str:
    """Write a run's model as `export.export` does, and say how good it is.

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
    from helpers.bert import evaluation
    from helpers.bert import export as exporting

    facts = exporting.export(run, folder, data)
    results = "" if facts.results is None else f"\n{evaluation.rounded(facts.results)}"
    return f"{folder}: step {facts.step:,} of {facts.settings.steps:,}.{results}"
