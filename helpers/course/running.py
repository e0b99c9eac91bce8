"""The course as a whole: its map, running its notebooks, storing their outputs.

Knows notebooks, kernels and files, no TensorFlow lesson. The command line is its only user.
"""

import ast
import asyncio
import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import logging
import os
import pathlib
import platform
import re
import signal
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from typing import IO

import ipykernel.kernelspec
import nbformat
import papermill
import psutil
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_core.utils import ensure_event_loop
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, NotebookExecutionManager, papermill_engines
from papermill.exceptions import PapermillExecutionError
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.settings import ROOT
from helpers.course import pages

NOTEBOOKS = ROOT / "notebooks"
BUILD = ROOT / "build"

# The tag of a cell that a workshop has no time for.
BEYOND_CORE = "beyond-core"

_ENGINE = "helpers.course.running"
_TRACEBACK_LINES = 12
_KEPT = ("tags", "slideshow")  # what a cell's metadata says to the course

# papermill reports through its logger what we tell in our own words.
logging.getLogger("papermill").addHandler(logging.NullHandler())


class MissingNotebook(CourseError):
    """The notebooks, or one of them, are not where they should be."""


class DamagedNotebook(CourseError):
    """A notebook's file can't be run: it is not JSON, not a notebook, or has no cells."""


class UnknownNotebook(CourseError):
    """No notebook has this number or name."""


class UnknownParameter(CourseError):
    """No chosen notebook has this parameter."""


class WrongValue(CourseError):
    """A parameter's value is of another type than its default."""


class CantStart(CourseError):
    """The kernel of a notebook does not start."""


# --- The map ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Notebook:
    """One notebook of the course.

    Attributes:
        path: Its file, named ``NN_name.ipynb``.
        title: The question that it answers: its first heading.
        reading: Time to read and try, in words, from its first cell; may be empty.
        needs: What it needs, in words, from its first cell; may be empty.
        parameters: Default by name, from the cell tagged ``parameters``.
    """

    path: pathlib.Path
    title: str
    reading: str
    needs: str
    parameters: dict[str, object]

    @property
    def name(self) -> str:
        """File name without suffix, such as ``02_xla_rules``."""
        return self.path.stem

    @property
    def number(self) -> str:
        """The two digits of its name."""
        return self.name[:2]

    def __repr__(self) -> str:
        return f"{self.name}: {self.title}"


def _damaged(path: pathlib.Path, why: str) -> DamagedNotebook:
    return DamagedNotebook(
        f"{path.name} can't be run.",
        why,
        f"Get it back with `git restore notebooks/{path.name}`.",
    )


def _read(path: pathlib.Path) -> nbformat.NotebookNode:
    try:
        node = nbformat.reads(path.read_text("utf-8"), as_version=4)
        nbformat.validate(node)
    except FileNotFoundError:
        raise MissingNotebook(
            f"{path.name} is gone.",
            f"There is no such file in {path.parent}.",
            f"Get it back with `git restore notebooks/{path.name}`.",
        ) from None
    except UnicodeDecodeError:
        raise _damaged(path, "The file is not UTF-8 text.") from None
    except nbformat.reader.NotJSONError:
        raise _damaged(path, "The file is not JSON, or only the beginning of it.") from None
    except (nbformat.ValidationError, AttributeError, KeyError, TypeError, ValueError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise _damaged(path, f"It is JSON, but not a notebook: {first}") from None
    if not any(cell.cell_type == "code" for cell in node.cells):
        raise _damaged(path, "It has no code cells.")
    return node


def _parameters(path: pathlib.Path, node: nbformat.NotebookNode) -> dict[str, object]:
    found = {}
    for cell in node.cells:
        if "parameters" not in cell.metadata.get("tags", []):
            continue
        try:
            for statement in ast.parse(cell.source).body:
                if isinstance(statement, ast.Assign):
                    target = statement.targets[0]
                elif isinstance(statement, ast.AnnAssign):
                    target = statement.target
                else:
                    continue
                found[ast.unparse(target)] = ast.literal_eval(statement.value)
        except (SyntaxError, ValueError, TypeError):
            why = "Its parameters cell may hold only names and plain values, one per line."
            raise _damaged(path, why) from None
    return found


def load(path: pathlib.Path) -> Notebook:
    """Read what the map says about a notebook.

    Args:
        path: Its file.

    Returns:
        The notebook.

    Raises:
        MissingNotebook: There is no such file.
        DamagedNotebook: The file is not a notebook that can be run.
    """
    node = _read(path)
    first = node.cells[0].source
    heading = re.search(r"^#\s+(.+)", first, re.MULTILINE)
    reading = re.search(r"\*\*Time\*\*\s+([^·\n]+)", first)
    needs = re.search(r"\*\*Needs\*\*\s+([^·\n]+)", first)
    return Notebook(
        path,
        _plain(heading[1]) if heading else path.stem,
        _plain(reading[1]) if reading else "",
        _plain(needs[1]) if needs else "",
        _parameters(path, node),
    )


def _plain(markdown: str) -> str:
    """Take the marks for code, emphasis and links out of a line of Markdown."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return re.sub(r"[`*]", "", text).strip()


def notebooks(folder: pathlib.Path = NOTEBOOKS) -> list[Notebook]:
    """Read the course's map.

    Args:
        folder: Where the notebooks are.

    Returns:
        The notebooks, in order.

    Raises:
        MissingNotebook: There are none.
        DamagedNotebook: One is not a notebook that can be run.
    """
    paths = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise MissingNotebook(
            f"There are no notebooks in {folder}.",
            "The course's notebooks are named NN_name.ipynb and stand in the folder notebooks.",
            "Get them back with `git restore notebooks`, or clone the repository again.",
        )
    return [load(path) for path in paths]


def choose(wanted: Sequence[str], known: Sequence[Notebook]) -> list[Notebook]:
    """Pick notebooks by number or name.

    Args:
        wanted: Such as ``2``, ``02`` or ``02_xla_rules``; none means all.
        known: The map.

    Returns:
        The notebooks, in the course's order, each once.

    Raises:
        UnknownNotebook: One of ``wanted`` is neither number nor name of a known notebook.
    """
    chosen = set()
    for word in wanted:
        matches = [n for n in known if word == n.name or word.zfill(2) == n.number]
        if not matches:
            raise UnknownNotebook(
                f"There is no notebook {word!r}.",
                f"The notebooks are: {', '.join(n.name for n in known)}.",
                f"Give a number or a name of these, such as {known[0].number}.",
            )
        chosen.update(n.name for n in matches)
    return [n for n in known if not wanted or n.name in chosen]


def values(
    given: Iterable[tuple[str, str]], chosen: Sequence[Notebook]
) -> dict[str, dict[str, object]]:
    """Turn parameters from the command line into values for each notebook.

    Args:
        given: Name and text of each; the text is a Python literal, or a plain word for a string.
        chosen: The notebooks that will run. One without the parameter runs without it.

    Returns:
        For each notebook's name: value by parameter.

    Raises:
        UnknownParameter: No chosen notebook has a parameter of this name.
        WrongValue: The text is not of the type of the parameter's default.
    """
    result: dict[str, dict[str, object]] = {notebook.name: {} for notebook in chosen}
    for name, text in given:
        having = [notebook for notebook in chosen if name in notebook.parameters]
        if not having:
            lists = [f"{n.name} has {', '.join(n.parameters) or 'none'}" for n in chosen]
            raise UnknownParameter(
                f"No chosen notebook has a parameter {name!r}.",
                f"Of the chosen ones, {'; '.join(lists)}.",
                "Give one of these names, or choose another notebook.",
            )
        for notebook in having:
            result[notebook.name][name] = _value(name, text, notebook)
    return result


def _value(name: str, text: str, notebook: Notebook) -> object:
    default = notebook.parameters[name]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = text
    if isinstance(default, str) and not isinstance(value, str):
        return text
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if default is not None and type(value) is not type(default):
        raise WrongValue(
            f"{name} can't be {text!r}.",
            f"In {notebook.name} it is {type(default).__name__}, by default {default!r}.",
            f"Give a value of that type, such as -p {name} {default!r}.",
        )
    return value


# --- Results ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Failure:
    """Where and why a notebook stopped.

    Attributes:
        cell: Number of the cell among all cells, from 1.
        heading: The heading above it.
        anchor: The cell's id.
        source: The cell's source.
        error: What happened, one line.
        lines: The last lines of the traceback, or of what the dying kernel wrote.
    """

    cell: int
    heading: str
    anchor: str
    source: str
    error: str
    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return f"cell {self.cell}: {self.error}"


@dataclasses.dataclass(frozen=True)
class Result:
    """How the run of one notebook ended.

    Attributes:
        name: The notebook's.
        state: ``passed``, ``failed``, ``died`` (its kernel ended), ``interrupted`` or ``not run``.
        seconds: Wall time, with the start and end of the kernel.
        peak: Highest resident memory of the kernel and its children, bytes; sampled, and on Linux
            never below the kernel's own peak as the system counted it.
        finished: When it ended.
        failure: Where and why it stopped, unless it passed.
        parameters: Value by name of the parameters that were changed.
        left_out: Cells that a workshop's run left out.
    """

    name: str
    state: str
    seconds: float = 0.0
    peak: int = 0
    finished: datetime.datetime | None = None
    failure: Failure | None = None
    parameters: dict[str, object] = dataclasses.field(default_factory=dict)
    left_out: int = 0

    def __repr__(self) -> str:
        if self.state == "not run":
            return f"{self.name}: not run"
        where = f" at {self.failure}" if self.failure else ""
        figures = f"{pages.duration(self.seconds)}, peak {pages.memory(self.peak)}"
        return f"{self.name}: {self.state}{where} ({figures})"


@dataclasses.dataclass(frozen=True)
class Report:
    """How a run ended.

    Attributes:
        results: One for each chosen notebook, in order.
        page: The map of the course with all results; None where no page is written.
    """

    results: tuple[Result, ...]
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

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.results))


def _text(node: nbformat.NotebookNode) -> str:
    return nbformat.writes(node).rstrip("\n") + "\n"


# --- The kernel ---------------------------------------------------------------------------------


class _ThisInterpreter(KernelSpecManager):
    """Knows one kernel: this very Python, whatever kernels the user has installed."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Describe the kernel; the name is not looked at."""
        return KernelSpec(**ipykernel.kernelspec.get_kernel_dict())


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    # As under nbval, ipykernel then leaves the file descriptors alone: what native code writes
    # stays out of the outputs, in `run` and `store` as in the tests.
    environment["PYTEST_CURRENT_TEST"] = _ENGINE
    # Without bytecode TensorFlow takes three times as long to import.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


class _Memory(threading.Thread):
    """Watches the resident memory of a process and its children."""

    def __init__(self, pid: int, seconds: float = 0.2) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._process = psutil.Process(pid)
        self._seconds = seconds
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            self.sample()
            self._ended.wait(self._seconds)

    def sample(self) -> None:
        """Look once. A process that has just ended counts as nothing."""
        with contextlib.suppress(psutil.Error):
            total = 0
            for process in (self._process, *self._process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += process.memory_info().rss
                    self.peak = max(self.peak, _high_water(process.pid))
            self.peak = max(self.peak, total)

    def stop(self) -> None:
        self.sample()
        self._ended.set()
        self.join()


def _high_water(pid: int) -> int:
    """Read the highest resident memory that the kernel of Linux noted, in bytes; else 0."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    except OSError:
        return 0
    line = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(line[1]) * 1024 if line else 0


class _Client(PapermillNotebookClient):
    """papermill's client; notes how a dead kernel ended and leaves quickly when interrupted."""

    exit_code: int | None = None

    def papermill_execute_cells(self) -> None:
        try:
            super().papermill_execute_cells()
        except DeadKernelError:
            self.exit_code = self.km.provisioner.process.poll()
            raise
        except KeyboardInterrupt:
            self.shutdown_kernel = "immediate"  # a busy kernel would be waited for
            loop = ensure_event_loop()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            raise


class _Engine(Engine):
    """How papermill runs our notebooks: in a kernel of this interpreter, watched."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, job: "_Job", **kwargs: object
    ) -> None:
        job.execute(nb_man)


papermill_engines.register(_ENGINE, _Engine)


# --- Running one notebook -----------------------------------------------------------------------


def _headings(node: nbformat.NotebookNode) -> list[str]:
    """Give for each cell the last heading up to it."""
    heading, found = "", []
    for cell in node.cells:
        if cell.cell_type == "markdown":
            outside_fences = re.sub(r"^```.*?^```", "", cell.source, flags=re.MULTILINE | re.DOTALL)
            lines = re.findall(r"^#+\s+(.+)", outside_fences, re.MULTILINE)
            heading = _plain(lines[-1]) if lines else heading
        found.append(heading)
    return found


def core(node: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    """Shorten a notebook to what a workshop has time for: the cells without ``beyond-core``.

    Args:
        node: The notebook; it is not changed.
        name: File name without suffix.

    Returns:
        A copy without the other cells; below its title it says how many are left out.
    """
    short = nbformat.from_dict(node)
    short.cells = [c for c in short.cells if BEYOND_CORE not in c.metadata.get("tags", ())]
    gone = len(node.cells) - len(short.cells)
    told = (
        f"> **Workshop edition.** The core of the notebook: {gone} of its {len(node.cells)} cells "
        f"are left out. All of it: `notebooks/{name}.ipynb`."
    )
    short.cells.insert(1, nbformat.v4.new_markdown_cell(told, id="workshop-edition"))
    return short


class _Job:
    """One notebook on its way through a kernel."""

    def __init__(
        self,
        notebook: Notebook,
        parameters: dict[str, object],
        progress: "_Progress",
        workshop: bool = False,
    ) -> None:
        self.notebook = notebook
        self.parameters = parameters
        self.progress = progress
        self.node = _read(notebook.path)
        self.left_out = 0
        if workshop:
            whole, self.node = self.node, core(self.node, notebook.name)
            self.left_out = 1 + len(whole.cells) - len(self.node.cells)
        self.cell = 0
        self.memory: _Memory | None = None
        self.client: _Client | None = None
        self.log: IO[bytes] | None = None
        self.logged = 0

    def run(self) -> Result:
        """Execute the notebook; its node holds the outputs afterwards, however it ended.

        Raises:
            CantStart: The kernel does not start.
        """
        started = time.monotonic()
        error: BaseException | None = None
        with tempfile.TemporaryFile() as self.log:
            try:
                papermill.execute_notebook(
                    self.node,
                    None,
                    parameters=self.parameters,
                    engine_name=_ENGINE,
                    kernel_name="python3",
                    language="python",
                    progress_bar=False,
                    job=self,
                )
            except (PapermillExecutionError, DeadKernelError, KeyboardInterrupt) as raised:
                error = raised
            finally:
                if self.memory:
                    self.memory.stop()
            state, failure = self._judge(error)
        return Result(
            self.notebook.name,
            state,
            time.monotonic() - started,
            self.memory.peak if self.memory else 0,
            datetime.datetime.now(datetime.UTC),
            failure,
            self.parameters,
            self.left_out,
        )

    def execute(self, manager: NotebookExecutionManager) -> None:
        """Do papermill's part: start the kernel and send it the cells."""
        self.node = manager.nb
        self.node.metadata.papermill.input_path = self.notebook.path.name
        self.headings = _headings(self.node)
        self.client = _Client(
            manager,
            km=AsyncKernelManager(kernel_name="python3", kernel_spec_manager=_ThisInterpreter()),
            log=logging.getLogger("papermill"),
            startup_timeout=60,
            iopub_timeout=60,
            coalesce_streams=True,
            force_raise_errors=True,
            record_timing=False,
            store_widget_state=False,
            on_notebook_start=self._on_start,
            on_cell_start=self._on_cell,
        )
        try:
            self.client.execute(
                cleanup_kc=True,
                cwd=str(self.notebook.path.parent),
                env=_environment(),
                stdin=None,
                stdout=self.log,
                stderr=self.log,
            )
        except (RuntimeError, OSError) as error:
            if self.memory or isinstance(error, DeadKernelError):
                raise
            raise CantStart(
                f"The kernel for {self.notebook.name} does not start.",
                next(iter([*self._last_words()[-1:], *str(error).splitlines()]), "It is silent."),
                "Make the environment again with `make clean run`.",
            ) from error
        finally:
            # papermill will add cells of its own to a notebook that failed: keep ours.
            self.node = nbformat.from_dict(manager.nb)

    def _on_start(self, notebook: nbformat.NotebookNode) -> None:
        self.memory = _Memory(self.client.km.provisioner.process.pid)
        self.memory.start()
        self.logged = os.fstat(self.log.fileno()).st_size  # what it said while starting

    def _on_cell(self, cell: nbformat.NotebookNode, cell_index: int) -> None:
        self.cell = cell_index
        self.progress.cell(cell_index + 1, len(self.node.cells), self.headings[cell_index])

    def _last_words(self) -> tuple[str, ...]:
        """Give the last lines that the kernel's process wrote outside of any cell's output."""
        self.log.seek(self.logged)
        lines = _clean(self.log.read().decode("utf-8", "replace"))
        return lines[-_TRACEBACK_LINES:]

    def _judge(self, error: BaseException | None) -> tuple[str, Failure | None]:
        cell = self.node.cells[self.cell]
        failed = cell.metadata.get("papermill", {}).get("exception")
        if error is None and not failed:
            return "passed", None
        if isinstance(error, KeyboardInterrupt):
            state, what, lines = "interrupted", "stopped by you", ()
        elif isinstance(error, DeadKernelError):
            state, what, lines = "died", self._death(), self._last_words()
        else:
            # Also a cell that ends with SystemExit: papermill takes it for a success.
            output = next(o for o in cell.outputs if o.output_type == "error")
            lines = _clean("\n".join(output.traceback))[-_TRACEBACK_LINES:]
            first = next(iter(output.evalue.splitlines()), "")
            state, what = "failed", f"{output.ename}: {first}".rstrip(": ")
        heading = self.headings[self.cell] if hasattr(self, "headings") else ""
        return state, Failure(self.cell + 1, heading, cell.get("id", ""), cell.source, what, lines)

    def _death(self) -> str:
        code = self.client.exit_code
        if code is None or code >= 0:
            return f"the kernel ended by itself, exit status {code}"
        name = signal.Signals(-code).name
        if name != "SIGKILL":
            return f"the kernel died of {name}: native code crashed"
        most = pages.memory(self.memory.peak)
        has = pages.memory(psutil.virtual_memory().total)
        return (
            "the kernel was killed (SIGKILL). Most often the system does that when memory runs "
            f"out; at most {most} of {has} were seen in use"
        )


def _clean(text: str) -> tuple[str, ...]:
    """Split a traceback into lines without colour codes and without blank lines."""
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    return tuple(line.rstrip() for line in plain.splitlines() if line.strip(" -"))


# --- Progress -----------------------------------------------------------------------------------


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class _Progress:
    """What a person sees while notebooks run: a live table, or plain lines without a terminal."""

    def __init__(self, chosen: Sequence[Notebook], console: Console) -> None:
        self._console = console
        self._names = [notebook.name for notebook in chosen]
        self._widest = max(map(len, self._names))
        self._done: dict[str, Result] = {}
        self._current, self._where, self._heading, self._started = "", "", "", 0.0
        self._ended = False
        self._live = (
            Live(get_renderable=self._table, console=console, refresh_per_second=4)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> "_Progress":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        if self._live:
            self._live.stop()

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def notebook(self, name: str) -> None:
        """A notebook starts."""
        self._current, self._started = name, time.monotonic()
        self._where, self._heading = "starting the kernel", ""
        if not self._live:
            self._say(f"{name}: running")

    def cell(self, number: int, total: int, heading: str) -> None:
        """A cell starts."""
        self._where = f"cell {number} of {total}"
        if not self._live and heading != self._heading:
            self._say(f"  {self._where}: {heading}")
        self._heading = heading

    def result(self, result: Result) -> None:
        """A notebook has ended."""
        self._done[result.name] = result
        if not self._live:
            figures = f"{pages.duration(result.seconds)}, peak {pages.memory(result.peak)}"
            self._say(f"{result.name}: {result.state} ({figures})")
        failure = result.failure
        if failure and result.state != "interrupted":
            where = f"{result.name}, cell {failure.cell} ({failure.heading})"
            lines = [f"\n{where}: {failure.error}", *_indented(failure.source.splitlines())]
            if failure.lines:
                lines += ["  The last lines:", *_indented(failure.lines)]
            self._say("\n".join(lines) + "\n")

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("notebook", no_wrap=True)
        table.add_column("state", no_wrap=True)
        table.add_column("time", no_wrap=True, justify="right")
        table.add_column("peak memory", no_wrap=True, justify="right")
        colours = {"passed": "green", "failed": "red", "died": "red", "interrupted": "yellow"}
        for name in self._names:
            if result := self._done.get(name):
                state = Text(result.state, style=colours[result.state])
                figures = (pages.duration(result.seconds), pages.memory(result.peak))
            elif name == self._current:
                where = f"{self._where} · {self._heading}".rstrip(" ·")
                state = Text(where, style="bold")
                # What the other columns leave; rich would take it from them, too.
                state.truncate(self._console.width - self._widest - 30, overflow="ellipsis")
                figures = (pages.duration(time.monotonic() - self._started), "")
            else:
                state, figures = (
                    Text("not run" if self._ended else "waiting", style="dim"),
                    ("", ""),
                )
            table.add_row(Text(name), state, *figures)
        return table


# --- Commands -----------------------------------------------------------------------------------


def run(
    wanted: Sequence[str] = (),
    parameters: Iterable[tuple[str, str]] = (),
    folder: pathlib.Path = NOTEBOOKS,
    build: pathlib.Path = BUILD,
    console: Console | None = None,
    workshop: bool = False,
) -> Report:
    """Run notebooks in order, each in a kernel of its own, and write the map of the course.

    Goes on after a notebook that fails. Each executed notebook is written to ``build``, also a
    partial one, as ``.ipynb`` and as a page; results of earlier runs stay there. A workshop's run
    leaves the cells tagged ``beyond-core`` out and writes to ``build / "workshop"``, so that it
    is never taken for a whole one.

    Args:
        wanted: Numbers or names; none means all.
        parameters: Name and text of each changed parameter, see ``values``.
        folder: Where the notebooks are.
        build: Where the results go.
        console: Where progress is shown.
        workshop: Run only the core of each notebook.

    Returns:
        The report. An interrupt (Ctrl-C) ends the run and is a state in it.

    Raises:
        MissingNotebook, DamagedNotebook, UnknownNotebook, UnknownParameter, WrongValue: The input
            can't be used; nothing has run.
        CantStart: A kernel does not start.
        files.CantWrite: A result can't be written.
    """
    known = notebooks(folder)
    chosen = choose(wanted, known)
    given = values(parameters, chosen)
    if workshop:
        build = build / "workshop"
    page = build / "index.html"
    _write_map(
        known, build, page, workshop
    )  # now, so that a folder without permission is told at once
    _write_texts(known[0].path.parent, build)
    results = []
    with _Progress(chosen, console or Console()) as progress:
        for notebook in chosen:
            job = _Job(notebook, given[notebook.name], progress, workshop)
            progress.notebook(notebook.name)
            result = job.run()
            results.append(result)
            progress.result(result)
            _keep(result, job.node, notebook, build)
            _write_map(known, build, page, workshop)
            if result.state == "interrupted":
                break
    missing = [Result(notebook.name, "not run") for notebook in chosen[len(results) :]]
    return Report((*results, *missing), page)


def store(
    wanted: Sequence[str] = (),
    folder: pathlib.Path = NOTEBOOKS,
    console: Console | None = None,
) -> Report:
    """Run notebooks with their defaults and write the outputs into the notebooks themselves.

    A notebook that fails stays as it is. No times, no traces of the tools and no state of widgets
    are written, so a second store of the same outputs changes nothing.

    Args:
        wanted: Numbers or names; none means all.
        folder: Where the notebooks are.
        console: Where progress is shown.

    Returns:
        The report.

    Raises:
        MissingNotebook, DamagedNotebook, UnknownNotebook: The input can't be used.
        CantStart: A kernel does not start.
        files.CantWrite: A notebook can't be written.
    """
    chosen = choose(wanted, notebooks(folder))
    results = []
    with _Progress(chosen, console or Console()) as progress:
        for notebook in chosen:
            job = _Job(notebook, {}, progress)
            progress.notebook(notebook.name)
            result = job.run()
            results.append(result)
            progress.result(result)
            if result.state == "passed":
                files.write(notebook.path, _text(_stripped(job.node)))
            if result.state == "interrupted":
                break
    missing = [Result(notebook.name, "not run") for notebook in chosen[len(results) :]]
    return Report((*results, *missing))


def _stripped(node: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Copy a notebook without what differs from run to run or belongs to a tool."""
    node = nbformat.from_dict(node)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    node.metadata = nbformat.from_dict({"kernelspec": kernel, "language_info": {"name": "python"}})
    for cell in node.cells:
        # The rest is of tools: papermill's times, what JupyterLab folded, VS Code's language.
        kept = {key: cell.metadata[key] for key in _KEPT if cell.metadata.get(key)}
        cell.metadata = nbformat.from_dict(kept)
    return node


# --- What a run leaves behind -------------------------------------------------------------------


def _keep(
    result: Result, node: nbformat.NotebookNode, notebook: Notebook, build: pathlib.Path
) -> None:
    """Write an executed notebook and its page; the result travels inside the notebook."""
    node = nbformat.from_dict(node)
    node.metadata["course"] = {
        **dataclasses.asdict(result),
        "finished": result.finished.isoformat(),
    }
    html = pages.notebook(node, notebook.name, notebook.title, str(notebook.path.parent))
    files.write(build / f"{notebook.name}.html", html)
    files.write(build / f"{notebook.name}.ipynb", _text(node))


def _write_texts(folder: pathlib.Path, build: pathlib.Path) -> None:
    """Write the texts that notebooks link to (glossary, symptoms) as pages beside theirs."""
    for path in sorted(folder.glob("*.md")):
        text = path.read_text("utf-8")
        node = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
        title = text.partition("\n")[0].removeprefix("# ")
        files.write(
            build / f"{path.stem}.html", pages.notebook(node, path.stem, title, str(folder))
        )


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


def _row(notebook: Notebook, build: pathlib.Path) -> pages.Row:
    result = _kept(notebook, build)
    facts = (notebook.number, notebook.title, notebook.reading, notebook.needs, result.state)
    if result.state == "not run":
        return pages.Row(*facts)
    anchor = f"#cell-id={result.failure.anchor}" if result.failure else ""
    return pages.Row(
        *facts,
        detail=f"in {result.failure}" if result.failure else "",
        href=f"{notebook.name}.html{anchor}",
        seconds=result.seconds,
        peak=result.peak,
        finished=result.finished,
        parameters=", ".join(f"{name} = {value!r}" for name, value in result.parameters.items()),
        left_out=result.left_out,
    )


@functools.cache
def _machine() -> str:
    """Say in words what the notebooks run on."""
    versions = [f"Python {platform.python_version()}"]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions.append(f"TensorFlow {importlib.metadata.version('tensorflow')}")
    total = pages.memory(psutil.virtual_memory().total)
    where = f"{os.cpu_count()} cores, {total} of memory, {platform.system()}"
    return f"{where}, {', '.join(versions)}"


def _write_map(
    known: Sequence[Notebook], build: pathlib.Path, page: pathlib.Path, workshop: bool
) -> None:
    rows = [_row(notebook, build) for notebook in known]
    files.write(page, pages.index(rows, _machine(), workshop))
