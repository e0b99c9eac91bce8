"""Is this model ready for a TPU, what does it need, how long will a step take? Without a TPU.

`preflight` goes through the checklist; `Report` is what it gives. The command is ``tpu-preflight``.
"""

import importlib

TYPE_CHECKING = False  # a type checker takes it for true; the folder may hold a typing.py
if TYPE_CHECKING:
    from tpu_preflight.checklist import preflight
    from tpu_preflight.report import Report

__all__ = ["Report", "preflight"]


def __getattr__(name: str) -> object:
    # What needs only a chip's facts doesn't wait for the rest.
    if name in __all__:
        home = "report" if name == "Report" else "checklist"
        return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
