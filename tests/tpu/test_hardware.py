"""The table of TPUs against what the course's sources and libtpu say."""

import math

import pytest

from helpers.tpu.hardware import CHIPS, UnknownAccelerator, slice_of


@pytest.mark.parametrize(
    ("name", "chips", "cores", "replicas", "hosts", "gib", "topology"),
    [
        # By hand from the pages named in the table; topologies as libtpu 0.0.51 accepts them.
        ("v2-8", 4, 8, 8, 1, 8, "v2:2x2"),
        ("v3-8", 4, 8, 8, 1, 16, "v3:2x2"),
        ("v3-32", 16, 32, 32, 4, 16, "v3:4x4"),
        ("v4-8", 4, 8, 4, 1, 32, "v4:2x2x1"),
        ("v4-16", 8, 16, 8, 2, 32, "v4:2x2x2"),
        ("v4-32", 16, 32, 16, 4, 32, "v4:2x2x4"),
        ("v4-64", 32, 64, 32, 8, 32, "v4:2x4x4"),
        ("v5e-1", 1, 1, 1, 1, 16, "v5e:1x1"),
        ("v5e-4", 4, 4, 4, 1, 16, "v5e:2x2"),
        ("v5e-8", 8, 8, 8, 1, 16, "v5e:2x4"),
        ("v5e-16", 16, 16, 16, 4, 16, "v5e:4x4"),
        ("v5e-256", 256, 256, 256, 64, 16, "v5e:16x16"),
        ("v5p-8", 4, 8, 4, 1, 95, "v5p:2x2x1"),
        ("v5p-128", 64, 128, 64, 16, 95, "v5p:4x4x4"),
        ("v6e-1", 1, 1, 1, 1, 32, "v6e:1x1"),
        ("v6e-4", 4, 4, 4, 1, 32, "v6e:2x2"),
        ("v6e-32", 32, 32, 32, 8, 32, "v6e:4x8"),
    ],
)
def test_a_slice_is_what_its_name_means(name, chips, cores, replicas, hosts, gib, topology):
    found = slice_of(name)
    assert (found.name, found.chips, found.cores, found.replicas) == (name, chips, cores, replicas)
    assert (found.hosts, found.topology) == (hosts, topology)
    assert found.chip.hbm_gib_per_replica == gib
    assert found.hbm_gib == gib * replicas


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
