"""The command line: ``python -m helpers``."""

import os
import pathlib
import sys
import webbrowser
from typing import Annotated

import typer
from typer.core import TyperCommand

from helpers import badges, course, explain
from helpers.errors import CourseError

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

    **Exit status**: 0 all passed · 1 a notebook failed · 2 the command can't be carried
    out · 130 interrupted
    """
    pairs = [tuple(pair.split(_BETWEEN, 1)) for pair in parameter or []]
    if any(len(pair) != 2 for pair in pairs):
        raise typer.BadParameter("write it as -p NAME VALUE", param_hint="'-p'")
    report = course.run(wanted or [], pairs)
    typer.echo(f"{report.summary}. Results: {report.page}")
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
    report = course.store(wanted or [])
    typer.echo(f"{report.summary}.")
    raise typer.Exit(report.status)


@app.command(name="explain")
def explain_log() -> None:
    """Explain an error: read a pasted log, say cause and fix.

    In a notebook, `%explain` does the same after a failed cell.

    **Examples**

    - `python -m helpers explain < training.log`
    - `python train.py 2>&1 | python -m helpers explain`

    **Exit status**: 0 explained · 1 nothing known is in it
    """
    if sys.stdin.isatty():
        typer.echo("Paste the error, then press Enter and Ctrl-D.", err=True)
    found = explain.explain(sys.stdin.buffer.read().decode("utf-8", errors="replace"))
    typer.echo(repr(found))
    raise typer.Exit(0 if found else 1)


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

    **Examples**

    - `python -m helpers preflight my_model:build --target v5e-8`
    - `python -m helpers preflight my_model:build -t v3-8 -t v5e-8 --html report.html`

    **Exit status**: 0 ready · 1 not ready · 2 can't tell, with the reason
    """
    from rich.console import Console

    from helpers import preflight_child

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
