"""The shape of every error that a user can cause: what happened, why, what to do."""

import os
import re

# Variables that change how libraries and Python work, but for a log's length or a place.
_SETTINGS = re.compile(
    r"(JAX|XLA|LIBTPU|KERAS)_(?!HOME)\w+|TF_(XLA|USE|ENABLE|DETERM|CONFIG)\w*|PYTHON(OPTIMIZE|WARNINGS)"
)
OWN = {"JAX_PLATFORMS": "cpu", "TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}


class PreflightError(Exception):
    """An error with a cause and a remedy.

    Args:
        what: What happened, one sentence.
        why: The cause, one sentence.
        fix: What to do now, one sentence, with the command where there is one.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}\n  Why: {why}\n  Fix: {fix}")
        self.what, self.why, self.fix = what, why, fix

    def __reduce__(self) -> tuple[type["PreflightError"], tuple[str, str, str]]:
        # An error that comes from another process is made again from its three parts.
        return type(self), (self.what, self.why, self.fix)


def settings() -> dict[str, str]:
    """Find what the user's environment sets that may be the reason where something fails."""
    given = {name: os.environ[name] for name in sorted(os.environ) if _SETTINGS.fullmatch(name)}
    return {name: value for name, value in given.items() if OWN.get(name) != value}


def unset(about: str = "") -> str:
    """Advise to try without these settings; empty without any. Keras's, if an error is about it."""
    said = ", ".join(
        f"{name}={value[:60]}"
        for name, value in settings().items()
        if name != "TF_USE_LEGACY_KERAS" or "keras" in about.lower()
    )
    return f" Your environment sets {said}: unset what may be the reason." if said else ""


def unforeseen(error: Exception) -> PreflightError:
    """Tell an error that nobody thought of: it is no verdict."""
    return PreflightError(
        "The preflight could not go on, which says nothing of your model.",
        f"{type(error).__name__}: {str(error)[:300]}.",
        "Make room, or set TMPDIR." if isinstance(error, OSError) else "Report it with this line.",
    )
