"""Running notebooks, some at a time where there is room, and what a run leaves behind."""

import concurrent.futures
import dataclasses
import functools
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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

from course import outputs
from course.catalog import BUILD, Notebook, notebooks
from course.outputs import TEMPLATES
from course.processes import free_memory
from helpers.base import files, html
from helpers.base.errors import CourseError, cause, unreadable
from tpu_preflight import processes

LONGEST = "05 07 11 10 08 03 12 02"  # those that take longest (2026-11): begun first
BEYOND_CORE = "beyond-core"  # the tag of a cell that a workshop has no time for
LAST_LINES = 12
MARK = "COURSE_KERNEL"  # a variable of a kernel and of all that its cells start
# As nbclient has it, but from a line's start on: theirs takes minutes for a line of some MB.
nbclient.client._RGX_CARRIAGERETURN = re.compile(r"^.*\r(?=[^\n])", re.MULTILINE)
# How a cell tagged ``hide-input`` is folded: in JupyterLab, and as a form in Colab.
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}


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


def execute(
    notebook: Notebook, parameters: Mapping[str, object] | None = None, workshop: bool = False
) -> tuple[Result, nbformat.NotebookNode]:
    """Run a notebook in a kernel of its own; give how it ended, and it with its outputs.

    ``parameters`` are values for names of the cell tagged ``parameters``. A ``workshop`` leaves out
    the cells tagged ``beyond-core``.
    """
    node, started = nbformat.read(notebook.path, 4), time.monotonic()
    begun: list[tuple[int, nbformat.NotebookNode]] = []  # cells that began, with their numbers
    if workshop:
        node.cells = [c for c in node.cells if BEYOND_CORE not in c.metadata.get("tags", ())]

    # With the first variable ipykernel leaves the file descriptors alone, as under nbval: the same
    # outputs. With the second TensorFlow takes three times as long to import.
    environment = os.environ | {"PYTEST_CURRENT_TEST": __name__}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as words:
        own = {"env": environment | {MARK: folder}, "stdout": words, "stderr": words}

        class Kernel(AsyncKernelManager):
            """This very Python, whose native code writes to a file."""

            kernel_spec = KernelSpec(**get_kernel_dict())

            def start_kernel(self, **options: object) -> object:
                return super().start_kernel(**options | own)

        output = pathlib.Path(folder, notebook.path.name)
        state, lines = "passed", []
        try:
            papermill.execute_notebook(
                node,
                output,
                parameters,
                request_save_on_cell_execute=False,  # it takes seconds to write so often
                kernel_name="python3",
                language="python",
                progress_bar=False,
                kernel_manager_class=Kernel,
                resources={"metadata": {"path": str(notebook.path.parent)}},
                on_cell_start=lambda cell, cell_index: begun.append((cell_index + 1, cell)),
                coalesce_streams=True,
                record_timing=False,
                store_widget_state=False,
            )
        except PapermillExecutionError as error:
            state, lines = "failed", "\n".join(error.traceback).splitlines()
        except Exception as error:  # the kernel died or didn't start; or an output can't be kept
            words.seek(0)
            said = words.read().decode("utf-8", "replace").splitlines()
            why = "memory ran out, or a cell called exit() or deleted temporary files"
            state, lines = "died", [*said, f"{cause(error)} (most often because {why})"]
        finally:  # what a cell started in a session of its own would stay
            each = psutil.process_iter(["environ"])
            processes.kill(x for x in each if (x.info["environ"] or {}).get(MARK) == folder)
        ran = {cell.id: cell for _, cell in begun}  # all that there is where the kernel died
        node.cells = [ran.get(cell.id, cell) for cell in node.cells]
        if output.exists():
            node = nbformat.read(output, 4)
    code = [c for c in node.cells if c.cell_type == "code" and c.source.strip()]
    code = [c for c in code if "skip-execution" not in c.metadata.get("tags", ())]
    if state == "passed" and any(c.execution_count is None for c in code):
        state, lines = "failed", ["sys.exit() ended the notebook here: the cells below never ran."]
    plain = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line).rstrip()[:1000] for line in lines]
    error = "\n".join([line for line in plain if line.strip(" -")][-LAST_LINES:])
    where = begun[-1][0] if begun and state != "passed" else 0
    return Result(notebook.name, state, time.monotonic() - started, where, error), node


def run_all(
    chosen: Sequence[Notebook],
    keep: Callable[[Notebook, Result, nbformat.NotebookNode], None],
    console: Console | None = None,
    jobs: int = 1,
    **options: Any,
) -> tuple[Result, ...]:
    """Run notebooks, each in a kernel of its own, and go on after one that fails.

    Gives the results in the order of ``chosen``; ``options`` are `execute`'s. ``keep`` is called as
    each notebook ends. An interrupt (Ctrl-C) ends all kernels; what was kept stays.
    """
    results: dict[str, Result] = {}
    console = console or Console(stderr=True)
    order = sorted(chosen, key=lambda n: jobs > 1 and f"{LONGEST} {n.number}".index(n.number))
    bar = Progress(console=console, disable=not console.is_terminal)
    with bar, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        begun = {pool.submit(execute, n, **options): n for n in order}
        try:
            ended = concurrent.futures.as_completed(begun)
            for future in bar.track(ended, len(begun), description="notebooks"):
                result, node = future.result()
                keep(begun[future], result, node)
                results[result.name] = result
                console.print(repr(result), markup=False, highlight=False)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in begun):
                processes.kill(processes.family(os.getpid())[1:])
                concurrent.futures.wait(begun, 1)
            raise
    return tuple(results[notebook.name] for notebook in chosen)


def run(
    chosen: Sequence[Notebook],
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
    known = notebooks(chosen[0].path.parent)
    # More than the cores, as some cells wait.
    jobs = max(1, min(4, 2 * (os.cpu_count() or 1), int(free_memory() / 4e9)))
    done: dict[str, Result] = {}
    write = functools.partial(outputs.write_own, kept=build / "earlier")

    def index() -> None:
        there = {notebook.name for notebook in known if (build / f"{notebook.name}.html").is_file()}
        page = html.render("course_map.html", TEMPLATES, known=known, done=done, there=there)
        write(build / "index.html", page)

    def keep(notebook: Notebook, result: Result, node: nbformat.NotebookNode) -> None:
        write(build / f"{notebook.name}.ipynb", nbformat.writes(node) + "\n")
        write(build / f"{notebook.name}.html", _page(node, notebook))
        done[notebook.name] = result
        index()

    index()  # now, so that a folder without permission is told at once
    return run_all(chosen, keep, console, jobs, **options)


def _page(node: nbformat.NotebookNode, notebook: Notebook) -> str:
    """Write an executed notebook as one file of HTML; links to notebooks lead to their pages."""
    node = nbformat.from_dict(node)
    for cell in node.cells:
        cell.source = re.sub(r"(?<=\]\()(\d\d_\w+)\.ipynb", r"\1.html", cell.source)
    exporter = nbconvert.HTMLExporter(embed_images=True, exclude_input_prompt=True)
    exporter.register_filter("ansi2html", lambda text: ansi2html(text[:50_000]))  # not for hours
    exporter.register_preprocessor(
        nbconvert.preprocessors.TagRemovePreprocessor(remove_input_tags={"hide-input"}), True
    )
    where = {"name": notebook.title, "path": str(notebook.path.parent)}
    return exporter.from_notebook_node(node, {"metadata": where})[0]


def store(chosen: Sequence[Notebook], console: Console | None = None) -> tuple[Result, ...]:
    """Run notebooks with their defaults and write the outputs into the notebooks themselves.

    One after another, because a neighbour would change the times that some outputs tell. A notebook
    that fails stays as it is. No times and no traces of the tools are written, so a second store
    of the same outputs changes nothing.

    Raises `CourseError`: A notebook can't be written, or was changed while it ran.
    """

    def keep(notebook: Notebook, result: Result, node: nbformat.NotebookNode) -> None:
        if result.state == "passed":
            with unreadable(f"{notebook.path.name} was changed while it ran.", "Repair it."):
                read = [_stripped(nbformat.read(notebook.path, 4)).cells, _stripped(node).cells]
            now, then = ([(c.source, c.metadata, c.get("attachments")) for c in x] for x in read)
            if now != then:
                what = f"{notebook.path.name} was changed while it ran."
                raise CourseError(what, "The change would be lost.", "Run the same command again.")
            files.write(notebook.path, nbformat.writes(node) + "\n")

    return run_all(chosen, keep, console)


def _stripped(node: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Leave out what differs from run to run or belongs to a tool."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    node.metadata = nbformat.from_dict({"kernelspec": kernel, "language_info": {"name": "python"}})
    for cell in node.cells:
        kept = {k: cell.metadata[k] for k in ("tags", "slideshow") if cell.metadata.get(k)}
        folded = FOLDED if "hide-input" in kept.get("tags", ()) else {}
        cell.metadata = nbformat.from_dict(kept | folded)
    return node
