"""A picture or a table that is redrawn while its controls move. Imports no TensorFlow."""

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
    """Controls with a picture or a table below them. Works with ipywidgets 7 and 8.

    Attributes:
        box: The whole widget: the controls side by side, then the picture with its caption.
        picture: The part that changes.
    """

    def __init__(
        self, draw: Callable[..., Figure | str], **controls: "ipywidgets.ValueWidget"
    ) -> None:
        """Tie controls to ``draw``, which takes their values by name and gives a figure or HTML.

        If it raises a `CourseError`, its message is shown instead of the picture.
        """
        import ipywidgets

        self._draw, self._controls = draw, controls
        self.picture = ipywidgets.HTML()
        row = ipywidgets.HBox(list(controls.values()))
        self.box = ipywidgets.VBox([row, self.picture])
        for control in controls.values():
            control.observe(self._show, names="value")

    def _show(self, change: object = None) -> Figure | str:
        try:
            shown = self._draw(**{name: c.value for name, c in self._controls.items()})
        except PreflightError as error:
            self.picture.value = f"<pre>{html.escape(str(error))}</pre>"
            return ""
        if isinstance(shown, str):
            self.picture.value = shown
            return shown
        alt = html.escape(shown.alt)
        self.picture.value = (
            f'<img alt="{alt}" width="{shown.width}" src="{shown.address}"><p><em>{alt}</em></p>'
        )
        return shown

    def _ipython_display_(self) -> None:
        shown = {"text/plain": "A running notebook shows a widget here."}
        more = {}
        still = self._show()  # for pages, where no widget moves
        if isinstance(still, Figure):
            shown[still.kind], more[still.kind] = still.data, still.metadata
        elif still:
            shown["text/html"] = still
        shown[VIEW] = {
            "version_major": 2,
            "version_minor": 0,
            "model_id": self.box.model_id,
        }
        display(shown, metadata=more, raw=True)
