"""Commands for your own data and model: preflight, operations, records, pretraining, export."""

import dataclasses
import os
import pathlib
from typing import Annotated, Literal

import typer
from typer.core import TyperCommand

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.language import translated
from helpers.base.settings import ENVIRONMENT

SECONDS = 900.0  # of a preflight, and of each target's profile


class Compared(TyperCommand):
    """A command whose ``--compare`` takes several words; typer itself can't."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        """Turn ``--compare A B`` into ``--compare A --compare B``."""
        spread, listing = [], False
        for word in args:
            if listing and not word.startswith("-") and ":" not in word:
                spread += ["--compare", word]
            elif word == "--compare":
                listing = True
            else:
                listing = False
                spread.append(word)
        return super().parse_args(ctx, spread)


def preflight(
    name: str,
    target: list[str] | None = None,
    node: bool = False,
    largest_batch: bool = False,
    profile: bool = False,
    numerics: int = 0,
    input_rate: bool = False,
    steps: int | None = None,
    price: list[str] | None = None,
    compare: list[str] | None = None,
    baseline: pathlib.Path | None = None,
    as_json: bool = False,
    page: pathlib.Path | None = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=1,
            help=f"Seconds after which the check is ended; {SECONDS:g}, and as many more for each "
            "target with a profile.",
            show_default=False,
        ),
    ] = None,
    quiet: bool = False,
) -> None:
    """Go through the checklist for a TPU with your own model, without a TPU.

    NAME is a function without arguments that returns a Keras model and its dataset (or a function
    and its TensorSpecs); or such a pair itself; or a tf.function with an input signature. For JAX
    the pair is a function and a tuple of its arguments (jax.ShapeDtypeStruct), or a Keras model on
    JAX and its data; `-t tpu7x-8` is for these. It is imported and traced in a process of its own.

    What the TPU's compiler said of a program is kept on disk. Importing, tracing and comparing are
    done again each time: only that can tell whether your code is still the same.

    **Examples**

    - `tpu-course preflight my_model:build --target v5e-8`
    - `tpu-course preflight my_model:build -t v3-8 -t v5e-8 --html report.html`
    - `tpu-course preflight my_model:build --json --baseline main.json > report.json`
    - `tpu-course preflight my_model:build --compare v5e-8 v6e-8 --steps 100000 --price v5e=1.2
      --price v6e=2.7`

    **Exit status**: 0 ready · 1 not ready · 2 can't tell, with the reason · 3 ready, but over
    5 % more memory or time than the baseline, more compilations, or a check with a worse verdict
    """
    from rich.console import Console

    from helpers.preflight import apart as preflight_child
    from helpers.preflight import baseline as baselines
    from helpers.preflight.estimate import price as prices

    targets = list(dict.fromkeys([*(target or []), *(compare or [])])) or ["v5e-8"]
    profile = profile or steps is not None or compare is not None
    typed = prices.read(price or [], targets)
    if typed and steps is None:
        raise CourseError(
            "There is a price, but no number of steps.",
            "A run's price is steps x time of a step x chips x the price of a chip for an hour.",
            "Say how long the run is: --steps 100000.",
        )
    if page is not None:
        files.check_can_write(page)  # now: the check takes minutes
    before = baseline and baselines.read(baseline)
    err = Console(stderr=True, quiet=quiet)
    with err.status(f"preflight: {translated('starting')}") as status:

        def tell(stage: str) -> None:
            stage = translated(stage)
            if err.is_terminal or quiet:
                status.update(f"preflight: {stage}")
            else:
                typer.echo(f"preflight: {stage}", err=True)

        report = preflight_child.apart(
            name,
            targets,
            node=node,
            largest_batch=largest_batch,
            profile=profile,
            numerics=numerics,
            input_rate=input_rate,
            timeout=timeout or SECONDS * (1 + len(targets) * profile),
            progress=tell,
        )
    if steps is not None and report.timings:
        found = prices.prices(report.timings, report.estimates, steps, typed)
        report = dataclasses.replace(report, prices=found)
    if before is not None:
        report = dataclasses.replace(report, changes=baselines.compare(report, before))
    if page is not None:
        report.save_html(page)
    if as_json:
        typer.echo(report.json())
    else:
        Console().print(report)
    raise typer.Exit(report.exit_status)


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
    accumulate: int = 1,
    steps_per_execution: int = 1,
    save_every: int = 100,
    patience: int = 500,
    seed: int = 0,
    next_sentence: bool = False,
) -> None:
    """Pretrain BERT; the same command again goes on where it ended, on one CPU to the last bit.

    Killed, crashed or interrupted: nothing is lost but the steps since the last checkpoint, and
    they are done again with the same numbers. Ctrl-C and SIGTERM save first. A finished run goes
    on when --steps is raised. Curves for TensorBoard are in DIR/tensorboard, the losses in
    DIR/log.jsonl.

    On a CPU the compiled step is kept in DIR/compiled with its checksum, so that going on starts
    without compiling; the numbers are the same. Not for another kind of processor or TensorFlow,
    not with DIR in a bucket, not on a TPU.

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
        steps_per_execution=steps_per_execution,
        save_every=save_every,
        patience=patience,
        steps=steps,
        global_batch_size=batch,
        learning_rate=learning_rate,
        warm_up=warm_up,
        dropout=dropout,
        accumulate=accumulate,
        seed=seed,
        next_sentence=next_sentence,
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

    facts = command.export(run, folder, data)
    results = f"\n{facts.results!r}" if facts.results else ""
    typer.echo(f"{folder}: step {facts.step:,} of {facts.settings.steps:,}.{results}")
