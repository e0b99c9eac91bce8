"""Before TensorFlow is imported: the right packages, environment variables and seeds."""

import atexit
import contextlib
import importlib.metadata
import io
import os
import subprocess
import sys

from helpers.base import language as languages
from helpers.base import settings
from helpers.base.errors import CourseError
from helpers.display import explain
from helpers.tpu.connection import connect, tensorflow_environment
from helpers.tpu.place import Place, detect
from tpu_preflight import text

__all__ = ["connect", "detect", "setup"]


def _check_packages(place: Place) -> None:
    locked = settings.locked_versions()
    problems = settings.wrong_packages(settings.installed(), locked)
    if not problems:
        return
    if os.environ.get("KAGGLE_KERNEL_RUN_TYPE"):
        restart = "Run > Restart & clear cell outputs"
    elif "google.colab" in sys.modules:  # its kernel imports it as it starts
        restart = "Runtime > Restart session"
    else:  # a machine of the learner's own
        raise CourseError(
            f"{'; '.join(problems)}.",
            "The notebooks' outputs were checked with the versions in requirements.txt only.",
            "Start the notebook with `make lab`, or choose the kernel of the .venv it made.",
        )
    # On Colab and Kaggle the kernel is the place's own: the lock is installed into it.
    for arguments in settings.install_commands(locked, tpu=place.tpu == "local"):
        subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)
    raise CourseError(
        "The course's packages are installed now.",
        "This kernel started with other versions, and Python can't replace them while it runs.",
        f"Choose {restart}, then run this cell again: it will pass.",
    )


def _send_native_log_to_the_terminal() -> None:
    """Let what C++ writes to stderr go where Jupyter was started, not below the cells.

    TensorFlow's C++ logs an expected error in dozens of lines, whatever TF_CPP_MIN_LOG_LEVEL says.
    Python's own stderr and every exception stay in the notebook.
    """
    with contextlib.suppress(io.UnsupportedOperation):  # run by papermill or nbval: not captured
        terminal = sys.stderr.fileno()
        # At its end ipykernel waits for a last byte that comes through its own pipe.
        atexit.register(os.dup2, os.dup(2), 2)
        os.dup2(terminal, 2)


def setup(seed: int = 0, language: str | None = None) -> None:
    """Prepare this kernel: check the packages, set the environment, import TensorFlow, set seeds.

    In a notebook it also adds ``%explain``, for the cell after one that failed. Call it once,
    first. It prints the versions in use, one line.

    Args:
        seed: For Python's, NumPy's and TensorFlow's global generators.
        language: Of the messages, such as ``ko``; None is what folder or environment say.

    Raises `CourseError`: TensorFlow is already imported, with other settings; a needed package is
    missing or of another release than the lock; or, on Colab and Kaggle, the packages were
    installed just now, and the kernel must be restarted.
    """
    if language:
        os.environ[languages.CHOSEN] = language
    text.translator = lambda: languages.translated  # also where the course is not installed
    shell = None
    if "IPython" in sys.modules:
        shell = sys.modules["IPython"].get_ipython()
    if shell:
        # First, so that %explain also knows what fails below.
        explain.load_ipython_extension(shell)
    place = detect()
    variables = settings.ENVIRONMENT | tensorflow_environment(place)
    for name, value in variables.items():
        if "tensorflow" in sys.modules and os.environ.get(name) != value:
            raise CourseError(
                f"TensorFlow is already imported, without {name}={value}.",
                "It reads its settings once, while it is imported.",
                "Restart the kernel and run the setup cell before any other.",
            )
    _check_packages(place)
    os.environ.update(variables)
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.keras.utils.set_random_seed(seed)
    if shell:
        _send_native_log_to_the_terminal()
    transformers = importlib.metadata.version("transformers")
    ready = f"Ready: TensorFlow {tf.__version__}, transformers {transformers}, seed {seed}."
    print(languages.translated(ready))  # noqa: T201
