"""A library's error is shown in the same words on every machine."""

import pytest

from helpers.base.messages import steady


@pytest.mark.parametrize(
    ("line", "steadied"),
    [
        ("can't read /home/ada/course/data/ko.txt now", "can't read ko.txt now"),
        ("in __inference_step_1234: no", "in __inference_step: no"),
        (
            "graph __inference_<lambda>_327[_XlaMustCompile=true,x=1] on",
            "graph __inference_<lambda> on",
        ),
        ("File __autograph_generated_filexyz12.py, line 3", "File autograph, line 3"),
        ("object at 0x7f01a2b3c4d5>", "object at 0x…>"),
        (
            "{{function_node __wrapped__GatherV2_device_/job:localhost/task:0/device:CPU:0}}"
            " indices[1] = 7 is not in [0, 6) [Op:GatherV2] name: ",
            "indices[1] = 7 is not in [0, 6)",
        ),
        ("op kernel compatible with node {{node U}}){{node U}}", "op kernel)"),
        ("Input 1 to {{node range}} is bad", "Input 1 to range is bad"),
        (
            "See https://example.org/guide/limits.md#top",
            "See https://example.org/guide/limits.md#top",
        ),
        (
            "Error in user-defined function passed to MapDataset:4 transformation with iterator: "
            "Iterator::Root::ParallelMapV2: assertion failed: [no]",
            "assertion failed: [no]",
        ),
        ("F1122 12:00:01.123456   98 file.cc:12] Check failed: x", "file.cc:12] Check failed: x"),
        ("a ratio of 3/4 and a/b/c stay", "a ratio of 3/4 and a/b/c stay"),
    ],
)
def test_steady_removes_what_changes_and_nothing_else(line, steadied):
    assert steady(line) == steadied
    assert steady(steadied) == steadied
