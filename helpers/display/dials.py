"""A picture for each value of a dial, drawn beforehand: it turns without a kernel or a script."""

import io
import re
from collections.abc import Callable, Iterable

from helpers.base import html
from helpers.base.language import translated

# What matplotlib writes and a page does without, and what takes its place: colours of the page.
SHORTER = (
    (r"(?s)\A.*?(?=<svg )|<(metadata|style).*?</\1>", ""),
    (r"<svg .*?(?=viewBox)", '<svg aria-hidden="true" '),
    (r' (id="[\w.]*_\d+"|transform="rotate\(-0 .*?"|xmlns="[^"]*"|version="1.1")|xlink:', ""),
    (r" font-family: [^;\"]+;?|; text-anchor: start", ""),
    (r'<path d="[^"]*" style="fill: none"/>', ""),
    (r"#000000", "currentColor"),
    (r"-?\d+\.\d+", lambda number: f"{round(float(number[0]), 1):g}"),
    (r"\s*\n\s*", " "),
    (r"> <", "><"),
)


def drawing(fig: object, salt: str) -> str:
    """Close a figure of matplotlib, as SVG; ``salt`` tells its names from those of others."""
    import matplotlib.pyplot as plt

    told = io.StringIO()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        fig.savefig(told, format="svg", transparent=True, metadata={"Date": None})
    plt.close(fig)
    svg = told.getvalue()
    for pattern, better in SHORTER:
        svg = re.sub(pattern, better, svg)
    return svg


class Dial:
    """A choice of values, each with its picture and a caption. It shows the first, or ``start``'s.

    It is HTML and CSS alone. Where they are left out, as on GitHub, captions follow their values.
    """

    def __init__(self, label: str, draw: Callable, values: Iterable, start: object = None) -> None:
        """Draw every value: ``draw(value)`` gives a figure of matplotlib and what it shows."""
        self.label, self.states = translated(label), {}
        for value in values:
            fig, words = draw(value)
            self.states[value] = drawing(fig, f"{label} {value}"), translated(words)
        self.start = start if start in self.states else next(iter(self.states))

    def __repr__(self) -> str:
        return f"{self.label} {self.start}: {self.states[self.start][1]}"

    def _repr_html_(self) -> str:
        return html.render("dial.html", dial=self)
