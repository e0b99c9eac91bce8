"""The learner's commands: run notebooks, understand an error, look at the machine."""

import os
import pathlib
import sys
import webbrowser
from typing import Annotated

import typer
from typer.core import TyperCommand

from helpers.base.errors import CourseError
from helpers.course import map as course
from helpers.course.help import explain, logs

# Between a parameter's name and its value: no one can type it.
_BETWEEN = "\x1f"


def _names(incomplete: str) -> list[str]:
    """Give the notebooks whose name begins so, for a shell that completes it."""
    try:
        names = [notebook.name for notebook in course.notebooks()]
    except CourseError:  # said when the command is carried out, not at the tab key
        return []
    return [name for name in names if name.startswith(incomplete)]


Wanted = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NOTEBOOK",
        help="Numbers or names, such as 2, 02, 02_xla_rules.",
        autocompletion=_names,
    ),
]


class Pairs(TyperCommand):
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


def run(
    wanted: Wanted = None,
    parameter: list[str] | None = None,
    workshop: bool = False,
    jobs: int | None = None,
    open_page: bool | None = None,
    language: str | None = None,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Run notebooks in order and write a page of results: **build/index.html**.

    Each notebook runs in a kernel of its own, on this machine. The notebooks themselves stay as
    they are: what was executed is written to the folder build, also when a notebook fails.
    The run goes on after a failure. Ctrl-C keeps what is done.

    **Examples**

    - `tpu-course run`: all notebooks
    - `tpu-course run 2 7`: two of them
    - `tpu-course run 07 -p STEPS 50`: one, with a changed parameter
    - `tpu-course run --no-open`: without opening a browser
    - `tpu-course run --workshop`: the core of all notebooks
    - `tpu-course run --language ko`: the Korean edition; results go to build/ko
    - `tpu-course run --json > report.json`: for a script; what happens meanwhile goes to stderr

    **Exit status**: 0 all passed · 1 a notebook failed · 2 the command can't be carried
    out · 130 interrupted
    """
    pairs = [tuple(pair.split(_BETWEEN, 1)) for pair in parameter or []]
    if any(len(pair) != 2 for pair in pairs):
        raise typer.BadParameter("write it as -p NAME VALUE", param_hint="'-p'")
    course.values(pairs, course.choose(wanted or [], course.notebooks()))

    # Seconds of Jupyter's imports: only for what can be run.
    from rich.console import Console

    from helpers.course import running

    at_once = jobs or running.side_by_side()
    console = Console(stderr=as_json, quiet=quiet)
    folders = dict(zip(("folder", "build"), course.edition(language), strict=True))
    where = folders if language else {}
    report = running.run(
        wanted or [], pairs, workshop=workshop, jobs=at_once, console=console, **where
    )
    what = "The core alone: " if workshop else ""
    typer.echo(report.json() if as_json else f"{what}{report.summary}. Results: {report.page}")
    if open_page or (open_page is None and _has_screen() and report.status != 130):
        webbrowser.open(report.page.as_uri())
    raise typer.Exit(report.status)


def lab(language: str | None = None) -> None:
    """Open your copies of the notebooks in JupyterLab: **work/00_start_here.ipynb** first.

    What you change stays in the folder work, which an update of the course (git pull) doesn't
    touch. When a notebook has changed with an update, your answers are carried into its new
    edition, and your copy as it was stays in work/earlier.

    **Examples**

    - `tpu-course lab`
    - `tpu-course lab --language ko`: the Korean edition, in work/ko

    **Exit status**: that of JupyterLab · 2 it can't be opened
    """
    from helpers.course import working

    folder, _ = course.edition(language)
    work = working.WORK / folder.relative_to(course.NOTEBOOKS)
    if work != working.WORK:
        working.prepare()  # what the edition links to: texts in English, pictures
    for path in working.prepare(work, folder):
        typer.echo(f"{path.name} has a new edition, with your answers; before: {work.name}/earlier")
    settings = pathlib.Path(__file__).parents[1] / "lab"  # the tree shows whole names
    command = [sys.executable, "-m", "jupyterlab", f"--notebook-dir={working.WORK}"]
    first = (work / "00_start_here.ipynb").relative_to(working.WORK).as_posix()
    command += [f"--LabApp.default_url=/lab/tree/{first}"]
    command += [f"--LabApp.app_settings_dir={settings}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        typer.echo(
            "You are root, so a notebook could change anything on this machine. In a container "
            "that is usual; elsewhere, better be another user."
        )
        typer.confirm("Open JupyterLab as root?", abort=True)
        command.append("--allow-root")
    os.execv(command[0], command)


def explain_log(log: pathlib.Path | None = None, page: bool = False, as_json: bool = False) -> None:
    """Explain an error: read a log or a pasted error, say cause and fix.

    In a notebook, `%explain` does the same after a failed cell.

    **Examples**

    - `tpu-course explain training.log`
    - `python train.py 2>&1 | tpu-course explain`

    **Exit status**: 0 explained · 1 nothing known is in it · 2 the file can't be read
    """
    if page:
        typer.echo(explain.page(), nl=False)
        return
    piped = log is None or str(log) == "-"
    if piped and sys.stdin.isatty():
        typer.echo("Paste the error, then press Enter and Ctrl-D.", err=True)
    found = explain.explain(logs.decode(sys.stdin.buffer.read()) if piped else logs.read(log))
    if as_json:
        typer.echo(found.json())
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(found)
    else:
        typer.echo(repr(found))
    raise typer.Exit(0 if found else 1)


def doctor(bucket: str | None = None, region: str | None = None, as_json: bool = False) -> None:
    """Look at everything that a run needs: versions, place, devices, chip, disk, memory.

    Asks TensorFlow for its devices in a process of its own, with a time limit of a minute. Nothing
    is asked of the network, except of a TPU's address and of the bucket you name.

    **Examples**

    - `tpu-course doctor`
    - `tpu-course doctor --bucket gs://my-bucket --region us-central1`
    - `tpu-course doctor --json`

    **Exit status**: 0 nothing must be mended · 1 something must · 2 `--bucket` is
    no address
    """
    from rich.console import Console

    from helpers.course.help import doctor as examination

    if region and bucket is None:
        raise typer.BadParameter(
            "it is compared with a bucket's: add --bucket gs://…", param_hint="--region"
        )
    found = examination.doctor(bucket, region=region)
    if as_json:
        typer.echo(found.json())
    else:
        Console().print(found)
    raise typer.Exit(found.exit_status)


def _has_screen() -> bool:
    """Tell whether a person sits here: not in CI, and not in a terminal without a screen."""
    if not sys.stdout.isatty() or os.environ.get("CI"):
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
