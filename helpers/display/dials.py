"""A picture for each value of a dial, drawn beforehand: it turns without a kernel or a script."""

import base64
import io
import re
from collections.abc import Callable, Iterable

from helpers.base import html
from helpers.base.language import translated


def _rounded(number: re.Match[str]) -> str:
    return f"{round(float(number[0]), 1):g}"


# What matplotlib writes and a page does without, and what takes its place: colours of the page.
SHORTER = (
    (r"(?s)\A.*?(?=<svg )|<(metadata|style).*?</\1>", ""),
    (r"<svg .*?(?=viewBox)", '<svg aria-hidden="true" '),
    (r' (id="[\w.]*_\d+"|transform="rotate\(-0 .*?"|xmlns="[^"]*"|version="1.1")|xlink:', ""),
    (r" font-family: [^;\"]+;?|; text-anchor: start", ""),
    (r'<path d="[^"]*" style="fill: none"/>', ""),
    (r"#000000", "currentColor"),
    (r"-?\d+\.\d+", _rounded),
    (r"\s*\n\s*", " "),
    (r"> <", "><"),
)


def drawing(fig: object, salt: str) -> str:
    """Close a figure of matplotlib, as SVG; ``salt`` tells its names from those of others."""
    import matplotlib.pyplot as plt

    stream = io.StringIO()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        fig.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    plt.close(fig)
    svg = stream.getvalue()
    for pattern, replacement in SHORTER:
        svg = re.sub(pattern, replacement, svg)
    return svg


def standalone(svg: str) -> str:
    """Give a drawing as the address of an image, black on white: what a page keeps without CSS."""
    svg = svg.replace(
        '<svg aria-hidden="true" ',
        '<svg xmlns="http://www.w3.org/2000/svg" style="background: #ffffff" ',
        1,
    )
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


class Dial:
    """A choice of values, each with its picture and a caption. It shows the first, or ``start``'s.

    It is HTML and CSS alone. JupyterLab takes CSS and drawings away from a notebook that it doesn't
    trust: there a still image of the start's value is shown in their place.
    """

    def __init__(self, label: str, draw: Callable, values: Iterable, start: object = None) -> None:
        """Draw every value: ``draw(value)`` gives a figure of matplotlib and what it shows."""
        self.label = translated(label)
        self.states = {}
        for value in values:
            fig, caption = draw(value)
            self.states[value] = drawing(fig, f"{label} {value}"), translated(caption)
        if start not in self.states:
            start = next(iter(self.states))
        self.start = start
        svg, _ = self.states[start]
        self.still = standalone(svg)

    def __repr__(self) -> str:
        _, caption = self.states[self.start]
        return f"{self.label} {self.start}: {caption}"

    def _repr_html_(self) -> str:
        return html.render("dial.html", dial=self)
