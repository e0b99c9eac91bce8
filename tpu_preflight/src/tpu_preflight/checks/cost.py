"""Check 7: what does a step cost at least, and how much memory does padding take?"""

from tpu_preflight import compiler
from tpu_preflight.compiler.memory import padding_remedy
from tpu_preflight.context import Answer, Context
from tpu_preflight.estimate.step import flop
from tpu_preflight.report import Item, finding
from tpu_preflight.text import size

MUCH_PADDING = 10_000_000  # bytes; less is not worth a change of the model


def check(context: Context) -> list[Item]:
    """Say what Google's compiler counted for each target."""
    if context.refusal is not None:
        reason = "the step does not compile yet"
        return [finding(7, "unanswered", target=t.name, reason=reason) for t in context.targets]
    items = []
    for answer in context.answers:
        # Where it doesn't fit there are no kernels to count.
        if answer.compiled.ok:
            items += [_cost(answer), _padding(answer.compiled)]
        elif not answer.is_too_large and answer.compiled.verdict != "refused":
            reason = "Google's compiler gave no answer"
            items.append(finding(7, "unanswered", target=answer.job.target, reason=reason))
    return items


def _cost(answer: Answer) -> Item:
    estimate = answer.estimate
    gradients = ""
    if estimate.all_reduce_bytes:
        gradients = f"; {size(estimate.all_reduce_bytes)} of gradients added across replicas"
    return finding(
        7,
        "cost",
        target=estimate.target,
        flops=flop(estimate.flops),
        traffic=size(estimate.bytes),
        limit=estimate.limited_by,
        gradients=gradients,
    )


def _padding(compiled: compiler.Compiled) -> Item:
    for padded in compiler.padding(compiled):
        if padded.bytes >= MUCH_PADDING and padded.layout.expansion >= 2:
            _, _, advice = padding_remedy(padded.layout).partition(": ")
            return finding(
                7,
                "padding",
                target=compiled.target,
                tensor=padded.name,
                layout=padded.layout,
                count=padded.count,
                mend=advice,
            )
    return finding(7, "no_padding", target=compiled.target)
