"""The shape of every error a learner can cause: what happened, why, what to do."""

import contextlib
from collections.abc import Iterator

from tpu_preflight.errors import PreflightError
from tpu_preflight.text import translated


class CourseError(PreflightError):
    """An error with a cause and a remedy (``what``, ``why``, ``fix``, a sentence each).

    Derived only where someone catches or shows the class. Read, it is in the user's language.
    """

    def __str__(self) -> str:
        what, why, fix = map(translated, (self.what, self.why, self.fix))
        return f"{what}\n  {translated('Why')}: {why}\n  {translated('Fix')}: {fix}"


@contextlib.contextmanager
def unreadable(what: str, fix: str, why: str = "") -> Iterator[None]:
    """Tell in three sentences that what is read inside was changed, cut off, or is something else.

    Raises:
        CourseError: ``why``, and the error's own words.
    """
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        said = f"{type(error).__name__}: {str(error).rstrip('.')[:200]}."
        raise CourseError(what, f"{why} {said}".lstrip(), fix) from error
