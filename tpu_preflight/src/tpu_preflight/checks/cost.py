"""Check 7: what does a step cost at least, and how much memory does padding take?"""

import math

from tpu_preflight import compiler
from tpu_preflight.chips import hardware
from tpu_preflight.compiler.memory import padding_remedy
from tpu_preflight.context import Answer, Context
from tpu_preflight.estimate.step import flop
from tpu_preflight.report import Item, finding
from tpu_preflight.text import plain_number, size

SHORT_MS = 0.01  # a smaller bound is not written, either
LOOSE = 3  # times as long as the bound: BERT's published runs took about that
MANY_ROUNDS = 100  # of a loop; layers are fewer, and each of them is work enough for a device
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
            items += [_cost(answer), *_loose_bound(answer), _padding(answer.compiled)]
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


def _loose_bound(answer: Answer) -> list[Item]:
    """Say where the least time says little, as it counts neither waiting nor the vector unit."""
    bound_ms = answer.estimate.bound_ms
    if not answer.compiled.hlo or bound_ms < SHORT_MS:
        return []
    target = answer.job.target
    elsewhere = compiler.without_products(answer.compiled.hlo)
    _, bandwidth = compiler.per_device(hardware.slice_of(target, jax=True).chip)
    written_ms = elsewhere.written_bytes / bandwidth * 1e3
    if written_ms > LOOSE * bound_ms:
        written = size(elsewhere.written_bytes)
        milliseconds = plain_number(written_ms)
        return [finding(7, "no_products", target=target, written=written, ms=milliseconds)]
    if elsewhere.rounds > MANY_ROUNDS:
        rounds = "an unknown number of"
        if math.isfinite(elsewhere.rounds):
            rounds = f"{elsewhere.rounds:,.0f}"
        return [finding(7, "loops", target=target, rounds=rounds)]
    return []


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
