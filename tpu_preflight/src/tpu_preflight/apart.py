"""A preflight of ``module:name`` in a process of its own, where the learner's code may break.

The code may print, fork, crash, take all memory, or never come back from tracing: see `processes`.
Nothing here imports TensorFlow before the child does.
"""

import contextlib
import importlib
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from tpu_preflight import compiler, processes
from tpu_preflight.chips import hardware
from tpu_preflight.errors import PreflightError
from tpu_preflight.program import messages
from tpu_preflight.report import Report, finding
from tpu_preflight.text import steady

# For the child, unless the user set them otherwise: nothing here runs on a TPU; oneDNN's rounding
# differs from one processor to the next; and logs in C++ carry times.
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}


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
    # The rest is for everything else: a search that takes longer still leaves a report.
    limits = {"search_seconds": timeout / 2 / max(1, len(targets)), "trace_seconds": timeout / 2}
    options |= limits | {"target": list(targets)}
    environment = ENVIRONMENT | dict(os.environ)

    memory_limit = memory_limit or processes.memory_limit()
    try:
        with tempfile.TemporaryDirectory(
            "", "tpu-preflight-", ignore_cleanup_errors=True
        ) as own:  # what it leaves goes
            environment["TMPDIR"] = own
            child = processes.Child("tpu_preflight.apart", environment, pathlib.Path.cwd(), own)
            with contextlib.closing(child):
                answer, _ = child.ask(
                    {"module": module, "attribute": attribute, "options": options},
                    timeout=timeout,
                    most_memory=memory_limit,
                    progress=(lambda stage, _: progress(stage)) if progress else None,
                    stage="importing",
                )
    except processes.NoAnswer as error:
        why, fix = _ended(error, timeout, memory_limit)
        return Report(name, tuple(targets), (finding(1, "ended", why=why, fix=fix),))
    if "error" in answer:
        raise PreflightError(*answer["error"])
    return Report.from_json(answer["report"])


def _ended(error: processes.NoAnswer, timeout: float, memory_limit: int) -> tuple[str, str]:
    """Say why there is no report, and what to do."""
    if error.cause == "time":
        why = f"it was ended after the time limit of {timeout:g} s, while {error.stage}"
        return why, "Raise it with --timeout, or find what never ends."
    if error.cause == "memory":
        took = f"more than {memory_limit / 1e9:.1f} GB of this machine's memory"
        return (
            f"it was ended because it took {took}, while {error.stage}",
            "Take fewer rows, a smaller model, or more memory.",
        )
    # The last line that the learner's code or a library wrote is mostly the reason.
    wrote = f" It wrote last: {steady(error.lines[-1])[:200]}" if error.lines else ""
    why = f"the process ended {error.cause}, while {error.stage}"
    return why, f"Import the module, and run a compiled step, in a Python of its own first.{wrote}"


# --- the child ------------------------------------------------------------------------------------


def _load(module: str, attribute: str) -> object:
    """Import the learner's module from the current folder."""
    sys.path.insert(0, str(pathlib.Path.cwd()))
    try:
        loaded = importlib.import_module(module)
    except Exception as error:  # whatever the module does wrong is the answer
        raise PreflightError(
            f"{module} could not be imported.",
            _said(error),
            "Run the command in the folder that holds the module, and see that "
            f"`python -c 'import {module}'` works there.",
        ) from error
    if not hasattr(loaded, attribute):
        names = [n for n in vars(loaded) if re.match(r"[a-z]", n) and callable(vars(loaded)[n])]
        raise PreflightError(
            f"{module} has no {attribute!r}.",
            f"Its functions are {', '.join(sorted(names)[:12]) or 'none'}.",
            "Write the name as the module does.",
        )
    return getattr(loaded, attribute)


def _said(error: Exception) -> str:
    """Give an error's type and words, and the learner's line that it comes from."""
    said = f"{type(error).__name__}: {messages.line_of(error)[:300]}"
    where = messages.source_of(error)
    return f"{said} ({where})" if where else said


def _answer(
    job: dict[str, Any], _: bytes, tell: Callable[[str], None]
) -> tuple[dict[str, Any], bytes]:
    """Import and check."""
    module, attribute = job["module"], job["attribute"]
    try:
        with compiler.started():  # while the learner's imports take time
            subject = _load(module, attribute)
            from tpu_preflight.checklist import preflight

            if not isinstance(subject, tuple) or len(subject) != 2:
                subject = subject, None
            report = preflight(*subject, **job["options"], progress=tell)
            return {"report": report.json()}, b""
    except PreflightError as error:
        return {"error": [error.what, error.why, error.fix]}, b""
    except Exception as error:  # of the learner's code
        what = f"{module}:{attribute} raised an error."
        fix = f"See that `python -c 'from {module} import {attribute}; {attribute}()'` works there."
        return {"error": [what, _said(error), fix]}, b""


if __name__ == "__main__":
    processes.serve(_answer, own_folder=os.environ["TMPDIR"])
