"""The author's commands: outputs, slides, solutions, translations, the public address."""

import os
import pathlib

import typer

from helpers.base import files, language
from helpers.base.language import ENGLISH
from helpers.base.settings import ENVIRONMENT, ROOT
from helpers.course import map as course
from helpers.course import upkeep
from helpers.course.commands.learning import Wanted


def store(wanted: Wanted = None) -> None:
    """Run notebooks with their defaults and store the outputs in them (for authors).

    The stored outputs are what `make test` compares on the next machine. A notebook that fails
    stays as it is. `tpu-course translate` then carries them into the other languages.

    **Examples**

    - `tpu-course store`: all notebooks
    - `tpu-course store 02`: one of them

    **Exit status**: 0 all stored · 1 a notebook failed · 2 the command can't be carried
    out · 130 interrupted
    """
    from helpers.course import storing

    report = storing.store(wanted or [])
    typer.echo(f"{report.summary}.")
    raise typer.Exit(report.status)


def slides(
    wanted: Wanted = None,
    reveal: pathlib.Path = ROOT / "build" / "reveal",
    language: str | None = None,
) -> None:
    """Write notebooks as slides, with their stored outputs: **build/slides/NN.html**.

    Each deck is one file that opens in a browser without a network: arrow keys turn the slides,
    S opens the speaker's notes in a window of their own, Esc shows all slides, F fills the screen.
    Beside each name stands how many slides it has.

    **Examples**

    - `make slides`: fetches reveal.js once, then writes all decks
    - `tpu-course slides 02`: one of them, again
    - `tpu-course slides --language ko`: the Korean edition's, in build/ko/slides

    **Exit status**: 0 written · 2 reveal.js is missing, or a notebook is damaged
    """
    from helpers.course.editions import slides as decks

    folder, build = course.edition(language)
    chosen = course.choose(wanted or [], course.notebooks(folder))
    shown = [(notebook.path, notebook.title) for notebook in chosen]
    for path, title in shown if wanted else [*shown, (decks.WELCOME, "Welcome")]:
        target = build / f"slides/{path.stem}.html"
        arranged = decks.arrange(decks.read(path), path.stem[:2], language or ENGLISH)
        files.write(target, decks.deck(arranged, path, title, reveal))
        typer.echo(f"{target}: {decks.count(arranged)} slides")


def solutions() -> None:
    """Write the teacher's edition: the notebooks with the solutions in: **build/solutions**.

    Made from helpers/exercises, where each solution stands beside its stub, hints and check.

    **Example**: `tpu-course solutions`
    """
    os.environ.update(ENVIRONMENT)
    import nbformat

    from helpers import exercises

    folder = course.BUILD / "solutions"
    for notebook in course.notebooks():
        solved = exercises.solve(nbformat.read(notebook.path, 4))
        files.write(folder / notebook.path.name, nbformat.writes(solved) + "\n")
    typer.echo(f"The teacher's edition: {folder}")


def set_badges(repository: str) -> None:
    """Set the course's public address in pyproject.toml, the README and every notebook.

    **Example**: `tpu-course badges my-school/tensorflow-on-tpu`
    """
    changed = upkeep.set_repository(repository)
    _tell(changed)


def translate(languages: list[str] | None = None) -> None:
    """Bring the translations in step with the English, and make their notebooks and pages.

    A message whose English has changed becomes fuzzy, and the English is shown in its place until
    somebody looks at it (CONTRIBUTING.md, Another language). A new code begins a translation.

    **Examples**

    - `tpu-course translate`
    - `tpu-course translate ja`: begin a Japanese one: notebooks/locale/ja.po

    **Exit status**: 0 done · 2 a translation is damaged, or no language's code
    """
    from helpers.course.editions import translation

    for code in languages or language.translations():
        counted, changed = translation.write(code)
        typer.echo(f"{code}: {counted}; {len(changed)} files changed")
        for where in (*counted.fuzzy[:5], *counted.missing[:5]):
            typer.echo(f"  to do: {where}")


def _tell(changed: list[pathlib.Path]) -> None:
    typer.echo("\n".join(f"changed {path.name}" for path in changed) or "nothing to change")
