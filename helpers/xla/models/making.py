"""Asking about all models, each in a process that may die. Imports no TensorFlow."""

import importlib.metadata
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from helpers.base.errors import CourseError
from helpers.base.settings import ROOT
from helpers.xla.models import child
from helpers.xla.models.child import Examined, Told
from helpers.xla.models.table import TARGET, Row, Table
from helpers.xla.tables import short
from tpu_preflight import compiler
from tpu_preflight.compiler.process import missing, processes

# Rows of a run that was stopped, which the next one takes over.
PARTIAL = ROOT / "build" / "models.tsv"

# Seconds for one model, and models after which the process, which grows, is started anew.
LIMIT, ENOUGH = 240.0, 40


class Worker:
    """The process of `child`, started anew when it has died, takes too long or has done enough."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Any = None
        self._done = 0

    def ask(self, name: str) -> None:
        """Begin with a model; `answer` waits for it."""
        if self._process is None or self._done >= ENOUGH:
            self.stop()
            spawn = multiprocessing.get_context("spawn")  # a fork of TensorFlow may hang
            self._pipe, theirs = spawn.Pipe()
            self._process = spawn.Process(target=child.serve, args=[theirs], daemon=True)
            self._process.start()
            theirs.close()
            self._done = 0
        self._pipe.send(name)

    def answer(self) -> Any:
        """Wait for what was asked; a text where there is none, because the process ended."""
        self._done += 1
        try:
            if self._pipe.poll(LIMIT):
                return self._pipe.recv()
            self.stop()
            return "timed out"
        except (EOFError, ConnectionResetError):
            self._process.join()
            code = self._process.exitcode
            self.stop()
            return f"crashed: the process ended {processes.ending(code)}"

    def stop(self) -> None:
        """End the process, at once."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


def _row(told: tuple[str, str], found: Examined | str) -> Row:
    """Ask Google's compiler about what TensorFlow made, and write it down."""
    unknown = ("not reached", "not reached", "not traced", 0, "")
    if isinstance(found, str):
        state, _, message = found.partition(": ")
        return Row(*told, state, *unknown, message)
    if found.built:
        return Row(*told, "not built", *unknown, short(found.built))

    def asked(step: Told) -> tuple[str, str]:
        if step.lacks:
            return "no package", f"it needs {step.lacks}: {step.message}"
        if step.program is None:
            return "not reached", step.message
        result = compiler.compile(step.program, TARGET, timeout=LIMIT)
        if result.verdict == "not available":
            raise CourseError(
                "The table of models can't be made here.",
                result.message,
                "Install it, or read the stored table: helpers.xla.models.read()",
            )
        return result.verdict, result.message

    tpu, refusal = asked(found.forward)
    training, again = asked(found.training)
    where = found.forward.where or found.training.where
    cpu = "refused" if found.cpu else "compiles"
    return Row(
        *told,
        tpu if found.forward.lacks else cpu,
        tpu,
        training,
        found.bridge,
        len(found.forward.program.bounded) if found.forward.program else 0,
        where,
        short(refusal or found.cpu or again),
    )


def rows(models: Sequence[tuple[str, str]]) -> Iterator[Row]:
    """Examine models, a row for each, in order; while one is compiled, the next is traced.

    ``models`` are kind and name of each, as `classes` lists them.

    Raises:
        CourseError: jax or libtpu is missing.
    """
    worker = Worker()
    names = [name for _, name in models]
    with compiler.started():
        try:
            if names:
                worker.ask(names[0])
            for told, following in zip(models, [*names[1:], ""], strict=True):
                found = worker.answer()
                if following:
                    worker.ask(following)
                yield _row(told, found)
        finally:
            worker.stop()


def classes() -> list[tuple[str, str]]:
    """List the model classes of transformers, as `building.classes`, in a process of its own.

    Raises:
        CourseError: transformers can't be imported.
    """
    worker = Worker()
    worker.ask("")
    found = worker.answer()
    worker.stop()
    if isinstance(found, str):
        raise CourseError(
            "The models of transformers can't be listed.", found, "Look at tpu-course doctor."
        )
    return found


def versions() -> str:
    """Name what a table depends on, with versions."""
    found = {name: importlib.metadata.version(name) for name in ("tensorflow", "transformers")}
    found |= compiler.versions()
    return ", ".join(f"{n} {found[n]}" for n in ("tensorflow", "transformers", "jax", "libtpu"))


def make(progress: Callable[[int, int], None] | None = None) -> Table:
    """Examine every model; go on with what a run that was stopped had found.

    ``progress`` is told the number of models that are done, and of all.

    Raises:
        CourseError: jax, libtpu or transformers is missing.
    """
    if absent := missing():
        raise CourseError("The table of models can't be made here.", absent, "Install it.")
    models, now = classes(), versions()
    done: dict[str, Row] = {}
    if PARTIAL.exists() and (before := Table.read(PARTIAL)).versions == now:
        done = {row.name: row for row in before.rows}
    todo = [told for told in models if told[1] not in done]
    for row in rows(todo):
        done[row.name] = row
        Table(now, tuple(done.values())).write(PARTIAL)
        if progress is not None:
            progress(len(done), len(models))
    table = Table(now, tuple(done[name] for _, name in models))
    PARTIAL.unlink(missing_ok=True)
    return table
