"""What a module brings along when it is imported."""

import importlib.metadata
import re
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


def test_the_site_imports_what_its_own_lock_has():
    script = "import course.pages, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    modules = call(sys.executable, "-c", script, check=True).stdout.split()
    distributions = importlib.metadata.packages_distributions()
    lock = (ROOT / ".ci/requirements/site.txt").read_text("utf-8")
    for module in modules:
        names = {name.lower() for name in distributions.get(module, ())}
        own = {"tensorflow-on-tpu", "tpu-preflight", "setuptools"}
        locked = {name for name in names if re.search(rf"^{name}==", lock, re.MULTILINE)}
        assert locked or names <= own, f"{module} is not in .ci/requirements/site.in"
