"""The kernel is prepared before TensorFlow is imported, or the learner is told why not."""

import ast
import importlib.metadata
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
from helpers.base import settings
from helpers.base.errors import CourseError
from helpers.base.settings import ANY_VERSION, BOOTSTRAP, COMPILER, DRIVER, ENVIRONMENT
from helpers.tpu.place import detect

pytestmark = pytest.mark.slow

LOCKED = {
    "tensorflow": "2.20.0",
    "tf-keras": "2.20.1",
    "transformers": "4.57.6",
    "datasets": "5.0.1",
    "tokenizers": "0.22.2",
    "numpy": "2.4.6",
    "jax": "0.10.2",
    "libtpu": "0.0.51",
    "flax": "0.12.8",
    "optax": "0.2.8",
}
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
assert all(os.environ[k] == v for k, v in ENVIRONMENT.items())
"""
    process = python(script)
    assert (process.returncode, process.stderr) == (0, "")
    line = r"Ready: TensorFlow 2\.20\.\d+, transformers 4\.57\.\d+, seed 7\.\n"
    assert re.fullmatch(line * 2, process.stdout)


def test_the_lock_is_read(tmp_path):
    lock = tmp_path / "requirements.txt"
    lock.write_text(
        "# a comment\n"
        "one==1.2.3 \\\n    --hash=sha256:00\n    # via two\n"
        "forked==1.0 ; python_version < '3.12' \\\n    --hash=sha256:00\n"
        "forked==2.0 ; python_version >= '3.12' \\\n    --hash=sha256:00\n"
    )
    assert settings.locked_versions(lock) == {"one": "1.2.3"}


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({"tensorflow": "2.20.7", "gcsfs": "2019.1"}, []),
        ({"tensorflow": None, "tensorflow-tpu": "2.20.0"}, []),
        ({"tensorflow": None}, ["tensorflow is missing (the course uses 2.20.0)"]),
        ({"transformers": "5.1.0"}, ["transformers is 5.1.0 (the course uses 4.57.6)"]),
        ({"tensorflow-tpu": "2.19.1"}, ["tensorflow is 2.19.1 (the course uses 2.20.0)"]),
        ({"gcsfs": None}, ["gcsfs is missing"]),
    ],
)
def test_wrong_packages_are_named(change, messages):
    installed = INSTALLED | change
    for name, version in change.items():
        if version is None:
            del installed[name]
    assert settings.wrong_packages(installed, LOCKED) == messages


def test_a_hosted_notebook_installs_every_package_and_the_two_tensorflow_wheels_never_meet():
    (command,) = settings.install_commands(LOCKED, tpu=False)
    pins = {f"{name}=={version}" for name, version in LOCKED.items()}
    assert set(command[2:]) == pins | set(ANY_VERSION)
    remove, install, keras = settings.install_commands(LOCKED, tpu=True)
    assert remove[0] == "uninstall"
    assert {"tensorflow", "tensorflow-cpu"} <= set(remove)
    assert "tensorflow-tpu==2.20.0" in install
    for package in install:
        assert not package.startswith(("tensorflow==", "tf-keras==", "jax"))
    drivers = [package for package in install + keras if package.startswith("libtpu")]
    assert drivers == [DRIVER]
    assert {"--no-deps", "tf-keras==2.20.1"} <= set(keras)


COLAB = "Runtime > Restart session"
KAGGLE = "Run > Restart & clear cell outputs"


@pytest.mark.parametrize(
    ("marks", "colab", "message"),
    [
        ({"COLAB_TPU_1VM": "1", "TPU_ACCELERATOR_TYPE": "v5e-1"}, True, COLAB),
        ({"COLAB_TPU_1VM": ""}, True, COLAB),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Interactive", "ISTPUVM": "1"}, False, KAGGLE),
        # Kaggle's image for CPUs is made from Colab's.
        ({"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, True, KAGGLE),
        ({}, False, r"transformers is 5\.1\.0[\s\S]*make lab"),
    ],
)
def test_a_hosted_place_gets_its_packages_and_any_other_is_told_the_command(
    monkeypatch, tmp_path, marks, colab, message
):
    calls = []
    monkeypatch.setattr(settings, "installed", lambda: {"transformers": "5.1.0"})
    monkeypatch.setattr(subprocess, "run", lambda command, check: calls.append(command))
    if colab:
        monkeypatch.setitem(sys.modules, "google.colab", object())
    for name, value in marks.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CourseError, match=message):
        runtime._check_packages(detect(marks, tmp_path))
    tpu = "1" in marks.values()
    expected = []
    if marks:
        for command in settings.install_commands(settings.locked_versions(), tpu):
            expected.append([sys.executable, "-m", "pip", *command])
    assert calls == expected


TOO_EARLY = "CourseError: TensorFlow is already imported, without TF_USE_LEGACY_KERAS=1"


@pytest.mark.long
@pytest.mark.parametrize(
    ("statement", "variables", "output"),
    [
        ("import tensorflow", ENVIRONMENT, "Ready: "),
        ("import sys; sys.modules['tensorflow'] = object()", {}, TOO_EARLY),
        ("runtime.setup(language='ko')", ENVIRONMENT, "준비됨: TensorFlow"),
    ],
    ids=["with its settings", "without", "in Korean"],
)
def test_in_a_notebook_setup_adds_explain(statement, variables, output):
    """Also where it fails because TensorFlow came first with other settings."""
    process = python(
        "from IPython.testing.globalipapp import start_ipython; shell = start_ipython()\n"
        f"from helpers import runtime; {statement}\ntry:\n    {SETUP}\n"
        "except Exception as error:\n    print(f'{type(error).__name__}: {error}')\n"
        "assert 'explain' in shell.magics_manager.magics['line']",
        **variables,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith(output)


@pytest.mark.long
def test_in_a_kernel_the_log_of_c_goes_to_the_terminal_and_pythons_own_stderr_stays(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # with it ipykernel captures no file descriptor
    contents = []
    with (tmp_path / "terminal").open("w") as terminal:
        manager, client = start_new_kernel(cwd=ROOT, stderr=terminal)
        try:
            for code in (
                "import os, sys; os.write(2, b'before the setup\\n')",
                SETUP,
                "_ = os.write(2, b'a line of C++\\n'); print('of Python', file=sys.stderr)",
            ):
                client.execute_interactive(
                    code,
                    timeout=120,
                    output_hook=lambda message: contents.append(message["content"]),
                )
            client.shutdown()
            manager.provisioner.process.wait(60)  # or it hangs at its end
        finally:
            manager.shutdown_kernel(now=True)
            client.stop_channels()
    stderr = ""
    for content in contents:
        if content.get("name") == "stderr":
            stderr += content["text"]
    assert stderr == "before the setup\nof Python\n"
    assert "a line of C++\n" in (tmp_path / "terminal").read_text("utf-8")


# Our packages, and where each is.
OURS = {"helpers": ROOT, "tpu_preflight": ROOT / "tpu_preflight/src"}


def plain(name: str) -> str:
    return re.sub("[_.]", "-", name).lower()


def imported(source: str) -> Iterator[str]:
    """Every module that a source names in an import, wherever the import stands."""
    for node in ast.walk(ast.parse(re.sub("(?m)^( *)[%!].*", r"\1pass", source))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def needed() -> set[str]:
    """Packages that the notebooks import, themselves or by way of helpers."""
    waiting = []
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, 4).cells:
            if cell.cell_type == "code":
                waiting += imported(cell.source)
    modules = set()
    while waiting:
        name = waiting.pop()
        root = OURS.get(name.split(".")[0])
        if root and name not in modules:
            path = root / name.replace(".", "/")
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    waiting += imported(file.read_text("utf-8"))
        modules.add(name)
    # Google's is a namespace of many packages, and what helpers use of it comes with gcsfs; who
    # runs prepare on Beam has it.
    others = {*sys.stdlib_module_names, *OURS, "google", "apache_beam"}
    packages = importlib.metadata.packages_distributions()
    names = {module.split(".")[0] for module in modules} - others
    return {plain(packages[name][0]) for name in names}


@pytest.mark.parametrize("place", ["colab.txt", "colab_tpu.txt", "kaggle.txt"])
def test_what_the_notebooks_import_is_there_or_installed(place):
    listed = (ROOT / "tests/repo" / place).read_text("utf-8")
    installed = {*BOOTSTRAP, *ANY_VERSION, *COMPILER}
    # What pip brings with them because they ask for it, without any extra; nbformat is there.
    for name in (*installed, "nbformat"):
        for requirement in importlib.metadata.requires(name) or ():
            if "extra ==" not in requirement:
                listed += f"\n{requirement}"
    present = {*map(plain, re.findall(r"^[\w.-]+", listed, re.MULTILINE))}
    assert "nbformat" in present
    assert needed() > {"tensorflow", "pandas", "platformdirs"}
    assert needed() - present - installed == set()
