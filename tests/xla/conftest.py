"""What the tests of Google's compiler share."""

import psutil
import pytest

from tpu_preflight import compiler

CHILD = f"{compiler.__name__}.child"


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Let a test ask the compiler itself, and leave the user's cache alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tensorflow-on-tpu" / "tpu-compiler"


@pytest.fixture
def children():
    """List the compiler's processes; see that none is left after the test."""

    def running():
        return [p for p in psutil.Process().children() if CHILD in p.cmdline()]

    yield running
    assert running() == []
