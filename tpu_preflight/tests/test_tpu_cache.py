"""The cache of the compiler's answers: hits, damage, room, several writers, no disk."""

import dataclasses
import gzip
import os
from unittest.mock import Mock

import programs
import pytest
from programs import product_program

from tpu_preflight import compiler, files, processes
from tpu_preflight.compiler import cache

pytestmark = [*programs.COMPILER, pytest.mark.long]


def test_the_second_answer_is_the_first_without_a_compiler(own_cache, monkeypatch):
    first = compiler.compile(product_program(32))
    monkeypatch.setattr(processes.subprocess, "Popen", None)
    second = compiler.compile(product_program(32))
    assert not first.cached
    assert second.cached
    assert dataclasses.replace(second, cached=False) == first
    assert len(list(own_cache.iterdir())) == 1


def test_a_damaged_entry_is_made_again_and_another_question_is_asked(own_cache, monkeypatch):
    program = product_program(32)
    first = compiler.compile(program)
    (entry,) = own_cache.iterdir()
    data = entry.read_bytes()
    edited = gzip.decompress(data).replace(b'"verdict": "compiles"', b'"verdict": "refused "')
    damaged_entries = {
        "cut off": data[:-5],
        "something else": gzip.compress(b'{"told": 1}\n'),
        "another verdict": gzip.compress(edited),
    }
    for damage, damaged in damaged_entries.items():
        entry.write_bytes(damaged)
        compiled = compiler.compile(program)
        assert not compiled.cached, damage
        assert (compiled.flops, compiled.verdict) == (first.flops, "compiles")
    assert compiler.compile(program).cached
    assert not compiler.compile(program, effort="full").cached
    assert not compiler.compile(program, "v3-8").cached
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_enable_async_collective_fusion=false")
    assert not compiler.compile(program).cached


def test_the_oldest_entries_make_room(own_cache, monkeypatch):
    monkeypatch.setattr(cache, "MOST_BYTES", 2500)
    answer = {"verdict": "compiles"}, os.urandom(900)
    # Entries named by their age: the first was used longest ago.
    for i in range(4):
        cache.write(f"{i:064}", answer)
        os.utime(own_cache / f"{i:064}", (i, i))
    assert sorted(int(path.name) for path in own_cache.iterdir()) == [2, 3]


def test_a_cache_that_cant_be_written_costs_the_memory_not_the_answer(own_cache, monkeypatch):
    monkeypatch.setattr(files.os, "fsync", Mock(side_effect=OSError(28, "No space left")))
    assert compiler.compile(product_program(8)).ok
    assert [*own_cache.iterdir()] == []
