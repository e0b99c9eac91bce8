"""Commands that teach a pretrained BERT to tell labels of texts, and ask it."""

import typer


def finetune(
    model: str,
    data: str,
    output: str,
    text: str = "text",
    label: str = "label",
    part: str | None = None,
    group: str | None = None,
    test: str | None = None,
    epochs: int = 10,
    batch: int = 32,
    learning_rate: float = 1e-3,
    seed: int = 0,
    tpu: str | None = None,
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


def predict(model: str, texts: str = "-", field: str = "text", as_json: bool = False) -> None:
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
