"""Check 6: does a step fit, and how large a batch would? Google's compiler answers."""

from tpu_preflight.context import Answer, Context
from tpu_preflight.estimate import fit
from tpu_preflight.report import Item, finding
from tpu_preflight.text import size

NEAR_LIMIT = 0.9  # of the memory: above it the compiler may compute parts twice to save some


def check(context: Context) -> list[Item]:
    """Compare what each target's program needs with what there is."""
    if context.refusal is not None:
        reason = "the step does not compile yet"
        return [finding(6, "unanswered", target=t.name, reason=reason) for t in context.targets]
    is_search_asked_for = context.search_seconds is not None
    items = []
    for answer in context.answers:
        # What doesn't compile for another reason has no largest batch.
        if answer.is_whole and is_search_asked_for:
            items.append(_largest_batch(answer))
        if answer.is_too_large:
            items.append(_too_large(answer, is_search_asked_for))
        elif answer.compiled.ok:
            items.append(_fits(answer))
        elif answer.compiled.verdict != "refused":
            reason = "Google's compiler gave no answer"
            items.append(finding(6, "unanswered", target=answer.job.target, reason=reason))
    return items


def _fits(answer: Answer) -> Item:
    compiled = answer.compiled
    is_near = compiled.peak_bytes > NEAR_LIMIT * compiled.available_bytes
    text = (
        f"{size(compiled.peak_bytes)} of {size(compiled.available_bytes)} on each replica "
        f"({size(compiled.argument_bytes)} of it variables and batch)"
    )
    key = "near_limit" if is_near else "fits"
    return finding(6, key, target=answer.job.target, used=text)


def _too_large(answer: Answer, is_search_asked_for: bool) -> Item:
    job = answer.job
    # None where it isn't known, 0 where no batch fits.
    fitting = None
    if answer.search is not None and answer.search.largest:
        fitting = answer.search.largest
    elif answer.none_fits and is_search_asked_for:
        fitting = 0
    ways = fit.remedies(job.program, job.target, answer.compiled.peak_bytes, job.rows, fitting)
    message = answer.compiled.message
    return finding(6, "too_large", target=job.target, message=message, ways=ways)


def _largest_batch(answer: Answer) -> Item:
    target = answer.job.target
    search = answer.search
    if search is None:
        return finding(6, "largest_without_rows", target=target)
    key = "largest_unknown"
    if search.largest:
        key = "largest"
    elif answer.none_fits:
        key = "largest_none"
    return finding(6, key, target=target, rows=search.largest, reason=search.reason)
