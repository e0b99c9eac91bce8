"""Commands that teach a pretrained BERT to tell labels of texts, and ask it."""

from typing import Annotated

import typer

from helpers.course.commands.learning import AsJson


def finetune(
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", metavar="EXPORT", help="Folder that `export` wrote, or another BERT."
        ),
    ],
    data: Annotated[
        str, typer.Option("--data", "-d", metavar="FILE", help="Table (TSV) or JSON lines.")
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Of this run.")],
    text: Annotated[str, typer.Option(metavar="NAME", help="Of the column with texts.")] = "text",
    label: Annotated[str, typer.Option(metavar="NAME", help="With labels.")] = "label",
    part: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With train or test; without: part, if there is such a column."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Texts with the same value here stay together."),
    ] = None,
    test: Annotated[
        str | None, typer.Option(metavar="FILE", help="Texts to test on, where apart.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Times that each text is trained on.")] = 10,
    batch: Annotated[int, typer.Option(help="Rows per step, on all replicas together.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="The highest.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="Of classifier, order, dropout.")] = 0,
    tpu: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="local, grpc://… or a TPU's name. Without: the CPU."),
    ] = None,
) -> None:
    """Teach a pretrained BERT to tell labels of texts; the same command again goes on.

    FILE is a table with tabs between columns and their names in the first line, or JSON lines. The
    part named test is for testing alone; without one, the last of each five texts of a label is. At
    the end come accuracy, macro-F1 with 95 % intervals, and what was guessed for what. DIR/model
    is for `predict` and for transformers, DIR/guesses.tsv has each guess.

    Killed, crashed or interrupted: nothing is lost but the steps since the last checkpoint, and
    they are done again with the same numbers. Ctrl-C and SIGTERM save first.

    **Examples**

    - `tpu-course finetune --model build/bert --data texts.tsv --output build/tuned`
    - `tpu-course finetune -m build/base -d train.jsonl --test test.jsonl --label stars -o
      build/stars --learning-rate 5e-5 --epochs 4 --tpu local`

    **Exit status**: 0 all steps are done · 2 can't begin or go on, with the reason · 130 stopped
    by Ctrl-C · 143 by SIGTERM; saved in both cases
    """
    from helpers.bert.fine_tuning import command

    columns = {"text": text, "label": label, "part": part, "group": group, "test": test}
    numbers = {"epochs": epochs, "learning_rate": learning_rate, "seed": seed}
    status = command.finetune(
        model, data, output, columns=columns, tpu=tpu, global_batch_size=batch, **numbers
    )
    raise typer.Exit(status)


def predict(
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="DIR", help="Output folder of `finetune`.")
    ],
    texts: Annotated[
        str, typer.Argument(metavar="FILE", help="As `prepare --input`; - is standard input.")
    ] = "-",
    field: Annotated[
        str, typer.Option(metavar="NAME", help="With the text, in JSON lines and Parquet.")
    ] = "text",
    as_json: AsJson = False,
) -> None:
    """Tell the label of each text and how sure the model is, from 0 to 1.

    FILE has a text on each line, or is JSON lines or Parquet. A line of the output has label,
    confidence and text, with tabs between; with --json it is an object.

    **Examples**

    - `tpu-course predict --model build/tuned texts.txt`
    - `echo "Select the cells." | tpu-course predict -m build/tuned --json`

    **Exit status**: 0 told · 2 can't be told, with the reason
    """
    from helpers.bert.fine_tuning import command

    for line in command.predict(model, texts, field=field, as_json=as_json):
        typer.echo(line)
