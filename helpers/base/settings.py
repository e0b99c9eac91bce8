"""What the whole course shares: its folder, its environment variables, its locked versions."""

import contextlib
import importlib.metadata
import pathlib
import re

from helpers.base.errors import CourseError

# The course's folder, or what `helpers` is imported from where it alone was installed.
ROOT = pathlib.Path(__file__).resolve().parents[2]

# Read by TensorFlow, tf-keras and transformers while they are imported: too late afterwards.
ENVIRONMENT = {
    "TF_USE_LEGACY_KERAS": "1",  # transformers 4 is written for Keras 2, which is tf-keras today
    "TF_ENABLE_ONEDNN_OPTS": "0",  # oneDNN's rounding differs from one processor to the next
    # A step's memory stays for the next. Without it Linux clears it page by page at each step: some
    # 30 % of BERT-tiny's processor time (benchmarks/README.md, 2026-11).
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(2**24),  # none; 64 GB if unset, and a TPU's host has more
    # CVE-2026-2492: HDF5 in TensorFlow 2.20 loads plugins from a folder that others may write to.
    "HDF5_PLUGIN_PATH": "disable",
    "HDF5_PLUGIN_PRELOAD": "::",  # HDF5's own word for: none
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

# Any version of these will do, so a place keeps its own: records, buckets, checkpoints, profiles,
# notebook 10's baselines and other languages need them.
ANY_VERSION = (
    "babel",
    "cryptography",
    "filelock",
    "gcsfs",
    "google-crc32c",
    "platformdirs",
    "scikit-learn",
    "xprof",
)

# Google's TPU compiler, and what notebook 11 writes JAX with. On a machine with a TPU the libtpu of
# DRIVER stands in its place.
COMPILER = ("jax", "libtpu", "flax", "optax")

# The lowest libtpu that tensorflow-tpu 2.20.0 asks for. With a newer one it found no TPU on Kaggle
# (Kaggle/docker-python#1499, 2025-09). Not confirmed on a TPU by us.
DRIVER = "libtpu==0.0.14"


def locked_versions(lock: pathlib.Path = ROOT / "requirements.txt") -> dict[str, str]:
    """Read the version of each package with a single one from the lock, a requirements file.

    Raises `CourseError`: There is no lock.
    """
    if not lock.exists():
        raise CourseError(
            "It is not known which versions the course needs.",
            f"{lock.name} is not in {lock.parent}: only the helpers are installed.",
            "Clone the repository, and run the command in it.",
        )
    pins = re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", lock.read_text("utf-8"), re.MULTILINE)
    names = [name for name, _ in pins]
    return {name: version for name, version in pins if names.count(name) == 1}


def installed() -> dict[str, str]:
    """List the versions of the packages that the course needs, where installed."""
    versions = {}
    for name in (*BOOTSTRAP, *ANY_VERSION, "tensorflow-tpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _release(version: str) -> list[str]:
    return version.split(".")[:2]


def wrong_packages(installed: dict[str, str], locked: dict[str, str]) -> list[str]:
    """Compare what is installed with the lock (versions by name), by release (major.minor).

    Gives a line for each package of ``BOOTSTRAP`` or ``ANY_VERSION`` that is missing or of another
    release. ``tensorflow-tpu`` counts as ``tensorflow``.
    """
    problems = [f"{name} is missing" for name in ANY_VERSION if name not in installed]
    for name in BOOTSTRAP:
        version = installed.get(name, "missing")
        if name == "tensorflow":
            version = installed.get("tensorflow-tpu") or version
        if _release(version) != _release(locked[name]):
            problems.append(f"{name} is {version} (the course uses {locked[name]})")
    return problems


def install_commands(locked: dict[str, str], tpu: bool) -> list[list[str]]:
    """Say how pip brings a hosted notebook (Colab, Kaggle) to the locked versions.

    Gives the arguments for ``python -m pip``, one list per call, in order. Where a TPU is attached
    to this machine, ``tensorflow-tpu`` takes the place of ``tensorflow`` (Colab) or
    ``tensorflow-cpu`` (Kaggle): they share files and must not be installed together, so tf-keras,
    which asks for ``tensorflow``, comes without its dependencies. ``libtpu`` is the one that fits.
    """
    pins = {name: f"{name}=={locked[name]}" for name in BOOTSTRAP}
    pins |= {name: name for name in ANY_VERSION}
    if not tpu:
        pins |= {name: f"{name}=={locked[name]}" for name in COMPILER}
        return [["install", "-q", *pins.values()]]
    tf_keras = pins.pop("tf-keras")
    pins["tensorflow"] = f"tensorflow-tpu=={locked['tensorflow']}"
    return [
        ["uninstall", "-q", "-y", "tensorflow", "tensorflow-cpu"],
        ["install", "-q", *pins.values(), DRIVER],
        ["install", "-q", "--no-deps", tf_keras],
    ]
