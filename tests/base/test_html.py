"""Templates escape what they are given, and fail on what they are not."""

import jinja2
import pytest

from helpers.base import html


def test_texts_are_escaped_and_a_missing_one_is_told(tmp_path):
    (tmp_path / "greeting.html").write_text("{{ name }}")
    page = html.render("greeting.html", tmp_path, name="<b>Ada</b>")
    assert page == "&lt;b&gt;Ada&lt;/b&gt;"
    with pytest.raises(jinja2.UndefinedError, match="'name' is undefined"):
        html.render("greeting.html", tmp_path)
