"""Files on PYTHONPATH that hide a module of Python or a package that the course uses.

Imports what Python itself has imported by then and nothing more: anything else may be hidden.
"""

import os
import sys


def hidden_modules() -> dict[str, str]:
    """Give the files on PYTHONPATH that hide another module of their name: path by name."""
    path_by_name: dict[str, str] = {}
    for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if not folder or not os.path.isdir(folder):
            continue
        other_folders = [other for other in sys.path if not _is_same(other, folder)]
        for file_name in sorted(os.listdir(folder)):
            name, suffix = os.path.splitext(file_name)
            if suffix == ".py" and _is_in(name, other_folders):
                path_by_name.setdefault(name, os.path.join(folder, file_name))
    return path_by_name


def _is_same(path: str, folder: str) -> bool:
    return os.path.abspath(path) == os.path.abspath(folder)


def _is_in(name: str, folders: list[str]) -> bool:
    if name in sys.stdlib_module_names:
        return True
    return any(
        os.path.isfile(os.path.join(folder, name, "__init__.py"))
        or os.path.isfile(os.path.join(folder, f"{name}.py"))
        for folder in folders
    )


def explanation(loaded_only: bool = False) -> tuple[str, str, str] | None:
    """Say what is hidden, why that ends a command, and what to do; None where nothing is.

    Args:
        loaded_only: Look only at what was imported from there: a hidden module that is not needed
            does no harm.
    """
    path_by_name = hidden_modules()
    if loaded_only:
        path_by_name = {x: path for x, path in path_by_name.items() if x in sys.modules}
    if not path_by_name:
        return None
    return (
        f"Another file hides what the course imports: {', '.join(path_by_name)}.",
        f"PYTHONPATH leads Python to {next(iter(path_by_name.values()))} first.",
        "Rename the file, or leave PYTHONPATH out: env -u PYTHONPATH tpu-course …",
    )
