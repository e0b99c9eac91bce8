"""Before TensorFlow is imported: the right packages, environment variables and seeds."""

import atexit
import contextlib
import importlib.metadata
import io
import os
import pathlib
import re
import subprocess
import sys

from helpers import explain, progress
from helpers.connection import connect, tensorflow_environment
from helpers.errors import CourseError
from helpers.place import detect

__all__ = ["connect", "detect", "setup"]

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Read by TensorFlow, tf-keras and transformers while they are imported: too late afterwards.
ENVIRONMENT = {
    "TF_USE_LEGACY_KERAS": "1",  # transformers 4 is written for Keras 2, which is tf-keras today
    "TF_ENABLE_ONEDNN_OPTS": "0",  # oneDNN's rounding differs from one processor to the next
    "TF_CPP_MIN_LOG_LEVEL": "3",  # C++ log lines carry times and addresses; errors still raise
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",  # a bar's output differs at each run
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # asks Google about each bucket, for minutes
}

# The direct dependencies that a notebook imports. The others belong to the place where it runs
# (Colab brings its own JupyterLab and widgets) and are left as they are there.
BOOTSTRAP = ("tensorflow", "tf-keras", "transformers", "datasets", "tokenizers", "numpy")

# Of these any version will do, so a place's own is left alone: records and buckets need them, and
# the map of the course is read by the module that runs it.
ANY_VERSION = ("cryptography", "gcsfs", "google-crc32c", "papermill")

# Google's TPU compiler, for notebooks 01, 02 and 08. A machine with a TPU has a libtpu of its own.
COMPILER = ("jax", "libtpu")


class WrongPackages(CourseError):
    """A package that the notebooks need is missing or of another version than the lock."""


class RestartNeeded(CourseError):
    """Packages were installed; the running kernel still holds the old ones."""


class ImportedTooEarly(CourseError):
    """TensorFlow was imported before its settings were made."""


def locked_versions(lock: pathlib.Path = ROOT / "requirements.txt") -> dict[str, str]:
    """Read the lock.

    Args:
        lock: A requirements file with exact versions.

    Returns:
        Version by package name, for every package with a single locked version.
    """
    pins = re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", lock.read_text("utf-8"), re.MULTILINE)
    names = [name for name, _ in pins]
    return {name: version for name, version in pins if names.count(name) == 1}


def wrong_packages(installed: dict[str, str], locked: dict[str, str]) -> list[str]:
    """Compare what is installed with the lock, by release (major.minor).

    Args:
        installed: Version by package name.
        locked: Version by package name, at least for all of ``BOOTSTRAP``.

    Returns:
        One line for each package of ``BOOTSTRAP`` that is missing or of another release, and of
        ``ANY_VERSION`` that is missing. ``tensorflow-tpu`` counts as ``tensorflow``: it is the
        same library for another device.
    """
    wrong = [f"{name} is missing" for name in ANY_VERSION if name not in installed]
    for name in BOOTSTRAP:
        found = installed.get(name)
        if name == "tensorflow":
            found = installed.get("tensorflow-tpu", found)
        if found is None:
            wrong.append(f"{name} is missing (the course uses {locked[name]})")
        elif found.split(".")[:2] != locked[name].split(".")[:2]:
            wrong.append(f"{name} is {found} (the course uses {locked[name]})")
    return wrong


def install_commands(locked: dict[str, str], tpu: bool) -> list[list[str]]:
    """Say how pip brings a hosted notebook (Colab, Kaggle) to the locked versions.

    Args:
        locked: Version by package name.
        tpu: Whether a TPU is attached to this machine. Then ``tensorflow-tpu`` takes the place of
            ``tensorflow``: the two share files and must not be installed together, so tf-keras,
            which asks for ``tensorflow``, comes without its dependencies.

    Returns:
        Arguments for ``python -m pip``, one list per call, in order.
    """
    pins = {name: f"{name}=={locked[name]}" for name in BOOTSTRAP}
    pins |= {name: name for name in ANY_VERSION}
    if not tpu:
        pins |= {name: f"{name}=={locked[name]}" for name in COMPILER}
        return [["install", "-q", *pins.values()]]
    tf_keras = pins.pop("tf-keras")
    pins["tensorflow"] = f"tensorflow-tpu=={locked['tensorflow']}"
    return [
        ["uninstall", "-q", "-y", "tensorflow"],
        ["install", "-q", *pins.values()],
        ["install", "-q", "--no-deps", tf_keras],
    ]


def _installed() -> dict[str, str]:
    found = {}
    for name in (*BOOTSTRAP, *ANY_VERSION, "tensorflow-tpu"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _check_packages() -> None:
    locked = locked_versions()
    wrong = wrong_packages(_installed(), locked)
    if not wrong:
        return
    if "google.colab" not in sys.modules:  # Colab's kernel imports it as it starts
        raise WrongPackages(
            f"{'; '.join(wrong)}.",
            "The notebooks' outputs were checked with the versions in requirements.txt only.",
            "Start the notebook with `make lab`, or choose the kernel of the .venv it made.",
        )
    for arguments in install_commands(locked, tpu=bool(os.environ.get("TPU_ACCELERATOR_TYPE"))):
        subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)
    raise RestartNeeded(
        "The course's packages are installed now.",
        "This kernel started with other versions, and Python can't exchange them while it runs.",
        "Choose Runtime > Restart session, then run this cell again: it will pass.",
    )


def _send_native_log_to_the_terminal() -> None:
    """Let what C++ writes to stderr go where Jupyter was started, not below the cells.

    TensorFlow's C++ logs an expected error in dozens of lines, whatever TF_CPP_MIN_LOG_LEVEL says,
    and ipykernel shows on red ground what it finds on file descriptor 2. Python's own stderr and
    every exception stay in the notebook.
    """
    with contextlib.suppress(io.UnsupportedOperation):  # run by papermill or nbval: not captured
        terminal = sys.stderr.fileno()
        # At its end ipykernel waits for a last byte that comes through its own pipe.
        atexit.register(os.dup2, os.dup(2), 2)
        os.dup2(terminal, 2)


def setup(seed: int = 0) -> None:
    """Prepare this kernel: check the packages, set the environment, import TensorFlow, set seeds.

    In a notebook it also adds ``%explain``, for the cell after one that failed, and lets
    ``helpers.progress`` see what is done.

    Call it once, first. Prints the versions in use, one line.

    Args:
        seed: For Python's, NumPy's and TensorFlow's global generators.

    Raises:
        WrongPackages: A needed package is missing or of another release than the lock.
        RestartNeeded: On Colab, after the packages were installed.
        ImportedTooEarly: TensorFlow is already imported and its settings differ.
    """
    settings = ENVIRONMENT | tensorflow_environment(detect())
    late = [name for name, value in settings.items() if os.environ.get(name) != value]
    if late and "tensorflow" in sys.modules:
        raise ImportedTooEarly(
            f"TensorFlow is already imported, without {late[0]}={settings[late[0]]}.",
            "It reads its settings once, while it is imported.",
            "Restart the kernel and run the setup cell before any other.",
        )
    _check_packages()
    os.environ.update(settings)
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.keras.utils.set_random_seed(seed)
    if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()):
        explain.load_ipython_extension(shell)
        progress.follow(shell)
        _send_native_log_to_the_terminal()
    transformers = importlib.metadata.version("transformers")
    print(f"Ready: TensorFlow {tf.__version__}, transformers {transformers}, seed {seed}.")  # noqa: T201
