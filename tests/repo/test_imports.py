"""What a module brings along when it is imported."""

import sys

import pytest
from conventions import ROOT
from terminal import call

# What a notebook, a command or `--help` imports before it needs TensorFlow.
ROOMS = ("helpers/base", "helpers/display", "helpers/tpu", "course")
LIGHT = ["helpers.runtime", "helpers.exercises"]
LIGHT += [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*.py"))
    if path.stem not in ("conf", "worker", "export")  # Sphinx's, a program, TensorFlow's
]


@pytest.mark.slow
@pytest.mark.parametrize(("modules", "seen"), [(LIGHT, False), (["helpers.xla.compare"], True)])
def test_light_modules_import_no_tensorflow_and_another_is_seen(modules, seen):
    script = f"import sys, {', '.join(modules)}; sys.exit('tensorflow' in sys.modules)"
    assert call(sys.executable, "-c", script).returncode == seen
