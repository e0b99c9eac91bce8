"""The table of TPUs against what the course's sources and libtpu say."""

import math
import pathlib

import pytest

from tpu_preflight.chips.hardware import ALL_CHIPS, CHIPS, UnknownAccelerator, slice_of

LINES = pathlib.Path(__file__).with_name("slices.tsv").read_text("utf-8").splitlines()
HEAD, *SLICES = (line.split("\t") for line in LINES if not line.startswith("#"))


@pytest.mark.parametrize(HEAD, SLICES)
def test_a_slice_is_what_its_name_means(name, chips, cores, replicas, hosts, gib, topology):
    found = slice_of(name)
    counts = found.chips, found.chips * found.chip.cores, found.replicas, found.hosts
    assert counts == (int(chips), int(cores), int(replicas), int(hosts))
    assert (found.name, found.topology) == (name, topology)
    assert repr(found) == (
        f"{name}: chips: {chips}, cores: {cores}, replicas: {replicas} with {gib} GiB each, "
        f"hosts: {hosts}"
    )


@pytest.mark.parametrize(
    "name", [f"{chip.name}-{size}" for chip in ALL_CHIPS.values() for size in chip.sizes]
)
def test_chips_fill_the_topology_and_the_hosts(name):
    found = slice_of(name, jax=True)
    assert math.prod(map(int, found.topology.split(":")[1].split("x"))) == found.chips
    assert found.chips % found.hosts == 0


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("v3-16", r"'v3-16' is no type[\s\S]*sizes 8, 32, 64"),
        ("v9-8", rf"'v9-8'[\s\S]*kinds are {', '.join(CHIPS)} \(v5litepod is v5e\)"),
        ("", r"''[\s\S]*such as v3-8 or v5e-8"),
        ("tpu7x-8", r"'tpu7x-8' does not run TensorFlow\.[\s\S]*Take v6e or an older kind"),
        ("v3-" + "8" * 5000, "no type"),
    ],
)
def test_an_unknown_type_is_refused(name, told):
    with pytest.raises(UnknownAccelerator, match=told):
        slice_of(name)


def test_other_names_are_known():
    assert slice_of("v5litepod-8") == slice_of(" V5E-8\n") == slice_of("v5e-8")
