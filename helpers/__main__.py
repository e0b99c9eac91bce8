"""The command line: ``python -m helpers``."""

import typer

from helpers.base.errors import CourseError
from helpers.base.output import on_any_output
from helpers.course.commands import authoring, learning, training

app = typer.Typer(
    name="python -m helpers",
    help="Run and look after the course from a terminal.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

app.command("run", cls=learning.Pairs)(learning.run)
for name, function in {
    "store": authoring.store,
    "progress": learning.show_progress,
    "slides": authoring.slides,
    "explain": learning.explain_log,
    "doctor": learning.doctor,
    "solutions": authoring.solutions,
    "minutes": authoring.set_minutes,
    "links": authoring.list_links,
    "badges": authoring.set_badges,
    "preflight": training.preflight,
    "ops": training.make_ops,
    "prepare": training.prepare,
    "pretrain": training.pretrain,
    "export": training.export,
}.items():
    app.command(name)(function)


def command() -> None:
    """Run the command line; an error of ours ends it with its message alone."""
    with on_any_output() as colour:
        try:
            app(prog_name="python -m helpers", color=colour)
        except CourseError as error:
            typer.secho(f"{error}", err=True, fg="red", color=colour)
            raise SystemExit(2) from None


if __name__ == "__main__":
    command()
