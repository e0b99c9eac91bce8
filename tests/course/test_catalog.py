"""The map of the course is read from files."""

import pytest
from made_notebooks import write

from course import catalog
from helpers.base.errors import CourseError


def test_the_map_is_in_order_and_notebooks_are_chosen_by_number_or_name(tmp_path):
    write(tmp_path, "07_later", "1")
    write(tmp_path, "02_first", "1")
    (tmp_path / "notes.ipynb").write_text("not of the course")
    notebooks = catalog.notebooks(tmp_path)
    assert [notebook.name for notebook in notebooks] == ["02_first", "07_later"]
    assert [notebook.number for notebook in notebooks] == ["02", "07"]
    assert notebooks[0].title == "Is 02_first a question?"
    for words in ([], ["7", "02"], ["07_later", "notebooks/02_first.ipynb", "2"]):
        assert catalog.choose(words, notebooks) == notebooks
    assert catalog.choose(["07_later", "7"], notebooks) == notebooks[1:]


DAMAGED = [b"", b'{"cells": [', b"\xff\xfe", b"[]", b"{}", b'{"cells": []}']
DAMAGED += [b'{"cells": [{"source": "# Of no form"}]}']


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_notebook_is_told(tmp_path, content):
    (tmp_path / "02_b.ipynb").write_bytes(content)
    with pytest.raises(CourseError, match=r"02_b\.ipynb can't be used(?s:.)*git restore"):
        catalog.notebooks(tmp_path)


def test_an_edition_has_folders_of_its_own():
    assert catalog.edition(None) == catalog.edition("en") == (catalog.NOTEBOOKS, catalog.BUILD)
    assert catalog.edition("ko") == (catalog.NOTEBOOKS / "ko", catalog.BUILD / "ko")
