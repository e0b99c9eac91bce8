"""The command line: ``python -m helpers``."""

import os
import pathlib
import sys
import webbrowser
from typing import Annotated

import typer
from typer.core import TyperCommand

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.settings import ENVIRONMENT, ROOT

# `course` brings Jupyter, which takes seconds: the commands that run notebooks import it.
from helpers.course import badges, explain, links, minutes
from helpers.exercises import progress

app = typer.Typer(
    name="python -m helpers",
    help="Run and look after the course from a terminal.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

# Between a parameter's name and its value: no one can type it.
_BETWEEN = "\x1f"

Wanted = Annotated[
    list[str] | None,
    typer.Argument(metavar="NOTEBOOK", help="Numbers or names, such as 2, 02, 02_xla_rules."),
]


class _Pairs(TyperCommand):
    """A command whose ``-p`` takes two words, any number of times; typer itself can't."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        """Join each ``-p NAME VALUE`` to one word."""
        words, joined = iter(args), []
        for word in words:
            joined.append(word)
            if word in ("-p", "--parameter"):
                pair = (next(words, None), next(words, None))
                if None in pair or "=" in pair[0]:
                    ctx.fail("-p takes a name and a value with a space between: -p NAME VALUE")
                joined.append(_BETWEEN.join(pair))
        return super().parse_args(ctx, joined)


@app.callback()
def main() -> None:
    """Run and look after the course from a terminal."""


@app.command(cls=_Pairs)
def run(
    wanted: Wanted = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="NAME VALUE",
            help="Change a parameter (cell 'parameters' of the notebook). Can be repeated. Goes to "
            "each chosen notebook that has it.",
        ),
    ] = None,
    workshop: Annotated[
        bool,
        typer.Option(
            "--workshop",
            help="Run only the core of each notebook, for a class: under 5 minutes in all. "
            "Results go to build/workshop.",
        ),
    ] = False,
    open_page: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            help="Open the page of results in a browser. Without either: when you sit at a "
            "terminal and have a screen.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run notebooks in order and write a page of results: **build/index.html**.

    Each notebook runs in a kernel of its own, on this machine. The notebooks themselves stay as
    they are: what was executed is written to the folder build, also when a notebook fails.
    The run goes on after a failure. Ctrl-C keeps what is done.

    **Examples**

    - `python -m helpers run`: all notebooks
    - `python -m helpers run 2 7`: two of them
    - `python -m helpers run 07 -p STEPS 50`: one, with a changed parameter
    - `python -m helpers run --no-open`: without opening a browser
    - `python -m helpers run --workshop`: the core of all notebooks

    **Exit status**: 0 all passed · 1 a notebook failed · 2 the command can't be carried
    out · 130 interrupted
    """
    from helpers.course import running as course

    pairs = [tuple(pair.split(_BETWEEN, 1)) for pair in parameter or []]
    if any(len(pair) != 2 for pair in pairs):
        raise typer.BadParameter("write it as -p NAME VALUE", param_hint="'-p'")
    report = course.run(wanted or [], pairs, workshop=workshop)
    what = "The core alone: " if workshop else ""
    typer.echo(f"{what}{report.summary}. Results: {report.page}")
    if open_page or (open_page is None and _has_screen() and report.status != 130):
        webbrowser.open(report.page.as_uri())
    raise typer.Exit(report.status)


@app.command()
def store(wanted: Wanted = None) -> None:
    """Run notebooks with their defaults and store the outputs in them (for authors).

    The stored outputs are what `make test` compares on the next machine. A notebook that fails
    stays as it is.

    **Examples**

    - `python -m helpers store`: all notebooks
    - `python -m helpers store 02`: one of them

    **Exit status**: 0 all stored · 1 a notebook failed · 2 the command can't be carried
    out · 130 interrupted
    """
    from helpers.course import running as course

    report = course.store(wanted or [])
    typer.echo(f"{report.summary}.")
    raise typer.Exit(report.status)


@app.command(name="progress")
def show_progress(
    page: Annotated[
        bool, typer.Option("--page", help="Write it as a page to print: build/progress.html.")
    ] = False,
    name: Annotated[str, typer.Option(help="A name for the page; it is not kept.")] = "",
    reset: Annotated[bool, typer.Option("--reset", help="Forget everything.")] = False,
) -> None:
    """Say which sections and exercises are done, and what comes next.

    The notebooks keep it on this machine while you work; nothing is sent anywhere. A section is
    done when all its cells have run, in one session or in several, an exercise when its check
    says right.

    **Examples**

    - `python -m helpers progress`
    - `python -m helpers progress --page --name "Ada Lovelace"`
    - `python -m helpers progress --reset`

    **Exit status**: 0 done · 2 its file, or a notebook, can't be used
    """
    from rich.console import Console

    where = progress.place()
    if reset:
        typer.echo(f"Deleted {where}" if progress.reset() else "There was nothing to forget.")
        return
    from helpers.course import running as course

    course.notebooks()  # says it when one is damaged
    found = progress.progress()
    if found.damaged:
        told = f"Lines of {where} that can't be read and are left out: {found.damaged}"
        typer.secho(told, err=True, fg="yellow")
    if page:
        target = course.BUILD / "progress.html"
        files.write(target, progress.page(found, name))
        typer.echo(f"Page: {target}")
        if _has_screen():
            webbrowser.open(target.as_uri())
        return
    Console().print(found)
    typer.echo(f"Kept in {where}")


@app.command()
def slides(
    wanted: Wanted = None,
    reveal: Annotated[
        pathlib.Path, typer.Option(metavar="DIR", help="Where `make slides` unpacked reveal.js.")
    ] = ROOT / "build" / "reveal",
) -> None:
    """Write notebooks as slides, with their stored outputs: **build/slides/NN.html**.

    Each deck is one file that opens in a browser without a network: arrow keys turn the slides,
    Esc shows them all, F fills the screen.

    **Examples**

    - `make slides`: fetches reveal.js once, then writes all decks
    - `python -m helpers slides 02`: one of them, again

    **Exit status**: 0 written · 2 reveal.js is missing, or a notebook is damaged
    """
    from helpers.course import running as course
    from helpers.course import slides as decks

    for notebook in course.choose(wanted or [], course.notebooks()):
        target = course.BUILD / f"slides/{notebook.name}.html"
        files.write(target, decks.deck(notebook.path, notebook.title, reveal))
        typer.echo(f"{target}")


@app.command(name="explain")
def explain_log(
    page: Annotated[
        bool, typer.Option("--page", help="Print all symptoms as a page in Markdown.")
    ] = False,
) -> None:
    """Explain an error: read a pasted log, say cause and fix.

    In a notebook, `%explain` does the same after a failed cell.

    **Examples**

    - `python -m helpers explain < training.log`
    - `python train.py 2>&1 | python -m helpers explain`

    **Exit status**: 0 explained · 1 nothing known is in it
    """
    if page:
        typer.echo(explain.page(), nl=False)
        return
    if sys.stdin.isatty():
        typer.echo("Paste the error, then press Enter and Ctrl-D.", err=True)
    found = explain.explain(sys.stdin.buffer.read().decode("utf-8", errors="replace"))
    typer.echo(repr(found))
    raise typer.Exit(0 if found else 1)


@app.command()
def doctor(
    bucket: Annotated[
        str | None,
        typer.Option(
            metavar="gs://…",
            help="Examine a bucket, too: an empty object is written and deleted.",
            show_default=False,
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(
            help="Region or zone of the TPU, to compare with the bucket's.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Look at everything that a run needs: versions, place, devices, chip, disk, memory.

    Asks TensorFlow for its devices in a process of its own, with a time limit of a minute. Nothing
    is asked of the network, except of a TPU's address and of the bucket you name.

    **Examples**

    - `python -m helpers doctor`
    - `python -m helpers doctor --bucket gs://my-bucket --region us-central1`
    - `python -m helpers doctor --json`

    **Exit status**: 0 nothing must be mended · 1 something must
    """
    from rich.console import Console

    from helpers.course import doctor as examination

    found = examination.doctor(bucket, region=region)
    if as_json:
        typer.echo(found.json())
    else:
        Console().print(found)
    raise typer.Exit(found.exit_status)


@app.command()
def solutions() -> None:
    """Write the teacher's edition: the notebooks with the solutions in: **build/solutions**.

    Made from helpers/exercises, where each solution stands beside its stub, hints and check.

    **Example**: `python -m helpers solutions`
    """
    os.environ.update(ENVIRONMENT)
    import nbformat

    from helpers import exercises
    from helpers.course import running as course

    folder = course.BUILD / "solutions"
    for notebook in course.notebooks():
        solved = exercises.solve(nbformat.read(notebook.path, 4))
        files.write(folder / notebook.path.name, nbformat.writes(solved) + "\n")
    typer.echo(f"The teacher's edition: {folder}")


@app.command(name="minutes")
def set_minutes() -> None:
    """Count how long each notebook takes, and write it into the notebooks and the README.

    **Example**: `python -m helpers minutes`
    """
    for number, counted in minutes.lengths().items():
        typer.echo(f"{number}: {counted}")
    changed = minutes.rewrite()
    typer.echo("\n".join(f"changed {path.name}" for path in changed) or "nothing to change")


@app.command(name="links")
def list_links() -> None:
    """List all addresses outside the course with their places and months: notebooks/LINKS.md.

    **Example**: `python -m helpers links`
    """
    typer.echo(f"{links.write()} addresses in {links.PAGE}")


@app.command(name="badges")
def set_badges(
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The new repository.")],
) -> None:
    """Set the course's public address in pyproject.toml, the README and every notebook.

    **Example**: `python -m helpers badges my-school/tensorflow-on-tpu`
    """
    changed = badges.set_repository(repository)
    typer.echo("\n".join(f"changed {path.name}" for path in changed) or "nothing to change")


@app.command()
def preflight(
    name: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="Imported from the current folder.")
    ],
    target: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", help="Such as v5e-8 (the default). Can be repeated."),
    ] = None,
    node: Annotated[
        bool, typer.Option("--node", help="The TPU is another machine (a TPU Node).")
    ] = False,
    largest_batch: Annotated[
        bool, typer.Option("--largest-batch", help="Search for the largest batch that fits.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write the report as JSON.")] = False,
    page: Annotated[
        pathlib.Path | None,
        typer.Option("--html", metavar="FILE", help="Write the report as one page, too."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds after which the check is ended.")] = 900.0,
) -> None:
    """Go through the checklist for a TPU with your own model, without a TPU.

    NAME is a function without arguments that returns a Keras model and its dataset (or a function
    and its TensorSpecs); or such a pair itself; or a tf.function with an input signature. It is
    imported and traced in a process of its own.

    What the TPU's compiler said of a program is kept on disk. Importing, tracing and comparing are
    done again each time: only that can tell whether your code is still the same.

    **Examples**

    - `python -m helpers preflight my_model:build --target v5e-8`
    - `python -m helpers preflight my_model:build -t v3-8 -t v5e-8 --html report.html`

    **Exit status**: 0 ready · 1 not ready · 2 can't tell, with the reason
    """
    from rich.console import Console

    from helpers.preflight import apart as preflight_child

    err = Console(stderr=True)
    with err.status("preflight: starting") as status:

        def tell(stage: str) -> None:
            if err.is_terminal:
                status.update(f"preflight: {stage}")
            else:
                typer.echo(f"preflight: {stage}", err=True)

        report = preflight_child.apart(
            name,
            target or ["v5e-8"],
            node=node,
            largest_batch=largest_batch,
            timeout=timeout,
            progress=tell,
        )
    if page is not None:
        report.save_html(page)
    if as_json:
        typer.echo(report.json())
    else:
        Console().print(report)
    raise typer.Exit(report.exit_status)


@app.command(name="ops")
def make_ops(
    stored: Annotated[
        bool,
        typer.Option("--stored", help="Only write the page, from the table as it is stored."),
    ] = False,
) -> None:
    """Compile nearly 300 operations for CPU and TPU: **build/ops.html**, a page to search in.

    Nothing is run. Each operation is compiled from shapes and types alone, by XLA for this CPU and
    by Google's TPU compiler. The verdicts are kept in notebooks/data/ops.tsv.

    **Examples**

    - `python -m helpers ops --stored`: the page, at once
    - `python -m helpers ops`: compile everything again, 2 to 4 minutes

    **Exit status**: 0 written · 2 the command can't be carried out
    """
    from helpers.xla import ops

    if stored:
        table = ops.read()
    else:
        os.environ.update(ENVIRONMENT)
        table = ops.make(lambda done, of: typer.echo(f"{done} of {of} compiled", err=True))
        ops.write(table)
    files.write(ops.PAGE, ops.page(table))
    typer.echo(f"{table}. Page: {ops.PAGE}")


@app.command()
def prepare(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Folder or gs://….")
    ] = "build/records",
    texts: Annotated[
        list[pathlib.Path] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="FILE",
            help="Text, UTF-8, one document per line; can be repeated. Without: the shipped text.",
        ),
    ] = None,
    tokenizer: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="tokenizer.json. Without: the shipped one."),
    ] = None,
    sequence_length: Annotated[int, typer.Option(help="Places per row.")] = 128,
    shards: Annotated[int, typer.Option(help="Files; for much text some 100 MB each.")] = 8,
    part: Annotated[
        str, typer.Option(metavar="K/N", help="Write the K-th of N parts of the shards only.")
    ] = "1/1",
    workers: Annotated[int, typer.Option(min=1, help="Processes that write side by side.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Shuffles documents over the shards.")] = 0,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Write pairs, for `pretrain --next-sentence`.")
    ] = False,
) -> None:
    """Turn text into training records: packed rows of token ids in TFRecord files.

    One document in ten (the last of each ten lines of a file) is held out of them and written to
    DIR/held-out. Killed or interrupted: the same command again goes on with the shards that are
    not finished, and the bytes are the same in the end. Several machines can each write a part
    into one bucket; the last one writes the manifest.

    **Examples**

    - `python -m helpers prepare`: the shipped Korean and English text, to build/records
    - `python -m helpers prepare -i ko.txt -i en.txt --tokenizer tokenizer.json -o records`
    - `python -m helpers prepare -i wiki.txt -o gs://mine/wiki --shards 64 --part 3/8 --workers 4`

    **Exit status**: 0 written · 2 can't be written, with the reason · 130 interrupted
    """
    from helpers.text import prepare as command

    lines = command.prepare(
        output,
        texts=texts,
        tokenizer=tokenizer,
        sequence_length=sequence_length,
        shards=shards,
        part=part,
        workers=workers,
        seed=seed,
        pairs=pairs,
    )
    try:
        for line in lines:
            typer.echo(line)
    except KeyboardInterrupt:
        typer.echo(
            "Stopped. Finished shards are kept: run the same command again to go on.", err=True
        )
        raise typer.Exit(130) from None


@app.command()
def pretrain(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Of this run: folder or gs://….")
    ],
    config: Annotated[str, typer.Option(help="tiny, mini, small or base.")] = "tiny",
    steps: Annotated[int, typer.Option(help="Of the whole run.")] = 1_000,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Records of `prepare`. Without: the shipped text."),
    ] = None,
    tpu: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="local, grpc://… or a TPU's name. Without: the CPU."),
    ] = None,
    batch: Annotated[int, typer.Option(help="Rows per step, on all replicas together.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="The highest.")] = 2e-3,
    warm_up: Annotated[int, typer.Option(help="Steps until it.")] = 100,
    dropout: Annotated[float, typer.Option(help="Share of values.")] = 0.1,
    accumulate: Annotated[
        int, typer.Option(help="Parts of a step's rows, one after the other: less memory.")
    ] = 1,
    steps_per_execution: Annotated[
        int, typer.Option(help="Steps in one call; on a TPU 50 or more.")
    ] = 1,
    save_every: Annotated[int, typer.Option(help="Steps between two checkpoints.")] = 100,
    patience: Annotated[
        int,
        typer.Option(help="Steps after the warm-up until it must beat counting words; 0: never."),
    ] = 500,
    seed: Annotated[int, typer.Option(help="Of weights, order, masks, dropout.", min=0)] = 0,
    next_sentence: Annotated[
        bool,
        typer.Option(
            "--next-sentence",
            help="Train the paper's second head, too; needs records of `prepare --pairs`.",
        ),
    ] = False,
) -> None:
    """Pretrain BERT; the same command again goes on where it ended, to the last bit.

    Killed, crashed or interrupted: nothing is lost but the steps since the last checkpoint, and
    they are done again with the same numbers. Ctrl-C and SIGTERM save first. Curves for
    TensorBoard are in DIR/tensorboard, the losses in DIR/log.jsonl.

    On a CPU the compiled step is kept in DIR/compiled with its checksum, so that going on starts
    without compiling; the numbers are the same. Not for another kind of processor or TensorFlow,
    not with DIR in a bucket, not on a TPU.

    **Examples**

    - `python -m helpers pretrain --output build/tiny`: on the shipped text, on this CPU
    - `python -m helpers pretrain -o build/mini --config mini --steps 5000 --data build/records`
    - `python -m helpers pretrain -o gs://mine/base --config base --steps 100000
      --data gs://mine/records --batch 256 --learning-rate 1e-4 --warm-up 10000
      --steps-per-execution 50 --tpu local`: on a TPU VM

    **Exit status**: 0 all steps are done · 2 can't begin or go on, with the reason · 130 stopped
    by Ctrl-C · 143 by SIGTERM; saved in both cases
    """
    from helpers.bert import command as pretrain_command

    status = pretrain_command.pretrain(
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


@app.command()
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Output folder of `pretrain`.")],
    folder: Annotated[pathlib.Path, typer.Argument(metavar="FOLDER", help="To make.")],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The run's records. Without: the shipped text.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a run's model so that transformers reads it, in PyTorch and in TensorFlow.

    In the folder: weights for both, configuration, tokenizer, and a model card with data, settings
    and results on held-out text.

    **Examples**

    - `python -m helpers export build/tiny build/bert`
    - `python -m helpers export gs://mine/base build/base --data gs://mine/records`

    **Exit status**: 0 written · 2 can't be written, with the reason
    """
    os.environ.update(ENVIRONMENT)
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    from helpers.bert import export as exporting

    facts = exporting.export(run, folder, data)
    results = f"\n{facts.results!r}" if facts.results else ""
    typer.echo(f"{folder}: step {facts.step:,} of {facts.settings.steps:,}.{results}")


def _has_screen() -> bool:
    """Tell whether a person sits here: not in CI, and not in a terminal without a screen."""
    if not sys.stdout.isatty() or os.environ.get("CI"):
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def command() -> None:
    """Run the command line; an error of ours ends it with its message alone."""
    try:
        app(prog_name="python -m helpers")
    except CourseError as error:
        typer.secho(f"{error}", err=True, fg="red")
        raise SystemExit(2) from None


if __name__ == "__main__":
    command()
