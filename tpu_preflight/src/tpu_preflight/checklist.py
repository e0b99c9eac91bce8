"""Is this model ready for a TPU? The checklist of the source documents, carried out.

Seven checks (`tpu_preflight.report.CHECKS`), and two more where they are asked for: some look
at the Python objects, some run a few real batches on this CPU, and some ask Google's TPU compiler
(`tpu_preflight.compiler`). Nothing runs on a TPU, and the step's variables hold afterwards
what they held before.
"""

import concurrent.futures
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tpu_preflight import compiler
from tpu_preflight.checks import memory
from tpu_preflight.chips import hardware
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate import timing
from tpu_preflight.estimate.step import Estimate, Timing, flop
from tpu_preflight.program import TIMEOUT, NotCompilable, messages
from tpu_preflight.program.job import Job
from tpu_preflight.program.models import keras_of
from tpu_preflight.report import FAIL, Item, Report, finding
from tpu_preflight.subjects import opening
from tpu_preflight.text import size

DECIDED = 30.0  # seconds for tracing where the data decide already: no program for a TPU takes them


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
            twice, the second time inside a strategy's scope, to see whether all is made there (then
            without memory for large variables).
        data: A ``tf.data.Dataset`` of global batches, as ``fit`` takes it, each divided by the
            target's replicas. Or ``tf.TensorSpec``s (tensors, arrays), as a tuple of the function's
            arguments: what one replica gets. For JAX ``jax.ShapeDtypeStruct``s (or arrays), as a
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
    told: set[str] = set()

    def say(line: str) -> None:
        if progress is not None and line not in told:
            told.add(line)
            progress(line)

    targets = (target,) if isinstance(target, str) else tuple(target)
    if vary:
        try:
            inspect.signature(subject if data is None else data).bind_partial(**dict.fromkeys(vary))
        except TypeError as error:
            raise PreflightError(
                f"There is no {' and '.join(vary)} to vary.",
                f"{str(error)[:200]}.",
                "Name arguments of the function that makes the model: build(rows=8), rows=4,8.",
            ) from error
    slices = [(name, hardware.slice_of(name, jax=True).replicas) for name in targets]
    estimates: list[Estimate] = []
    timings: list[Timing] = []
    with compiler.started():
        kind = opening.opened(subject, data, trace_seconds, say)
        for name in targets:
            hardware.slice_of(name, kind.is_jax)
        items, has_batch = kind.check_data(batches, slices, node, say)
        if any(item.state == FAIL and item.name.startswith("tensor ") for item in items):
            kind.seconds = min(trace_seconds, DECIDED)
        if known is not None:
            known(Report(kind.name, targets, tuple(items)))
        if has_batch:
            search = search_seconds if largest_batch else None
            found, estimates, jobs = _ask(kind, slices, search, say)
            items += found
            for values in itertools.product(*vary.values()) if vary else ():
                items += _varied(subject, dict(zip(vary, values, strict=True)), slices, say)
            if profile:
                timings = [t for job in jobs if (t := timing.estimate(job, say)) is not None]
    items.sort(key=lambda item: item.check)
    return Report(
        kind.name if kind.model is None else f"{kind.name} ({keras_of(kind.model)})",
        targets,
        tuple(items),
        tuple(estimates),
        tuple(timings),
    )


def _varied(
    factory: Callable[..., Any],
    given: Mapping[str, Any],
    slices: Sequence[tuple[str, int]],
    say: Callable[[str], None],
) -> Iterator[Item]:
    """Say whether the step fits that a factory makes of these arguments, and its least time."""
    said = ", ".join(f"{name}={value}" for name, value in given.items())
    try:
        kind = opening.opened(functools.partial(factory, **given), None, TIMEOUT, say)
        kind.check_data(1, slices, False, say)
        jobs = kind.jobs(slices)
    except Exception as error:  # whatever the factory makes of these values
        line = messages.shortened(messages.line_of(error))
        yield finding(6, "varied_raises", given=said, said=line, where=messages.source_of(error))
        return
    for job in jobs:
        compiled = memory.compile_for(job, say)
        yield finding(
            6,
            "varied" if compiled.ok else "varied_not",
            target=job.target,
            given=said,
            taken=size(compiled.peak_bytes),
            there=size(compiled.available_bytes),
            flops=flop(compiled.flops),
            ms=f"{compiler.roofline(compiled).seconds * 1e3:.3g}",
            said=compiled.message,
        )


def _ask(
    kind: opening.Kind,
    slices: Sequence[tuple[str, int]],
    search: float | None,
    say: Callable[[str], None],
) -> tuple[list[Item], list[Estimate], list[Job]]:
    """Ask XLA on this CPU, then Google's compiler; the CPU runs real batches meanwhile.

    Gives what was found, what a step costs, and the jobs that compile and fit.
    """
    say("tracing, and asking XLA on this CPU")
    try:
        jobs = kind.jobs(slices)
    except NotCompilable as error:
        reason = "the step does not compile yet"
        later = memory.unanswered([target for target, _ in slices], reason)
        return [*kind.check_refused(error), finding(4, "does_not_compile"), *later], [], []
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        waiting = [pool.submit(memory.compile_for, job, say) for job in jobs]
        try:
            items = kind.check_step(jobs[0], say)
        except Exception as error:  # the compiler's answers are worth having without these
            said = messages.shortened(f"{type(error).__name__}: {messages.line_of(error)}")
            items = [finding(4, "broken", said=said, where=messages.source_of(error))]
        compiled = [future.result() for future in waiting]
    estimates, fitting = [], []
    for job, result in zip(jobs, compiled, strict=True):
        found, estimate = memory.check(kind.program, job, result, search, say)
        items += found
        if estimate is not None:
            estimates.append(estimate)
            fitting.append(job)
    return items, estimates, fitting
