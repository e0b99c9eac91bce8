"""The shape of every error a learner can cause: what happened, why, what to do."""

import contextlib
from collections.abc import Iterator


class CourseError(Exception):
    """An error with a cause and a remedy; derived only where someone catches or shows the class.

    Args:
        what: What happened, one sentence.
        why: The cause, one sentence.
        fix: What to do now, one sentence, with the command where there is one.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}\n  Why: {why}\n  Fix: {fix}")
        self.what, self.why, self.fix = what, why, fix

    def __reduce__(self) -> tuple[type["CourseError"], tuple[str, str, str]]:
        # An error that comes from another process is made again from its three parts.
        return type(self), (self.what, self.why, self.fix)


@contextlib.contextmanager
def unreadable(what: str, fix: str, why: str = "") -> Iterator[None]:
    """Tell in three sentences that what is read inside was changed, cut off, or is something else.

    Raises:
        CourseError: ``why`` is the error's own words, unless it is given.
    """
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = f"{type(error).__name__}: {str(error).rstrip('.')[:200]}."
        raise CourseError(what, why or said, fix) from error
