"""Commands for your own data and model: operations, records, pretraining, export."""

import os
import pathlib
from typing import Literal

import typer

from helpers.base import files
from helpers.base.settings import ENVIRONMENT


def make_ops(stored: bool = False, quiet: bool = False) -> None:
    """Compile nearly 300 operations for CPU and TPU: **build/ops.html**, a page to search in.

    Nothing is run. Each operation is compiled from shapes and types alone, by XLA for this CPU and
    by Google's TPU compiler. The verdicts are kept in notebooks/data/ops.tsv.

    **Examples**

    - `tpu-course ops --stored`: the page, at once
    - `tpu-course ops`: compile everything again, some minutes

    **Exit status**: 0 written · 2 the command can't be carried out
    """
    from helpers.xla import ops

    if stored:
        table = ops.read()
    else:
        os.environ.update(ENVIRONMENT)
        table = ops.make(None if quiet else _count)
        ops.write(table)
    files.write(ops.PAGE, ops.page(table))
    typer.echo(f"{table}. Page: {ops.PAGE}")


def _count(done: int, of: int) -> None:
    typer.echo(f"{done} of {of} compiled", err=True)


def prepare(
    output: str = "build/records",
    texts: list[str] | None = None,
    field: str = "text",
    tokenizer: pathlib.Path | None = None,
    sequence_length: int = 128,
    shards: int = 8,
    workers: int = 1,
    seed: int = 0,
    pairs: bool = False,
    drop_duplicates: bool = False,
    near_duplicates: Literal["count", "drop"] | None = None,
    min_characters: int = 0,
    max_characters: int | None = None,
    script: list[str] | None = None,
    runner: str | None = None,
    beam_options: list[str] | None = None,
) -> None:
    """Turn text into training records: packed rows of token ids in TFRecord files.

    A text is plain (a document on each line), JSON lines, Parquet, or one of these in gzip, bz2, xz
    or zstd; its first bytes tell, not its name. Hugging Face datasets are streamed. The text is not
    held in memory, but for each million documents --drop-duplicates takes about 100 MB, and
    --near-duplicates 500 MB. With either, the text is read once more before, on this machine; of
    equal documents the first in the order of the files' names stays. How many documents a rule left
    out is said, and stands in manifest.json.

    One document in ten (the last of each ten lines or rows of a file) is held out of them and
    written to DIR/held-out, in a tenth as many files, one at least. Killed or interrupted: the same
    command again goes on with the shards that are not finished, and the bytes are the same in the
    end. They are the same with any number of processes, and in any order of the files.

    **Examples**

    - `tpu-course prepare`: the shipped Korean and English text, to build/records
    - `tpu-course prepare -i ko.txt -i en.txt --tokenizer tokenizer.json -o records`
    - `tpu-course prepare -i wiki.txt -o gs://mine/wiki --shards 64 --workers 4`
    - `tpu-course prepare -i web/ -i "books/*.jsonl.gz" --field body --script hangul
      --min-characters 20 --drop-duplicates -o gs://mine/web`
    - `tpu-course prepare -i hf://wikimedia/wikipedia/20231101.ko/train -o gs://mine/wiki`
    - `tpu-course prepare -i "gs://mine/text/*" -o gs://mine/records --shards 1000
      --runner DataflowRunner -- --project=mine --region=us-central1
      --temp_location=gs://mine/temporary --extra_package=WHEEL`: many machines, by Apache Beam
      (notebook 06; Dataflow itself was not run by us)

    **Exit status**: 0 written · 2 can't be written, with the reason · 130 interrupted
    """
    from helpers.text import cleaning
    from helpers.text import prepare as command

    lines = command.prepare(
        output,
        texts=texts,
        tokenizer=tokenizer,
        sequence_length=sequence_length,
        shards=shards,
        workers=workers,
        seed=seed,
        pairs=pairs,
        field=field,
        rules=cleaning.Rules(
            min_characters, max_characters, tuple(script or ()), drop_duplicates, near_duplicates
        ),
        runner=runner,
        beam_options=beam_options or (),
    )
    try:
        for line in lines:
            typer.echo(line)
    except KeyboardInterrupt:
        typer.echo(
            "Stopped. Finished shards are kept: run the same command again to go on.", err=True
        )
        raise typer.Exit(130) from None


def pretrain(
    output: str,
    config: str = "tiny",
    steps: int = 1_000,
    data: str | None = None,
    tpu: str | None = None,
    batch: int = 32,
    learning_rate: float = 2e-3,
    warm_up: int = 100,
    dropout: float = 0.1,
    steps_per_execution: int = 1,
    save_every: int = 100,
    seed: int = 0,
) -> None:
    """Pretrain BERT; the same command again goes on where it ended, on one CPU to the last bit.

    Killed, crashed or interrupted: nothing is lost but the steps since the last checkpoint, and
    they are done again with the same numbers. Ctrl-C and SIGTERM save first. A finished run goes
    on when --steps is raised. Curves for TensorBoard are in DIR/tensorboard, the losses in
    DIR/log.jsonl.

    **Examples**

    - `tpu-course pretrain --output build/tiny`: on the shipped text, on this CPU
    - `tpu-course pretrain -o build/mini --config mini --steps 5000 --data build/records`
    - `tpu-course pretrain -o gs://mine/base --config base --steps 100000
      --data gs://mine/records --batch 256 --learning-rate 1e-4 --warm-up 10000
      --steps-per-execution 50 --tpu local`: on a TPU VM

    **Exit status**: 0 all steps are done · 2 can't begin or go on, with the reason · 130 stopped
    by Ctrl-C · 143 by SIGTERM; saved in both cases
    """
    from helpers.bert import command

    status = command.pretrain(
        config,
        output,
        data,
        tpu=tpu,
        of_run={"steps_per_execution": steps_per_execution, "save_every": save_every},
        steps=steps,
        global_batch_size=batch,
        learning_rate=learning_rate,
        warm_up=warm_up,
        dropout=dropout,
        seed=seed,
    )
    raise typer.Exit(status)


def export(run: str, folder: str, data: str | None = None) -> None:
    """Write a run's model so that transformers reads it, in PyTorch and in TensorFlow.

    In the folder: weights for both, configuration, tokenizer, and a model card with data, settings
    and results on held-out text.

    **Examples**

    - `tpu-course export build/tiny build/bert`
    - `tpu-course export gs://mine/base build/base`

    **Exit status**: 0 written · 2 can't be written, with the reason
    """
    from helpers.bert import command

    typer.echo(command.export(run, folder, data))
