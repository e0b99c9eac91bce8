"""The commands ``pretrain`` and ``export``: what is asked for is checked before TensorFlow starts.

Training shows a bar in a terminal, a line now and then elsewhere.
"""

import dataclasses
import datetime
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars

from helpers.base.errors import CourseError
from helpers.base.folders import Folder, address, is_remote, new_folder
from helpers.base.output import errors_only
from helpers.base.settings import ENVIRONMENT
from helpers.bert import compiled, settings
from helpers.bert.settings import Description, Settings, configuration
from helpers.text import records
from helpers.tpu.bucket import check_bucket
from helpers.tpu.connection import connect, tensorflow_environment
from helpers.tpu.place import detect

if TYPE_CHECKING:
    from helpers.bert.export import Facts
    from helpers.bert.pretraining import Progress, Run

QUIET = 10.0  # seconds between two lines where no terminal is
# Where the shipped text is written, in the run's folder, by whether it is pairs.
SHIPPED = {False: "data", True: "data-pairs"}
OF_RUN = ("steps_per_execution", "save_every", "patience")


def line(progress: "Progress") -> str:
    """Write where a run is, without the step: ``loss 5.123 · 9,876 tokens/s · 1:02:03 left``."""
    words = [f"loss {progress.loss:.3f}"]
    if progress.tokens_per_second is not None:
        left = datetime.timedelta(seconds=round(progress.seconds_left))
        words += [f"{progress.tokens_per_second:,.0f} tokens/s", f"{left} left"]
    return " · ".join(words)


class Display:
    """Shows a run: a bar that moves in a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn())
        text = TextColumn("{task.description}")
        self._bars = Bars(*columns, text, console=console, disable=not console.is_terminal)
        self._last = float("-inf")

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the bar on the screen in this block; until the first step it says why it waits."""
        with self._bars:
            self._task = self._bars.add_task("the first step is compiled", total=None)
            yield

    def say(self, text: str) -> None:
        """Show a line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def report(self, progress: "Progress") -> None:
        """Show where the run is."""
        if self._console.is_terminal:
            where = {"completed": progress.step, "total": progress.steps}
            self._bars.update(self._task, description=line(progress), **where)
            return
        if time.monotonic() - self._last >= QUIET or progress.step == progress.steps:
            self._last = time.monotonic()
            self.say(f"step {progress.step:,} of {progress.steps:,} · {line(progress)}")


def _folder(path: str, *, write: bool) -> Folder:
    """Find a folder, and whether it will do: on this disk at once, in a bucket with a question."""
    folder = Folder(path)
    if folder.remote:
        check_bucket(folder.path, write=write)
    elif write:
        folder.check()
    return folder


def check_name(tpu: str | None) -> None:
    """Refuse a TPU (``--tpu``) without a name; None is no TPU."""
    if tpu is not None and not tpu.strip():
        raise CourseError(
            "The TPU has no name.",
            "What follows --tpu is empty: a variable in the command has no value, probably.",
            "Write --tpu local, an address, or a TPU's name; or leave it out to use the CPU.",
        )


def _checked(
    wanted: Settings, output: str, data: str | None, tpu: str | None, of_run: dict[str, int]
) -> None:
    """Refuse what can be refused without TensorFlow; nothing is written."""
    settings.check(wanted, **of_run)
    check_name(tpu)
    folder = _folder(output, write=True)
    there = Description.read(folder)
    asked = Description(dataclasses.asdict(wanted), there.data if there else {})
    if data is not None:
        manifest = records.manifest(_folder(data, write=False).path)
        settings.check_records(wanted, manifest)
        asked = Description.of(wanted, manifest, folder)
    goes_on = settings.check_same_run(folder, asked, unknown=["precision"])  # a TPU's is other
    if data is None and goes_on and goes_on.records_at not in (None, *SHIPPED.values()):
        raise CourseError(
            "The output folder's run is trained on other records than the shipped text.",
            f"They are in {goes_on.records_in(folder)}.",
            "Give them with --data to go on, or take another output folder.",
        )


def pretrain(config: str, output: str, data: str | None, *, tpu: str | None, **options: Any) -> int:
    """Train as the command line asks for, show it, and give the exit status.

    Without ``data`` the shipped text is written into the output folder first; without ``tpu`` (as
    `connection.connect` takes it) this machine trains. ``options`` are `OF_RUN`, of
    `pretraining.run`, and those of `settings.Settings`.

    Raises:
        CourseError: As `pretraining.run`; what can be known before TensorFlow starts, before.
    """
    display = Display(Console(stderr=False))
    output = address(output)
    of_run = {name: options.pop(name) for name in OF_RUN}
    wanted = Settings(configuration(config), **options)
    try:
        _checked(wanted, output, data, tpu, of_run)
        run = _train(wanted, output, data, tpu, of_run, display)
    except KeyboardInterrupt:
        display.say("Stopped at once. Run the same command again: it goes on from the last save.")
        return 130
    display.say(f"Saved in {output}: {run!r}.")
    if run.stopped is None:
        return 0
    display.say("Run the same command again to go on.")
    return 128 + run.stopped  # as shells have it


def _train(
    wanted: Settings,
    output: str,
    data: str | None,
    tpu: str | None,
    of_run: dict[str, int],
    display: Display,
) -> "Run":
    os.environ.update(ENVIRONMENT | tensorflow_environment(detect()))
    kept = None
    if not tpu and not is_remote(output):
        kept = compiled.Kept(output)
        os.environ.update(kept.environment())

    def report(progress: "Progress") -> None:
        nonlocal kept
        if kept is not None:
            kept.seal()
            kept = None
        display.report(progress)

    display.say("Starting TensorFlow.")
    import tensorflow as tf

    errors_only(tf)
    from helpers.bert import pretraining
    from helpers.bert.data import prepare_shipped

    strategy = connect(tpu) if tpu else None
    if isinstance(strategy, tf.distribute.TPUStrategy):
        wanted = dataclasses.replace(wanted, precision="mixed_bfloat16")
    if data is None:
        folder = Folder(output).at(SHIPPED[wanted.next_sentence])
        data = prepare_shipped(folder)
        display.say("The data: the shipped Korean and English text, nine paragraphs of ten.")
    options = {"strategy": strategy, "say": display.say, "report": report} | of_run
    try:
        with display.shown():
            return pretraining.run(wanted, data, output, **options)
    except tf.errors.DataLossError:
        records.verify(data)  # names the shard
        raise
    except tf.errors.ResourceExhaustedError as error:
        raise CourseError(
            "A step needs more memory than there is.",
            str(error).strip().splitlines()[0][:200],
            "Take fewer rows (--batch), or more parts of them (--accumulate).",
        ) from error


def export(run: str, folder: str, data: str | None) -> "Facts":
    """Write a run's model as `export.export` does, and give what its card says.

    Raises:
        CourseError: As `export.export`; what can be known before TensorFlow starts, before.
    """
    target, kept = new_folder(folder), _folder(run, write=False)
    there = Description.of_trained(kept)
    where = there.records_in(kept) if data is None else data
    if is_remote(where):
        check_bucket(where, write=False)
    there.find_records(kept, data)
    os.environ.update(ENVIRONMENT)
    import tensorflow as tf

    errors_only(tf)
    from helpers.bert import export as exporting

    return exporting.export(kept.path, target, data)
