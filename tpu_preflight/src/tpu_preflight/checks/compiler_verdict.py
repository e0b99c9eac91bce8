"""Check 1, the last word on it: does Google's compiler take the step?"""

from tpu_preflight.context import Context
from tpu_preflight.errors import unset
from tpu_preflight.report import Item, finding

# The finding for each verdict; of what has none here (a crash, a limit of time) it is open.
KEYS = {
    "compiles": "compiled",
    "out of memory": "accepted",
    "refused": "refused_by_google",
    "not available": "not_available",
}


def check(context: Context) -> list[Item]:
    """Say for each target what the compiler made of the step's program."""
    items = []
    for answer in context.answers:
        item = finding(
            1,
            KEYS.get(answer.compiled.verdict, "unanswered"),
            program=answer.job.program.name,
            target=answer.job.target,
            message=answer.compiled.message,
            unset=unset(),
        )
        items.append(item)
    return items
