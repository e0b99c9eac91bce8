"""How long a notebook takes: counted from its words, lines and exercises, not guessed."""

import dataclasses
import json
import pathlib
import re

from helpers.base import files
from helpers.base.settings import ROOT

# The lower end of "most adults fall in the range of 175 to 300 words per minute", silent reading of
# English non-fiction (Brysbaert 2019, doi:10.1016/j.jml.2019.104047); readers with English as a
# second language are slower, the paper says. Abstract read 2026-11.
WORDS_PER_MINUTE = 175

# Reviewers read about 500 lines of application code in an hour (Humphrey 1989, as quoted from
# McConnell's Code Complete; second hand, 2026-11).
LINES_PER_MINUTE = 500 / 60

# Our own assumption: nobody has been watched yet.
MINUTES_PER_EXERCISE = 5

# Measured: `make run` on two idle cores, 2026-11.
RUN_SECONDS = {
    "00": 10,
    "01": 39,
    "02": 38,
    "03": 45,
    "04": 22,
    "05": 62,
    "06": 21,
    "07": 104,
    "08": 45,
}

# An estimate of this kind is not more exact.
STEP = 10


@dataclasses.dataclass(frozen=True)
class Length:
    """What there is to read, try and wait for in a notebook.

    Attributes:
        words: Of prose, without code and addresses.
        lines: Of code to read, in cells and in fences; setup, stubs and checks don't count.
        exercises: How many.
        run_seconds: Computing, measured.
    """

    words: int
    lines: int
    exercises: int
    run_seconds: float

    @property
    def minutes(self) -> float:
        """The estimate, not rounded."""
        return (
            self.words / WORDS_PER_MINUTE
            + self.lines / LINES_PER_MINUTE
            + self.exercises * MINUTES_PER_EXERCISE
            + self.run_seconds / 60
        )

    @property
    def rounded(self) -> int:
        """The estimate as it is printed."""
        return max(STEP, STEP * round(self.minutes / STEP))

    @property
    def words_to_say_it(self) -> str:
        """What stands after **Time** in the notebook."""
        run = round(self.run_seconds / 60)
        to_run = f"about {run} minutes" if run > 1 else "about a minute"
        if self.run_seconds < 60:
            to_run = "less than a minute"
        return f"about {self.rounded} minutes to read and try; {to_run} to run"

    def __repr__(self) -> str:
        return (
            f"{self.words:,} words, {self.lines} lines, {self.exercises} exercises, "
            f"{self.run_seconds:.0f} s to run: {self.minutes:.0f} minutes"
        )


_FENCE = re.compile(r"^```.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def length(cells: list[dict], run_seconds: float) -> Length:
    """Count what there is in a notebook.

    Args:
        cells: Its cells, as in its file.
        run_seconds: Measured time to run it.

    Returns:
        The counts.
    """
    words, code, exercises = 0, [], 0
    for cell in cells:
        source = "".join(cell["source"])
        tags = cell["metadata"].get("tags", ())
        exercises += "exercise" in tags
        if cell["cell_type"] == "markdown":
            code += _FENCE.findall(source)
            text = re.sub(r"\]\([^)]*\)|<[^>]*>", " ", _FENCE.sub("", source))
            words += len(re.findall(r"\w[\w.,'’-]*", text))
        elif not ({"setup", "exercise"} & set(tags) or re.match(r"(check|hint)\(", source)):
            code.append(source)
    lines = sum(bool(line.strip()) for text in code for line in text.splitlines())
    return Length(words, lines, exercises, run_seconds)


def lengths(root: pathlib.Path = ROOT) -> dict[str, Length]:
    """Count what there is in each notebook.

    Args:
        root: The course's folder.

    Returns:
        Length by the notebook's number.
    """
    return {
        path.name[:2]: length(
            json.loads(path.read_text("utf-8"))["cells"], RUN_SECONDS[path.name[:2]]
        )
        for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    }


def rewrite(root: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """Write the estimates into the **Time** line of each notebook and the table of the README.

    Args:
        root: The course's folder.

    Returns:
        The files that changed.
    """
    readme = root / "README.md"
    old = {readme: readme.read_text("utf-8")}
    new = dict(old)
    for number, counted in lengths(root).items():
        (path,) = (root / "notebooks").glob(f"{number}_*.ipynb")
        old[path] = path.read_text("utf-8")
        new[path] = re.sub(
            r"(\*\*Time\*\* )[^·\n]+?( ·)", rf"\g<1>{counted.words_to_say_it}\2", old[path], count=1
        )
        new[readme] = re.sub(
            rf"(\| \[{number}\].*?\| )\d+ min( \|)", rf"\g<1>{counted.rounded} min\2", new[readme]
        )
    changed = [path for path in sorted(old) if new[path] != old[path]]
    for path in changed:
        files.write(path, new[path])
    return changed
