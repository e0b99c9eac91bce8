"""Check 6, with other arguments of the factory: which combinations fit, and what does each cost?"""

import functools
import itertools

from tpu_preflight import compiler
from tpu_preflight.context import Context, compile_job
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate.step import flop
from tpu_preflight.program import TIMEOUT, messages
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects.load_subject import load_subject
from tpu_preflight.text import plain_number, size


def check(context: Context) -> list[Item]:
    """Compile the step for every combination of the values that are to be tried."""
    if not context.vary:
        return []
    items = []
    for values in itertools.product(*context.vary.values()):
        arguments = dict(zip(context.vary, values, strict=True))
        text = ", ".join(f"{name}={value}" for name, value in arguments.items())
        try:
            factory = functools.partial(context.factory, **arguments)
            subject = load_subject(factory, None, TIMEOUT, context.say)
            if subject.dataset is not None:
                subject.read_sample(1)
            jobs = subject.export(context.targets)
        except Exception as error:  # whatever the factory makes of these values
            line = messages.line_of(error)
            if not isinstance(error, PreflightError):
                line = f"{type(error).__name__}: {line}"  # of a KeyError the line is a key alone
            line = messages.shorten(line)
            where = messages.source_of(error)
            items.append(finding(6, "varied_raises", given=text, said=line, where=where))
            continue
        # The compiler keeps its answers, so a combination that was asked before takes no time.
        for job in jobs:
            items.append(_fits(text, compile_job(job, context.say)))
    return items


def _fits(arguments: str, compiled: compiler.Compiled) -> Item:
    """Say whether a step fits, and its least time."""
    least_ms = compiler.roofline(compiled).seconds * 1e3
    return finding(
        6,
        "varied" if compiled.ok else "varied_not",
        target=compiled.target,
        given=arguments,
        taken=size(compiled.peak_bytes),
        there=size(compiled.available_bytes),
        flops=flop(compiled.flops),
        ms=plain_number(least_ms),
        said=compiled.message,
    )
