"""What a notebook shows: expected errors and figures with a text alternative.

Knows no TensorFlow: everything here works on exceptions and matplotlib figures alone.
"""

import contextlib
import io
import re
import textwrap
from collections.abc import Iterator

from IPython.display import Image, Markdown, display

from helpers.errors import CourseError

# Okabe and Ito's palette (https://jfly.uni-koeln.de/color/): told apart with every common kind
# of colour blindness. Lines also differ by marker, bars by hatch, so no figure needs colour.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")


class NotRaised(CourseError):
    """A cell that must fail did not."""


class WrongError(CourseError):
    """A cell failed, but not with the expected error."""


class NoAlt(CourseError):
    """A figure came without words for readers who can't see it."""


def steady(line: str) -> str:
    """Remove from an error's line what differs from one run or machine to the next.

    Folders, addresses and the numbers that TensorFlow gives to functions and nodes go; so do its
    notes to itself (which device, which options), which say nothing to a reader.

    Args:
        line: A line of an error's message.

    Returns:
        The line to show or store.
    """
    line = re.sub(r"\{\{function_node [^}]*\}\}", "", line)
    line = re.sub(r" compatible with node \{\{node [^}]*\}\}(.*?\))\{\{node [^}]*\}\}", r"\1", line)
    line = re.sub(r"\{\{node ([^}]*)\}\}", r"\1", line)
    line = re.sub(r"\[Op:[^\]]*\](?: name: ?\S*)?", "", line)
    line = re.sub(r"(__(?:inference|forward|backward)_[\w<>]+?)_\d+\b(?:\[[^\]]*\])?", r"\1", line)
    line = re.sub(r"__autograph_generated_file\w+\.py", "autograph", line)
    line = re.sub(
        r"Error in user-defined function passed to \S+ transformation.*?::\S+: ", "", line
    )
    line = re.sub(
        r'(?<![\w.:/])/(?:[^\s/:"\']+/)+([^\s/:"\']+)', r"\1", line
    )  # keep the file's name
    line = re.sub(r"0x[0-9a-f]{6,}", "0x…", line)
    return re.sub(r"\s+", " ", line).strip()


def _until(line: str, match: str) -> str:
    """Cut a long line after the sentence that matches; the advice that follows fits seldom."""
    sentences = re.split(r"(?<=[.!?]) (?=[A-Z])", line) if len(line) > 160 else [line]
    for i in range(len(sentences)):
        if re.search(match, part := " ".join(sentences[: i + 1])):
            return part
    return line


@contextlib.contextmanager
def expect(error: type[BaseException], match: str) -> Iterator[None]:
    """Run a block that must fail; show the error in two lines, fail if it does not come.

    Prints the error's type and the line of its message that matches (of a long line, what stands
    up to the end of the matching sentence), without paths and numbered function names, so the
    stored output is the same on every machine.

    Args:
        error: The exception type that must be raised (a subclass will do).
        match: Regular expression that must be found in the message.

    Raises:
        NotRaised: The block ended without an error.
        WrongError: Another error came, or its message does not match; the error is chained.
    """
    try:
        yield
    except error as raised:
        message = str(raised)
        if not re.search(match, message):
            raise WrongError(
                f"{type(raised).__name__} came, but its message does not contain {match!r}.",
                "The library's wording differs from the version this cell was written for.",
                "Read the message above, then compare your versions with requirements.txt.",
            ) from raised
        lines = message.splitlines()
        line = next((x for x in lines if re.search(match, x)), " ".join(lines))
        text = f"{type(raised).__name__}: {_until(steady(line), match)}"
        print(textwrap.fill(text, 96, subsequent_indent="  ", break_on_hyphens=False))  # noqa: T201
    except Exception as raised:
        raise WrongError(
            f"Expected {error.__name__}, but {type(raised).__name__} came.",
            "Something else went wrong before the lesson's error could.",
            "Read the error above; it is the one to mend.",
        ) from raised
    else:
        raise NotRaised(
            f"Expected {error.__name__}, but nothing was raised.",
            "This code is no longer refused: it was changed, or the library was.",
            "Undo the change, or tell us which versions you run.",
        )


def subplots(width: float = 7.0, height: float = 3.0, **options: object) -> tuple:
    """Make a matplotlib figure in the course's style.

    Args:
        width: Inches.
        height: Inches.
        **options: Passed on to ``matplotlib.pyplot.subplots``.

    Returns:
        The figure and its axes, as ``matplotlib.pyplot.subplots`` gives them.
    """
    import matplotlib.pyplot as plt
    from cycler import cycler

    style = {
        "axes.prop_cycle": cycler(color=PALETTE, marker=MARKERS),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.dpi": 110,
        "figure.facecolor": "white",
        "font.size": 10,
    }
    with plt.rc_context(style):
        return plt.subplots(figsize=(width, height), layout="constrained", **options)


class Figure:
    """A picture with a caption below it, which is also its text alternative.

    The caption is text of its own because JupyterLab 4.6 passes a picture's alt text over.
    """

    def __init__(self, png: bytes, alt: str) -> None:
        self.png, self.alt = png, alt

    def _ipython_display_(self) -> None:
        display(Image(self.png, alt=self.alt), Markdown(f"*{self.alt}*"))


def figure(fig: object, alt: str) -> Figure:
    """Turn a finished matplotlib figure into a picture with a text alternative.

    Args:
        fig: A ``matplotlib.figure.Figure``; it is closed.
        alt: What the picture shows, for a reader who can't see it: the finding, not the form.
            It stands below the picture, too.

    Returns:
        The picture with its caption, for the last line of a cell.

    Raises:
        NoAlt: ``alt`` is empty.
    """
    import matplotlib.pyplot as plt

    if not alt.strip():
        raise NoAlt(
            "The figure has no text alternative.",
            "A reader who can't see the picture would miss what it shows.",
            'Say the finding in a sentence: figure(fig, alt="...").',
        )
    png = io.BytesIO()
    fig.savefig(png, format="png", metadata={"Software": None})
    plt.close(fig)
    return Figure(png.getvalue(), alt)
