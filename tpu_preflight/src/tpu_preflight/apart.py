"""A preflight of ``module:name`` in a process of its own, where the learner's code can do no harm.

The code may print, fork, crash, take all memory, or never come back from tracing. The parent waits
for one answer until a limit of time or memory is passed, and then ends the child with everything it
started. Nothing here imports TensorFlow before the child does.
"""

import contextlib
import importlib
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO

from tpu_preflight import compiler, processes
from tpu_preflight.chips import hardware
from tpu_preflight.errors import PreflightError
from tpu_preflight.program import messages
from tpu_preflight.report import Report, finding
from tpu_preflight.subjects import opening
from tpu_preflight.text import steady

# What this must be able to import, wherever it is started.
CODE = str(pathlib.Path(__file__).resolve().parents[1])

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
    **options: bool | int,
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
    job = json.dumps([module, attribute, {"target": list(targets)} | options | limits])
    reader, writer = os.pipe()
    path = os.pathsep.join(filter(None, (CODE, os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryFile() as said, os.fdopen(reader, "rb", buffering=0) as answers:
        process = subprocess.Popen(
            [sys.executable, "-m", "tpu_preflight.apart", str(writer), job],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=ENVIRONMENT | dict(os.environ) | {"PYTHONPATH": path},
            pass_fds=(writer,),
            start_new_session=True,
        )
        os.close(writer)
        try:
            memory = memory_limit or compiler.memory_limit()
            answer = _wait(process, answers, said, timeout, memory, progress)
        finally:
            _end(process)
    if isinstance(answer, Report):
        return answer
    why, fix = answer
    return Report(name, tuple(targets), (finding(1, "ended", why=why, fix=fix),))


def _wait(
    process: subprocess.Popen,
    answers: BinaryIO,
    said: BinaryIO,
    timeout: float,
    memory: int,
    progress: Callable[[str], None] | None,
) -> Report | tuple[str, str]:
    """Give the child's report; without one, why there is none, and what to do."""
    start, stage, rest = time.monotonic(), "importing", b""
    while True:
        left = start + timeout - time.monotonic()
        if left <= 0:
            why = f"it was ended after the time limit of {timeout:g} s, while {stage}"
            return why, "Raise it with --timeout, or find what never ends."
        if processes.memory(processes.family(process.pid)) > memory:
            why = f"it was ended because it took more than {memory / 1e9:.1f} GB of this machine's "
            why += f"memory, while {stage}"
            return why, "Take fewer rows, a smaller model, or more memory."
        ready, _, _ = select.select([answers], [], [], min(left, 0.2))
        if ready and (data := os.read(answers.fileno(), 1 << 16)):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                told = json.loads(line)
                if "report" in told:
                    return Report.from_json(told["report"])
                if "error" in told:
                    raise PreflightError(*told["error"])
                stage = told["stage"]
                if progress is not None:
                    progress(stage)
        elif process.poll() is not None:
            why = f"the process ended {processes.ending(process.returncode)}, while {stage}"
            return why, _last(said)


def _last(said: BinaryIO) -> str:
    """The last line that the learner's code or a library wrote: mostly the reason."""
    said.seek(0)
    lines = [x for x in said.read().decode("utf-8", "replace").splitlines() if x.strip()]
    told = f" It wrote last: {steady(lines[-1])[:200]}" if lines else ""
    return f"Import the module in a Python of its own first.{told}"


def _end(process: subprocess.Popen) -> None:
    """End the child and everything it started, whatever session that moved to."""
    started = processes.family(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    processes.kill(started)
    process.wait()


# --- the child ------------------------------------------------------------------------------------


def _load(module: str, attribute: str) -> object:
    """Import the learner's module from the current folder."""
    sys.path.insert(0, str(pathlib.Path.cwd()))
    try:
        loaded = importlib.import_module(module)
    except Exception as error:  # whatever the module does wrong is the answer
        if opening.wants_torch(error):
            raise opening.no_torch() from error
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


def main(arguments: list[str]) -> None:
    """Be the child, given the pipe's number and the job as JSON: import, check, answer."""
    pipe, own = int(arguments[0]), os.getpid()
    module, attribute, options = json.loads(arguments[1])

    def tell(**message: object) -> None:
        if os.getpid() != own:  # the learner's code forked: its copy has nothing to say
            os._exit(0)
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(pipe, data) :]

    try:
        with compiler.started():  # while the learner's imports take time
            subject = _load(module, attribute)
            from tpu_preflight.checklist import preflight

            pair = isinstance(subject, tuple) and len(subject) == 2
            subject, data = subject if pair else (subject, None)
            report = preflight(subject, data, **options, progress=lambda stage: tell(stage=stage))
            tell(report=report.json())
    except PreflightError as error:
        tell(error=[error.what, error.why, error.fix])
    except Exception as error:  # of the learner's code
        what = f"{module}:{attribute} raised an error."
        fix = f"See that `python -c 'from {module} import {attribute}; {attribute}()'` works there."
        tell(error=[what, _said(error), fix])
    # Threads and exit handlers of the learner's code are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
