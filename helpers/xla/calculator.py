"""A widget that says how much memory a shape takes on a TPU. Imports no TensorFlow."""

from helpers.base import html
from helpers.display.dials import Dials
from helpers.xla.layout import as_written, rearranged
from tpu_preflight.chips.layout import ITEM_BYTES
from tpu_preflight.errors import PreflightError


def calculator(shape: str = "256, 512, 128, 2") -> Dials:
    """Make a widget (ipywidgets 7 or 8) that shows both layouts of a shape while it is typed."""
    import ipywidgets as widgets

    text = widgets.Text(value=shape, description="shape", continuous_update=True)
    kind = widgets.Dropdown(options=list(ITEM_BYTES), description="type")
    return Dials(_table, shape=text, dtype=kind)


def _table(shape: str, dtype: str) -> str:
    try:
        sizes = [int(n) for n in shape.replace("[", "").replace("]", "").split(",") if n.strip()]
        layouts = {"as written": as_written(sizes, dtype), "rearranged": rearranged(sizes, dtype)}
    except (ValueError, PreflightError):
        return "Type sizes with commas between them: <code>32, 128, 768</code>"
    return html.render("layout.html", layouts=layouts)
