"""The command ``prepare``: text to records, with a progress bar. Imports no TensorFlow."""

import contextlib
import dataclasses
import pathlib
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.text import cleaning, corpus, records, sources
from helpers.tpu.bucket import check_bucket

HELD_OUT = "held-out"


def shipped() -> list[cleaning.Cleaned]:
    """Give the course's own text, as sources to write records of."""
    return [*map(cleaning.Cleaned, sources.find(list(corpus.shipped().values())))]


def plan_of(output: str, tokenizer: Any, **options: int) -> records.Plan:
    """Plan records of nine documents in ten, and of the tenth in the folder ``held-out``.

    Args:
        output: Folder here or ``gs://``.
        tokenizer: As for `records.write`.
        options: As for `records.write`.
    """
    held_out = Folder(output).at(HELD_OUT)
    return records.plan_of(Folder(output).path, tokenizer, held_out=held_out, **options)


def prepare(
    output: str,
    *,
    texts: Sequence[str] | None,
    tokenizer: pathlib.Path | None,
    sequence_length: int,
    shards: int,
    workers: int,
    seed: int,
    pairs: bool = False,
    field: str = "text",
    rules: cleaning.Rules | None = None,
    runner: str | None = None,
    beam_options: Sequence[str] = (),
) -> Iterator[str]:
    """Clean, divide into training and held-out documents, write both.

    Args:
        output: Folder here or ``gs://``; held-out documents go to its folder ``held-out``, in a
            tenth of the shards.
        texts: As `sources.find` takes them; None for the shipped text.
        tokenizer: A ``tokenizer.json``; None for the shipped one.
        sequence_length: Positions per row.
        shards: Number of files.
        workers: Processes.
        seed: Distributes documents over the shards.
        pairs: As in `records.write`; held-out documents stay whole.
        field: What holds the text, where there are fields.
        rules: What leaves a document out.
        runner: Of Apache Beam, which then reads and writes; None: this machine does.
        beam_options: Beam's own.

    Yields:
        What to tell the user, line by line.

    Raises:
        CourseError: Beam is asked for and not installed, or given options and not asked for; or
            as `sources.find` and `records.write_all`.
    """
    if runner and workers > 1:
        raise CourseError(
            f"--workers is {workers} with --runner {runner}.",
            "Beam has processes of its own.",
            "Leave --workers out; behind --, FnApiRunner knows --direct_num_workers, and "
            "DataflowRunner --max_num_workers.",
        )
    beam = _beam() if runner else None
    if beam_options and not runner:
        raise CourseError(
            f"{beam_options[0]!r} stands alone.",
            "A text is named with --input; other words are options for Apache Beam.",
            "Write --input before a text, or --runner before --.",
        )
    tokenizer = tokenizer.expanduser() if tokenizer else corpus.kept_tokenizer()
    options = {"sequence_length": sequence_length, "shards": shards, "seed": seed, "pairs": pairs}
    plan = plan_of(output, tokenizer, **options)
    rules = rules or cleaning.Rules()
    if rules != cleaning.Rules():
        plan = dataclasses.replace(plan, rules=dataclasses.asdict(rules))
    texts = texts or list(corpus.shipped().values())
    found = [cleaning.Cleaned(at, rules) for at in sources.find(list(texts), field=field)]
    yield sources.told([cleaned.source for cleaned in found])
    folder = Folder(output)
    folder.check()
    if folder.remote:
        check_bucket(folder.path)
    size = sum(cleaned.source.size or 0 for cleaned in found) or None
    with _bars(size) as done:
        if rules.compare:
            found = cleaning.compared(found, lambda read: done("compared", read))
        if beam is not None:
            (written, *_), sums = beam.write_all(found, plan, runner, beam_options)
        else:
            (written, *_), sums = records.write_all(found, plan, workers, done)
    yield from cleaning.told(sums.reports)
    yield f"{folder.path}: {written}"


def _beam() -> types.ModuleType:
    try:
        from helpers.text.records.writing import beam
    except ModuleNotFoundError as error:
        if error.name != "apache_beam":
            raise
        raise CourseError(
            "Apache Beam is not installed.",
            "It holds other packages back, so it has an environment apart.",
            "In the course's folder `make build/beam/.installed` makes that, for `build/beam/bin/"
            "python -m helpers prepare …`; elsewhere `python -m pip install apache-beam==2.77.0`.",
        ) from None
    return beam


class _Done(ProgressColumn):
    """How much is done, of how much, and how much of it in a second."""

    def render(self, task: Task) -> Text:
        unit, scale = ("MB", 1e6) if task.fields["bytes"] else ("documents", 1)
        of = f" of {task.total / scale:,.0f}" if task.total else ""
        rate = f", {task.speed / scale:,.1f} {unit}/s" if task.speed else ""
        return Text(f"{task.completed / scale:,.0f}{of} {unit}{rate}")


@contextlib.contextmanager
def _bars(size: int | None) -> Iterator[Callable[[str, int], None]]:
    """Show a bar for all that is done with ``size`` bytes of text, if this is a terminal."""
    console = Console(stderr=True)
    # A notebook's kernel sets FORCE_COLOR, and then rich takes a pipe for a terminal.
    shown = sys.stderr.isatty()
    columns = TextColumn("{task.description}"), BarColumn(), _Done(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not shown) as progress:
        bars: dict[str, TaskID] = {}

        def done(what: str, number: int) -> None:
            if what == "found":
                bars["written"] = progress.add_task("written", total=number, bytes=False)
                return
            if what not in bars:
                bars[what] = progress.add_task(what, total=size, bytes=True)
            progress.advance(bars[what], number)

        yield done
