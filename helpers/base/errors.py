"""The shape of every error a learner can cause: what happened, why, what to do."""

import contextlib
import errno
import shlex
import sys
from collections.abc import Callable, Iterator

from helpers.base.text import steady

_CAUSES = {
    errno.ENOSPC: "The disk is full",
    errno.EDQUOT: "The disk is full",
    errno.EMFILE: "Too many files are open (ulimit -n)",
    errno.ENFILE: "Too many files are open (ulimit -n)",
    errno.ENOTEMPTY: "Another process has written there",
    errno.ENOTDIR: "A file is where a folder must be",
    errno.EEXIST: "A file is where a folder must be",
}
# What reading a file that was changed or cut off can raise, whatever reads it.
_READING_ERRORS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
    SyntaxError,
)
_LONGEST_CAUSE = 300  # characters

# What translates messages: `helpers.base` puts the language's function here.
translator: Callable[[str], str] = str


class CourseError(Exception):
    """An error with a cause and a remedy; as text it is in the user's language.

    Derived only where someone catches or shows the class.

    Args:
        what: What happened, one sentence.
        why: The cause, one sentence.
        fix: What to do now, one sentence, with the command where there is one.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}\n  Why: {why}\n  Fix: {fix}")
        self.what = what
        self.why = why
        self.fix = fix

    def __reduce__(self) -> tuple[type["CourseError"], tuple[str, str, str]]:
        # An error that comes from another process is made again from its three parts.
        return type(self), (self.what, self.why, self.fix)

    def __str__(self) -> str:
        lines = [translator(self.what)]
        for label, sentence in (("Why", self.why), ("Fix", self.fix)):
            lines.append(f"  {translator(label)}: {translator(sentence)}")
        return "\n".join(lines)


def cause(error: BaseException, clean: Callable[[str], str] = steady) -> str:
    """Say in a few words, without a full stop, why something failed; ``clean`` takes its words."""
    if isinstance(error, TimeoutError) and not error.args:
        return "No answer came in time"
    number = getattr(error, "errno", None)
    if number in _CAUSES:
        return _CAUSES[number]
    words = getattr(error, "strerror", None) or error
    return clean(f"{type(error).__name__}: {words}")[:_LONGEST_CAUSE].rstrip(".: ")


def unforeseen(error: BaseException) -> CourseError:
    """Make the message of an error that nothing else has explained."""
    why = cause(error)
    path = getattr(error, "filename", None)
    if path:
        why += f" ({path})"
    return CourseError(
        f"`{shlex.join(sys.argv[1:])[:200]}` could not continue.",
        f"{why}.",
        "If a file that it reads was changed or is damaged, bring that back. If not, the course is "
        "at fault: please open an issue with what the command shows after PYTHONDEVMODE=1. "
        "What is written is whole.",
    )


@contextlib.contextmanager
def unreadable(what: str, fix: str, why: str = "") -> Iterator[None]:
    """Explain in three sentences that what is read inside was changed, cut off, or is another kind.

    Raises `CourseError`: ``why``, and the error's own words.
    """
    try:
        yield
    except _READING_ERRORS as error:
        raise CourseError(what, f"{why} {cause(error)}.".lstrip(), fix) from error
