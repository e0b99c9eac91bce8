"""Texts that look the same on every machine: an error's line, a table in plain columns, a size."""

import functools
import importlib.metadata
import re
from collections.abc import Callable, Iterable, Sequence

# What differs from one run or machine to the next in an error's line, and what is left of it.
_UNSTEADY = (
    (r"(?s)\s*Traceback \(most recent call last\).*", ""),  # of a pipeline's Python
    (r"\{\{function_node [^}]*\}\}", ""),
    (r" compatible with node \{\{node [^}]*\}\}(.*?\))\{\{node [^}]*\}\}", r"\1"),
    (r"\{\{node ([^}]*)\}\}", r"\1"),
    (r"\[Op:[^\]]*\](?: name: ?\S*)?", ""),
    (r"(__(?:inference|forward|backward)_[\w<>]+?)_\d+\b(?:\[[^\]]*\])?", r"\1"),
    (r"__autograph_generated_file\w+\.py", "autograph"),
    (r"Error in user-defined function passed to \S+ transformation.*?::\S+: ", ""),
    (r'(?<![\w.:/])/(?:[^\s/:"\']+/)+([^\s/:"\']+)', r"\1"),  # keep the file's name
    (r"\b[EFIW]\d{4} [\d:.]+\s+\d+ ", ""),  # a log's time and process
    (r"0x[0-9a-f]{6,}", "0x…"),
    (r"\s+", " "),
    (r"[\x00-\x1f\x7f]", ""),  # what a terminal obeys
)


@functools.cache
def translator() -> Callable[[str], str]:
    """Find a package that translates this tool's texts: of the group ``tpu_preflight.translation``.

    Such an entry point (https://packaging.python.org/specifications/entry-points) is a function of
    an English text; it gives it as it is where it knows no other.
    """
    for entry_point in importlib.metadata.entry_points(group="tpu_preflight.translation"):
        return entry_point.load()
    # No such package is installed: `str` gives a text as it is.
    return str


def translated(text: str) -> str:
    """Give a text in the user's language, where an installed package translates it."""
    return translator()(text)


def size(number: float) -> str:
    """Write a number of bytes for people, in powers of two.

    >>> size(98_304), size(16_911_433_728)
    ('96 KiB', '15.75 GiB')
    """
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.2f} GiB"


def plain_number(number: float, digits: int = 3) -> str:
    """Write a number for people with so many digits; a large one whole, without an exponent.

    >>> plain_number(12.345), plain_number(1234.5)
    ('12.3', '1,234')
    """
    # From here on, `g` would write 1.23e+03.
    if number >= 10**digits - 0.5:
        return f"{number:,.0f}"
    return f"{number:.{digits}g}"


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Write the rows of a table as lines, its columns one below the other.

    All rows have the same number of cells, else this is a `ValueError`.
    """
    rows = list(rows)  # read twice
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = map(str.ljust, row, widths)
        lines.append("  ".join(cells).rstrip())
    return lines


def steady(line: str) -> str:
    """Remove what differs from one run or machine to the next from a line of an error.

    That is folders, addresses, and the numbers that TensorFlow gives to functions and nodes, but
    also its notes to itself (which device, which options), which tell a reader nothing.
    """
    for pattern, replacement in _UNSTEADY:
        line = re.sub(pattern, replacement, line)
    return line.strip()
