"""The list of commands, in the groups of their readers, and what holds for all of them."""

import os
import pathlib
import re
import sys

import typer

from course import shadows
from course.commands import notebooks, training
from helpers.base.errors import CourseError, unforeseen, unreadable
from tpu_preflight.errors import PreflightError

NAME = "tpu-course"

# In the order of the help; the learner's first.
GROUPS = {
    "The course": {
        "lab": notebooks.lab,
        "run": notebooks.run,
        "explain": notebooks.explain_log,
        "confirm": notebooks.confirm,
    },
    "Your own text and model": {
        "prepare": training.prepare,
        "pretrain": training.pretrain,
        "export": training.export,
    },
    "For teachers and authors": {
        "solutions": notebooks.solutions,
        "tidy": notebooks.tidy,
        "store": notebooks.store,
        "translate": notebooks.translate,
    },
}

app = typer.Typer(
    name=NAME,
    no_args_is_help=True,
    help="Train TensorFlow models on TPU: run the course, and use its tools on your own work.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Each command has its own help, with examples: `tpu-course run --help`. Where "
    "`tpu-course` isn't installed, `python -m course` does the same in the course's folder.",
)
for _title, _commands in GROUPS.items():
    for _name, _function in _commands.items():
        app.command(_name, rich_help_panel=_title)(_function)


def run() -> None:
    """Run the command line; an error ends it with its message alone."""
    for stream in (sys.stdout, sys.stderr):  # for Windows' code pages, LANG=C
        stream.reconfigure(errors="replace")
    if not re.fullmatch(r"\d{2,4}", os.environ.get("COLUMNS", "80")):  # rich would show nothing
        del os.environ["COLUMNS"]
    color = False if os.environ.get("NO_COLOR") else None  # https://no-color.org
    try:
        with unreadable("The current folder is gone.", "Go to another (cd) and try again."):
            names = str(pathlib.Path.cwd()) + "".join(sys.argv)
        if sys.getfilesystemencoding() != "utf-8" and not names.isascii():
            raise CourseError(
                "The name of the current folder or of a file can't be used.",
                "The locale has no letters but those of English (LC_ALL, PYTHONUTF8).",
                "Write LC_ALL=C.UTF-8 PYTHONUTF8=1 before the command.",
            )
        app(prog_name=NAME, color=color)
    except SystemExit as ending:
        # Typer says nothing at Ctrl-C. A command that has said what is kept ends with no cause.
        typer_exit = ending.__context__
        if typer_exit is not None and isinstance(typer_exit.__cause__, KeyboardInterrupt):
            typer.echo("Stopped.", err=True)
        raise
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        message = _message(error)
        typer.secho(message, err=True, fg="red", color=color)
        if isinstance(error, OSError):  # what is left would be written now
            sys.stdout = None
        raise SystemExit(2) from None


def _message(error: Exception) -> CourseError:
    """Give what a user reads of an error: what happened, why, and what to do."""
    if isinstance(error, (CourseError, PreflightError)):
        return CourseError(error.what, error.why, error.fix)
    hidden = shadows.explanation()
    if hidden is not None and not isinstance(error, OSError):
        return CourseError(*hidden)
    return unforeseen(error)
