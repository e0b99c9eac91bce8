"""A preflight of ``module:name`` in a process of its own, where the learner's code may break.

The code may print, fork, crash, take all memory, or never come back from tracing: see `processes`.
Nothing here imports TensorFlow before the child does.
"""

import contextlib
import importlib.machinery
import os
import pathlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tpu_preflight import compiler, errors, processes
from tpu_preflight.chips import hardware
from tpu_preflight.errors import PreflightError
from tpu_preflight.program import messages
from tpu_preflight.report import NOT_READY, Report, finding
from tpu_preflight.text import steady

REMEDIES = {
    "time": "Raise it with --timeout, or find what never ends.",
    "memory": "Take fewer rows, a smaller model, or more memory.",
    "ended": "Import the module, and run a compiled step, in a Python of its own first.{wrote}",
}
CHOSEN = ("TF_USE_LEGACY_KERAS", "KERAS_BACKEND")  # which Keras it is, is part of the model


def apart(
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
    """
    if not (words := re.fullmatch(r"([\w.]+(?<!\.py)):(\w+)", name)):
        raise PreflightError(
            f"{name!r} names no function of a module.",
            "A module and a name are needed, with a colon between: no file, no brackets.",
            "Write it as tpu-preflight my_model:build, for build in my_model.py.",
        )
    module, attribute = words.groups()
    for target in targets:
        hardware.slice_of(target, jax=True)
    try:
        os.fsencode(pathlib.Path.cwd()).decode()
    except (OSError, UnicodeError) as error:
        raise PreflightError(
            "The current folder can't be used.",
            f"{error}.",
            "Go to a folder that is there, and whose name is UTF-8.",
        ) from error
    # The rest is for everything else: a search that takes longer still leaves a report.
    options["search_seconds"] = timeout / 2 / max(1, len(targets))
    options |= {"trace_seconds": timeout / 2, "target": list(targets)}
    job = {"module": module, "attribute": attribute, "options": options}
    limits = {
        "timeout": timeout,
        "most_memory": memory_limit,
        "progress": (lambda stage, _: progress(stage)) if progress else None,
    }
    # A terminal's encoding is none of its files', and nobody waits at a breakpoint.
    environment = errors.OWN | dict(os.environ) | {"PYTHONUTF8": "1", "PYTHONBREAKPOINT": "0"}
    report = _asked(name, job, environment, limits)
    changed = {key: value for key, value in errors.settings().items() if key not in CHOSEN}
    if report.status != NOT_READY or not changed:
        return report
    with contextlib.suppress(PreflightError):
        cleared = {key: value for key, value in environment.items() if key not in changed}
        again = _asked(name, job, errors.OWN | cleared, limits)
        if again.status != NOT_READY:
            about = {"status": again.status, "names": ", ".join(changed)}
            return Report(name, report.targets, (finding(1, "environment", **about),))
    return report


def _asked(
    name: str, job: dict[str, Any], environment: Mapping[str, str], limits: dict[str, Any]
) -> Report:
    """Ask a child with these variables; say why where there is no answer."""
    try:
        with processes.own_folder() as own:
            given = {**environment, "TMPDIR": own}
            child = processes.Child("tpu_preflight.apart", given, pathlib.Path.cwd(), own)
            with contextlib.closing(child):
                answer, _ = child.ask(job, stage="importing", **limits)
    except processes.NoAnswer as error:
        known = Report.from_json(error.kept["report"]).items if "report" in error.kept else ()
        # The last line that the learner's code or a library wrote is mostly the reason.
        wrote = f" It wrote last: {steady(error.lines[-1])[:200]}" if error.lines else ""
        fix = REMEDIES.get(error.cause, REMEDIES["ended"]).format(wrote=wrote) + errors.unset(wrote)
        items = finding(1, "ended", why=error, fix=fix), *known
        return Report(name, tuple(job["options"]["target"]), items)
    if "error" in answer:
        what, why, fix = answer["error"]
        raise PreflightError(what, why, fix + errors.unset(why))
    return Report.from_json(answer["report"])


# --- the child ------------------------------------------------------------------------------------


def _load(module: str, attribute: str) -> object:
    """Import the learner's module from the current folder."""
    folder = str(pathlib.Path.cwd())
    sys.path.insert(0, folder)
    try:
        loaded = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # whatever the module does wrong is the answer
        raise PreflightError(
            f"{module} could not be imported.",
            _said(error),
            "Run the command in the folder that holds the module, and see that "
            f"`python -c 'import {module}'` works there. A file named like a package hides it.",
        ) from error
    top = module.partition(".")[0]
    own = importlib.machinery.PathFinder.find_spec(top, [folder])
    if own is not None and own.origin not in (None, sys.modules[top].__spec__.origin):
        raise PreflightError(
            f"{top} is not the one in this folder: a library has the same name.",
            f"Python had imported {sys.modules[top]} before.",
            f"Give your {top} another name.",
        )
    if not hasattr(loaded, attribute):
        names = [n for n in vars(loaded) if re.match(r"[a-z]", n) and callable(vars(loaded)[n])]
        raise PreflightError(
            f"{module} has no {attribute!r}.",
            f"Its functions are {', '.join(sorted(names)[:12]) or 'none'}.",
            "Write the name as the module does.",
        )
    return getattr(loaded, attribute)


def _said(error: BaseException) -> str:
    """Give an error's type and words, and the learner's line that it comes from."""
    said = f"{type(error).__name__}: {messages.line_of(error)[:300]}"
    where = messages.source_of(error)
    return f"{said} ({where})" if where else said


def _answer(
    job: dict[str, Any], _: bytes, tell: Callable[..., None]
) -> tuple[dict[str, Any], bytes]:
    """Import and check."""
    module, attribute = job["module"], job["attribute"]
    try:
        with compiler.started():  # with the variables that the learner's module doesn't set
            from tpu_preflight.checklist import preflight  # before a gzip.py of the learner's

            subject = _load(module, attribute)
            if not isinstance(subject, tuple) or len(subject) != 2:
                subject = subject, None
            report = preflight(
                *subject,
                **job["options"],
                progress=tell,
                known=lambda report: tell("the data are known", report=report.json()),
            )
            return {"report": report.json()}, b""
    except PreflightError as error:
        told = error
    except (Exception, SystemExit) as error:  # of the learner's code, or of ours
        what = f"{module}:{attribute} raised an error."
        fix = f"See that `python -c 'import {module}; {module}.{attribute}()' < /dev/null` works."
        theirs = messages.source_of(error) is not None
        told = PreflightError(what, _said(error), fix) if theirs else errors.unforeseen(error)
    return {"error": [told.what, told.why, told.fix]}, b""


if __name__ == "__main__":
    processes.serve(_answer, own_folder=os.environ["TMPDIR"])
