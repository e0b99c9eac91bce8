"""Is this model ready for a TPU? The checklist of the source documents, carried out.

Seven checks (`tpu_preflight.report.CHECKS`): some look at the Python objects, some run a few real
batches on this CPU, and some ask Google's TPU compiler (`tpu_preflight.compiler`). What there is to
do, in which order, is the list in ``findings.toml``. Nothing runs on a TPU, and the step's
variables hold afterwards what they held before.
"""

import dataclasses
import importlib
import inspect
import pathlib
import re
import sys
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tpu_preflight import compiler
from tpu_preflight.chips import hardware
from tpu_preflight.context import Context
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate.step import Timing
from tpu_preflight.program import TIMEOUT, messages
from tpu_preflight.report import FAIL, Item, Report, finding
from tpu_preflight.subjects.load_subject import load_subject
from tpu_preflight.subjects.subject import Target

DECIDED = 30.0  # seconds for tracing where the data decide already: no program for a TPU takes them

_FILE = pathlib.Path(__file__).with_name("findings.toml")
ORDER = tomllib.loads(_FILE.read_text("utf-8"))["checks"]


def preflight(
    subject: Any,
    data: Any = None,
    target: str | Sequence[str] = "v5e-8",
    *,
    node: bool = False,
    largest_batch: bool = False,
    vary: Mapping[str, Sequence[Any]] | None = None,
    search_seconds: float = 300.0,
    trace_seconds: float = TIMEOUT,
    profile: bool = False,
    batches: int = 64,
    progress: Callable[[str], None] | None = None,
    known: Callable[[Report], None] | None = None,
) -> Report:
    """Go through the checklist.

    What Google's compiler said of a program is kept on disk. Everything else is done again by a
    second call, which takes about half as long: only that can tell whether the code, the model and
    the data are still the same.

    Args:
        subject: A function of tensors, a Keras model (tf-keras, Keras 3 on TensorFlow or JAX, any
            TF model of Hugging Face), a function of JAX (what ``jax.jit`` made, or any with
            arguments of JAX), or a factory: a function without arguments that returns a model, or
            a pair (model or function, data). Where it makes a model of TensorFlow, it is called
            once more inside a strategy's scope, to see whether all is made there (then without
            memory for large variables); and a model of Keras 3 again, where TensorFlow has two
            CPUs, for a step of ``fit`` on both.
        data: A ``tf.data.Dataset`` of global batches, as ``fit`` takes it, each divided by the
            target's replicas; ``(x, y)`` of arrays, with a model, is one such batch. Or
            ``tf.TensorSpec``s (tensors, arrays), as a tuple of the function's arguments: what one
            replica gets. For JAX ``jax.ShapeDtypeStruct``s (or arrays), as a
            tuple of the function's arguments: what one device gets; with a ``NamedSharding`` (over
            a ``jax.sharding.AbstractMesh`` of the target's devices) what all get together. None
            where the factory gives it.
        target: A TPU by Google's name, such as ``v5e-8``; or several, to compare. ``tpu7x-8`` for
            JAX only.
        node: Whether the TPU is another machine (a TPU Node), which can't call back and can't see
            this disk.
        largest_batch: Whether to search for the largest batch that fits: some three compiles more.
        vary: Arguments of the factory, each with values to try, such as ``{"rows": [4, 6],
            "remat": ["full", "dots"]}``: which combinations fit, and what each costs at least.
        search_seconds: For that search, on each target; what was found until then counts.
        trace_seconds: After which tracing is given up, with the line where it was.
        profile: Whether to estimate a step's time, too, by operation, layer and line: one compile
            more for each target, with full effort, which takes longer.
        batches: How many batches of the dataset are looked at.
        progress: Called with one line when a step begins.
        known: Called with what the data show: a compiler may end this process afterwards.

    Raises:
        PreflightError: The subject is neither function nor model (or PyTorch's) or was made under a
            strategy, there are no data, no such target for it, or no such argument to vary.
    """
    names = (target,) if isinstance(target, str) else tuple(target)
    if vary:
        try:
            signature = inspect.signature(subject if data is None else data)
            signature.bind_partial(**dict.fromkeys(vary))
        except TypeError as error:
            raise PreflightError(
                f"There is no {' and '.join(vary)} to vary.",
                f"{str(error)[:200]}.",
                "Name arguments of the function that makes the model: build(rows=8), rows=4,8.",
            ) from error
    # A name that is no TPU's at all is refused before anything takes time.
    targets = [Target(name, hardware.slice_of(name, jax=True).replicas) for name in names]
    say = _without_repetition(progress)
    timings: list[Timing] = []
    with compiler.started():
        context = Context(
            subject=load_subject(subject, data, trace_seconds, say),
            targets=tuple(targets),
            say=say,
            is_node=node,
            search_seconds=search_seconds if largest_batch else None,
            factory=subject,
            vary=vary or {},
        )
        # Again, now that the library is known: some kinds of TPU have no TensorFlow.
        for name in names:
            hardware.slice_of(name, jax=context.subject.library == "jax")

        # What the data show is worth a report by itself.
        context.read_sample(batches)
        items = _findings("data", context)
        if any(item.state == FAIL and item.name.startswith("tensor ") for item in items):
            context.subject.seconds = min(trace_seconds, DECIDED)
        if known is not None:
            known(Report(context.subject.name, names, tuple(items)))

        # Google's compiler takes most of the time: the step is run on this CPU meanwhile.
        if context.subject.has_batch:
            context.trace()
            with context.compiling():
                items += _findings("step", context)
            items += _findings("compiled", context)
            if profile:
                timings, without_profile = context.profile()
                items += without_profile
    items.sort(key=lambda item: item.check)
    items = list(dict.fromkeys(items))  # what six operations of one line do is said once
    return Report(
        subject=context.subject.title,
        targets=names,
        items=tuple(items),
        estimates=tuple(context.estimates),
        timings=tuple(timings),
        versions=_versions(context),
    )


def _without_repetition(progress: Callable[[str], None] | None) -> Callable[[str], None]:
    """Give a function that hands on each line once; targets may wait for the same."""
    lines: set[str] = set()

    def say(line: str) -> None:
        if progress is not None and line not in lines:
            lines.add(line)
            progress(line)

    return say


def _findings(stage: str, context: Context) -> list[Item]:
    """Carry out the checks of a stage that are for this subject, in order.

    Where one raises, the others are carried out, and the compiler's answers are worth having.
    """
    items = []
    for row in ORDER:
        if row["stage"] != stage:
            continue
        if row.get("for") not in (None, context.subject.library, context.subject.data_form):
            continue
        # Here, as a check of the other library would import it.
        module = importlib.import_module(f"tpu_preflight.checks.{row['module']}")
        try:
            items += module.check(context)
        except Exception as error:  # a step that can't be run here, or a fault of the check
            items.append(_broken(module, error))
    return items


def _broken(module: types.ModuleType, error: Exception) -> Item:
    """Say which check could not be carried out, and why."""
    line = messages.shorten(f"{type(error).__name__}: {messages.line_of(error)}")
    # A check's docstring begins with its number.
    number = int(re.match(r"Checks? (\d)", module.__doc__)[1])
    name = module.__name__.rpartition(".")[2].replace("_", " ")
    item = finding(1, "broken", module=name, said=line, where=messages.source_of(error))
    return dataclasses.replace(item, check=number)


def _versions(context: Context) -> tuple[str, ...]:
    """Name what answered, with its version: who traced and read the data, and who compiled."""
    compiled = [answer.compiled for answer in context.answers]
    compiler_answered = any(each.verdict != "not available" for each in compiled)
    libraries = {
        "TensorFlow": context.subject.library == "tensorflow"
        or context.subject.dataset is not None,
        "JAX": context.subject.library == "jax",
    }
    versions = []
    for name, answered in libraries.items():
        # The distribution may have another name, such as a nightly one: the module knows.
        if answered:
            versions.append(f"{name} {sys.modules[name.lower()].__version__}")
    if compiler_answered:
        installed = compiler.versions()
        if not libraries["JAX"]:
            versions.append(f"JAX {installed['jax']}")
        versions.append(f"libtpu {installed['libtpu']}")
    return tuple(versions)
