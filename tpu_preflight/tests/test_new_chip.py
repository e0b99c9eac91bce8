"""A new kind of TPU is a new entry of ``chips.toml``, and nothing else."""

import ast
import pathlib
import re

import pytest
import tensorflow as tf
from programs import ROOT
from small_models import LINUX, the

from tpu_preflight.checklist import preflight
from tpu_preflight.chips import hardware
from tpu_preflight.report import WARN

SOURCE = ROOT / "src" / "tpu_preflight"
TABLE = SOURCE / "chips" / "chips.toml"


@pytest.fixture
def with_v9x(tmp_path, monkeypatch):
    """The table with one kind more: a v5e with other numbers, for which libtpu has no name."""
    text = TABLE.read_text("utf-8")
    entry = re.search(r"^\[v5e\]\n(.*?)(?=^\[)", text, re.MULTILINE | re.DOTALL)[1]
    for old, new in {
        r"aliases = .*": 'aliases = ["v9lite"]\ncompiles_as = "v5e"',
        r"bf16_tflops = .*": "bf16_tflops = 1970",
        r"available_gib = .*": "available_gib = 0.05",
        r"sizes = .*": "sizes = [1, 2, 4]",
        r"pci = .*": 'pci = ["0x0099"]',
    }.items():
        entry, count = re.subn(f"^{old}$", new, entry, flags=re.MULTILINE)
        assert count == 1, old
    path = tmp_path / "chips.toml"
    path.write_text(f"{text}\n[v9x]\n{entry}", "utf-8")
    table = hardware.read(path)
    monkeypatch.setattr(hardware, "ALL_CHIPS", table)
    monkeypatch.setattr(hardware, "CHIPS", table)


def test_its_slices_are_known_by_all_its_names(with_v9x):
    found = hardware.slice_of("v9lite-4")
    assert (found.name, found.chips, found.chip.pci) == ("v9x-4", 4, ("0x0099",))
    with pytest.raises(hardware.UnknownAccelerator, match=r"A v9x comes in the sizes 1, 2, 4\."):
        hardware.slice_of("v9x-8")


@pytest.mark.long
@LINUX
def test_it_gets_a_whole_verdict(with_v9x):
    def product(x):
        return tf.tanh(x @ x)

    targets = ["v5e-1", "v9x-1"]
    report = preflight(product, (tf.TensorSpec([1024, 1024]),), targets, profile=True)
    assert report.status == "ready", report
    known, new = report.estimates
    assert known.compute_ms == pytest.approx(10 * new.compute_ms, rel=0.01)
    assert new.available_bytes == int(0.05 * 2**30) and new.flops == known.flops
    assert new.bound_ms <= report.timings[1].low_ms <= report.timings[1].high_ms

    large = the(preflight(product, (tf.TensorSpec([4096, 4096]),), "v9x-1"), 6)
    assert large.state == WARN and "of 51.2 MiB on each replica" in large.finding


def _kinds_named(path: pathlib.Path) -> list[str]:
    """The kinds of TPU that a file's code names: not docstrings, not examples such as v5e-8."""
    tree = ast.parse(path.read_text("utf-8"))
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in said)
    name = rf"(?<![\w-])(?:{'|'.join(hardware.ALL_CHIPS)})(?!\w|[-=]\d)"
    return [found for text in texts for found in re.findall(name, str(text.value))]


def test_no_other_file_names_a_kind():
    assert {p.name: _kinds_named(p) for p in SOURCE.rglob("*.py") if _kinds_named(p)} == {}
