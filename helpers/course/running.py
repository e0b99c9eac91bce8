"""Running notebooks, side by side where there is room, and what a run leaves behind."""

import concurrent.futures
import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence

import nbformat
import psutil
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from helpers.base import files, language
from helpers.course.editions import pages
from helpers.course.help.doctor import free_memory
from helpers.course.kernels import Failure, Job, Result
from helpers.course.map import BUILD, NOTEBOOKS, Notebook, choose, notebooks, values

# The notebooks that take longest, the longest first (2026-11).
LONGEST = "07 09 03 11 08 10 "

_COLOURS = {"passed": "green", "failed": "red", "died": "red", "interrupted": "yellow"}


@dataclasses.dataclass(frozen=True)
class Report:
    """How a run ended."""

    results: tuple[Result, ...]  # one for each chosen notebook, in order
    # The map of the course with all results; None where no page is written.
    page: pathlib.Path | None = None

    @property
    def status(self) -> int:
        """The exit status: 0 all passed, 1 one failed, 130 interrupted."""
        states = {result.state for result in self.results}
        if "interrupted" in states:
            return 130
        return 0 if states == {"passed"} else 1

    @property
    def summary(self) -> str:
        """How many ended how, such as ``8 passed, 1 failed``."""
        states = [result.state for result in self.results]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))

    def json(self) -> str:
        """Write it as JSON; a notebook that was not run has null for what only a run can tell."""
        results = [dataclasses.asdict(result) for result in self.results]
        plain = {"status": self.status, "page": self.page, "results": results}
        return json.dumps(plain, indent=1, ensure_ascii=False, default=str)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.results))


class _Display:
    """What a person sees while notebooks run: a live table, or plain lines without a terminal."""

    def __init__(self, chosen: Sequence[Notebook], console: Console) -> None:
        self._console = console
        self._names = [notebook.name for notebook in chosen]
        self._done: dict[str, Result] = {}
        self._started: dict[str, float] = {}
        self._where: dict[str, str] = {}
        self._ended, self._live = False, None
        if console.is_terminal:
            self._live = Live(get_renderable=self._table, console=console, refresh_per_second=4)

    def __enter__(self) -> "_Display":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        if self._live:
            self._live.stop()

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def start(self, name: str) -> None:
        """A notebook starts."""
        self._where[name], self._started[name] = "starting the kernel", time.monotonic()
        if not self._live:
            self._say(f"{name}: running")

    def cell(self, name: str, number: int, total: int, heading: str) -> None:
        """A cell starts."""
        before = self._where[name].partition(" · ")[2]
        self._where[name] = f"cell {number} of {total} · {heading}"
        if not self._live and heading != before:
            self._say(f"  {name}, cell {number} of {total}: {heading}")

    def end(self, result: Result) -> None:
        """A notebook has ended."""
        self._done[result.name] = result
        if not self._live:
            self._say(f"{result.name}: {result.state} ({result.figures})")
        failure = result.failure
        if failure and result.state != "interrupted":
            where = f"{result.name}, cell {failure.cell} ({failure.heading})"
            text = f"\n{where}: {failure.error}\n{textwrap.indent(failure.source, '    ')}\n"
            if failure.lines:
                last = textwrap.indent("\n".join(failure.lines), "    ")
                text += f"  The last lines:\n{last}\n"
            self._say(text)

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("notebook", "state", "time", "peak memory"):
            justify = "right" if column in ("time", "peak memory") else "left"
            table.add_column(column, no_wrap=True, justify=justify)
        for name in self._names:
            time_taken, peak = "", ""
            if result := self._done.get(name):
                state = Text(result.state, style=_COLOURS[result.state])
                time_taken, peak = pages.duration(result.seconds), pages.memory(result.peak)
            elif name in self._started:
                state = Text(self._where[name].rstrip(" ·"), style="bold")
                # What the other columns leave; rich would take it from them, too.
                room = self._console.width - max(map(len, self._names)) - 30
                state.truncate(room, overflow="ellipsis")
                time_taken = pages.duration(time.monotonic() - self._started[name])
            else:
                state = Text("not run" if self._ended else "waiting", style="dim")
            table.add_row(Text(name), state, time_taken, peak)
        return table


def side_by_side() -> int:
    """Say how many notebooks this machine can run at once.

    Two with two cores and 8 GB of free memory, else one: each takes 1.5 cores and up to 3 GB.
    """
    return 2 if (os.cpu_count() or 1) >= 2 and free_memory() >= 8e9 else 1


def run_all(
    chosen: Sequence[Notebook],
    given: dict[str, dict[str, object]],
    keep: Callable[[Notebook, Result, nbformat.NotebookNode], None],
    console: Console | None = None,
    workshop: bool = False,
    jobs: int = 1,
) -> tuple[Result, ...]:
    """Run notebooks, each in a kernel of its own, and go on after one that fails.

    Several at once are begun with the longest, so that they end together; one at a time, they run
    in order. An interrupt (Ctrl-C) ends all kernels and is a state of their results, which are in
    the order of ``chosen``. ``given`` are changed parameters by the notebook's name; ``keep`` is
    called as each notebook ends, one after another, with its result and outputs; the rest is as for
    `run`.

    Raises:
        CourseError: A notebook is damaged (nothing has run), or a kernel does not start.
    """
    results: dict[str, Result] = {}
    with _Display(chosen, console or Console()) as display:

        def work(job: Job) -> Result:
            display.start(job.notebook.name)
            return job.run()

        def finish(future: concurrent.futures.Future[Result]) -> None:
            job, result = begun[future], future.result()
            results[result.name] = result
            display.end(result)
            keep(job.notebook, result, job.node)
            del begun[future]  # last: what an interrupt cuts off here is done again below

        todo = [
            Job(n, given.get(n.name, {}), functools.partial(display.cell, n.name), workshop)
            for n in chosen
        ]
        if jobs > 1:
            todo.sort(key=lambda job: LONGEST.find(job.notebook.number) % len(LONGEST))
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            begun = {pool.submit(work, job): job for job in todo}
            try:
                while begun:
                    # A wait without a limit can't be interrupted on Windows.
                    for future in concurrent.futures.wait(begun, 1, "FIRST_COMPLETED").done:
                        finish(future)
            except BaseException as error:
                pool.shutdown(wait=False, cancel_futures=True)
                for job in begun.values():
                    job.stop()
                if not isinstance(error, KeyboardInterrupt):
                    raise
                stopped = [future for future in begun if not future.cancelled()]
                for future in concurrent.futures.wait(stopped).done:
                    finish(future)
    return tuple(results.get(n.name, Result(n.name, "not run")) for n in chosen)


def run(
    wanted: Sequence[str] = (),
    parameters: Iterable[tuple[str, str]] = (),
    folder: pathlib.Path = NOTEBOOKS,
    build: pathlib.Path = BUILD,
    console: Console | None = None,
    workshop: bool = False,
    jobs: int = 1,
) -> Report:
    """Run notebooks and write the map of the course.

    Each executed notebook is written to ``build``, also a partial one, as ``.ipynb`` and as a page;
    results of earlier runs stay there. A workshop's run leaves the cells tagged ``beyond-core`` out
    and writes to ``build / "workshop"``, so that it is never taken for a whole one.

    Args:
        wanted: Numbers or names; none means all.
        parameters: Name and text of each changed parameter, see ``map.values``.
        folder: Where the notebooks are.
        build: Where the results go.
        console: Where progress is shown.
        workshop: Run only the core of each notebook.
        jobs: How many run at once.

    Raises:
        CourseError: The input can't be used (then nothing has run), a kernel does not start, or a
            result can't be written.
    """
    known = notebooks(folder)
    chosen = choose(wanted, known)
    given = values(parameters, chosen)
    if workshop:
        build = build / "workshop"
    page = build / "index.html"

    def write_map() -> None:
        rows = [(notebook, _kept(notebook, build)) for notebook in known]
        files.write(page, pages.index(rows, _machine(), workshop, language.language({}, folder)))

    def keep(notebook: Notebook, result: Result, node: nbformat.NotebookNode) -> None:
        _keep(result, node, notebook, build)
        write_map()

    write_map()  # now, so that a folder without permission is told at once
    return Report(run_all(chosen, given, keep, console, workshop, jobs), page)


def _keep(
    result: Result, node: nbformat.NotebookNode, notebook: Notebook, build: pathlib.Path
) -> None:
    """Write an executed notebook and its page; the result travels inside the notebook."""
    node = nbformat.from_dict(node)
    finished = {"finished": result.finished.isoformat()}
    node.metadata["course"] = dataclasses.asdict(result) | finished
    html = pages.notebook(node, notebook.name, notebook.title, str(notebook.path.parent))
    files.write(build / f"{notebook.name}.html", html)
    files.write(build / f"{notebook.name}.ipynb", nbformat.writes(node).rstrip("\n") + "\n")


def _kept(notebook: Notebook, build: pathlib.Path) -> Result:
    """Read a result from an earlier run, or from this one."""
    try:
        node = nbformat.reads((build / f"{notebook.name}.ipynb").read_text("utf-8"), as_version=4)
        noted = dict(node.metadata["course"])
        failure = noted.pop("failure")
        finished = datetime.datetime.fromisoformat(noted.pop("finished"))
        if failure:
            failure = Failure(**{**failure, "lines": tuple(failure["lines"])})
        return Result(**noted, failure=failure, finished=finished)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, nbformat.ValidationError):
        return Result(notebook.name, "not run")  # none there, or not one of ours


@functools.cache
def _machine() -> str:
    """Say in words what the notebooks run on."""
    versions = [f"Python {platform.python_version()}"]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions.append(f"TensorFlow {importlib.metadata.version('tensorflow')}")
    total = pages.memory(psutil.virtual_memory().total)
    where = f"{os.cpu_count()} cores, {total} of memory, {platform.system()}"
    return f"{where}, {', '.join(versions)}"
