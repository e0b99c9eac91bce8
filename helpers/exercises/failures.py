"""What the learner's code raised: what is wrong in one line, and the lines that led there."""

import dataclasses
import linecache
import re
import sys
import traceback

# AutoGraph writes the stack of the learner's code into the error's text.
_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\w+|<lambda>)')
_TYPE = re.compile(r"(\w+(?:Error|Exception|Exit)): ")
# The operation that failed, under a name that TensorFlow has made up.
_OPERATION = re.compile(r"\{\{\w+ .*?\}\}\s*| *\[Op:\w+\].*")

LONGEST_MESSAGE = 300
MOST_LINES = 5


@dataclasses.dataclass(frozen=True)
class Failure:
    """An error of the learner's code."""

    type: str  # ``NameError``
    message: str  # ``name 'numbr' is not defined``; ``no message`` where it has none
    # The learner's own lines, the innermost last, as a traceback writes them. Empty where the error
    # came up between the lines, as when the function is called with too many arguments.
    lines: str = ""


def read_failure(error: BaseException, answer: object) -> Failure:
    """Read an error that an answer raised, and cut its traceback to the learner's own lines."""
    from tpu_preflight.program import messages  # here, as the site shows exercises without NumPy

    name = type(error).__name__
    readable = error
    # A KeyError writes its text on one line, with \n in it, also where Keras has put one around it.
    if isinstance(error, KeyError) and "\\n" in str(error):
        readable = Exception(error.args[0])
    message = _OPERATION.sub("", messages.line_of(readable))
    if message == name:
        return Failure(name, "no message", _own_lines(error, answer))
    # Raised while a graph was made, the text has the type of the first error before its message.
    prefix = _TYPE.match(message)
    if prefix and (prefix[1] == name or "in user code:" in str(error)):
        name = prefix[1]
        message = message.removeprefix(prefix[0])
    return Failure(name, message[:LONGEST_MESSAGE], _own_lines(error, answer))


def remember(error: BaseException) -> None:
    """Keep an error where Python keeps those of failed cells, for ``%explain``."""
    sys.last_type = type(error)
    sys.last_value = error
    sys.last_traceback = error.__traceback__


def _own_lines(error: BaseException, answer: object) -> str:
    code = getattr(getattr(answer, "python_function", answer), "__code__", None)
    own_file = getattr(code, "co_filename", "")
    frames = []
    for frame in traceback.extract_tb(error.__traceback__):
        frames.append((frame.filename, frame.lineno, frame.name))
    for file, number, name in _FRAME.findall(str(error)):
        frames.append((file, int(number), name))
    lines = []
    for file, number, name in dict.fromkeys(frames):
        if file == own_file or _is_cell(file):
            lines.append(f"line {number}, in {name}")
            source = linecache.getline(file, number).strip()
            if source:
                lines[-1] += f"\n    {source}"
    return "\n".join(lines[-MOST_LINES:])


def _is_cell(file: str) -> bool:
    """Whether a file is a notebook's cell, by the name that Jupyter gives it."""
    return "ipykernel_" in file or file.startswith("<ipython-input")
