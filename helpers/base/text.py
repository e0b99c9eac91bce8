"""An error's words, the same on every machine."""

import pathlib
import re
import tempfile

# What differs from one run or machine to the next, and what is left of it.
_UNSTEADY = (
    (r"(?s)\s*Traceback \(most recent call last\).*", ""),
    (r"\{\{function_node [^}]*\}\}", ""),
    (r"\{\{node ([^}]*)\}\}", r"\1"),
    (r"\[Op:[^\]]*\](?: name: ?\S*)?", ""),
    (r'(?<![\w.:/])/(?:[^\s/:"\']+/)+([^\s/:"\']+)', r"\1"),  # keep the file's name
    (r"0x[0-9a-f]{6,}", "0x…"),
    (r"\s+", " "),
    (r"[\x00-\x1f\x7f]", ""),  # what a terminal obeys
)


def steady(message: str) -> str:
    """Remove folders, addresses and TensorFlow's names of nodes from an error's message.

    >>> steady("/home/ada/data.txt: not found [Op:ReadFile]")
    'data.txt: not found'
    """
    for pattern, replacement in _UNSTEADY:
        message = re.sub(pattern, replacement, message)
    return message.strip()


# A path goes from its first folder to the last slash of the line, and on through one more name.
# TensorFlow's names of devices, such as /job:localhost/task:0, are none.
_PATH_BEGINS = r"(?:(?<![\w./])|(?<=file://))/(?!(?:job|replica|task|device):)[^\s/][^/\n]*/"
_LAST_NAME = r"""(?:[^"':;\n]|["':;](?=\w))*"""
_PATH = re.compile(f"{_PATH_BEGINS}(?:.*/)?{_LAST_NAME}")
_MADE_LONGER = "/…/…"  # as a folder of one part, such as /data, is no path to the pattern


def without_paths(message: str) -> str:
    """Remove every path of this machine from an error's message, and what `steady` removes.

    A folder may have a space in its name, and nothing says where such a path ends. So words between
    a path and the next slash on its line, colon, semicolon or quotation mark go with it.

    >>> without_paths("/home/ada l/step-1 failed: No space left on device")
    '…: No space left on device'
    """
    folders = {str(pathlib.Path.home()), tempfile.gettempdir(), str(pathlib.Path.cwd())}
    for folder in sorted(folders, key=len, reverse=True):
        if folder != "/":
            message = message.replace(folder, _MADE_LONGER)
    return steady(_PATH.sub("…", message))
