"""The commands about the course itself: learn, run, understand an error, write another edition."""

import os
import pathlib
import sys
from typing import Annotated

import typer

from course import catalog, outputs
from course.processes import daemons_ended, temporary
from helpers.base import language as languages
from helpers.base.errors import CourseError, unreadable
from helpers.base.settings import ENVIRONMENT
from helpers.display import explain

_NUMBERS = "Numbers or names, such as 2, 02, 02_xla_rules."
_EDITION = "The notebooks in another language, such as ko. Without: English."
Names = Annotated[list[str] | None, typer.Argument(metavar="NOTEBOOK", help=_NUMBERS)]
Language = Annotated[str | None, typer.Option(metavar="CODE", help=_EDITION)]


@temporary()
def run(
    names: Names = None,
    workshop: Annotated[
        bool, typer.Option("--workshop", help="Run only the core of each notebook, for a class.")
    ] = False,
    language: Language = None,
) -> None:
    """Run notebooks in order and write an index of the results: **build/index.html**.

    The notebooks stay as they are: what was executed is written to the folder build, also when a
    notebook fails; the run goes on then. Ctrl-C keeps what is done.

    **Examples**

    - `tpu-course run`: all notebooks
    - `tpu-course run 2 7`: two of them
    - `tpu-course run --workshop`: the core of all notebooks; results go to build/workshop
    - `tpu-course run --language ko`: the Korean edition; results go to build/ko

    **Exit status**: 0 all passed · 1 a notebook failed · 2 can't begin · 130 interrupted
    """
    folder, build = catalog.edition(language)
    selection = catalog.choose(names or [], catalog.notebooks(folder))

    from course import running  # seconds of Jupyter's imports: only for what can be run

    if workshop:
        build = build / "workshop"  # never taken for a whole run
    page = build / "index.html"
    try:
        with daemons_ended():
            results = running.run(selection, build, workshop=workshop)
    except KeyboardInterrupt:
        typer.echo(f"Stopped. What is done: {page}", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"Results: {page}")
    has_screen = sys.platform != "linux" or "DISPLAY" in os.environ
    if sys.stdout.isatty() and has_screen:
        typer.launch(page.as_uri())
    raise typer.Exit(_status(results))


def _status(results: tuple) -> int:
    """Give the exit status of a run: 1 where a notebook failed."""
    return int(any(result.state != "passed" for result in results))


def lab(
    language: Language = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="JupyterLab's port, or the next free one. Without: 8888."
        ),
    ] = None,
) -> None:
    """Open your copies of the notebooks in JupyterLab: **work/00_start_here.ipynb** first.

    An update of the course (git pull) doesn't touch them. When a notebook has changed with it, your
    answers are carried into its new edition, and your copy as it was stays in work/earlier.

    **Example**: `tpu-course lab --language ko`: the Korean edition, in work/ko
    """
    from course import learner_copy

    folder, _ = catalog.edition(language)
    work = learner_copy.WORK / folder.relative_to(catalog.NOTEBOOKS)
    if work != learner_copy.WORK:
        learner_copy.prepare()  # what the edition links to: texts in English, pictures
    for path in learner_copy.prepare(work, folder):
        typer.echo(f"{path.name} is renewed, with your answers; before: {work.name}/earlier")
    page = (work / "00_start_here.ipynb").relative_to(learner_copy.WORK).as_posix()
    # Whole names in the tree, no news, texts as pages.
    settings = pathlib.Path(__file__).parents[1] / "lab"
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--allow-root",  # which it refuses otherwise
        f"--notebook-dir={learner_copy.WORK}",
        f"--LabApp.default_url=/lab/tree/{page}",
        f"--LabApp.app_settings_dir={settings}",
    ]
    if port is not None:
        command.append(f"--port={port}")
    os.execv(command[0], command)


def explain_log(
    log: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="LOG", help="File with the log; without it, what is piped in."),
    ] = "-",
    page: Annotated[
        bool, typer.Option("--page", help="Print all symptoms as a page in Markdown.")
    ] = False,
) -> None:
    """Explain an error: read a log or a pasted error, say cause and fix.

    In a notebook, `%explain` does the same after a failed cell.

    **Examples**

    - `tpu-course explain training.log`
    - `python train.py 2>&1 | tpu-course explain`

    **Exit status**: 0 explained · 1 nothing known is in it · 2 the file can't be read
    """
    if page:
        from course import pages

        typer.echo(pages.symptoms_page(), nl=False)
        return
    if log.isatty():
        typer.echo("Paste the error, then press Enter and Ctrl-D.", err=True)
    with unreadable("The log can't be read.", "Name a file with the text of the log."):
        data, left_out = explain.read(log)
    if left_out >= explain.ENDLESS or data.startswith(b"\x1f\x8b"):
        raise CourseError(
            "The log is compressed, or too long.",
            "It is a file of gzip, has no end, or more than a GB.",
            "Give its text, or its end: `zcat LOG | tpu-course explain`, `tail -c 1M LOG`.",
        )
    if left_out:
        typer.echo(
            f"Read: the log's first and last half MB, not the {left_out:,} bytes between.", err=True
        )
    explanation = explain.explain(explain.decode(data))
    typer.echo(repr(explanation))
    raise typer.Exit(0 if explanation else 1)


def confirm(
    file: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="FILE", help="What notebook 13 printed last; - for what is piped."),
    ],
) -> None:
    """Check a report of notebook 13, which was run on a TPU, and say what follows from it.

    Prints each time beside its prediction, the rows for the table of published steps, and the
    sentences of the course that were confirmed or refuted.

    **Example**: `tpu-course confirm report.json`

    **Exit status**: 0 a report from a TPU · 1 one that was rehearsed on a CPU · 2 no report that
    can be used, with the reason
    """
    from course import confirmation
    from helpers.confirm import report as reports

    fix = "Give the file with what notebook 13 printed last."
    with unreadable("The report can't be read.", fix):
        content = file.read(reports.LONGEST_FILE + 1).decode()
    report = reports.read(content)
    typer.echo(confirmation.text(report))
    raise typer.Exit(int(report.rehearsed))


def solutions() -> None:
    """Write the teacher's edition: the notebooks with the solutions in: **build/solutions**.

    Made from helpers/exercises, where each solution stands beside its stub, hints and check. What
    you changed in build/solutions stays in build/solutions/earlier.

    **Example**: `tpu-course solutions`
    """
    os.environ.update(ENVIRONMENT)
    import nbformat

    from helpers import exercises

    folder = catalog.BUILD / "solutions"
    for notebook in catalog.notebooks():
        solved = exercises.solve(nbformat.read(notebook.path, 4))
        path, text = folder / notebook.path.name, nbformat.writes(solved) + "\n"
        outputs.write_own(path, text, folder / "earlier")
    typer.echo(f"The teacher's edition: {folder}")


@temporary()
def store(names: Names = None, language: Language = None) -> None:
    """Run notebooks with their defaults and store the outputs in them (for authors).

    The stored outputs are what `make test` compares on the next machine. A notebook that fails
    stays as it is. `tpu-course translate` then gives them to translated cells that have none.

    **Example**: `tpu-course store 02 --language ko`. **Exit status**: as of `run`
    """
    folder, _ = catalog.edition(language)
    selection = catalog.choose(names or [], catalog.notebooks(folder))

    from course import running

    with daemons_ended():
        results = running.store(selection)
    raise typer.Exit(_status(results))


def tidy(names: Names = None, language: Language = None) -> None:
    """Strip what JupyterLab adds to notebooks; nothing runs (for authors).

    Metadata of the editor, gaps in the execution counts, empty cells and lines at the end. The
    outputs stay as they are stored.

    **Example**: `tpu-course tidy 02`
    """
    from course import tidy as tidying

    folder, _ = catalog.edition(language)
    notebooks = catalog.choose(names or [], catalog.notebooks(folder))
    paths = tidying.tidy(notebooks)
    for path in paths:
        typer.echo(f"{path.name} is tidied")
    typer.echo(f"{len(paths)} of {len(notebooks)} notebooks changed")


def translate(
    codes: Annotated[
        list[str] | None,
        typer.Argument(metavar="CODE", help="Such as ko. Without: all that there are."),
    ] = None,
) -> None:
    """Bring the translations in step with the English, and make their notebooks and pages.

    A message whose English has changed becomes fuzzy, and the English is shown in its place until
    someone looks at it (CONTRIBUTING.md, Another language). A new code begins a translation.

    **Example**: `tpu-course translate ja` begins a Japanese one: notebooks/locale/ja.po
    """
    from babel import localedata

    from course import translation

    codes = codes or languages.translations()
    for code in codes:
        if code == languages.ENGLISH or code not in localedata.locale_identifiers():
            what = f"There is no translation into {code!r}."
            raise typer.BadParameter(f"{what} Give a language's code, such as ko, ja or pt_BR.")
    for code in codes:
        to_do, changed = translation.write(code)
        typer.echo(f"{code}: {len(changed)} files changed; to do: {len(to_do)}")
        typer.echo("".join(f"  {where}\n" for where in to_do[:10]), nl=False)
