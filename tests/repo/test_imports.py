"""What a module brings along when it is imported."""

import ast
import sys

import pytest
from conventions import ROOT
from terminal import call

pytestmark = pytest.mark.slow

# What a notebook, a command or `--help` imports before it needs TensorFlow.
ROOMS = {
    "base": "files html processes settings",
    "bert": "command",
    "course": "commands.app help.doctor help.explain map running upkeep",
    "display": "dials expect figures systolic",
    "rehearsal": "node replicas storage",
    "text": "buckets corpus prepare records",
    "tpu": "bucket cloud commands connection facts place runtimes zones",
    "xla": "compilations fusion",
}
LIGHT = [f"helpers.{room}.{name}" for room, names in ROOMS.items() for name in names.split()]
LIGHT += [
    "tpu_preflight.command",
    "helpers",
    "helpers.exercises",
    "helpers.runtime",
    "helpers.__main__",
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


def test_light_modules_import_no_tensorflow_and_a_command_that_runs_no_notebook_no_jupyter():
    assert imported(LIGHT, "tensorflow") == ""
    for unwanted in ("nbformat", "papermill"):
        assert imported(["helpers.course.commands.app", "tpu_preflight.apart"], unwanted) == ""


def test_a_module_that_imports_tensorflow_is_seen():
    assert imported([*LIGHT, "helpers.xla.compare"], "tensorflow") == "helpers.xla.compare"


def test_what_windows_lacks_is_imported_by_the_rehearsals_worker_alone():
    lacks, found = {"fcntl", "grp", "pwd", "resource", "termios"}, set()
    for path in (ROOT / "helpers").rglob("*.py"):
        tops = (x for x in ast.parse(path.read_text("utf-8")).body if isinstance(x, ast.Import))
        found |= {path.name for top in tops if lacks & {alias.name for alias in top.names}}
    assert found == {"worker.py"}
