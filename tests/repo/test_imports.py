"""What a module brings along when it is imported."""

import subprocess
import sys

import pytest

from helpers.base.settings import ROOT

# What a notebook, a command or `--help` imports before it needs TensorFlow.
LIGHT = [
    "helpers",
    "helpers.base.files",
    "helpers.base.html",
    "helpers.base.limits",
    "helpers.base.messages",
    "helpers.base.settings",
    "helpers.bert.command",
    "helpers.course.doctor",
    "helpers.course.explain",
    "helpers.course.commands.authoring",
    "helpers.course.commands.training",
    "helpers.course.map",
    "helpers.course.running",
    "helpers.course.upkeep",
    "helpers.display.dials",
    "helpers.display.diagrams",
    "helpers.display.expect",
    "helpers.display.figures",
    "helpers.display.systolic",
    "helpers.exercises",
    "helpers.exercises.progress",
    "helpers.preflight.apart",
    "helpers.preflight.report",
    "helpers.text.buckets",
    "helpers.text.corpus",
    "helpers.text.prepare",
    "helpers.text.records",
    "helpers.tpu.bucket",
    "helpers.tpu.cloud",
    "helpers.tpu.commands",
    "helpers.tpu.connection",
    "helpers.tpu.hardware",
    "helpers.tpu.place",
    "helpers.tpu.runtimes",
    "helpers.tpu.zones",
    "helpers.xla.fusion",
    "helpers.xla.ops",
    "helpers.xla.profiler",
    "helpers.xla.tpu_compiler",
    "helpers.rehearsal.node",
    "helpers.rehearsal.replicas",
    "helpers.rehearsal.storage",
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
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
    ).stderr.strip()


def test_light_modules_import_no_tensorflow():
    assert imported(LIGHT, "tensorflow") == ""


@pytest.mark.parametrize("module", ["helpers.bert.model", "helpers.xla.compare"])
def test_a_module_that_imports_tensorflow_is_seen(module):
    assert imported([*LIGHT, module], "tensorflow") == module
