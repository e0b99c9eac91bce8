"""The kernel is prepared before TensorFlow is imported, or the learner is told why not."""

import ast
import importlib.metadata
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import nbformat
import pytest
from conventions import NOTEBOOKS, ROOT
from jupyter_client.manager import start_new_kernel
from terminal import call, without

from helpers import runtime
from helpers.base.errors import CourseError
from helpers.base.settings import (
    ANY_VERSION,
    BOOTSTRAP,
    COMPILER,
    DRIVER,
    ENVIRONMENT,
    install_commands,
    locked_versions,
    wrong_packages,
)
from helpers.tpu.place import detect

pytestmark = pytest.mark.slow

LOCKED = {"tensorflow": "2.20.0", "tf-keras": "2.20.1", "transformers": "4.57.6"}
LOCKED |= {"datasets": "5.0.1", "tokenizers": "0.22.2", "numpy": "2.4.6"}
LOCKED |= {"jax": "0.10.2", "libtpu": "0.0.51"}
INSTALLED = LOCKED | dict.fromkeys(ANY_VERSION, "1.0")
SETUP = "from helpers import runtime; runtime.setup()"


def python(script: str, **variables: str) -> subprocess.CompletedProcess:
    return call(sys.executable, "-c", script, env=without(*ENVIRONMENT) | variables)


def test_setup_sets_environment_and_seeds_and_can_be_called_again():
    script = """
import os, random, sys, numpy
from helpers import runtime
from helpers.base.settings import ENVIRONMENT
def draws():
    runtime.setup(seed=7)
    import tensorflow as tf
    assert tf.keras.__name__.startswith("tf_keras"), tf.keras.__name__
    return random.random(), numpy.random.rand(), float(tf.random.uniform([]))
assert draws() == draws()
assert "jsonschema" not in sys.modules  # nbformat's, a second
assert all(os.environ[k] == v for k, v in ENVIRONMENT.items())
"""
    done = python(script)
    assert (done.returncode, done.stderr) == (0, "")
    line = r"Ready: TensorFlow 2\.20\.\d+, transformers 4\.57\.\d+, seed 7\.\n"
    assert re.fullmatch(line * 2, done.stdout)


def test_the_lock_is_read(tmp_path):
    lock = tmp_path / "requirements.txt"
    lock.write_text(
        "# a comment\n"
        "one==1.2.3 \\\n    --hash=sha256:00\n    # via two\n"
        "forked==1.0 ; python_version < '3.12' \\\n    --hash=sha256:00\n"
        "forked==2.0 ; python_version >= '3.12' \\\n    --hash=sha256:00\n"
        "last-one==4.0rc1 ; sys_platform == 'linux' \\\n    --hash=sha256:00\n"
    )
    assert locked_versions(lock) == {"one": "1.2.3", "last-one": "4.0rc1"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, []),
        ({"tensorflow": "2.20.7"}, []),
        ({"tensorflow": None, "tensorflow-tpu": "2.20.0"}, []),
        ({"tensorflow": None}, ["tensorflow is missing (the course uses 2.20.0)"]),
        ({"transformers": "5.1.0"}, ["transformers is 5.1.0 (the course uses 4.57.6)"]),
        ({"tensorflow-tpu": "2.19.1"}, ["tensorflow is 2.19.1 (the course uses 2.20.0)"]),
        ({"gcsfs": "2019.1"}, []),
        ({"gcsfs": None}, ["gcsfs is missing"]),
    ],
)
def test_wrong_packages_are_named(change, told):
    installed = {k: v for k, v in (INSTALLED | change).items() if v is not None}
    assert wrong_packages(installed, LOCKED) == told


def test_a_hosted_notebook_installs_every_package_at_its_locked_version():
    (command,) = install_commands(LOCKED, tpu=False)
    pins = {f"{name}=={version}" for name, version in LOCKED.items()}
    assert set(command[2:]) == pins | set(ANY_VERSION)


def test_beside_a_tpu_the_two_tensorflow_wheels_never_meet():
    remove, install, keras = install_commands(LOCKED, tpu=True)
    assert remove[0] == "uninstall" and {"tensorflow", "tensorflow-cpu"} <= set(remove)
    assert "tensorflow-tpu==2.20.0" in install
    assert not any(p.startswith(("tensorflow==", "tf-keras==", "jax")) for p in install)
    assert [p for p in install + keras if p.startswith("libtpu")] == [DRIVER]
    assert {"--no-deps", "tf-keras==2.20.1"} <= set(keras)


def test_a_local_kernel_with_wrong_packages_is_told_the_command(monkeypatch):
    monkeypatch.setattr(runtime, "installed", lambda: INSTALLED | {"tensorflow": "2.19.0"})
    with pytest.raises(CourseError, match=r"tensorflow is 2\.19\.0[\s\S]*make lab"):
        runtime._check_packages(detect({}))


COLAB, KAGGLE = "Runtime > Restart session", "Run > Restart & clear cell outputs"


@pytest.mark.parametrize(
    ("marks", "colab", "tpu", "restart"),
    [
        ({"COLAB_TPU_1VM": "1", "TPU_ACCELERATOR_TYPE": "v5e-1"}, True, True, COLAB),
        ({"COLAB_TPU_1VM": ""}, True, False, COLAB),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Interactive", "ISTPUVM": "1"}, False, True, KAGGLE),
        # Kaggle's image for CPUs is made from Colab's.
        ({"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, True, False, KAGGLE),
    ],
)
def test_a_hosted_place_gets_its_packages_and_is_told_how_to_restart(
    monkeypatch, tmp_path, marks, colab, tpu, restart
):
    calls = []
    monkeypatch.setattr(runtime, "installed", lambda: {"transformers": "5.1.0"})
    monkeypatch.setattr(subprocess, "run", lambda command, check: calls.append(command))
    if colab:
        monkeypatch.setitem(sys.modules, "google.colab", object())
    for name, value in marks.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CourseError, match=restart):
        runtime._check_packages(detect(marks, tmp_path))
    expected = install_commands(locked_versions(), tpu)
    assert calls == [[sys.executable, "-m", "pip", *command] for command in expected]


TOO_EARLY = "ImportedTooEarly: TensorFlow is already imported, without TF_USE_LEGACY_KERAS=1"


@pytest.mark.parametrize(
    ("first", "variables", "said"),
    [
        ("import tensorflow", ENVIRONMENT, "Ready: "),
        ("import sys; sys.modules['tensorflow'] = object()", {}, TOO_EARLY),
    ],
    ids=["with its settings", "without"],
)
def test_in_a_notebook_setup_adds_explain(first, variables, said):
    """Also where it fails because TensorFlow came first with other settings."""
    done = python(
        "from IPython.testing.globalipapp import start_ipython; shell = start_ipython()\n"
        f"{first}\ntry:\n    {SETUP}\n"
        "except Exception as error:\n    print(f'{type(error).__name__}: {error}')\n"
        "assert 'explain' in shell.magics_manager.magics['line']",
        **variables,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said)
    assert ("Restart the kernel" in done.stdout) == (said == TOO_EARLY)


def test_in_a_kernel_the_log_of_c_goes_to_the_terminal_and_pythons_own_stderr_stays(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # with it ipykernel captures no file descriptor
    shown = []
    with (tmp_path / "terminal").open("w") as terminal:
        manager, client = start_new_kernel(cwd=ROOT, stderr=terminal)
        try:
            for code in (
                "import os, sys; os.write(2, b'before the setup\\n')",
                SETUP,
                "_ = os.write(2, b'a line of C++\\n'); print('of Python', file=sys.stderr)",
            ):
                client.execute_interactive(
                    code, timeout=120, output_hook=lambda message: shown.append(message["content"])
                )
            client.shutdown()
            manager.provisioner.process.wait(60)  # or it hangs at its end
        finally:
            manager.shutdown_kernel(now=True)
            client.stop_channels()
    stderr = "".join(content["text"] for content in shown if content.get("name") == "stderr")
    assert stderr == "before the setup\nof Python\n"
    assert "a line of C++\n" in (tmp_path / "terminal").read_text("utf-8")


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that a source names in an import, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


OURS = {"helpers": "", "tpu_preflight": "tpu_preflight/src"}  # packages, and where they lie


def needed() -> set[str]:
    """Packages that the notebooks import, themselves or by way of helpers."""
    cells = [cell for path in NOTEBOOKS for cell in nbformat.read(path, 4).cells]
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    todo, seen = [*imported(ast.parse(code))], set()
    while todo:
        name = todo.pop()
        if name.split(".")[0] in OURS and name not in seen:
            path = ROOT / OURS[name.split(".")[0]] / name.replace(".", "/")
            files = filter(pathlib.Path.is_file, (path.with_suffix(".py"), path / "__init__.py"))
            todo += [x for file in files for x in imported(ast.parse(file.read_text("utf-8")))]
        seen.add(name)
    packages = importlib.metadata.packages_distributions()
    # A namespace of many packages; what helpers use of it comes with gcsfs.
    ours = {*sys.stdlib_module_names, *OURS, "google"}
    ours.add("apache_beam")  # apart: who runs prepare on Beam has it
    found = {name.split(".")[0] for name in seen} - ours
    return {plain(packages[name][0]) for name in found}


def brought(packages: set[str]) -> set[str]:
    """What pip brings with some packages because they ask for it, without any extra."""
    asks = [line for name in packages for line in importlib.metadata.requires(name) or ()]
    return {plain(re.match(r"[\w.-]+", line)[0]) for line in asks if "extra ==" not in line}


def plain(name: str) -> str:
    return re.sub("[_.]", "-", name).lower()


@pytest.mark.parametrize("place", ["colab.txt", "colab_tpu.txt", "kaggle.txt"])
def test_what_the_notebooks_import_is_there_or_installed(place):
    lines = re.findall(r"^[\w.-]+", (ROOT / "tests/repo" / place).read_text("utf-8"), re.MULTILINE)
    there = {*map(plain, lines)}
    assert needed() > {"tensorflow", "pandas", "platformdirs"}
    asked = {*BOOTSTRAP, *ANY_VERSION, *COMPILER}
    assert needed() - there - asked - brought(asked) == set()
