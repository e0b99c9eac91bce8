"""What people paste: bytes to text, text to what can be searched, and the line that matters.

All of it takes time in proportion to the length of the text, whatever stands in it: words are
looked for as they are, and what stands between or near them is bounded.
"""

import bisect
import codecs
import functools
import itertools
import json
import pathlib
import re
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helpers.base.errors import CourseError

ANYTHING = "…"  # in Words.text
LONGEST_GAP = 200
REACH = 1500
LONGEST_EVIDENCE = 160


@dataclass(frozen=True)
class Words:
    """What an error's message says."""

    # As people see it; ``…`` stands for anything up to 200 characters. Case and line breaks don't
    # count.
    text: str
    # Words, one of which must stand at most 1500 characters before or after it.
    near: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()  # words, none of which may stand so near
    then: str = ""  # regular expression for what follows, in small letters; bounded in length


def read(path: pathlib.Path) -> str:
    """Read a log from a file; of a notebook, what its cells put out.

    Raises:
        CourseError: There is no such file, or it can't be read.
    """
    try:
        text = decode(path.read_bytes())
        return _outputs(text) if path.suffix == ".ipynb" else text
    except OSError as error:
        where = path.resolve().parent
        fix = f"Look there (ls {where}), or paste the log: tpu-course explain, then Ctrl-D."
        raise CourseError(f"{path} can't be read.", f"{error.strerror}.", fix) from None


def _outputs(notebook: str) -> str:
    """Take errors and printed text out of a notebook's JSON: its prose may quote other errors."""
    try:
        cells = json.loads(notebook)["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        errors = [
            [f"{output['ename']}: {output['evalue']}"] for output in outputs if "ename" in output
        ]
        printed = [output["text"] for output in outputs if "text" in output]
        return "\n".join("".join(part) for part in printed + errors)
    except (ValueError, KeyError, TypeError, AttributeError):
        return notebook  # no notebook, whatever its name says


def decode(data: bytes) -> str:
    """Make text of the bytes of a log: UTF-8, or UTF-16 as PowerShell writes it; never fails."""
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if data.startswith(mark) and b"\0" in data[:1000]:
            return data[len(mark) :].decode(name, "replace")
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


# Colours and links of a terminal, also where the invisible first character was lost on the way.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,32}[ -/]{0,4}[@-~]|\x1b\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)"
    r"|(?:\^\[|\\x1b|\\033|\\u001b)?\[\d{1,3}(?:;\d{1,3}){0,4}m"
)
_BREAKS = re.compile(r"\r\n?|\x08+|\x0b|\x0c|\x85|\u2028")
_TYPOGRAPHIC = str.maketrans("‘’“”\u00a0", "''\"\" ")
_HTML = {"&quot;": '"', "&#39;": "'", "&#x27;": "'", "&lt;": "<", "&gt;": ">", "&amp;": "&"}
# A message that another one quotes: \" and \n, as JSON and Python write them.
_QUOTED = re.compile(r"\\{1,4}(?:([\"'])|n(?=[\s\"'{}\[\](]))")
# What programs and people write before each line.
_BEFORE = re.compile(
    r"\A(?:(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?:?\s+"
    r"|\((?:[\w.-]{1,40}[, ]{1,2}){0,2}pid=\d{1,9}[^)]{0,40}\)\s"
    r"|std(?:err|out):\s|\[?rank ?\d{1,5}\]?:\s|\[\d{1,5}\]\s|[|>]\s(?!>))+"
)


def clean(text: str) -> list[str]:
    """Split a pasted text into its lines, without colours, times, quotation marks of mail."""
    text = _BREAKS.sub("\n", _ESCAPES.sub("", text.replace("\0", "")))
    if not text.isascii():
        text = text.translate(_TYPOGRAPHIC)
    if "&" in text:
        for code, character in _HTML.items():
            text = text.replace(code, character)
    if "\\" in text:
        text = _QUOTED.sub(lambda found: found[1] or "\n", text)
    return [_BEFORE.sub("", " ".join(line.split()), count=1) for line in text.split("\n")]


class _Flat:
    """Lines joined to one, to find a message that was broken over them."""

    def __init__(self, lines: Sequence[str], between: str) -> None:
        self.text = between.join(lines)
        # One byte for each character, in small letters: the fastest to search.
        self.small = self.text.encode("ascii", "replace").decode("ascii").lower()
        lengths = (len(line) + len(between) for line in lines)
        self.starts = list(itertools.accumulate(lengths, initial=0))

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where words stand, with at most LONGEST_GAP characters at each …."""
        first, *rest = text.lower().split(ANYTHING)
        at = self.small.find(first)
        while at >= 0:
            end = at + len(first)
            for piece in rest:
                found = self.small.find(piece, end, end + LONGEST_GAP + len(piece))
                if found < 0:
                    break
                end = found + len(piece)
            else:
                yield at, end
            at = self.small.find(first, at + len(first))

    def near(self, words: Sequence[str], start: int, end: int) -> bool:
        first, last = max(0, start - REACH), end + REACH
        return any(self.small.find(word.lower(), first, last) >= 0 for word in words)

    def evidence(self, start: int, end: int) -> str:
        """Give the line, or lines, around a place; a long one is cut, the place stays in sight."""
        first = self.starts[bisect.bisect_right(self.starts, start) - 1]
        last = self.starts[bisect.bisect_left(self.starts, end)]
        line = self.text[first:last].rstrip()
        if len(line) <= LONGEST_EVIDENCE:
            return line
        begin = max(0, min(start - first - 20, len(line) - LONGEST_EVIDENCE + 1))
        cut = line[begin : begin + LONGEST_EVIDENCE - 2]
        return f"{'…' * (begin > 0)}{cut}{'…' * (begin + len(cut) < len(line))}"


class Log:
    """A pasted text, ready to be searched."""

    def __init__(self, text: str) -> None:
        self.lines = [line for line in clean(text) if line]
        # Broken between words, or, by a terminal's edge, within one.
        self._flats = [_Flat(self.lines, between) for between in (" ", "")]

    def find(self, words: Words) -> str | None:
        """Look for words; give the line that has them."""
        for flat in self._flats:
            for start, end in flat.places(words.text):
                if (
                    (not words.near or flat.near(words.near, start, end))
                    and not flat.near(words.unless, start, end)
                    and (not words.then or _compiled(words.then).match(flat.small, end))
                ):
                    return flat.evidence(start, end)
        return None

    @functools.cached_property
    def raised(self) -> int | None:
        """Number of the line in which Python names the last error, if there is one."""
        numbers = reversed(range(len(self.lines)))
        return next((number for number in numbers if _RAISED.match(self.lines[number])), None)

    def last_error(self) -> str:
        """Give the line that matters most where nothing is known: the last error's, or nothing."""
        if self.raised is not None:
            return _with_message(self.lines, self.raised)
        return next((line for line in reversed(self.lines) if _COMPLAINS.search(line)), "")


@functools.cache
def _compiled(pattern: str) -> re.Pattern:
    return re.compile(pattern)


_RAISED = re.compile(r"(?:\w{1,60}\.){0,9}\w{0,60}(?:Error|Exception|Interrupt|Exit)\b(?=:|\(|$)")
_COMPLAINS = re.compile(
    r"(?i)\b(?:error|fail(?:ed|ure)?|fatal|cannot|can't|could not|couldn't|unable|refused|denied"
    r"|exhausted|invalid|abort(?:ed)?|killed|dumped|not found|unsupported|unimplemented)\b"
)
_FRAME = re.compile(r"Detected at|File |Stack trace|\[\[|\{\{|[-=]{5}|During handling|raise |at 0x")


def _with_message(lines: Sequence[str], number: int) -> str:
    """Add to a line that only announces an error the one that says it."""
    line = lines[number]
    if line.endswith((":", "found.", "Error", "Exception")):
        told = (line for line in lines[number + 1 : number + 60] if not _FRAME.match(line))
        return f"{line} {next(told, '')}".strip()
    return line


# What differs from one run to the next, and what a search engine takes for its own.
_OWN = re.compile(
    r"\{\{.{0,200}?\}\}|\[Op:.{0,200}?\]|0x[0-9a-f]+|\S*[/\\]\S*|\S*\d\S*|[\"<>`]|'\S*'"
)


def search_address(line: str) -> str:
    """Give the address of a search, in all of GitHub's issues, for an error's own words."""
    said = line.partition(": ")[2] or line
    runs = [part.split() for part in _OWN.sub("\n", said).split("\n")]
    words = " ".join(max(runs, key=len)[:9]).strip(" .,:;()[]")
    query = urllib.parse.quote_plus(f'"{words}"' if " " in words else line[:100])
    return f"https://github.com/search?type=issues&q={query}"
