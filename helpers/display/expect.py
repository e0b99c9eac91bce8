"""A cell that must fail: ``with expect(Error, match="…")``. Imports no TensorFlow."""

import contextlib
import re
import textwrap
from collections.abc import Iterator

from helpers.base.errors import CourseError
from helpers.base.language import translated
from tpu_preflight.errors import PreflightError
from tpu_preflight.text import steady

_LONGEST_LINE = 160  # characters; of a longer one only the matching sentence is shown
_WIDTH = 96


@contextlib.contextmanager
def expect(error: type[BaseException], match: str) -> Iterator[None]:
    """Run a block that must fail; show the error in two lines, fail if it does not come.

    Prints the error's type and the line of its message that matches (of a long line, what stands
    up to the end of the matching sentence), without paths and numbered function names, so the
    stored output is the same on every machine.

    Raises `CourseError`: The block ended without an error; or the regular expression ``match`` is
    not found in its message, and the error is chained. Any other error passes.
    """
    try:
        yield
    except error as raised:
        name = type(raised).__name__
        if not re.search(match, _message(raised)):
            raise CourseError(
                f"{name} was raised, but its message does not contain {match!r}.",
                "The library's wording differs from the version this cell was written for.",
                "Read the message above, then compare your versions with requirements.txt.",
            ) from raised
        # What is printed is stored, so it must be the same on every machine.
        sentences = _matching_sentences(raised, match)
        line = steady(" ".join(map(translated, sentences)))
        line = line.removeprefix(f"{name}: ")  # AutoGraph writes it, too
        if len(line) > _LONGEST_LINE:
            line = _until_end_of_sentence(line, match)
        paragraph = textwrap.fill(
            f"{name}: {line}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False
        )
        print(paragraph)  # noqa: T201
    else:
        raise CourseError(
            f"Expected {error.__name__}, but nothing was raised.",
            "This code is no longer refused: it was changed, or the library was.",
            "Undo the change, or tell us which versions you run.",
        )


def _message(error: BaseException) -> str:
    """Give an error's message in English."""
    if isinstance(error, (CourseError, PreflightError)):
        return error.args[0]
    return str(error)


def _matching_sentences(error: BaseException, match: str) -> tuple[str, ...]:
    """Choose what of an error's message is shown: the line that matches, or the whole message."""
    message = _message(error)
    if isinstance(error, (CourseError, PreflightError)):
        # The cause says little without what happened.
        candidates = [(error.what,), (error.what, error.why), (error.fix,)]
    else:
        candidates = [(line,) for line in message.splitlines()]
    for sentences in candidates:
        if re.search(match, " ".join(sentences)):
            return sentences
    return (message,)


def _until_end_of_sentence(line: str, match: str) -> str:
    # The advice that follows the matching sentence seldom fits.
    beginning = re.match(rf".*?(?:{match}).*?(?:[.!?](?= [A-Z])|$)", line)
    if beginning is None:
        return line
    return beginning[0]
