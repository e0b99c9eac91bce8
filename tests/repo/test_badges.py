"""`make badges REPO=owner/name` carries the public address everywhere."""

import shutil

import pytest
from conventions import NOTEBOOKS, ROOT, repository

from helpers.base.errors import CourseError
from helpers.course.upkeep import set_repository


@pytest.fixture
def course(tmp_path):
    (tmp_path / "notebooks").mkdir()
    pages = ("README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml")
    texts = (ROOT / "notebooks").glob("[TW]E*.md")
    for path in (*map(ROOT.joinpath, pages), *NOTEBOOKS, *texts):
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    return tmp_path


def texts(course):
    return {p: p.read_text("utf-8") for p in course.rglob("*") if p.is_file()}


def test_the_address_is_exchanged_everywhere_and_back(course):
    before = texts(course)
    changed = set_repository("some-owner/tpu.course", course)
    assert set(changed) == {p for p in course.rglob("*") if p.is_file()}
    old = repository().removeprefix("https://github.com/")
    after = texts(course)
    assert not [p.name for p, text in after.items() if old in text]
    assert {p: t.replace("some-owner/tpu.course", old) for p, t in after.items()} == before
    assert set_repository("some-owner/tpu.course", course) == []
    set_repository(old, course)
    assert texts(course) == before


@pytest.mark.parametrize("name", ["", "owner", "a/b/c", "https://github.com/a/b", "a b/c", "ä/b"])
def test_what_is_no_repository_is_refused(course, name):
    before = texts(course)
    with pytest.raises(CourseError, match="make badges REPO=owner/name"):
        set_repository(name, course)
    assert texts(course) == before
