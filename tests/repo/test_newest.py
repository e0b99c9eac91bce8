"""`make newest` tells which packages moved and what broke."""

import runpy

from conventions import ROOT

NEWEST = runpy.run_path(str(ROOT / ".ci/newest.py"))

LOCKED = """# made by hand
one==1.0 \\
    --hash=sha256:00
two==2.0 ; sys_platform == 'linux' \\
    --hash=sha256:00
gone==1.0
forked==1.0 ; python_version < '3.12' \\
    --hash=sha256:00
forked==2.0 ; python_version >= '3.12' \\
    --hash=sha256:00
"""
NEW = "forked==1.0\nnew==0.1\none==1.0\ntwo==2.1\n"
REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_good"/>
<testcase classname="tests.test_a" name="test_bad">
<failure message="assert 1 == 2&#10;more lines">text</failure></testcase>
<testcase classname="notebooks/02.ipynb" name="Cell 3"><error>AttributeError: no x
more</error></testcase>
<testcase classname="tests.test_b" name="test_left"><skipped message="no TPU"/></testcase>
</testsuite></testsuites>"""


def test_packages_that_moved_are_listed():
    rows = NEWEST["moved"](NEWEST["pins"](LOCKED), NEWEST["pins"](NEW))
    assert rows == [("new", "-", "0.1"), ("two", "2.0", "2.1")]
    assert len(NEWEST["pins"]((ROOT / "requirements.txt").read_text("utf-8"))) > 150


def test_what_failed_is_listed_with_its_first_line():
    assert NEWEST["broken"](REPORT) == [
        ("tests.test_a", "test_bad", "assert 1 == 2"),
        ("notebooks/02.ipynb", "Cell 3", "AttributeError: no x"),
    ]
