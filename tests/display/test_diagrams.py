"""The diagrams say in words what they show, and draw as many chips as there are."""

import re

import pytest
from matplotlib.axes import Axes

from helpers.base.settings import ROOT
from helpers.display import diagrams, replicas
from tpu_preflight.chips.hardware import UnknownAccelerator, slice_of


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
    assert re.findall(r" (\d+) ", drawn.alt) == [f"{tpu.hosts}", f"{tpu.chips}", f"{tpu.replicas}"]
    one = {"v5e-1": "1 host, 1 chip, 1 replica.", "v3-8": "1 host, 4 chips, 8 replicas."}
    assert one.get(name, "") in drawn.alt


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (diagrams.node_and_vm, "not your disk"),
        (diagrams.host_and_device, "your Python don't"),
        (replicas.scope, "a copy on every replica"),
        (replicas.all_reduce, "28 and 22"),
        (replicas.preemption, "ten steps (hatched) are run twice"),
        (lambda: replicas.resuming(20, 800), "after step 20."),
    ],
)
def test_machines_and_replicas_are_drawn_and_said_in_words(boxes, draw, words):
    drawn = draw()
    assert boxes and words in drawn.alt and drawn.png.startswith(b"\x89PNG")


@pytest.mark.parametrize(("values", "kept"), [([3, -1, 3, 2], 3), ([-1, 0], 0), ([5.5], 1)])
def test_a_bounded_shape_has_room_for_all_and_the_alt_text_says_how_many_count(boxes, values, kept):
    drawn = diagrams.bounded_shape(values)
    assert len(boxes) == 3 * len(values) + kept
    assert sum(bool(box.get_hatch()) for box in boxes) == len(values) - kept
    assert f"counts {kept} positive" in drawn.alt and f"room for {len(values)} (" in drawn.alt


def test_the_map_has_the_notebooks_that_there_are_each_beside_its_question(monkeypatch):
    said = {}
    monkeypatch.setattr(
        Axes, "text", lambda self, x, y, text, **_: said.setdefault(int(y), {}).setdefault(x, text)
    )
    drawn = diagrams.course_map({"01": "a?", "02": "b?", "08": "c?"})
    lines = [" ".join(text for _, text in sorted(said[y].items())) for y in sorted(said)[::-1]]
    assert lines == ["Understand 01 a?", " 02 b?", "Check 08 c?"]
    assert drawn.alt == "The course in six parts. 01: a? 02: b? 08: c?"


def test_every_notebook_belongs_to_a_part_and_an_unknown_type_is_refused():
    with pytest.raises(UnknownAccelerator, match="v9-8"):
        diagrams.slices("v9-8")
    numbers = [number for _, part in diagrams.PARTS for number in part]
    notebooks = (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")
    assert sorted(numbers) == sorted(path.name[:2] for path in notebooks)
