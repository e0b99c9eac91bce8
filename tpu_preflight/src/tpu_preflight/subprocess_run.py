"""A preflight of ``module:name`` in a process of its own, where the learner's code may break.

The code may print, fork, crash, take all memory, or never come back from tracing: see `processes`.
Nothing here imports TensorFlow before the child does.
"""

import contextlib
import importlib.abc
import importlib.machinery
import os
import pathlib
import re
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tpu_preflight import compiler, errors, processes
from tpu_preflight.chips import hardware
from tpu_preflight.errors import PreflightError
from tpu_preflight.program import messages
from tpu_preflight.report import NOT_READY, Report, finding
from tpu_preflight.text import steady

# By the cause for which there is no answer.
REMEDIES = {
    "time": "Raise it with --timeout, or find what never ends.",
    "memory": "Take fewer rows, a smaller model, or more memory.",
    "ended": "Import the module, and run a compiled step, in a separate Python first.{wrote}",
}
# Which Keras it is, is part of the model.
KERAS_SETTINGS = ("TF_USE_LEGACY_KERAS", "KERAS_BACKEND")


def run_in_subprocess(
    name: str,
    targets: Sequence[str],
    *,
    timeout: float = 900.0,
    memory_limit: int | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Report:
    """Import ``module:name`` from the current folder in a child process and go through the list.

    Gives the report; where the child died or was ended, one that can't tell, and says why.

    Args:
        name: Module and name: a factory without arguments that returns a model or a pair (model
            or function of TensorFlow or JAX, data); such a pair itself; or a ``tf.function`` with
            an input signature.
        targets: Such as ``["v5e-8"]``.
        timeout: Seconds after which the child is ended, with all it started.
        memory_limit: Bytes of this machine's memory that the child and all it started may take
            together; four fifths of all when None.
        progress: Called with one line when a step begins.
        **options: Of `checklist.preflight`.

    Raises:
        PreflightError: The name has no colon, can't be imported, raises, or holds nothing that can
            be checked; or there is no such target.

    Example:
        >>> run_in_subprocess("my_model:build", ["v5e-8"])
    """
    match = re.fullmatch(r"([\w.]+(?<!\.py)):(\w+)", name)
    if match is None:
        raise PreflightError(
            f"{name!r} names no function of a module.",
            "A module and a name are needed, with a colon between: no file, no brackets.",
            "Write it as tpu-preflight my_model:build, for build in my_model.py.",
        )
    for target in targets:
        hardware.slice_of(target, jax=True)
    _check_folder()
    options |= {
        "target": list(targets),
        "trace_seconds": timeout / 2,
        # The rest is for everything else: a search that takes longer still leaves a report.
        "search_seconds": timeout / 2 / max(1, len(targets)),
    }
    job = {"module": match[1], "attribute": match[2], "options": options}
    limits = {"timeout": timeout, "most_memory": memory_limit, "progress": None}
    if progress is not None:
        limits["progress"] = lambda stage, _: progress(stage)
    # A terminal's encoding is none of its files', and nobody waits at a breakpoint.
    environment = (
        errors.DEFAULT_SETTINGS | dict(os.environ) | {"PYTHONUTF8": "1", "PYTHONBREAKPOINT": "0"}
    )
    report = _ask(name, job, environment, limits)

    # Where it isn't ready, the environment may be the reason: ask again without its settings.
    settings = set(errors.settings()) - set(KERAS_SETTINGS)
    if report.status != NOT_READY or not settings:
        return report
    cleared = {key: value for key, value in environment.items() if key not in settings}
    try:
        cleared_report = _ask(name, job, errors.DEFAULT_SETTINGS | cleared, limits)
    except PreflightError:
        return report
    if cleared_report.status == NOT_READY:
        return report
    names = ", ".join(sorted(settings))
    item = finding(1, "environment", status=cleared_report.status, names=names)
    return Report(name, report.targets, (item,))


def _check_folder() -> None:
    """Refuse a current folder that is gone, or whose name can't be handed to a child."""
    try:
        os.fsencode(pathlib.Path.cwd()).decode()
    except (OSError, UnicodeError) as error:
        raise PreflightError(
            "The current folder can't be used.",
            f"{error}.",
            "Go to a folder that is there, and whose name is UTF-8.",
        ) from error


def _ask(
    name: str, job: dict[str, Any], environment: Mapping[str, str], limits: dict[str, Any]
) -> Report:
    """Ask a child with these variables; say why where there is no answer."""
    try:
        with processes.own_folder() as folder:
            variables = {**environment, "TMPDIR": folder}
            module = "tpu_preflight.subprocess_run"
            child = processes.Child(module, variables, pathlib.Path.cwd(), folder)
            with contextlib.closing(child):
                answer, _ = child.ask(job, stage="importing", **limits)
    except processes.NoAnswer as error:
        return _without_answer(name, tuple(job["options"]["target"]), error)
    if "error" in answer:
        what, why, fix = answer["error"]
        raise PreflightError(what, why, fix + errors.unset(why))
    return Report.from_json(answer["report"])


def _without_answer(name: str, targets: tuple[str, ...], error: processes.NoAnswer) -> Report:
    """Report why there is no answer, and what the data had shown until then."""
    items = ()
    if "report" in error.details:
        items = Report.from_json(error.details["report"]).items
    # The last line that the learner's code or a library wrote is mostly the reason.
    wrote = f" It wrote last: {steady(error.lines[-1])[:200]}" if error.lines else ""
    remedy = REMEDIES.get(error.cause, REMEDIES["ended"])
    fix = remedy.format(wrote=wrote) + errors.unset(wrote)
    return Report(name, targets, (finding(1, "ended", why=error, fix=fix), *items))


# --- the child ------------------------------------------------------------------------------------


class PythonForLibraries(importlib.abc.MetaPathFinder):
    """Gives libraries Python's own modules where the learner's folder has one of the same name.

    A ``fractions.py`` of the learner is for the learner's modules, as it is without the preflight;
    a library that imports ``fractions`` wouldn't work with it. Which library imports what, and
    when, differs from one version to the next.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find one of Python's modules for a library; None for all others to look for it."""
        if name not in sys.stdlib_module_names or self._is_learners(_importing_file()):
            return None
        others = [entry for entry in sys.path if entry not in ("", self._folder)]
        return importlib.machinery.PathFinder.find_spec(name, others)

    def _is_learners(self, file: str) -> bool:
        # An environment may be a folder in the learner's: what is in it is a library.
        path = pathlib.Path(file)
        return path.is_relative_to(self._folder) and "site-packages" not in path.parts


def _importing_file() -> str:
    """Find the file whose ``import`` is carried out."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file != __file__ and "importlib" not in file:
            return file
        frame = frame.f_back
    return ""


def _load(module_name: str, attribute: str) -> object:
    """Import the learner's module from the current folder."""
    folder = str(pathlib.Path.cwd())
    sys.meta_path.insert(0, PythonForLibraries(folder))
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever the module does wrong is the answer
        raise PreflightError(
            f"{module_name} could not be imported.",
            _description(error),
            _without_connection(error)
            or "Run the command in the folder that holds the module, and see that "
            f"`python -c 'import {module_name}'` works there. A file named like a package hides "
            "it.",
        ) from error
    # Python gives what it imported before, whatever file of that name is in the folder.
    top = module_name.partition(".")[0]
    spec = importlib.machinery.PathFinder.find_spec(top, [folder])
    if spec is not None and spec.origin not in (None, sys.modules[top].__spec__.origin):
        raise PreflightError(
            f"{top} is not the one in this folder: a library has the same name.",
            f"Python had imported {sys.modules[top]} before.",
            f"Give your {top} another name.",
        )
    if not hasattr(module, attribute):
        functions = []
        for function_name, value in vars(module).items():
            if re.match(r"[a-z]", function_name) and callable(value):
                functions.append(function_name)
        raise PreflightError(
            f"{module_name} has no {attribute!r}.",
            f"Its functions are {', '.join(sorted(functions)[:12]) or 'none'}.",
            "Write the name as the module does.",
        )
    return getattr(module, attribute)


def _without_connection(error: BaseException) -> str:
    """Advise to leave a connection to a TPU out, where that is what raised; else nothing."""
    for frame in traceback.extract_tb(error.__traceback__):
        if re.search(r"cluster_resolver/tpu|tpu_strategy_util", frame.filename):
            return (
                "Leave the connection out here: no TPU is asked. Resolver, connection and strategy "
                'belong in `if __name__ == "__main__":`, or in a function that only a run calls.'
            )
    return ""


def _divide_cpu() -> None:
    """Let TensorFlow see this CPU as two devices, for a step of ``fit`` on two replicas.

    Not where the learner's module has not imported it, has computed with it already, or has divided
    the CPU itself.
    """
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return
    config = tensorflow.config
    with contextlib.suppress(RuntimeError, ValueError, IndexError):
        cpu = config.list_physical_devices("CPU")[0]
        if config.get_logical_device_configuration(cpu) is None:
            part = config.LogicalDeviceConfiguration()
            config.set_logical_device_configuration(cpu, [part, part])


def _description(error: BaseException) -> str:
    """Give an error's type and words, and the learner's line that it comes from."""
    text = f"{type(error).__name__}: {messages.line_of(error)[:300]}"
    source = messages.source_of(error)
    return text if source is None else f"{text} ({source})"


def _answer(
    job: dict[str, Any], _: bytes, tell: Callable[..., None]
) -> tuple[dict[str, Any], bytes]:
    """Import and check; an error is an answer as well."""
    module, attribute = job["module"], job["attribute"]

    def keep(report: Report) -> None:
        tell("the data are known", report=report.json())

    try:
        with compiler.started():  # with the variables that the learner's module doesn't set
            from tpu_preflight.checklist import preflight  # before a gzip.py of the learner's

            subject = _load(module, attribute)
            _divide_cpu()
            data = None
            if isinstance(subject, tuple) and len(subject) == 2:
                subject, data = subject
            report = preflight(subject, data, **job["options"], progress=tell, known=keep)
            return {"report": report.json()}, b""
    except PreflightError as error:
        refusal = error
    except (Exception, SystemExit) as error:  # of the learner's code, or of ours
        refusal = errors.unforeseen(error)
        if messages.source_of(error) is not None:
            refusal = PreflightError(
                f"{module}:{attribute} raised an error.",
                _description(error),
                _without_connection(error)
                or f"See that `python -c 'import {module}; {module}.{attribute}()' < /dev/null` "
                "works.",
            )
    return {"error": [refusal.what, refusal.why, refusal.fix]}, b""


if __name__ == "__main__":
    processes.serve(_answer, own_folder=os.environ["TMPDIR"])
