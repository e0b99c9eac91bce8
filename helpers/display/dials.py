"""A picture for each value of a dial, drawn beforehand: it turns without a kernel or a script."""

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


class Dial:
    """A choice of values, each with its picture and a caption. It shows the first, or ``start``'s.

    It is HTML and CSS alone. Where they are left out, as on GitHub, captions follow their values.
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

    def __repr__(self) -> str:
        _, caption = self.states[self.start]
        return f"{self.label} {self.start}: {caption}"

    def _repr_html_(self) -> str:
        return html.render("dial.html", dial=self)
