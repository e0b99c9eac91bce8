"""Commands for your own text and model: records, pretraining, export."""

import enum
import functools
import os
import pathlib
import sys
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from course.outputs import new_folder
from course.processes import temporary
from helpers.base.folders import Folder
from helpers.base.settings import ENVIRONMENT
from helpers.bert.settings import CONFIGURATIONS, Description, Settings
from helpers.tpu.connection import connect, tensorflow_environment
from helpers.tpu.place import detect

Size = enum.StrEnum("Size", list(CONFIGURATIONS))

_TEXT = (
    "File, folder or 'pattern', here, gs://… or hf://datasets/…; can be repeated. "
    "A folder's README.md is left out. Without: the shipped text."
)
_RUNNER = "Apache Beam's: FnApiRunner, DataflowRunner, … Without: none."
_TPU = "local, grpc://… or a TPU's name. Without: the CPU."


@temporary()
def prepare(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Folder or gs://….")
    ] = "build/records",
    texts: Annotated[
        list[str] | None, typer.Option("--input", "-i", metavar="TEXT", help=_TEXT)
    ] = None,
    field: Annotated[str, typer.Option(metavar="NAME", help="With the text, in a table.")] = "text",
    tokenizer: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="tokenizer.json, not the shipped.")
    ] = None,
    sequence_length: Annotated[
        int, typer.Option(min=3, max=65_536, help="Positions per row.")
    ] = 128,
    shards: Annotated[
        int, typer.Option(min=1, max=99_999, help="Files; for much text some 100 MB each.")
    ] = 8,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes side by side.")] = 1,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Shuffles documents over the shards.")
    ] = 0,
    runner: Annotated[str | None, typer.Option(metavar="NAME", help=_RUNNER)] = None,
    beam_options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- BEAM OPTIONS]", help="With --runner.")
    ] = None,
) -> None:
    """Turn text into training records: packed rows of token ids in TFRecord files.

    A text is plain (a document on each line), JSON lines (.jsonl, .json) or Parquet, or one of
    these in gzip, bz2 or xz; here, in a bucket or on the Hugging Face Hub. All but plain text on
    this disk is kept in the cache of the library datasets (HF_DATASETS_CACHE), which takes the room
    of the text. A document of more than a megabyte counts as several. What is left out of a folder
    (hidden files, links to nothing) is counted and said.

    One document in ten (the last of each ten of a file) is held out and written to DIR/held-out, in
    a tenth as many files, one at least. Killed or interrupted: the same command again goes on with
    the shards that are not finished, and the bytes are the same in the end.

    **Examples**

    - `tpu-course prepare`: the shipped Korean and English text, to build/records
    - `tpu-course prepare -i ko.txt -i en.txt --tokenizer tokenizer.json -o records`
    - `tpu-course prepare -i wiki.txt -o gs://mine/wiki --shards 64 --workers 4`
    - `tpu-course prepare -i web/ -i "books/*.jsonl.gz" --field body -o gs://mine/web`
    - `tpu-course prepare -i "hf://datasets/wikimedia/wikipedia/20231101.ko/*" -o gs://mine/wiki`

    Many machines do it by Apache Beam (--runner): notebook 06 has that command.

    **Exit status**: 0 written · 2 can't be written, with the reason · 130 interrupted
    """
    if beam_options and not runner:
        raise typer.BadParameter(
            f"{beam_options[0]!r} stands alone. Write --input before a text, or --runner before --."
        )
    os.environ.update(ENVIRONMENT)
    from helpers.text import corpus, records

    typer.echo("Looking for texts.", err=True)  # before datasets, whose import takes seconds
    from course import documents, runners

    texts = texts or list(corpus.shipped().values())
    tokenizer = tokenizer.expanduser() if tokenizer else corpus.kept_tokenizer()
    source = documents.find(texts, field, Folder(output).absolute)
    Folder(output).check()
    _say_texts(source)
    run = records.one_by_one
    if runner:
        run = functools.partial(runners.by_beam, runner=runner, flags=beam_options or ())
    elif workers > 1:
        run = functools.partial(runners.by_processes, workers=workers)
    # A notebook's kernel sets FORCE_COLOR, and then rich takes a pipe for a terminal.
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("shards", total=None)
        try:
            written = records.write(
                source,
                output,
                tokenizer,
                sequence_length=sequence_length,
                shards=shards,
                seed=seed,
                held_out=True,
                run=run,
                done=lambda more, of: progress.update(bar, advance=more, total=of),
            )
        except KeyboardInterrupt:
            typer.echo("Stopped. Finished shards are kept: the same command goes on.", err=True)
            raise typer.Exit(130) from None
    typer.echo(f"{written.path}: {written!r}")


def _say_texts(source: Any) -> None:
    """Say how many texts are read (`documents.Files`), and what is left out and why."""
    message = f"{len(source.paths):,} texts"
    for reason, count in source.left_out.items():
        message += f"; left out: {count:,} {reason}"
    typer.echo(f"{message}.", err=True)


@temporary()
def pretrain(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Of this run: folder or gs://….")
    ],
    config: Annotated[Size, typer.Option(help="Size of the model.")] = Size.tiny,
    steps: Annotated[int, typer.Option(min=1, max=10**9, help="Of the whole run.")] = 1_000,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Records, not the shipped text.")
    ] = None,
    tpu: Annotated[str | None, typer.Option(metavar="NAME", help=_TPU)] = None,
    batch: Annotated[int, typer.Option(min=1, help="Rows per step, on all replicas.")] = 32,
    learning_rate: Annotated[float, typer.Option(min=1e-12, max=1, help="The highest.")] = 2e-3,
    warm_up: Annotated[
        int | None, typer.Option(min=0, help="Steps until it. Without: 100, at most half.")
    ] = None,
    dropout: Annotated[float, typer.Option(min=0, max=0.9, help="Share of values.")] = 0.1,
    steps_per_execution: Annotated[int, typer.Option(min=1, help="On a TPU 50 or more.")] = 1,
    save_every: Annotated[int, typer.Option(min=1, help="Steps between two checkpoints.")] = 100,
    changed_program: Annotated[
        bool, typer.Option("--changed-program", help="Go on under other code or versions.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Of weights, order, masks, dropout.")
    ] = 0,
) -> None:
    """Pretrain BERT; the same command resumes where it ended, on the same cores to the last bit.

    Killed, crashed or interrupted: nothing is lost but the steps since the last checkpoint, and
    they are done again with the same numbers. Ctrl-C and SIGTERM save first. The losses are in
    DIR/log.jsonl.

    DIR/settings.json says which code and which versions of the libraries compute the run. Under
    others it doesn't go on but with --changed-program, and then says from which step on.

    **Examples**

    - `tpu-course pretrain --output build/tiny`: on the shipped text, on this CPU
    - `tpu-course pretrain -o gs://mine/base --config base --steps 100000
      --data gs://mine/records --batch 256 --learning-rate 1e-4 --warm-up 10000
      --steps-per-execution 50 --tpu local`: on a TPU VM

    **Exit status**: 0 all steps are done · 2 can't begin or go on, with the reason · 130 stopped
    by Ctrl-C · 143 by SIGTERM; saved in both cases
    """
    if tpu is not None and not tpu.strip():
        raise typer.BadParameter(
            "--tpu is empty: a variable in the command has no value, probably. "
            "Without --tpu, the CPU trains."
        )
    if warm_up is None:
        warm_up = min(100, steps // 2)
    if warm_up > steps:
        raise typer.BadParameter(
            f"The warm-up has {warm_up:,} steps, the run {steps:,}. "
            "Take more --steps, or a --warm-up of a tenth of them."
        )
    # Before TensorFlow starts, which takes seconds.
    folder = Folder(output)
    folder.check()
    Description.read(folder)
    if data is not None:
        from helpers.text import records

        records.steps_per_epoch(records.manifest(data), batch)
    tf = _tensorflow(tensorflow_environment(detect()))
    from helpers.bert.data import prepare_shipped
    from helpers.bert.pretraining import run

    strategy = None
    precision = "float32"
    if tpu:
        strategy = connect(tpu)
        if isinstance(strategy, tf.distribute.TPUStrategy):
            precision = "mixed_bfloat16"
    settings = Settings(
        size=CONFIGURATIONS[config],
        steps=steps,
        global_batch_size=batch,
        learning_rate=learning_rate,
        warm_up=warm_up,
        dropout=dropout,
        precision=precision,
        seed=seed,
    )
    if data is None:
        data = prepare_shipped(folder.at("data"))
    result = run(
        settings,
        data,
        folder.path,
        strategy=strategy,
        steps_per_execution=steps_per_execution,
        save_every=save_every,
        changed_program=changed_program,
        say=typer.echo,
        report=_report,
    )
    if result.step:
        typer.echo(f"Saved in {folder.path}: step {result.step:,} of {steps:,}.")
    if result.stopped is not None:
        typer.echo("Run the same command again to go on.")
        raise typer.Exit(128 + result.stopped)  # as shells have it


def _tensorflow(environment: dict[str, str]) -> ModuleType:
    typer.echo("Starting TensorFlow.")
    os.environ.update(ENVIRONMENT | environment)
    import tensorflow

    tensorflow.get_logger().setLevel("ERROR")
    return tensorflow


def _report(progress: Any) -> None:
    """Say where a run is (a `pretraining.Progress`), at each tenth step and at the end."""
    if progress.step % 10 == 0 or progress.step == progress.steps:
        typer.echo(
            f"step {progress.step:,} of {progress.steps:,} · loss {progress.loss:.3f} · "
            f"{progress.tokens_per_second:,.0f} tokens/s"
        )


@temporary()
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Output folder of `pretrain`.")],
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="To make, on this disk.")],
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="The run's records, where they were moved.")
    ] = None,
) -> None:
    """Write a run's model so that transformers reads it, in PyTorch and in TensorFlow.

    In the folder: weights for both, configuration, tokenizer, and a model card with data, settings
    and results on held-out text.

    **Example**: `tpu-course export build/tiny build/bert`

    **Exit status**: 0 written · 2 can't be written, with the reason
    """
    # Before TensorFlow starts, which takes seconds.
    new_folder(folder)
    Description.of_trained(Folder(run))
    _tensorflow({})
    from course.export import export

    written = export(run, folder, data)
    typer.echo(f"Written to {written}. Its README.md says how well the model guesses.")
