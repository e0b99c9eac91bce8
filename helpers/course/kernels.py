"""One notebook in a kernel of its own: what it prints, what it takes, how it ends."""

import dataclasses
import datetime
import logging
import os
import pathlib
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable

import ipykernel.kernelspec
import nbformat
import papermill
import psutil
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, NotebookExecutionManager, papermill_engines
from papermill.exceptions import PapermillExecutionError

from helpers.base.errors import CourseError
from helpers.course.editions import pages
from helpers.course.map import Notebook, damaged, plain
from tpu_preflight import processes

# The tag of a cell that a workshop has no time for.
BEYOND_CORE = "beyond-core"

_ENGINE = __name__
_TRACEBACK_LINES = 12
_FENCES = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

# papermill reports through its logger what we tell in our own words.
logging.getLogger("papermill").addHandler(logging.NullHandler())


@dataclasses.dataclass(frozen=True)
class Failure:
    """Where and why a notebook stopped."""

    cell: int  # number of the cell among all cells, from 1
    heading: str  # the heading above it
    anchor: str  # the cell's id
    source: str  # the cell's source
    error: str  # what happened, one line
    lines: tuple[str, ...]  # the last lines of the traceback, or of what the dying kernel wrote

    def __repr__(self) -> str:
        return f"cell {self.cell}: {self.error}"


@dataclasses.dataclass(frozen=True)
class Result:
    """How the run of one notebook ended."""

    name: str  # the notebook's
    # ``passed``, ``failed``, ``died`` (its kernel ended), ``interrupted`` or ``not run``.
    state: str
    seconds: float = 0.0  # wall time, with the start and end of the kernel
    # Highest resident memory of the kernel and its children, bytes; sampled, and on Linux never
    # below the kernel's own peak as the system counted it.
    peak: int = 0
    finished: datetime.datetime | None = None  # when it ended
    failure: Failure | None = None  # where and why it stopped, unless it passed
    # Value by name of the parameters that were changed.
    parameters: dict[str, object] = dataclasses.field(default_factory=dict)
    left_out: int = 0  # cells that a workshop's run left out

    @property
    def figures(self) -> str:
        """Time and memory, such as ``41 s, peak 1.3 GB``."""
        return f"{pages.duration(self.seconds)}, peak {pages.memory(self.peak)}"

    def __repr__(self) -> str:
        if self.state == "not run":
            return f"{self.name}: not run"
        where = f" at {self.failure}" if self.failure else ""
        return f"{self.name}: {self.state}{where} ({self.figures})"


def read(path: pathlib.Path) -> nbformat.NotebookNode:
    """Read a notebook's file; CourseError when it breaks the format of notebooks."""
    try:
        node = nbformat.reads(path.read_text("utf-8"), as_version=4)
        nbformat.validate(node)
    except (nbformat.ValidationError, AttributeError, KeyError, TypeError, ValueError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise damaged(path, f"It is JSON, but not a notebook: {first}") from None
    return node


def core(node: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    """Copy a notebook without the cells that a workshop has no time for (``beyond-core``).

    Below its title it says how many are left out, and names the whole (``name``, without suffix).
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


class ThisInterpreter(KernelSpecManager):
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

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak, self._pid = 0, pid
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.2):
            self.sample()

    def sample(self) -> None:
        """Look once."""
        family = processes.family(self._pid)
        highest = (_high_water(process.pid) for process in family)
        self.peak = max(self.peak, processes.memory(family), *highest)

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
    """papermill's client; notes how a dead kernel ended."""

    exit_code: int | None = None

    def papermill_execute_cells(self) -> None:
        try:
            super().papermill_execute_cells()
        except DeadKernelError:
            self.exit_code = self.km.provisioner.process.poll()
            raise


class _Engine(Engine):
    """How papermill runs our notebooks: in a kernel of this interpreter, watched."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, job: "Job", **kwargs: object
    ) -> None:
        job.execute(nb_man)


papermill_engines.register(_ENGINE, _Engine)


def _headings(node: nbformat.NotebookNode) -> list[str]:
    """Give for each cell the last heading up to it."""
    heading, found = "", []
    for cell in node.cells:
        if cell.cell_type == "markdown":
            lines = re.findall(r"^#+\s+(.+)", _FENCES.sub("", cell.source), re.MULTILINE)
            heading = plain(lines[-1]) if lines else heading
        found.append(heading)
    return found


class Job:
    """One notebook on its way through a kernel.

    Args:
        notebook: The notebook.
        parameters: Value by name of the parameters to change.
        tell: Called as each cell starts, with its number, the number of cells, and its heading.
        workshop: Run only the core.

    Attributes:
        node: The notebook with the outputs so far.
    """

    def __init__(
        self,
        notebook: Notebook,
        parameters: dict[str, object],
        tell: Callable[[int, int, str], None],
        workshop: bool = False,
    ) -> None:
        self.notebook, self._parameters, self._tell = notebook, parameters, tell
        self.node = read(notebook.path)
        self._left_out = 0
        if workshop:
            whole, self.node = self.node, core(self.node, notebook.name)
            # One cell of the core says what is left out.
            self._left_out = len(whole.cells) - len(self.node.cells) + 1
        self._cell, self._headings = 0, _headings(self.node)
        self._kernel = 0
        self._memory: _Memory | None = None
        self._stopped = False

    def run(self) -> Result:
        """Execute the notebook; its node holds the outputs afterwards, however it ended.

        Raises:
            CourseError: The kernel does not start.
        """
        started = time.monotonic()
        error: Exception | None = None
        with tempfile.TemporaryFile() as self._log:
            try:
                papermill.execute_notebook(
                    self.node,
                    None,
                    parameters=self._parameters,
                    engine_name=_ENGINE,
                    kernel_name="python3",
                    language="python",
                    progress_bar=False,
                    job=self,
                )
            except (PapermillExecutionError, DeadKernelError) as raised:
                error = raised
            finally:
                if self._memory:
                    self._memory.stop()
            state, failure = self._judge(error)
        return Result(
            self.notebook.name,
            state,
            time.monotonic() - started,
            self._memory.peak if self._memory else 0,
            datetime.datetime.now(datetime.UTC),
            failure,
            self._parameters,
            self._left_out,
        )

    def stop(self) -> None:
        """End the kernel and what it has started, from another thread: ``run`` then returns."""
        self._stopped = True
        if self._kernel:
            processes.kill(processes.family(self._kernel))

    def execute(self, manager: NotebookExecutionManager) -> None:
        """Do papermill's part: start the kernel and send it the cells."""
        self.node = manager.nb
        self.node.metadata.papermill.input_path = self.notebook.path.name
        self._headings = _headings(self.node)  # with the cell of changed parameters
        self._client = _Client(
            manager,
            km=AsyncKernelManager(kernel_name="python3", kernel_spec_manager=ThisInterpreter()),
            log=logging.getLogger("papermill"),
            startup_timeout=60,
            iopub_timeout=60,
            coalesce_streams=True,
            force_raise_errors=True,
            record_timing=False,
            store_widget_state=False,
            on_notebook_start=self._on_start,
            on_cell_start=self._on_cell,
            # The kernel has ended when it is looked at for the last time.
            on_cell_complete=lambda cell, cell_index: self._memory.sample(),
        )
        self._logged = 0
        try:
            self._client.execute(
                cleanup_kc=True,
                cwd=str(self.notebook.path.parent),
                env=_environment(),
                stdin=None,
                stdout=self._log,
                stderr=self._log,
            )
        except (RuntimeError, OSError) as error:
            if self._memory or isinstance(error, DeadKernelError):
                raise
            raise CourseError(
                f"The kernel for {self.notebook.name} does not start.",
                next(iter([*self._last_words()[-1:], *str(error).splitlines()]), "It is silent."),
                "Make the environment again with `make clean run`.",
            ) from error
        finally:
            # papermill will add cells of its own to a notebook that failed: keep ours.
            self.node = nbformat.from_dict(manager.nb)

    def _on_start(self, notebook: nbformat.NotebookNode) -> None:
        self._kernel = self._client.km.provisioner.process.pid
        self._memory = _Memory(self._kernel)
        self._memory.sample()
        self._memory.start()
        self._logged = os.fstat(self._log.fileno()).st_size  # what it said while starting
        if self._stopped:
            self.stop()

    def _on_cell(self, cell: nbformat.NotebookNode, cell_index: int) -> None:
        self._cell = cell_index
        self._tell(cell_index + 1, len(self.node.cells), self._headings[cell_index])

    def _last_words(self) -> tuple[str, ...]:
        """Give the last lines that the kernel's process wrote outside of any cell's output."""
        self._log.seek(self._logged)
        return _clean(self._log.read().decode("utf-8", "replace"))[-_TRACEBACK_LINES:]

    def _judge(self, error: Exception | None) -> tuple[str, Failure | None]:
        cell = self.node.cells[self._cell]
        if error is None and not cell.metadata.get("papermill", {}).get("exception"):
            return "passed", None
        if self._stopped:
            state, what, lines = "interrupted", "stopped by you", ()
        elif isinstance(error, DeadKernelError):
            state, what, lines = "died", self._death(), self._last_words()
        else:
            # Also a cell that ends with SystemExit: papermill takes it for a success.
            output = next(o for o in cell.outputs if o.output_type == "error")
            lines = _clean("\n".join(output.traceback))[-_TRACEBACK_LINES:]
            first = next(iter(output.evalue.splitlines()), "")
            state, what = "failed", f"{output.ename}: {first}".rstrip(": ")
        heading = self._headings[self._cell]
        return state, Failure(self._cell + 1, heading, cell.get("id", ""), cell.source, what, lines)

    def _death(self) -> str:
        code = self._client.exit_code
        if code is None or code >= 0:
            return f"the kernel ended by itself, exit status {code}"
        name = signal.Signals(-code).name
        if name != "SIGKILL":
            return f"the kernel died of {name}: native code crashed"
        most = pages.memory(self._memory.peak)
        has = pages.memory(psutil.virtual_memory().total)
        return (
            "the kernel was killed (SIGKILL). Most often the system does that when memory runs "
            f"out; at most {most} of {has} were seen in use"
        )


def _clean(text: str) -> tuple[str, ...]:
    """Split a traceback into lines without colour codes and without blank lines."""
    colourless = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    return tuple(line.rstrip() for line in colourless.splitlines() if line.strip(" -"))
