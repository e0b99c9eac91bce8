"""Before any test: the settings that TensorFlow reads while it is imported."""

import gc
import os
import signal
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from helpers.base.settings import ENVIRONMENT

os.environ.update(ENVIRONMENT)

# How much LLVM optimizes what XLA makes. Tests compile much and compute little: a BERT's step takes
# four fifths of the processor time at level 0 (2026-11). Notebooks whose outputs are compared train
# longer: three quarters at level 1. `make run` and `make browser` run them as a learner does.
LEVEL = "--xla_backend_optimization_level={}"
os.environ["XLA_FLAGS"] = LEVEL.format(0)

# Python looks for garbage less often, since each time it may look through all that is imported: a
# twentieth of a BERT's step.
gc.set_threshold(20_000, 10, 50)

# How long an example takes depends on what else the machine does: no test fails for that.
settings.register_profile("course", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("course")

# A shell ignores Ctrl-C for what it starts in the background, and so would every process that a
# test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The modules that took longest in 2026-11. They begin early, after the notebooks, so that the
# processes of `make test` end together.
LONGEST = {
    *("test_exercises", "test_pretraining", "test_running", "test_export", "test_model"),
    *("test_tpu_compiler", "test_runtime", "test_apart", "test_memory", "test_notebooks"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the order but for the longest."""
    items.sort(key=lambda item: item.path.suffix == ".py" and item.path.stem not in LONGEST)


class Cells:
    """How nbval runs cells: with kernels of its own level, and twice in a row where TWICE asks."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Set what the processes will be given that the item starts."""
        os.environ["XLA_FLAGS"] = LEVEL.format(int(item.path.suffix == ".ipynb"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Press Shift+Enter twice on cells of at most TWICE seconds: later ones print the same."""
        begun = time.monotonic()
        yield
        quick = time.monotonic() - begun < float(os.environ.get("TWICE", "0"))
        if item.path.suffix == ".ipynb" and quick:
            item.options["check"] = False
            item.runtest()


def pytest_configure(config: pytest.Config) -> None:
    """Notebooks aren't in this folder: what is to see them is registered."""
    config.pluginmanager.register(Cells())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores, as some tests wait; two at least, more where memory allows."""
    from course.processes import free_memory

    return max(2, min((os.cpu_count() or 1) + 1, int(free_memory() / 4e9)))


@pytest.fixture(scope="module")
def gs():
    """An embedded storage for a file of tests; a test can have a bucket of its own in it."""
    from helpers.tpu.storage import embedded_gcs

    with embedded_gcs() as running:
        yield running
