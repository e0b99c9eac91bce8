"""What the tests of the preflight share: a cache of their own, and a compiler that accepts all."""

import contextlib

import pytest
from small_models import answer

from helpers.xla import tpu_compiler


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def no_compiler(monkeypatch):
    """Most checks need no word of the TPU's compiler."""
    monkeypatch.setattr(tpu_compiler, "compile", answer("compiles", peak_bytes=1000))
    monkeypatch.setattr(tpu_compiler, "started", contextlib.nullcontext)
