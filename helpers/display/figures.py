"""Figures in the course's style, each with a text alternative. Knows no TensorFlow."""

import base64
import io

from IPython.display import Image, Markdown, display

from helpers.base.errors import CourseError
from helpers.base.language import translated

# Okabe and Ito's palette (https://jfly.uni-koeln.de/color/): told apart with every common kind
# of colour blindness. Lines also differ by marker, bars by hatch, so no figure needs colour.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")


def subplots(width: float = 7.0, height: float = 3.0, **options: object) -> tuple:
    """Make a matplotlib figure in the course's style, ``width`` by ``height`` inches, and its axes.

    ``options`` are passed on to ``matplotlib.pyplot.subplots``.
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

    kind = "image/png"  # as a notebook calls it

    def __init__(self, png: bytes, alt: str) -> None:
        self.png, self.alt = png, translated(alt)

    @property
    def width(self) -> int:
        """Pixels of a page that it takes: half its own, so that it is sharp on a dense screen."""
        return int.from_bytes(self.png[16:20], "big") // 2

    @property
    def data(self) -> str:
        """The picture as a notebook stores it."""
        return base64.b64encode(self.png).decode()

    @property
    def metadata(self) -> dict[str, object]:
        """What a notebook stores beside it: the text alternative, and the width in pixels."""
        return {"alt": self.alt, "width": self.width}

    @property
    def address(self) -> str:
        """The picture as an address, for an ``img`` of a page that needs no other file."""
        return f"data:image/png;base64,{self.data}"

    def _ipython_display_(self) -> None:
        display(Image(self.png, alt=self.alt, width=self.width), Markdown(f"*{self.alt}*"))


class Drawing(Figure):
    """A figure that is SVG: sharp at every size. Its own styles bring its ground, light or dark."""

    kind = "image/svg+xml"

    def __init__(self, svg: str, alt: str, width: int) -> None:
        self.svg, self.alt, self._width = svg, translated(alt), width

    @property
    def width(self) -> int:
        """Pixels of a page that it takes."""
        return self._width

    @property
    def data(self) -> str:
        """The picture as a notebook stores it: the SVG's text."""
        return self.svg

    @property
    def address(self) -> str:
        """The picture as an address, for an ``img`` of a page that needs no other file."""
        return f"data:{self.kind};base64,{base64.b64encode(self.svg.encode()).decode()}"

    def _ipython_display_(self) -> None:
        shown = {self.kind: self.svg, "text/plain": self.alt}
        display(shown, metadata={self.kind: self.metadata}, raw=True)
        display(Markdown(f"*{self.alt}*"))


def figure(fig: object, alt: str) -> Figure:
    """Turn a finished ``matplotlib.figure.Figure``, which is closed, into a picture with a caption.

    ``alt``, text alternative and caption, says what the picture shows to a reader who can't see it:
    the finding, not the form.

    Raises:
        CourseError: ``alt`` is empty.
    """
    import matplotlib.pyplot as plt

    if not alt.strip():
        raise CourseError(
            "The figure has no text alternative.",
            "A reader who can't see the picture would miss what it shows.",
            'Say the finding in a sentence: figure(fig, alt="...").',
        )
    png = io.BytesIO()
    fig.savefig(png, format="png", dpi=2 * fig.dpi, metadata={"Software": None})
    plt.close(fig)
    return Figure(png.getvalue(), alt)
