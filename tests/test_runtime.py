"""The kernel is prepared before TensorFlow is imported, or the learner is told why not."""

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conventions import NOTEBOOKS, ROOT, source
from jupyter_client.manager import start_new_kernel

from helpers import runtime
from helpers.base.errors import CourseError
from helpers.base.settings import (
    ANY_VERSION,
    BOOTSTRAP,
    ENVIRONMENT,
    install_commands,
    locked_versions,
    wrong_packages,
)

LOCKED = {
    "tensorflow": "2.20.0",
    "tf-keras": "2.20.1",
    "transformers": "4.57.6",
    "datasets": "5.0.1",
    "tokenizers": "0.22.2",
    "numpy": "2.4.6",
    "jax": "0.10.2",
    "libtpu": "0.0.51",
}


INSTALLED = LOCKED | dict.fromkeys(ANY_VERSION, "1.0")


def python(script: str, **variables: str) -> subprocess.CompletedProcess:
    environment = {k: v for k, v in os.environ.items() if k not in ENVIRONMENT}
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=ROOT, env=environment | variables, capture_output=True, text=True
    )


def test_setup_sets_environment_and_seeds_and_can_be_called_again():
    script = (
        "import os, random, numpy\n"
        "from helpers import runtime\n"
        "def draws():\n"
        "    runtime.setup(seed=7)\n"
        "    import tensorflow as tf\n"
        "    return random.random(), numpy.random.rand(), float(tf.random.uniform([]))\n"
        "assert draws() == draws()\n"
        "from helpers.base.settings import ENVIRONMENT\n"
        "assert all(os.environ[k] == v for k, v in ENVIRONMENT.items())\n"
        "import tensorflow as tf\n"
        "assert tf.keras.__name__.startswith('tf_keras'), tf.keras.__name__\n"
    )
    done = python(script)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    line = r"Ready: TensorFlow 2\.20\.\d+, transformers 4\.57\.\d+, seed 7\.\n"
    assert re.fullmatch(line * 2, done.stdout)


def test_setup_refuses_when_tensorflow_came_first_with_other_settings():
    done = python("import tensorflow; from helpers import runtime; runtime.setup()")
    assert done.returncode == 1
    assert "ImportedTooEarly: TensorFlow is already imported, without TF_USE_LEGACY_KERAS=1" in (
        done.stderr
    )
    assert "Restart the kernel" in done.stderr


def test_setup_accepts_tensorflow_imported_with_the_same_settings():
    done = python("import tensorflow; from helpers import runtime; runtime.setup()", **ENVIRONMENT)
    assert done.returncode == 0, done.stderr


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
    assert remove[0] == "uninstall"
    assert "tensorflow" in remove
    assert "tensorflow-tpu==2.20.0" in install
    assert not any(p.startswith(("tensorflow==", "tf-keras==", "libtpu")) for p in install)
    assert not any(p.startswith(("jax", "libtpu")) for p in install + keras)
    assert "--no-deps" in keras
    assert "tf-keras==2.20.1" in keras


def test_a_local_kernel_with_wrong_packages_is_told_the_command(monkeypatch):
    monkeypatch.setattr(runtime, "installed", lambda: INSTALLED | {"tensorflow": "2.19.0"})
    with pytest.raises(CourseError, match=r"tensorflow is 2\.19\.0[\s\S]*make lab"):
        runtime._check_packages()


def test_on_colab_the_packages_are_installed_and_a_restart_is_asked_for(monkeypatch):
    calls = []
    monkeypatch.setattr(runtime, "installed", lambda: {"transformers": "5.1.0"})
    monkeypatch.setitem(sys.modules, "google.colab", object())
    monkeypatch.setattr(subprocess, "run", lambda command, check: calls.append(command))
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5e-1")
    with pytest.raises(CourseError, match="Runtime > Restart session"):
        runtime._check_packages()
    locked = locked_versions()
    expected = install_commands(locked, tpu=True)
    assert calls == [[sys.executable, "-m", "pip", *command] for command in expected]


def test_in_a_notebook_setup_adds_explain():
    script = (
        "from IPython.testing.globalipapp import start_ipython\n"
        "shell = start_ipython()\n"
        "from helpers import runtime; runtime.setup()\n"
        "assert 'explain' in shell.magics_manager.magics['line']\n"
    )
    done = python(script)
    assert done.returncode == 0, done.stderr


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
                "from helpers import runtime; runtime.setup()",
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


def needed() -> set[str]:
    """Packages that the notebooks import, themselves or by way of helpers."""
    cells = [cell for path in NOTEBOOKS for cell in json.loads(path.read_text("utf-8"))["cells"]]
    code = [source(cell) for cell in cells if cell["cell_type"] == "code"]
    todo = [name for text in code for name in imported(ast.parse(text))]
    seen, found = set(), set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name.split(".")[0] == "helpers":
            path = ROOT / name.replace(".", "/")
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    todo += imported(ast.parse(file.read_text("utf-8")))
        elif name.split(".")[0] not in sys.stdlib_module_names:
            found.add(name.split(".")[0])
    packages = importlib.metadata.packages_distributions()
    # A namespace of many packages; what helpers use of it comes with gcsfs.
    names = {packages[name][0] for name in found - {"google"}}
    return {re.sub("[_.]", "-", name).lower() for name in names}


@pytest.mark.parametrize("place", ["colab.txt", "colab_tpu.txt"])
def test_what_the_notebooks_import_is_there_on_colab_or_installed(place):
    lines = re.findall(r"^[\w.-]+", (ROOT / "tests/repo" / place).read_text("utf-8"), re.MULTILINE)
    there = {re.sub("[_.]", "-", name).lower() for name in lines}
    assert needed() > {"tensorflow", "pandas", "platformdirs"}
    assert needed() - there - {*BOOTSTRAP, *ANY_VERSION} == set()
