"""What the tests of the preflight share: settings, a cache of their own, an obedient compiler."""

import contextlib
import os

import psutil
import pytest
from hypothesis import HealthCheck, settings

# Before TensorFlow is imported: it reads them once. LLVM optimises nothing: tests compile much and
# compute little.
os.environ |= {
    "TF_USE_LEGACY_KERAS": "1",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
}

# How long an example takes depends on what else the machine does: no test fails for that.
settings.register_profile("preflight", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("preflight")


@pytest.fixture(autouse=True)
def shared_cache(tmp_path_factory, monkeypatch):
    """Leave the user's cache alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Let a test ask the compiler itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tpu-preflight"


@pytest.fixture
def no_compiler(monkeypatch):
    """Most checks need no word of the TPU's compiler."""
    from small_models import answer

    from tpu_preflight import compiler

    monkeypatch.setattr(compiler, "compile", answer("compiles", peak_bytes=1000))
    monkeypatch.setattr(compiler, "started", contextlib.nullcontext)


@pytest.fixture
def children():
    """List the compiler's processes; see that none is left after the test."""

    def running():
        processes = psutil.Process().children()
        return [p for p in processes if "tpu_preflight.compiler.server" in p.cmdline()]

    yield running
    assert running() == []
