"""The library ``datasets``, imported with whatever variables the environment has."""

import os

from helpers.base.errors import CourseError, cause

_PREFIXES = ("HF_", "XDG_CACHE_HOME")

# The library takes an empty variable for a folder: the current one, in which it would leave files.
for _name in list(os.environ):
    if _name.startswith(_PREFIXES) and not os.environ[_name].strip():
        del os.environ[_name]

try:
    import datasets
except ValueError as error:  # it reads its variables while it is imported
    _names = ", ".join(name for name in sorted(os.environ) if name.startswith("HF_DATASETS_"))
    raise CourseError(
        "The library datasets can't be used.",
        f"One of its variables ({_names}) has no value that it understands: {cause(error)}.",
        "Unset it, or give it the value that https://huggingface.co/docs/datasets names.",
    ) from error

__all__ = ["datasets"]
