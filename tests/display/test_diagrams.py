"""The diagrams say in words what they show, and draw as many chips as there are."""

import pytest
from matplotlib.axes import Axes

from helpers.display import diagrams
from helpers.tpu.hardware import UnknownAccelerator, slice_of


@pytest.fixture
def boxes(monkeypatch):
    drawn = []
    add = Axes.add_patch

    def count(self, patch):
        drawn.append(patch)
        return add(self, patch)

    monkeypatch.setattr(Axes, "add_patch", count)
    return drawn


@pytest.mark.parametrize("name", ["v2-8", "v3-8", "v3-32", "v4-8", "v5e-1", "v5e-8", "v6e-4"])
def test_a_slice_has_its_hosts_chips_and_replicas(boxes, name):
    tpu = slice_of(name)
    drawn = diagrams.slices(name)
    assert len(boxes) == tpu.hosts + tpu.chips + tpu.replicas
    numbers = [int(word) for word in drawn.alt.split(" has ")[1].replace(".", "").split()[::2]]
    assert numbers == [tpu.hosts, tpu.chips, tpu.replicas]


def test_one_is_said_without_a_plural():
    assert diagrams.slices("v5e-1").alt.endswith("v5e-1 has 1 host, 1 chip, 1 replica.")
    assert diagrams.slices("v3-8").alt.endswith("v3-8 has 1 host, 4 chips, 8 replicas.")


def test_a_type_that_does_not_exist_is_refused():
    with pytest.raises(UnknownAccelerator):
        diagrams.slices("v9-8")


def test_node_and_vm():
    drawn = diagrams.node_and_vm()
    assert "not your disk" in drawn.alt and drawn.png.startswith(b"\x89PNG")


def test_node_traffic():
    drawn = diagrams.node_traffic()
    assert "your Python don't" in drawn.alt and drawn.png.startswith(b"\x89PNG")


def test_the_map_has_the_notebooks_that_there_are():
    drawn = diagrams.course_map({"00": "Where am I?", "07": "How do I train?"})
    assert drawn.alt == "The course in five parts. 00: Where am I? 07: How do I train?"


def test_each_part_of_the_map_is_named_once(monkeypatch):
    said = []
    monkeypatch.setattr(Axes, "text", lambda self, x, y, text, **options: said.append(text))
    diagrams.course_map({"01": "a?", "02": "b?", "08": "c?"})
    assert said == ["Understand", "01", "a?", "", "02", "b?", "Check", "08", "c?"]


def test_the_map_has_a_place_for_every_notebook():
    numbers = [number for _, part in diagrams.PARTS for number in part]
    assert sorted(numbers) == [f"0{n}" for n in range(9)]
