"""The list of commands, in the groups of their readers, and what holds for all of them."""

import errno
import os
import pathlib
import signal
import sys

import typer

from helpers.base.language import translated
from helpers.course.commands import course, training
from tpu_preflight.errors import PreflightError

NAME = "tpu-course"

# In the order of the help; the learner's first.
GROUPS = {
    "The course": {
        "lab": course.lab,
        "run": course.run,
        "explain": course.explain_log,
    },
    "Your own text and model": {
        "prepare": training.prepare,
        "pretrain": training.pretrain,
        "export": training.export,
    },
    "For teachers and authors": {
        "solutions": course.solutions,
        "store": course.store,
        "translate": course.translate,
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
    "`tpu-course` isn't installed, `python -m helpers` does the same in the course's folder.",
)
for _title, _commands in GROUPS.items():
    for _name, _function in _commands.items():
        app.command(_name, rich_help_panel=_title)(_function)


def _terminate(number: int, _: object) -> None:
    raise SystemExit(128 + number)  # as shells have it


def run() -> None:
    """Run the command line; an error of ours ends it with its message alone.

    A character that an encoding lacks (Windows' code pages, LANG=C) is printed as ``?``. SIGTERM
    and a closed terminal end what was started and leave nothing half written, as Ctrl-C does.
    """
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup's
        signal.signal(signal.SIGHUP, _terminate)
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY))  # closed by <&-
    for stream in filter(None, (sys.stdout, sys.stderr)):  # and >&- one of these
        stream.reconfigure(errors="replace")
    colour = False if os.environ.get("NO_COLOR") else None  # https://no-color.org
    try:
        pathlib.Path.cwd()
    except OSError:
        typer.echo("The current folder is gone. Go to another (cd) and try again.", err=True)
        raise SystemExit(2) from None
    try:
        app(prog_name=NAME, color=colour)
    except PreflightError as error:
        what, why, fix = map(translated, (error.what, error.why, error.fix))
        said = f"{what}\n  {translated('Why')}: {why}\n  {translated('Fix')}: {fix}"
        typer.secho(said, err=True, fg="red", color=colour)
        raise SystemExit(2) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left would be written at the end
        typer.echo("The disk is full. Make room and run the same command again.", err=True)
        raise SystemExit(2) from None
