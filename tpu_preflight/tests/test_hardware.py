"""The table of TPUs against what the course's sources and libtpu say."""

import math

import pytest
from tsv import table

from tpu_preflight.chips.hardware import CHIPS, UnknownAccelerator, slice_of


@pytest.mark.parametrize(
    ("name", "chips", "cores", "replicas", "hosts", "gib", "topology"), table("slices.tsv")
)
def test_a_slice_is_what_its_name_means(name, chips, cores, replicas, hosts, gib, topology):
    found = slice_of(name)
    counts = found.chips, found.cores, found.replicas, found.hosts
    assert counts == (int(chips), int(cores), int(replicas), int(hosts))
    assert (found.name, found.topology) == (name, topology)
    assert found.chip.hbm_gib_per_replica == int(gib)
    assert found.hbm_gib == int(gib) * found.replicas


def test_the_apis_name_of_v5e_is_understood():
    assert slice_of("v5litepod-8") == slice_of(" V5E-8\n") == slice_of("v5e-8")


def test_the_kinds_and_their_replicas():
    assert list(CHIPS) == ["v2", "v3", "v4", "v5e", "v5p", "v6e"]
    assert all(chip.replicas in (1, chip.cores) for chip in CHIPS.values())


def test_peak_of_v2_follows_from_its_matrix_units():
    # Jouppi et al. 2020: 2 cores with one 128 x 128 unit each, 700 MHz.
    assert CHIPS["v2"].bf16_tflops == pytest.approx(2 * 128 * 128 * 2 * 0.7e9 / 1e12, rel=0.03)


@pytest.mark.parametrize(
    "name", [f"{chip.name}-{size}" for chip in CHIPS.values() for size in chip.sizes]
)
def test_chips_fill_the_topology_and_the_hosts(name):
    found = slice_of(name)
    assert math.prod(map(int, found.topology.split(":")[1].split("x"))) == found.chips
    assert found.chips % found.hosts == 0
    assert found.chips // found.hosts in (1, 4, 8)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("v3-16", r"'v3-16' is no type[\s\S]*sizes 8, 32, 64"),
        ("v9-8", r"'v9-8'[\s\S]*kinds are v2, v3, v4, v5e, v5p, v6e"),
        ("", r"''[\s\S]*such as v3-8 or v5e-8"),
        ("tpu7x-8", "'tpu7x-8' does not run TensorFlow"),
        ("v3-8-8", "no type"),
        ("v5e-٨", "no type"),
        ("v3-" + "8" * 5000, "no type"),
    ],
)
def test_an_unknown_type_is_refused(name, told):
    with pytest.raises(UnknownAccelerator, match=told):
        slice_of(name)


def test_chip_and_slice_read_well():
    assert repr(CHIPS["v3"]) == (
        "TPU v3 chip: 123 TFLOP/s (bf16), 32 GiB at 900 GB/s, cores: 2, replicas: 2"
    )
    assert repr(slice_of("v4-8")) == (
        "v4-8: chips: 4, cores: 8, replicas: 4 with 32 GiB each, hosts: 1"
    )
