"""The map of the course is read from files, and parameters by the type of their default."""

import pytest
from made_notebooks import write

from helpers.base.errors import CourseError
from helpers.course import map as course


def test_the_map_is_in_order_and_notebooks_are_chosen_by_number_or_name(tmp_path):
    write(tmp_path, "07_later", "1")
    write(tmp_path, "02_first", "1", parameters="steps = 3\nrate: float = 0.1")
    (tmp_path / "notes.ipynb").write_text("not of the course")
    known = course.notebooks(tmp_path)
    assert [(n.name, n.number) for n in known] == [("02_first", "02"), ("07_later", "07")]
    assert known[0].title == "Is 02_first a question?"
    assert known[0].parameters == {"steps": 3, "rate": 0.1}
    first, later = known
    for wanted in ([], ["7", "02"], ["07_later", "notebooks/02_first.ipynb", "2"]):
        assert course.choose(wanted, known) == [first, later]
    assert course.choose(["07_later", "7"], known) == [later]


COMPUTED = b'{"cells": [{"source": "# T\\na = f(1)", "metadata": {"tags": ["parameters"]}}]}'
DAMAGED = [b"", b'{"cells": [', b"\xff\xfe", b"[]", b"{}", b'{"cells": []}', COMPUTED]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_notebook_is_told(tmp_path, content):
    (tmp_path / "02_b.ipynb").write_bytes(content)
    with pytest.raises(CourseError, match=r"02_b\.ipynb can't be run(?s:.)*git restore"):
        course.notebooks(tmp_path)


def test_missing_notebooks_are_told(tmp_path):
    with pytest.raises(CourseError, match="There are no notebooks"):
        course.notebooks(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        *(("3", "50", 50), ("3", "-1", -1), ("0.1", "1e-4", 1e-4), ("0.1", "2", 2.0)),
        *(("'a'", "word", "word"), ("'a'", "2", "2"), ("'a'", "'2'", "'2'"), ("'a'", "", "")),
        *(("False", "True", True), ("[1]", "[2, 3]", [2, 3])),
    ],
)
def test_values_are_read_by_the_type_of_the_default(tmp_path, default, text, value):
    write(tmp_path, "02_b", "1", parameters=f"x = {default}")
    read = course.values([("x", text)], course.notebooks(tmp_path))["02_b"]["x"]
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("default", "text"),
    [("3", "abc"), ("3", "1.5"), ("3", "True"), ("True", "1"), ("True", "yes"), ("0.1", "big")],
)
def test_a_value_of_the_wrong_type_is_told(tmp_path, default, text):
    write(tmp_path, "02_b", "1", parameters=f"x = {default}")
    with pytest.raises(CourseError, match=rf"(?s)x can't be.*02_b.*default {default}"):
        course.values([("x", text)], course.notebooks(tmp_path))


def test_a_parameter_goes_to_the_notebooks_that_have_it(tmp_path):
    write(tmp_path, "02_b", "1", parameters="steps = 1\nonly = 'a'")
    write(tmp_path, "07_c", "1", parameters="steps = 2.5")
    write(tmp_path, "08_d", "1")
    known = course.notebooks(tmp_path)
    assert course.values([("steps", "4"), ("only", "b")], known) == {
        "02_b": {"steps": 4, "only": "b"},
        "07_c": {"steps": 4.0},
        "08_d": {},
    }
    message = "(?s)parameter 'stpes'.*02_b has steps, only; 07_c has steps; 08_d has none"
    with pytest.raises(CourseError, match=message):
        course.values([("stpes", "4")], known)


def test_an_edition_has_folders_of_its_own_and_another_is_refused():
    assert course.edition(None) == course.edition("en") == (course.NOTEBOOKS, course.BUILD)
    folder, build = course.edition("ko")
    assert (folder, build) == (course.NOTEBOOKS / "ko", course.BUILD / "ko")
    with pytest.raises(CourseError, match=r"There is no edition in 'de'(?s:.)*: ko\."):
        course.edition("de")
