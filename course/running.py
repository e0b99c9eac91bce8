"""Running notebooks, some at a time where there is room, and what a run leaves behind."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import nbclient.client
import nbconvert
import nbformat
import papermill
import psutil
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from nbconvert.filters import ansi2html
from papermill.exceptions import PapermillExecutionError
from rich.console import Console
from rich.progress import Progress

from course import outputs, tidy
from course.catalog import BUILD, TEMPLATES, Notebook, notebooks
from course.processes import free_memory
from helpers.base import files, html
from helpers.base.errors import CourseError, cause, unreadable
from tpu_preflight import processes

# The notebooks that take longest (2026-11), the longest first.
LONGEST_FIRST = ["07", "08", "10", "11", "05", "12", "03", "02"]
BEYOND_CORE = "beyond-core"  # the tag of a cell that a workshop has no time for
LAST_LINES = 12  # of an error
LONGEST_LINE = 1000  # characters of such a line
MOST_COLORED_TEXT = 50_000  # characters of an output with colors that a page shows
MEMORY_OF_A_NOTEBOOK = 4e9  # bytes
MARK = "COURSE_KERNEL"  # a variable of a kernel and of all that its cells start
# As nbclient has it, but from a line's start on: theirs takes minutes for a line of some MB.
nbclient.client._RGX_CARRIAGERETURN = re.compile(r"^.*\r(?=[^\n])", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Result:
    """How the run of one notebook ended."""

    name: str  # the notebook's
    state: str  # ``passed``, ``failed`` or ``died`` (its kernel ended)
    seconds: float  # wall time, with the start and end of the kernel
    cell: int = 0  # the number of the cell that stopped it, from 1
    error: str = ""  # what happened there: the last lines of the traceback, or of a dying kernel

    def __repr__(self) -> str:
        where = f" at cell {self.cell}" if self.cell else ""
        return f"{self.name}: {self.state}{where} ({self.seconds:.0f} s)\n{self.error}".strip()


class _Kernel:
    """What one kernel writes, and the processes that its cells start, which end with it."""

    def __init__(self, folder: str, log: IO[bytes]) -> None:
        self._folder = folder
        self._log = log
        self._pid = -1
        self._family: list[psutil.Process] = []

    def manager(self) -> type[AsyncKernelManager]:
        """Give a class for papermill: it starts this very Python, whose native code writes here."""
        # With the first variable ipykernel leaves the file descriptors alone, as under nbval: the
        # same outputs. With the last TensorFlow takes three times as long to import.
        environment = os.environ | {"PYTEST_CURRENT_TEST": __name__, MARK: self._folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        streams = {"env": environment, "stdout": self._log, "stderr": self._log}
        owner = self

        class Manager(AsyncKernelManager):
            kernel_spec = KernelSpec(**get_kernel_dict())

            async def start_kernel(self, **options: object) -> None:
                await super().start_kernel(**options | streams)
                owner._pid = self.provisioner.pid

            async def shutdown_kernel(self, *arguments: object, **options: object) -> None:
                # Once the kernel is gone, its children have another parent.
                owner._family += processes.family(owner._pid)
                await super().shutdown_kernel(*arguments, **options)

        return Manager

    def lines(self) -> list[str]:
        """Give what native code and a dying kernel wrote."""
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace").splitlines()

    def end(self) -> None:
        """Kill what the cells started, also in sessions or with an environment of its own.

        A daemon that left both has another parent: `course.processes.daemons_ended` is for those.
        """
        for process in psutil.process_iter(["environ"]):
            environment = process.info["environ"] or {}
            if environment.get(MARK) == self._folder or _session(process.pid) == self._pid:
                self._family.append(process)
        processes.kill(self._family)


def _session(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return 0


def execute(
    notebook: Notebook, parameters: Mapping[str, object] | None = None, workshop: bool = False
) -> tuple[Result, nbformat.NotebookNode]:
    """Run a notebook in its own kernel; give how it ended, and the notebook with its outputs.

    ``parameters`` are values for names of the cell tagged ``parameters``. A ``workshop`` leaves out
    the cells tagged ``beyond-core``.
    """
    start_time = time.monotonic()
    node = nbformat.read(notebook.path, 4)
    if workshop:
        node.cells = [cell for cell in node.cells if BEYOND_CORE not in _tags(cell)]
    started_cells: list[nbformat.NotebookNode] = []
    cell_number = 0

    def note_start(cell: nbformat.NotebookNode, cell_index: int) -> None:
        nonlocal cell_number
        started_cells.append(cell)
        cell_number = cell_index + 1

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        kernel = _Kernel(folder, log)
        output = pathlib.Path(folder, notebook.path.name)
        state = "passed"
        lines: list[str] = []
        try:
            papermill.execute_notebook(
                node,
                output,
                parameters,
                request_save_on_cell_execute=False,  # it takes seconds to write so often
                kernel_name="python3",
                language="python",
                progress_bar=False,
                kernel_manager_class=kernel.manager(),
                resources={"metadata": {"path": str(notebook.path.parent)}},
                on_cell_start=note_start,
                coalesce_streams=True,
                record_timing=False,
                store_widget_state=False,
            )
        except PapermillExecutionError as error:
            state = "failed"
            lines = "\n".join(error.traceback).splitlines()
        except Exception as error:  # the kernel died or didn't start; or an output can't be kept
            state = "died"
            reason = "memory ran out, or a cell called exit() or deleted temporary files"
            lines = [*kernel.lines(), f"{cause(error)} (most often because {reason})"]
        finally:
            kernel.end()
        # Where the kernel died, the cells that papermill was given are all that there is.
        cell_by_id = {cell.id: cell for cell in started_cells}
        node.cells = [cell_by_id.get(cell.id, cell) for cell in node.cells]
        if output.exists():
            node = nbformat.read(output, 4)

    if state == "passed" and not _ran_to_its_end(node):
        state = "failed"
        lines = ["sys.exit() ended the notebook here: the cells below never ran."]
    if state == "passed":
        cell_number = 0  # no cell stopped it
    result = Result(
        name=notebook.name,
        state=state,
        seconds=time.monotonic() - start_time,
        cell=cell_number,
        error=_last_lines(lines),
    )
    return result, node


def _tags(cell: nbformat.NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def _ran_to_its_end(node: nbformat.NotebookNode) -> bool:
    """Tell whether each cell ran that has code; a notebook can't be ended by an exit alone."""
    for cell in node.cells:
        is_program = cell.cell_type == "code" and cell.source.strip()
        if is_program and "skip-execution" not in _tags(cell) and cell.execution_count is None:
            return False
    return True


def _last_lines(lines: Sequence[str]) -> str:
    """Give the end of a traceback, without colors and rulers."""
    plain = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line).rstrip() for line in lines]
    filled = [line[:LONGEST_LINE] for line in plain if line.strip(" -")]
    return "\n".join(filled[-LAST_LINES:])


def run_all(
    selection: Sequence[Notebook],
    keep: Callable[[Notebook, Result, nbformat.NotebookNode], None],
    console: Console | None = None,
    jobs: int = 1,
    **options: Any,
) -> tuple[Result, ...]:
    """Run notebooks, each in its own kernel, and go on after one that fails.

    Gives the results in the order of ``selection``; ``options`` are `execute`'s. ``keep`` is called
    as each notebook ends. An interrupt (Ctrl-C) ends all kernels; what was kept stays.
    """
    results: dict[str, Result] = {}
    console = console or Console(stderr=True)
    # Side by side, the longest begin first, so that none of them is the only one at the end.
    order = sorted(selection, key=_rank) if jobs > 1 else selection
    bar = Progress(console=console, disable=not console.is_terminal)
    with bar, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        notebook_by_future = {}
        for notebook in order:
            notebook_by_future[pool.submit(execute, notebook, **options)] = notebook
        try:
            finished = concurrent.futures.as_completed(notebook_by_future)
            for future in bar.track(finished, len(order), description="notebooks"):
                result, node = future.result()
                keep(notebook_by_future[future], result, node)
                results[result.name] = result
                console.print(repr(result), markup=False, highlight=False)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            # A kernel may be on its way: again until no thread is at work.
            while not all(future.done() for future in notebook_by_future):
                processes.kill(processes.family(os.getpid())[1:])
                concurrent.futures.wait(notebook_by_future, 1)
            raise
    return tuple(results[notebook.name] for notebook in selection)


def _rank(notebook: Notebook) -> int:
    if notebook.number in LONGEST_FIRST:
        return LONGEST_FIRST.index(notebook.number)
    return len(LONGEST_FIRST)


def run(
    selection: Sequence[Notebook],
    build: pathlib.Path = BUILD,
    console: Console | None = None,
    **options: Any,
) -> tuple[Result, ...]:
    """Run notebooks and write an index of their results: ``build/index.html``.

    Four run at once where there are two cores and 16 GB of free memory. Each executed notebook is
    written to ``build``, also one that failed, as ``.ipynb`` and as a page; results of earlier runs
    stay there, and in ``build/earlier`` what was changed by hand. ``options`` are `execute`'s.

    Raises `CourseError`: A result can't be written.
    """
    course = notebooks(selection[0].path.parent)
    # More than the cores, as some cells wait.
    jobs = max(1, min(4, 2 * (os.cpu_count() or 1), int(free_memory() / MEMORY_OF_A_NOTEBOOK)))
    results: dict[str, Result] = {}
    write = functools.partial(outputs.write_own, earlier=build / "earlier")

    def write_index() -> None:
        pages = {
            notebook.name for notebook in course if (build / f"{notebook.name}.html").is_file()
        }
        page = html.render(
            "course_map.html", TEMPLATES, notebooks=course, results=results, pages=pages
        )
        write(build / "index.html", page)

    def keep(notebook: Notebook, result: Result, node: nbformat.NotebookNode) -> None:
        write(build / f"{notebook.name}.ipynb", nbformat.writes(node) + "\n")
        write(build / f"{notebook.name}.html", _page(node, notebook))
        results[notebook.name] = result
        write_index()

    write_index()  # now, so that a folder without permission is told at once
    return run_all(selection, keep, console, jobs, **options)


def _page(node: nbformat.NotebookNode, notebook: Notebook) -> str:
    """Write an executed notebook as one file of HTML; links to notebooks lead to their pages."""
    node = nbformat.from_dict(node)
    for cell in node.cells:
        cell.source = re.sub(r"(?<=\]\()(\d\d_\w+)\.ipynb", r"\1.html", cell.source)
    exporter = nbconvert.HTMLExporter(embed_images=True, exclude_input_prompt=True)
    # Of a text with many colors it would make a page for hours.
    exporter.register_filter("ansi2html", lambda text: ansi2html(text[:MOST_COLORED_TEXT]))
    without_input = nbconvert.preprocessors.TagRemovePreprocessor(remove_input_tags={"hide-input"})
    exporter.register_preprocessor(without_input, True)
    metadata = {"name": notebook.title, "path": str(notebook.path.parent)}
    return exporter.from_notebook_node(node, {"metadata": metadata})[0]


def store(selection: Sequence[Notebook], console: Console | None = None) -> tuple[Result, ...]:
    """Run notebooks with their defaults and write the outputs into the notebooks themselves.

    One after another, because a neighbor would change the times that some outputs tell. A notebook
    that fails stays as it is. No times and no traces of the tools are written, so a second store
    of the same outputs changes nothing.

    Raises `CourseError`: A notebook can't be written, or was changed while it ran.
    """

    def keep(notebook: Notebook, result: Result, node: nbformat.NotebookNode) -> None:
        if result.state != "passed":
            return
        message = f"{notebook.path.name} was changed while it ran."
        with unreadable(message, "Repair it."):
            current = nbformat.read(notebook.path, 4)
            tidy.strip_metadata(current)
        tidy.strip_metadata(node)
        if _inputs(current) != _inputs(node):
            raise CourseError(message, "The change would be lost.", "Run the same command again.")
        files.write(notebook.path, nbformat.writes(node) + "\n")

    return run_all(selection, keep, console)


def _inputs(node: nbformat.NotebookNode) -> list[tuple]:
    """Give what an author writes of each cell, and a run leaves as it is."""
    return [(cell.source, cell.metadata, cell.get("attachments")) for cell in node.cells]
