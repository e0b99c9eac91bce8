"""What a module brings along when it is imported."""

import sys

import pytest
from conventions import ROOT
from terminal import call

# What a notebook, a command or `--help` imports before it needs TensorFlow.
ROOMS = ("helpers/base", "helpers/display", "helpers/tpu", "course")
HEAVY = ("conf", "worker", "export")  # Sphinx's, a program, TensorFlow's


def light_modules() -> list[str]:
    names = ["helpers.runtime", "helpers.exercises"]
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if path.stem not in HEAVY:
                parts = path.relative_to(ROOT).with_suffix("").parts
                names.append(".".join(parts).removesuffix(".__init__"))
    return names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modules", "imports_tensorflow"), [(light_modules(), False), (["helpers.xla.compare"], True)]
)
def test_light_modules_import_no_tensorflow_and_another_is_seen(modules, imports_tensorflow):
    script = f"import sys, {', '.join(modules)}; sys.exit('tensorflow' in sys.modules)"
    assert call(sys.executable, "-c", script).returncode == imports_tensorflow
