"""A picture that is redrawn while its controls move. Imports no TensorFlow."""

import html
from collections.abc import Callable
from typing import TYPE_CHECKING

from IPython.display import display

from helpers.display.figures import Figure
from tpu_preflight.errors import PreflightError

if TYPE_CHECKING:
    import ipywidgets

VIEW = "application/vnd.jupyter.widget-view+json"


class Dials:
    """Controls with a picture below them. Works with ipywidgets 7 and 8.

    Attributes:
        box: The whole widget: the controls side by side, then the picture with its caption.
        picture: The part that changes.
    """

    def __init__(self, draw: Callable[..., Figure], **controls: "ipywidgets.ValueWidget") -> None:
        """Tie controls to ``draw``, which takes their values by name and gives a figure.

        If it raises a `CourseError`, its message is shown instead of the picture.
        """
        import ipywidgets

        self._draw, self._controls = draw, controls
        self.picture = ipywidgets.HTML()
        self.box = ipywidgets.VBox([ipywidgets.HBox(list(controls.values())), self.picture])
        for control in controls.values():
            control.observe(self._redraw, names="value")

    def _redraw(self, change: object = None) -> Figure | None:
        try:
            figure = self._draw(**{name: c.value for name, c in self._controls.items()})
        except PreflightError as error:
            self.picture.value = f"<pre>{html.escape(str(error))}</pre>"
            return None
        self.picture.value = figure.html
        return figure

    def _ipython_display_(self) -> None:
        figure = self._redraw()  # for pages, where no widget moves
        data, more = figure.image._repr_mimebundle_() if figure else ({}, {})
        data["text/plain"] = "A running notebook shows a widget here."
        data[VIEW] = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        display(data, metadata=more, raw=True)
