"""Check 5 of a Keras 3 model: does one real step of ``fit`` work on two replicas, here two CPUs?

Where a model is not built, or its loss and metrics are not, ``fit`` tries it with the mean of the
replicas' batches before the first step. What that raises is what a ``MirroredStrategy`` raises;
`strategy_scope` looks at what only a ``TPUStrategy`` does.
"""

import tensorflow as tf

from tpu_preflight.checks.strategy_scope import advice_on
from tpu_preflight.context import Context
from tpu_preflight.program import NotCompilable, messages
from tpu_preflight.program.tracing import limited
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects.tensorflow_subject import TensorflowSubject

SECONDS = 60.0  # for making the model and for its step; then it is given up

# What TensorFlow raises of a model; its other errors are about this machine.
ERRORS_OF_A_MODEL = (tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError)


def check(context: Context) -> list[Item]:
    """Train on a small batch, if this process has two CPUs and the step runs in the scope."""
    subject = context.subject
    if context.refusal is not None or not context.runs_in_scope:
        return []
    # Two copies of a large model may need more memory than there is.
    if not subject.can_fit_replicated or subject.takes_long(context.jobs[0].program):
        return []
    context.say("training one step on two replicas")
    return [_fit(subject, 2 * (context.jobs[0].rows or 1))]


def _fit(subject: TensorflowSubject, rows: int) -> Item:
    try:
        with limited(SECONDS, "fit on two replicas"):
            subject.fit_replicated(rows)
    except NotCompilable:
        return finding(5, "fit_open", said=f"it took longer than {SECONDS:g} s")
    except Exception as error:  # whatever fit raises is the finding
        line = f"{type(error).__name__}: {messages.line_of(error)}"
        is_of_machine = isinstance(error, tf.errors.OpError | MemoryError)
        if is_of_machine and not isinstance(error, ERRORS_OF_A_MODEL):
            return finding(5, "fit_open", said=messages.shorten(line))
        return finding(
            5,
            "fit_raises",
            said=messages.shorten(line),
            where=messages.source_of(error),
            fix=advice_on(line)["fix"],
        )
    return finding(5, "fit")
