"""An error's words, the same on every machine."""

import re

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
