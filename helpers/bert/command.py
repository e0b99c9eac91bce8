"""The command ``pretrain``: a bar in a terminal, a line now and then elsewhere."""

import datetime
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars

from helpers.base.output import errors_only
from helpers.base.settings import ENVIRONMENT
from helpers.bert import compiled
from helpers.tpu.connection import connect, tensorflow_environment
from helpers.tpu.place import detect

if TYPE_CHECKING:
    from helpers.bert.pretraining import Progress

QUIET = 10.0  # seconds between two lines where no terminal is
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
    def shown(self, steps: int) -> Iterator[None]:
        """Keep the bar on the screen in this block; until the first step it says why it waits."""
        with self._bars:
            self._task = self._bars.add_task("the first step is compiled", total=steps)
            yield

    def say(self, text: str) -> None:
        """Show a line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def report(self, progress: "Progress") -> None:
        """Show where the run is."""
        if self._console.is_terminal:
            self._bars.update(self._task, completed=progress.step, description=line(progress))
            return
        if time.monotonic() - self._last >= QUIET or progress.step == progress.steps:
            self._last = time.monotonic()
            self.say(f"step {progress.step:,} of {progress.steps:,} · {line(progress)}")


def pretrain(
    config: str,
    output: str,
    data: str | None,
    *,
    tpu: str | None,
    **options: float,
) -> int:
    """Train as the command line asks for, show it, and give the exit status.

    Args:
        config: Name of a size, of `model.CONFIGURATIONS`.
        output: Folder of the run.
        data: Records; None: the shipped text, written into the output folder first.
        tpu: As `connection.connect` takes it; None: this machine as it is.
        **options: Of `pretraining.run` (``steps_per_execution``, ``save_every``, ``patience``) and
            of `pretraining.Settings`.

    Raises:
        CourseError: As `pretraining.run`.
    """
    display = Display(Console(stderr=False))
    os.environ.update(ENVIRONMENT | tensorflow_environment(detect()))
    kept = None
    if not tpu and "://" not in output:
        kept = compiled.Kept(output)
        os.environ.update(kept.environment())

    def report(progress: "Progress") -> None:
        nonlocal kept
        if kept is not None:
            kept.seal()
            kept = None
        display.report(progress)

    try:
        display.say("Starting TensorFlow.")
        import tensorflow as tf

        errors_only(tf)
        from helpers.bert import pretraining
        from helpers.bert.data import prepare_shipped
        from helpers.bert.model import configuration

        strategy = connect(tpu) if tpu else None
        on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        of_run = {name: options.pop(name) for name in OF_RUN}
        precision = "mixed_bfloat16" if on_tpu else "float32"
        wanted = pretraining.Settings(configuration(config), **options, precision=precision)
        if data is None:
            data = prepare_shipped(f"{output.rstrip('/')}/data", pairs=wanted.next_sentence)
            display.say("The data: the shipped Korean and English text, nine paragraphs of ten.")
        with display.shown(wanted.steps):
            run = pretraining.run(
                wanted,
                data,
                output,
                strategy=strategy,
                say=display.say,
                report=report,
                **of_run,
            )
    except KeyboardInterrupt:
        display.say("Stopped at once. Run the same command again: it goes on from the last save.")
        return 130
    display.say(f"Saved in {output}: {run!r}.")
    if run.stopped is None:
        return 0
    display.say("Run the same command again to go on.")
    return 128 + run.stopped  # as shells have it
