"""`make newest` tells which packages moved and what broke."""

import runpy
import tomllib

from conventions import ROOT

NEWEST = runpy.run_path(str(ROOT / ".ci/newest.py"))

DATA = tomllib.loads((ROOT / "tests/repo/newest.toml").read_text("utf-8"))


def test_packages_that_moved_are_listed():
    rows = NEWEST["moved"](NEWEST["pins"](DATA["locked"]), NEWEST["pins"](DATA["new"]))
    assert rows == [("new", "-", "0.1"), ("two", "2.0", "2.1")]
    assert len(NEWEST["pins"]((ROOT / "requirements.txt").read_text("utf-8"))) > 150


def test_what_failed_is_listed_with_its_first_line():
    assert NEWEST["broken"](DATA["report"]) == [
        ("tests.test_a", "test_bad", "assert 1 == 2"),
        ("notebooks/02.ipynb", "Cell 3", "AttributeError: no x"),
    ]
