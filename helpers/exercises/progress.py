"""What a learner has done: sections whose cells all ran, exercises answered rightly.

Kept in one text file on this machine, a line for each thing done. Lines are only ever added, each
in one write, so two kernels can keep it at once and nothing done can be lost to a crash.
"""

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import json
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from helpers.base.errors import CourseError
from helpers.base.settings import ROOT

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
    from rich.table import Table

NOTEBOOKS = ROOT / "notebooks"

# Set where no learner is at work: by `helpers run` and `store` and by pytest; and by CI.
UNATTENDED = ("PYTEST_CURRENT_TEST", "CI")

# Tags of cells that no section waits for.
_NO_SECTION = {"setup", "parameters", "exercise", "question"}

_LINE = re.compile(r"(\d{4}-\d\d-\d\d) (cell|section|exercise) (\S.*)")


@dataclasses.dataclass(frozen=True)
class Lesson:
    """What there is to do in a notebook."""

    number: str  # two digits
    title: str  # its question
    # Fingerprints of its code cells by the name of each section: the notebook's number and the
    # heading. Setup, imports, parameters, questions and exercises are not among them, nor is a
    # section without code.
    sections: dict[str, tuple[str, ...]]
    exercises: tuple[str, ...]  # names such as ``02-1``, in order
    sitting: dict[str, int]  # number, from 1, by the name of a section or an exercise
    sittings: int  # how many there are

    def place(self, name: str) -> str:
        """Say where a section or an exercise is: ``sitting 2 of 3: Silent wrong answers``."""
        words = f"exercise {name}" if name in self.exercises else name[3:]
        where = f"sitting {self.sitting[name]} of {self.sittings}: "
        return (where if self.sittings > 1 else "") + words


def _fingerprint(source: str) -> str:
    return hashlib.sha256(source.strip().encode()).hexdigest()[:12]


def _lesson(path: pathlib.Path) -> Lesson:
    title, heading, exercises = path.stem, "", []
    sections: dict[str, list[str]] = {}
    number, now, sitting = path.name[:2], 1, {}
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source, tags = "".join(cell["source"]), cell["metadata"].get("tags", ())
        now += "sitting" in tags
        if cell["cell_type"] == "markdown":
            text = re.sub(r"^```.*?^```", "", source, flags=re.MULTILINE | re.DOTALL)
            for marks, words in re.findall(r"^(##?) (.+)", text, re.MULTILINE):
                words = words.replace("`", "").strip()
                title, heading = (words, heading) if marks == "#" else (title, words)
        elif asked := re.match(r'check\("(\d\d-\d+)"', source):
            exercises.append(asked[1])
            sitting[asked[1]] = now
        elif not (source.startswith("hint(") or _NO_SECTION & {*tags}):
            sections.setdefault(heading, []).append(_fingerprint(source))
            sitting.setdefault(f"{number} {heading}", now)
    if sections.pop("", None):  # imports, before the first section
        del sitting[f"{number} "]
    found = {f"{number} {name}": tuple(cells) for name, cells in sections.items()}
    return Lesson(number, title, found, tuple(exercises), sitting, now)


def lessons(folder: pathlib.Path = NOTEBOOKS) -> tuple[Lesson, ...]:
    """Read from the notebooks in a folder what there is to do.

    Raises:
        OSError, ValueError, KeyError, TypeError: A file can't be read, or is no notebook.
    """
    return tuple(_lesson(path) for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")))


def where() -> pathlib.Path:
    """Give the file: among the user's data (on Linux ``XDG_DATA_HOME``)."""
    import platformdirs  # here, so that `runtime` can tell what is missing

    return platformdirs.user_data_path("tensorflow-on-tpu", appauthor=False) / "progress.txt"


def _read() -> tuple[dict[tuple[str, str], str], int]:
    """Give the first day of each thing done, and the number of lines that are none of ours."""
    try:
        lines = where().read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return {}, 0
    done, damaged = {}, 0
    for line in filter(None, lines):
        if found := _LINE.fullmatch(line):
            done.setdefault((found[2], found[3]), found[1])
        else:
            damaged += 1
    return done, damaged


def _add(kind: str, name: str) -> dict[tuple[str, str], str]:
    """Add a line unless it is there; give everything done, also by other kernels."""
    done, _ = _read()
    if (kind, name) not in done:
        path = where()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            # The newline comes first: a line that a full disk cut off spoils no other.
            file.write(f"\n{datetime.date.today().isoformat()} {kind} {name}".encode())
        done, _ = _read()
    return done


@functools.cache
def _todo() -> tuple[Lesson, ...]:
    return lessons()


_silent = False


@contextlib.contextmanager
def _never_in_the_way() -> Iterator[None]:
    """Say once that progress can't be kept, and let the lesson go on."""
    global _silent
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        if not _silent:
            reason = getattr(error, "strerror", None) or repr(error)
            message = f"Your progress can't be kept ({reason}); the lesson goes on without."
            print(message, file=sys.stderr)  # noqa: T201
        _silent = True


def _recording() -> bool:
    return not (_silent or any(os.environ.get(name) for name in UNATTENDED))


def exercise_done(name: str) -> None:
    """Remember that an exercise, such as ``02-1``, was answered rightly."""
    if _recording():
        with _never_in_the_way():
            _add("exercise", name)


def _cell_done(result: "ExecutionResult") -> None:
    """Remember a cell of the course that ran, and the section that is complete with it."""
    if not (result.success and _recording()):
        return
    with _never_in_the_way():
        cell = _fingerprint(result.info.raw_cell)
        for name, cells in (pair for lesson in _todo() for pair in lesson.sections.items()):
            if cell in cells:
                done = _add("cell", cell)
                if all(("cell", each) in done for each in cells):
                    # By name: it stays done when the learner changes its cells afterwards.
                    _add("section", name)


def follow(shell: "InteractiveShell") -> None:
    """Watch which cells run in a notebook. Following it twice is following it once."""
    shell.events.register("post_run_cell", _cell_done)


@dataclasses.dataclass(frozen=True)
class Progress:
    """What is done and what is not."""

    lessons: tuple[Lesson, ...]  # what there is to do
    days: dict[str, str]  # day by name, for the sections and exercises that are done
    damaged: int = 0  # lines of the file that could not be read
    last: str = ""  # section or exercise of the newest thing done

    @property
    def stopped(self) -> str:
        """Say where the learner stopped: ``02, sitting 2 of 3: …``; empty if nothing is done."""
        return next(
            (f"{x.number}, {x.place(self.last)}" for x in self.lessons if self.last in x.sitting),
            "",
        )

    def following(self, lesson: Lesson) -> str:
        """Say what comes next in a notebook; empty if all of it is done."""
        names = [*lesson.sections, *lesson.exercises]
        return next((lesson.place(name) for name in names if name not in self.days), "")

    @property
    def sections(self) -> list[str]:
        """Names of all sections."""
        return [name for lesson in self.lessons for name in lesson.sections]

    @property
    def exercises(self) -> list[str]:
        """Names of all exercises."""
        return [name for lesson in self.lessons for name in lesson.exercises]

    @property
    def complete(self) -> bool:
        """Whether everything is done."""
        return self.days.keys() >= {*self.sections, *self.exercises}

    def count(self, names: Iterable[str]) -> str:
        """Say how many of some sections or exercises are done, such as ``3 of 7``."""
        names = list(names)
        return f"{sum(name in self.days for name in names)} of {len(names)}"

    def json(self) -> str:
        """Write it as JSON: each notebook with the day of each section and exercise, or null."""
        notebooks = [
            {
                "number": lesson.number,
                "title": lesson.title,
                "next": self.following(lesson) or None,
                "sections": {name[3:]: self.days.get(name) for name in lesson.sections},
                "exercises": {name: self.days.get(name) for name in lesson.exercises},
            }
            for lesson in self.lessons
        ]
        told = {"complete": self.complete, "stopped": self.stopped, "notebooks": notebooks}
        return json.dumps(told, indent=1, ensure_ascii=False)

    def __repr__(self) -> str:
        return "\n".join(
            f"{lesson.number}: {self.count(lesson.sections)} sections, "
            f"{self.count(lesson.exercises)} exercises"
            for lesson in self.lessons
        )

    def __rich__(self) -> "Table":
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE, pad_edge=False, show_footer=True)
        table.add_column("notebook", "in all")
        for name, names in (("sections", self.sections), ("exercises", self.exercises)):
            table.add_column(name, self.count(names), justify="right", no_wrap=True)
        table.add_column("next")
        for lesson in self.lessons:
            table.add_row(
                f"{lesson.number} {lesson.title}",
                self.count(lesson.sections),
                self.count(lesson.exercises),
                self.following(lesson) or "all done",
            )
        return table


def progress(folder: pathlib.Path = NOTEBOOKS) -> Progress:
    """Say what there is to do, and on which days parts of it were done.

    A section that has got another heading since is known by its cells.

    Raises:
        CourseError: The file of progress can't be read.
    """
    try:
        done, damaged = _read()
    except OSError as error:
        raise _unreadable(error) from error
    days, todo = {}, lessons(folder)
    pairs = [pair for lesson in todo[::-1] for pair in lesson.sections.items()]
    section = {cell: name for name, cells in pairs for cell in cells}  # of two, the first
    last = ""
    for kind, name in done:  # in the order of the file: the last one known is where it stopped
        last = section.get(name, last) if kind == "cell" else name
    for lesson in todo:
        for name, cells in lesson.sections.items():
            ran = [done.get(("cell", cell), "") for cell in cells]
            if day := done.get(("section", name)) or (max(ran) if all(ran) else ""):
                days[name] = day
        for name in lesson.exercises:
            if ("exercise", name) in done:
                days[name] = done["exercise", name]
    return Progress(todo, days, damaged, last)


def reset() -> bool:
    """Forget everything; tell whether there was anything.

    Raises:
        CourseError: The file can't be deleted.
    """
    try:
        where().unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unreadable(error) from error
    return True


def _unreadable(error: OSError) -> CourseError:
    return CourseError(
        f"{where()} can't be used.",
        f"{error.strerror}.",
        "Look who owns it, or delete it: then the course begins a new one.",
    )


def page(done: Progress, name: str = "") -> str:
    """Write what is done as a page to print, with the learner's name, which nothing keeps.

    The page loads nothing from anywhere, and every text is escaped.
    """
    from helpers.base import html

    return html.render("progress.html", done=done, name=name)
