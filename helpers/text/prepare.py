"""The command ``prepare``: text to records, with a progress bar. Imports no TensorFlow."""

import dataclasses
import itertools
import pathlib
import types
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.text import corpus, records, sources
from helpers.text.records.plan import Sums
from helpers.tpu.bucket import check_bucket

HELD_OUT = "held-out"


@dataclasses.dataclass
class Cleaned:
    """A source's documents as they are trained on, without those of which nothing is left."""

    source: sources.Source
    survey: corpus.Survey = dataclasses.field(default_factory=lambda: corpus.survey([]))

    @property
    def name(self) -> str:
        """The source's."""
        return self.source.name

    def documents(self) -> Iterator[sources.Document]:
        """Clean the source's documents, and count what is found in them."""
        self.survey, documents = corpus.survey([]), self.source.documents()
        while some := list(itertools.islice(documents, 1_000)):
            self.survey += corpus.survey([document.text for document in some])
            for document in some:
                if text := corpus.clean(document.text):
                    yield dataclasses.replace(document, text=text)

    def report(self) -> dict[str, Any]:
        """Give the survey's numbers."""
        return dataclasses.asdict(self.survey)


def shipped() -> list[Cleaned]:
    """Give the course's own text, as sources to write records of."""
    return [*map(Cleaned, sources.find(list(corpus.shipped().values())))]


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
    texts: Sequence[pathlib.Path] | None,
    tokenizer: pathlib.Path | None,
    sequence_length: int,
    shards: int,
    workers: int,
    seed: int,
    pairs: bool = False,
    runner: str | None = None,
    beam_options: Sequence[str] = (),
) -> Iterator[str]:
    """Clean, divide into training and held-out documents, write both.

    Args:
        output: Folder here or ``gs://``; held-out documents go to its folder ``held-out``, in a
            tenth of the shards.
        texts: Text files, one document per line; None for the shipped text.
        tokenizer: A ``tokenizer.json``; None for the shipped one.
        sequence_length: Positions per row.
        shards: Number of files.
        workers: Processes.
        seed: Distributes documents over the shards.
        pairs: As in `records.write`; held-out documents stay whole.
        runner: Of Apache Beam, which then reads and writes; None: this machine does.
        beam_options: Beam's own.

    Yields:
        What to tell the user, line by line.

    Raises:
        CourseError: Beam is asked for and not installed, or given options and not asked for; or
            as `sources.find` and `records.write_all`.
    """
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
    found = [*map(Cleaned, sources.find(list(map(str, texts))))] if texts else shipped()
    folder = Folder(output)
    folder.check()
    if folder.remote:
        check_bucket(folder.path)
    if beam is not None:
        (written, *_), sums = beam.write_all(found, plan, runner, beam_options)
    else:
        (written, *_), sums = _with_bars(found, plan, workers)
    for name, report in sums.reports:
        yield f"{name}: {corpus.Survey(**report)}"
    yield f"{folder.path}: {written}"


def _beam() -> types.ModuleType:
    try:
        from helpers.text.records import beam
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


def _with_bars(
    found: Sequence[Cleaned], plan: records.Plan, workers: int
) -> tuple[list[records.Manifest], Sums]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    columns = *columns, TimeRemainingColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars = {"read": progress.add_task("documents read", total=None)}

        def done(what: str, documents: int) -> None:
            if what not in bars:
                read = progress.tasks[bars["read"]].completed
                progress.update(bars["read"], total=read)
                bars[what] = progress.add_task(f"documents {what}", total=read)
            progress.advance(bars[what], documents)

        return records.write_all(found, plan, workers, done)
