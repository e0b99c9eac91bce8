"""Figures in the course's style, each with a text alternative. Knows no TensorFlow."""

import io

from IPython.display import Image, Markdown, display

from helpers.base.language import translated

# Okabe and Ito's palette (https://jfly.uni-koeln.de/color/): told apart with every common kind
# of colour blindness. Lines also differ by marker, so no figure needs colour.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


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

    def __init__(self, png: bytes, alt: str) -> None:
        self.png = png
        self.alt = translated(alt)
        width = int.from_bytes(png[16:20], "big") // 2  # so that it is sharp on a dense screen
        # As metadata: the IPython of Colab, 7.34, has no argument for it.
        self.image = Image(png, width=width, metadata={"alt": self.alt})

    def _ipython_display_(self) -> None:
        display(self.image, Markdown(f"*{self.alt}*"))


def figure(fig: object, alt: str) -> Figure:
    """Turn a finished ``matplotlib.figure.Figure``, which is closed, into a picture with a caption.

    ``alt``, text alternative and caption, says what the picture shows to a reader who can't see it:
    the finding, not the form.
    """
    import matplotlib.pyplot as plt

    png = io.BytesIO()
    fig.savefig(png, format="png", dpi=2 * fig.dpi, metadata={"Software": None})
    plt.close(fig)
    return Figure(png.getvalue(), alt)
