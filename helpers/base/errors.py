"""The shape of every error a learner can cause: what happened, why, what to do."""

import contextlib
import errno
import shlex
import sys
from collections.abc import Iterator

from tpu_preflight.errors import PreflightError
from tpu_preflight.text import steady, translated

_CAUSES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "The disk is full"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "Too many files are open (ulimit -n)"),
    errno.ENOTEMPTY: "Another process has written there",
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "A file stands where a folder must be"),
}
_READING = OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, SyntaxError


class CourseError(PreflightError):
    """An error with a cause and a remedy (``what``, ``why``, ``fix``, a sentence each).

    Derived only where someone catches or shows the class. Read, it is in the user's language.
    """

    def __str__(self) -> str:
        what, why, fix = map(translated, (self.what, self.why, self.fix))
        return f"{what}\n  {translated('Why')}: {why}\n  {translated('Fix')}: {fix}"


def cause(error: BaseException) -> str:
    """Say in a few words, without a full stop, why something failed."""
    if isinstance(error, TimeoutError) and not error.args:
        return "No answer came in time"
    said = f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}"
    return _CAUSES.get(getattr(error, "errno", None), steady(said)[:300].rstrip(".: "))


def unforeseen(error: BaseException) -> CourseError:
    """Make the message of an error that nothing else has told."""
    where = getattr(error, "filename", None)
    return CourseError(
        f"`{shlex.join(sys.argv[1:])[:200]}` could not go on.",
        f"{cause(error)}{f' ({where})' if where else ''}.",
        "If a file that it reads was changed or is damaged, bring that back. If not, the course is "
        "at fault: please open an issue with what the command shows after PYTHONDEVMODE=1. "
        "What is written is whole.",
    )


@contextlib.contextmanager
def unreadable(what: str, fix: str, why: str = "") -> Iterator[None]:
    """Tell in three sentences that what is read inside was changed, cut off, or is something else.

    Raises `CourseError`: ``why``, and the error's own words.
    """
    try:
        yield
    except _READING as error:
        raise CourseError(what, f"{why} {cause(error)}.".lstrip(), fix) from error
