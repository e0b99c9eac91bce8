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


# In the entry of a v5e, other lines for these fields.
V9X = {
    "aliases": 'aliases = ["v9lite"]\ncompiles_as = "v5e"',
    "bf16_tflops": "bf16_tflops = 1970",
    "available_gib": "available_gib = 0.05",
    "sizes": "sizes = [1, 2, 4]",
    "pci": 'pci = ["0x0099"]',
}


@pytest.fixture
def with_v9x(tmp_path, monkeypatch):
    """The table with one kind more: a v5e with other numbers, for which libtpu has no name."""
    text = TABLE.read_text("utf-8")
    entry = re.search(r"^\[v5e\]\n(.*?)(?=^\[)", text, re.MULTILINE | re.DOTALL)[1]
    for field, line in V9X.items():
        entry, count = re.subn(f"^{field} = .*$", line, entry, flags=re.MULTILINE)
        assert count == 1, field
    path = tmp_path / "chips.toml"
    path.write_text(f"{text}\n[v9x]\n{entry}", "utf-8")
    table = hardware.read(path)
    monkeypatch.setattr(hardware, "ALL_CHIPS", table)
    monkeypatch.setattr(hardware, "CHIPS", table)


def test_its_slices_are_known_by_all_its_names(with_v9x):
    slice_ = hardware.slice_of("v9lite-4")
    assert (slice_.name, slice_.chips, slice_.chip.pci) == ("v9x-4", 4, ("0x0099",))
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
    v5e, v9x = report.estimates
    assert v5e.compute_ms == pytest.approx(10 * v9x.compute_ms, rel=0.01)
    assert v9x.available_bytes == int(0.05 * 2**30)
    assert v9x.flops == v5e.flops
    _, timing = report.timings
    assert v9x.bound_ms <= timing.low_ms <= timing.high_ms

    item = the(preflight(product, (tf.TensorSpec([4096, 4096]),), "v9x-1"), 6)
    assert item.state == WARN
    assert "of 51.2 MiB on each replica" in item.finding


def kinds_named(path: pathlib.Path) -> list[str]:
    """List the kinds of TPU that a file names: not in docstrings, not in examples such as v5e-8."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    name = rf"(?<![\w-])(?:{'|'.join(hardware.ALL_CHIPS)})(?!\w|[-=]\d)"
    kinds = []
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            kinds += re.findall(name, str(node.value))
    return kinds


def test_no_other_file_names_a_kind():
    for path in SOURCE.rglob("*.py"):
        assert kinds_named(path) == [], path
