"""The table of TPUs against what the course's sources and libtpu say."""

import math
import pathlib

import pytest

from tpu_preflight.chips.hardware import ALL_CHIPS, CHIPS, UnknownAccelerator, slice_of

LINES = pathlib.Path(__file__).with_name("slices.tsv").read_text("utf-8").splitlines()
TABLE = [line.split("\t") for line in LINES if not line.startswith("#")]
HEAD, *SLICES = TABLE

# Every accelerator type of every kind.
NAMES = []
for kind in ALL_CHIPS.values():
    for size in kind.sizes:
        NAMES.append(f"{kind.name}-{size}")


@pytest.mark.parametrize(HEAD, SLICES)
def test_a_slice_is_what_its_name_means(name, chips, cores, replicas, hosts, gib, topology):
    slice_ = slice_of(name)
    assert (slice_.name, slice_.topology) == (name, topology)
    assert slice_.chips == int(chips)
    assert slice_.chips * slice_.chip.cores == int(cores)
    assert (slice_.replicas, slice_.hosts) == (int(replicas), int(hosts))
    assert repr(slice_) == (
        f"{name}: chips: {chips}, cores: {cores}, replicas: {replicas} with {gib} GiB each, "
        f"hosts: {hosts}"
    )


@pytest.mark.parametrize("name", NAMES)
def test_chips_fill_the_topology_and_the_hosts(name):
    slice_ = slice_of(name, jax=True)
    _, _, arrangement = slice_.topology.partition(":")
    assert math.prod(map(int, arrangement.split("x"))) == slice_.chips
    assert slice_.chips % slice_.hosts == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v3-16", r"'v3-16' is no type[\s\S]*sizes 8, 32, 64"),
        ("v9-8", rf"'v9-8'[\s\S]*kinds are {', '.join(CHIPS)} \(v5litepod is v5e\)"),
        ("", r"''[\s\S]*such as v3-8 or v5e-8"),
        ("tpu7x-8", r"'tpu7x-8' does not run TensorFlow\.[\s\S]*Take v6e or an older kind"),
        ("v3-" + "8" * 5000, "no type"),
    ],
)
def test_an_unknown_type_is_refused(name, message):
    with pytest.raises(UnknownAccelerator, match=message):
        slice_of(name)


def test_other_names_are_known():
    assert slice_of("v5litepod-8") == slice_of(" V5E-8\n") == slice_of("v5e-8")
