"""The list of commands, in the groups of their readers, and what holds for all of them."""

import pathlib
import sys
from typing import Annotated

import typer
from typer.core import TyperGroup

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.language import translated
from helpers.base.output import on_any_output
from helpers.base.settings import ROOT, is_course, version
from helpers.course.commands import authoring, learning, training
from helpers.course.commands.options import described
from tpu_preflight.errors import PreflightError

NAME = "tpu-course"

# Command by name, in the order of the help; the learner's first.
_GROUPS = {
    "The course": {
        "lab": learning.lab,
        "run": learning.run,
        "explain": learning.explain_log,
        "doctor": learning.doctor,
    },
    "Your own model and text": {
        "ops": training.make_ops,
        "prepare": training.prepare,
        "pretrain": training.pretrain,
        "export": training.export,
    },
    "For teachers": {"slides": authoring.slides, "solutions": authoring.solutions},
    "For authors": {
        "store": authoring.store,
        "translate": authoring.translate,
        "badges": authoring.set_badges,
        "models": authoring.make_models,
    },
}

# Commands with options of several words.
_CLASSES = {"run": learning.Pairs}

# These work where the helpers were installed without the course's folder.
_ANYWHERE = ("explain", "doctor", "prepare", "pretrain", "export")


class _Commands(TyperGroup):
    """The list of commands; an interrupt ends each with one line."""

    def invoke(self, ctx: typer.Context) -> object:
        """Carry a command out; Ctrl-C ends it with one line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("Stopped.", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    name=NAME,
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Each command has its own help, with examples: `tpu-course run --help`. Where "
    "`tpu-course` isn't installed, `python -m helpers` does the same in the course's folder.",
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{NAME} {version()}")
        raise typer.Exit


@app.callback()
def _all(
    ctx: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Say which it is."),
    ] = False,
) -> None:
    """Train TensorFlow models on TPU: run the course, and use its tools on your own work."""
    if {"-h", "--help"} & {*sys.argv}:
        return
    try:
        pathlib.Path.cwd()
    except FileNotFoundError:
        raise CourseError(
            "The current folder was deleted.",
            "This terminal is still in it, and names of files are looked up there.",
            "Go to a folder that exists (cd ~), and run the same command again.",
        ) from None
    if ctx.invoked_subcommand not in _ANYWHERE and not is_course(ROOT):
        raise CourseError(
            f"`{ctx.invoked_subcommand}` needs the course's folder, and this isn't in it.",
            "Only the helpers are installed here; the notebooks are in the course's repository.",
            "Go into a clone of it (cd tensorflow-on-tpu) and run the same command again.",
        )


for _title, _commands in _GROUPS.items():
    for _name, _function in _commands.items():
        command = app.command(_name, cls=_CLASSES.get(_name), rich_help_panel=_title)
        command(described(_name, _function))


def _carry_out(colour: bool | None) -> None:
    try:
        app(prog_name=NAME, color=colour)
    except OSError as error:
        # typer writes into the user's home, and leaves its errors as they are.
        if "--install-completion" not in sys.argv or error.filename is None:
            raise
        raise files.cant_write(pathlib.Path(error.filename), error) from error


def run() -> None:
    """Run the command line; an error of ours ends it with its message alone."""
    with on_any_output() as colour:
        try:
            _carry_out(colour)
        except PreflightError as error:
            what, why, fix = map(translated, (error.what, error.why, error.fix))
            said = f"{what}\n  {translated('Why')}: {why}\n  {translated('Fix')}: {fix}"
            typer.secho(said, err=True, fg="red", color=colour)
            raise SystemExit(2) from None
