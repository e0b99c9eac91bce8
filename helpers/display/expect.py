"""A cell that must fail: ``with expect(Error, match="…")``. Imports no TensorFlow."""

import contextlib
import re
import textwrap
from collections.abc import Iterator

from helpers.base.errors import CourseError
from tpu_preflight.errors import PreflightError
from tpu_preflight.text import steady, translated


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
        message = raised.args[0] if isinstance(raised, PreflightError) else str(raised)
        if not re.search(match, message):
            raise CourseError(
                f"{type(raised).__name__} came, but its message does not contain {match!r}.",
                "The library's wording differs from the version this cell was written for.",
                "Read the message above, then compare your versions with requirements.txt.",
            ) from raised
        said = [(line,) for line in message.splitlines()]
        if isinstance(raised, PreflightError):  # its cause says little without what happened
            said = [(raised.what,), (raised.what, raised.why), (raised.fix,)]
        told = next((x for x in said if re.search(match, " ".join(x))), (message,))
        name = f"{type(raised).__name__}: "  # AutoGraph writes it, too
        line = steady(" ".join(map(translated, told))).removeprefix(name)
        if len(line) > 160:  # the advice that follows the matching sentence fits seldom
            until = re.match(rf".*?(?:{match}).*?(?:[.!?](?= [A-Z])|$)", line)
            line = until[0] if until else line
        print(textwrap.fill(name + line, 96, subsequent_indent="  ", break_on_hyphens=False))  # noqa: T201
    else:
        raise CourseError(
            f"Expected {error.__name__}, but nothing was raised.",
            "This code is no longer refused: it was changed, or the library was.",
            "Undo the change, or tell us which versions you run.",
        )
