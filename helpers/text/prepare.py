"""The command ``prepare``: text files to records, with a progress bar. Imports no TensorFlow."""

import pathlib
import re
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.text import corpus, records
from helpers.tpu.bucket import check_bucket

HELD_OUT = "held-out"


def part_of(text: str) -> tuple[int, int]:
    """Read ``3/8`` as the third of eight parts."""
    if not (found := re.fullmatch(r"(\d+)/(\d+)", text)):
        raise CourseError(
            f"The part {text!r} can't be understood.",
            "It must say which part of how many: two whole numbers with a slash between.",
            "Write --part 3/8 for the third of eight.",
        )
    return int(found[1]), int(found[2])


def _check_inputs(texts: Sequence[pathlib.Path]) -> None:
    """Look for all files before the first is read, which can take long."""
    seen = set()
    for path in texts:
        corpus.check_file(path)
        if (at := path.resolve()) in seen:
            raise CourseError(
                f"The text {path.name} is given twice.",
                "Each of its documents would be trained on twice as often, and one copy of a "
                "held-out document could be trained on.",
                "Name each file once.",
            )
        seen.add(at)


def prepare(
    output: str,
    *,
    texts: Sequence[pathlib.Path] | None,
    tokenizer: pathlib.Path | None,
    sequence_length: int,
    shards: int,
    part: str,
    workers: int,
    seed: int,
    pairs: bool = False,
) -> Iterator[str]:
    """Clean, divide into training and held-out documents, write both.

    Args:
        output: Folder here or ``gs://``; held-out documents go to its folder ``held-out``, in one
            shard, with part 1.
        texts: Text files, one document per line; None for the shipped text.
        tokenizer: A ``tokenizer.json``; None for the shipped one.
        sequence_length: Positions per row.
        shards: Number of files.
        part: Such as ``3/8``.
        workers: Processes.
        seed: Shuffles documents over the shards.
        pairs: As in `records.write`; held-out documents stay whole.

    Yields:
        What to tell the user, line by line.

    Raises:
        CourseError: ``part`` can't be understood, or as `corpus.read` and `records.write`.
    """
    this = part_of(part)
    records.check_options(sequence_length, shards, this, seed, pairs)
    folder = Folder(output)
    tokenizer = tokenizer.expanduser() if tokenizer else corpus.kept_tokenizer()
    records.fingerprint(tokenizer)
    texts = [path.expanduser() for path in texts or map(pathlib.Path, corpus.shipped().values())]
    _check_inputs(texts)
    folder.check()
    if folder.remote:
        check_bucket(folder.path)
    training, held_out = [], []
    for path in texts:
        lines = corpus.read(path)
        yield f"{path.name}: {corpus.survey(lines)}"
        for number, text in enumerate(corpus.documents(lines)):
            (held_out if corpus.held_out(number) else training).append(text)
    settings = {"tokenizer": tokenizer, "sequence_length": sequence_length, "seed": seed}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    columns = *columns, TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("documents", total=len(training) // this[1])
        written = records.write(
            training,
            folder.path,
            shards=shards,
            part=this,
            workers=workers,
            pairs=pairs,
            done=lambda documents: progress.advance(bar, documents),
            **settings,
        )
        if held_out and this[0] == 1:
            records.write(held_out, folder.at(HELD_OUT), shards=1, **settings)
    yield f"{folder.path}: {written}"
