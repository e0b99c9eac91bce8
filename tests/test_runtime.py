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
from helpers.base import settings
from helpers.base.errors import CourseError
from helpers.base.settings import ANY_VERSION, BOOTSTRAP, COMPILER, DRIVER, ENVIRONMENT
from helpers.tpu.place import detect

pytestmark = pytest.mark.slow

LOCKED = {"tensorflow": "2.20.0", "tf-keras": "2.20.1", "transformers": "4.57.6"}
LOCKED |= {"datasets": "5.0.1", "tokenizers": "0.22.2", "numpy": "2.4.6"}
LOCKED |= {"jax": "0.10.2", "libtpu": "0.0.51", "flax": "0.12.8", "optax": "0.2.8"}
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
    )
    assert settings.locked_versions(lock) == {"one": "1.2.3"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tensorflow": "2.20.7", "gcsfs": "2019.1"}, []),
        ({"tensorflow": None, "tensorflow-tpu": "2.20.0"}, []),
        ({"tensorflow": None}, ["tensorflow is missing (the course uses 2.20.0)"]),
        ({"transformers": "5.1.0"}, ["transformers is 5.1.0 (the course uses 4.57.6)"]),
        ({"tensorflow-tpu": "2.19.1"}, ["tensorflow is 2.19.1 (the course uses 2.20.0)"]),
        ({"gcsfs": None}, ["gcsfs is missing"]),
    ],
)
def test_wrong_packages_are_named(change, told):
    installed = {k: v for k, v in (INSTALLED | change).items() if v is not None}
    assert settings.wrong_packages(installed, LOCKED) == told


def test_a_hosted_notebook_installs_every_package_and_the_two_tensorflow_wheels_never_meet():
    (command,) = settings.install_commands(LOCKED, tpu=False)
    pins = {f"{name}=={version}" for name, version in LOCKED.items()}
    assert set(command[2:]) == pins | set(ANY_VERSION)
    remove, install, keras = settings.install_commands(LOCKED, tpu=True)
    assert remove[0] == "uninstall" and {"tensorflow", "tensorflow-cpu"} <= set(remove)
    assert "tensorflow-tpu==2.20.0" in install
    assert not any(p.startswith(("tensorflow==", "tf-keras==", "jax")) for p in install)
    assert [p for p in install + keras if p.startswith("libtpu")] == [DRIVER]
    assert {"--no-deps", "tf-keras==2.20.1"} <= set(keras)


COLAB, KAGGLE = "Runtime > Restart session", "Run > Restart & clear cell outputs"


@pytest.mark.parametrize(
    ("marks", "colab", "told"),
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
    monkeypatch, tmp_path, marks, colab, told
):
    calls = []
    monkeypatch.setattr(settings, "installed", lambda: {"transformers": "5.1.0"})
    monkeypatch.setattr(subprocess, "run", lambda command, check: calls.append(command))
    if colab:
        monkeypatch.setitem(sys.modules, "google.colab", object())
    for name, value in marks.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CourseError, match=told):
        runtime._check_packages(detect(marks, tmp_path))
    tpu = "1" in marks.values()
    expected = settings.install_commands(settings.locked_versions(), tpu) if marks else []
    assert calls == [[sys.executable, "-m", "pip", *command] for command in expected]


TOO_EARLY = "CourseError: TensorFlow is already imported, without TF_USE_LEGACY_KERAS=1"


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "variables", "said"),
    [
        ("import tensorflow", ENVIRONMENT, "Ready: "),
        ("import sys; sys.modules['tensorflow'] = object()", {}, TOO_EARLY),
        ("runtime.setup(language='ko')", ENVIRONMENT, "준비됨: TensorFlow"),
    ],
    ids=["with its settings", "without", "in Korean"],
)
def test_in_a_notebook_setup_adds_explain(first, variables, said):
    """Also where it fails because TensorFlow came first with other settings."""
    done = python(
        "from IPython.testing.globalipapp import start_ipython; shell = start_ipython()\n"
        f"from helpers import runtime; {first}\ntry:\n    {SETUP}\n"
        "except Exception as error:\n    print(f'{type(error).__name__}: {error}')\n"
        "assert 'explain' in shell.magics_manager.magics['line']",
        **variables,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said)


@pytest.mark.long
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


OURS = {"helpers": ROOT, "tpu_preflight": ROOT / "tpu_preflight/src"}  # and where they lie


def plain(name: str) -> str:
    return re.sub("[_.]", "-", name).lower()


def imported(source: str) -> Iterator[str]:
    """Every module that a source names in an import, wherever the import stands."""
    for node in ast.walk(ast.parse(re.sub("(?m)^( *)[%!].*", r"\1pass", source))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def needed() -> set[str]:
    """Packages that the notebooks import, themselves or by way of helpers."""
    cells = [cell for path in NOTEBOOKS for cell in nbformat.read(path, 4).cells]
    todo = [*imported("\n".join(cell.source for cell in cells if cell.cell_type == "code"))]
    seen = set()
    while todo:
        name = todo.pop()
        if name not in seen and (root := OURS.get(name.split(".")[0])):
            path = root / name.replace(".", "/")
            files = filter(pathlib.Path.is_file, (path.with_suffix(".py"), path / "__init__.py"))
            todo += [x for file in files for x in imported(file.read_text("utf-8"))]
        seen.add(name)
    # Google's is a namespace of many packages, and what helpers use of it comes with gcsfs; who
    # runs prepare on Beam has it.
    known = {*sys.stdlib_module_names, *OURS, "google", "apache_beam"}
    packages = importlib.metadata.packages_distributions()
    return {plain(packages[name][0]) for name in {x.split(".")[0] for x in seen} - known}


@pytest.mark.parametrize("place", ["colab.txt", "colab_tpu.txt", "kaggle.txt"])
def test_what_the_notebooks_import_is_there_or_installed(place):
    listed = (ROOT / "tests/repo" / place).read_text("utf-8")
    asked = {*BOOTSTRAP, *ANY_VERSION, *COMPILER}
    # What pip brings with them because they ask for it, without any extra.
    lines = [x for name in asked for x in importlib.metadata.requires(name) or ()]
    listed += "\n".join(["", *(line for line in lines if "extra ==" not in line)])
    there = {*map(plain, re.findall(r"^[\w.-]+", listed, re.MULTILINE))}
    assert needed() > {"tensorflow", "pandas", "platformdirs"}
    assert needed() - there - asked == set()
