"""What a module brings along when it is imported."""

import sys

import pytest
from conventions import ROOT
from terminal import call

# What a notebook, a command or `--help` imports before it needs TensorFlow.
ROOMS = ("base", "course", "display", "tpu")
LIGHT = ["helpers.runtime", "helpers.__main__", "helpers.exercises"]
LIGHT += [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for room in ROOMS
    for path in sorted((ROOT / "helpers" / room).rglob("*.py"))
    if path.stem not in ("conf", "worker")  # Sphinx reads the one; the other is a program
]


@pytest.mark.slow
@pytest.mark.parametrize(("modules", "seen"), [(LIGHT, False), (["helpers.xla.compare"], True)])
def test_light_modules_import_no_tensorflow_and_another_is_seen(modules, seen):
    script = f"import sys, {', '.join(modules)}; sys.exit('tensorflow' in sys.modules)"
    assert call(sys.executable, "-c", script).returncode == seen
