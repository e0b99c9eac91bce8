"""The shape of every error that a user can cause: what happened, why, what to do."""

import os
import re

# Variables that change how libraries and Python work, but for a log's length or a place.
_SETTINGS = re.compile(
    r"(JAX|XLA|LIBTPU|KERAS)_(?!HOME)\w+|TF_(XLA|USE|ENABLE|DETERM|CONFIG)\w*|PYTHON(OPTIMIZE|WARNINGS)"
)
# What the preflight sets for its processes, unless the user set another value.
DEFAULT_SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


class PreflightError(Exception):
    """An error with a cause and a remedy.

    Args:
        what: What happened, one sentence.
        why: The cause, one sentence.
        fix: What to do now, one sentence, with the command where there is one.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}\n  Why: {why}\n  Fix: {fix}")
        self.what = what
        self.why = why
        self.fix = fix

    def __reduce__(self) -> tuple[type["PreflightError"], tuple[str, str, str]]:
        # An error that comes from another process is made again from its three parts.
        return type(self), (self.what, self.why, self.fix)


def settings() -> dict[str, str]:
    """Collect the user's environment variables that may be the reason where something fails.

    Returns:
        Values by name, sorted by name, without the preflight's own ``DEFAULT_SETTINGS``.
    """
    values = {}
    for name in sorted(os.environ):
        value = os.environ[name]
        if _SETTINGS.fullmatch(name) and DEFAULT_SETTINGS.get(name) != value:
            values[name] = value
    return values


def unset(about: str = "") -> str:
    """Advise to try without these settings; empty without any.

    Args:
        about: The error's text. The choice of Keras (``TF_USE_LEGACY_KERAS``) is only mentioned
            where the text is about Keras.
    """
    assignments = []
    for name, value in settings().items():
        if name == "TF_USE_LEGACY_KERAS" and "keras" not in about.lower():
            continue
        assignments.append(f"{name}={value[:60]}")
    if not assignments:
        return ""
    variables = ", ".join(assignments)
    return f" Your environment sets {variables}: unset what may be the reason."


def unforeseen(error: Exception) -> PreflightError:
    """Describe an error that the preflight doesn't expect: it is no verdict."""
    if isinstance(error, OSError):
        fix = "Make room, or set TMPDIR."
    else:
        fix = "Report it with this line."
    return PreflightError(
        "The preflight could not go on. That says nothing about your model.",
        f"{type(error).__name__}: {str(error)[:300]}.",
        fix,
    )
