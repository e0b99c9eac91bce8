"""What a module brings along when it is imported."""

import ast
import sys

import pytest
from conventions import ROOT
from terminal import call

# What a notebook, a command or `--help` imports before it needs TensorFlow.
ROOMS = ("base", "course", "display", "tpu")
FILES = [p for room in ROOMS for p in sorted((ROOT / "helpers" / room).rglob("*.py"))]
LIGHT = ["helpers", "helpers.runtime", "helpers.__main__", "helpers.exercises"]
LIGHT += [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in FILES
    if path.stem not in ("conf", "worker")  # Sphinx reads the one; the other is a program
]


def imported(modules: list[str], unwanted: str) -> str:
    """Import modules one after another; name the first that brings something along."""
    script = (
        "import importlib, sys\n"
        f"for name in {modules}:\n"
        "    importlib.import_module(name)\n"
        f"    if {unwanted!r} in sys.modules: sys.exit(name)"
    )
    return call(sys.executable, "-c", script).stderr.strip()


@pytest.mark.slow
def test_light_modules_import_no_tensorflow_and_another_is_seen():
    assert imported(LIGHT, "tensorflow") == ""
    assert imported(["helpers.xla.compare"], "tensorflow") == "helpers.xla.compare"


def test_what_windows_lacks_is_imported_by_the_rehearsals_worker_alone():
    lacks, found = {"fcntl", "grp", "pwd", "resource", "termios"}, set()
    for path in (ROOT / "helpers").rglob("*.py"):
        tops = (x for x in ast.parse(path.read_text("utf-8")).body if isinstance(x, ast.Import))
        found |= {path.name for top in tops if lacks & {alias.name for alias in top.names}}
    assert found <= {"worker.py"}
