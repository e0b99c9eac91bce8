"""Templates escape what they are given, and fail on what they are not."""

import jinja2
import pytest

from helpers.base import html


def test_texts_are_escaped_and_a_missing_one_is_told(monkeypatch, tmp_path):
    (tmp_path / "greeting.html").write_text("{{ name }}")
    monkeypatch.setattr(html, "TEMPLATES", tmp_path)
    html._environment.cache_clear()
    try:
        assert html.render("greeting.html", name="<b>Ada</b>") == "&lt;b&gt;Ada&lt;/b&gt;"
        with pytest.raises(jinja2.UndefinedError, match="'name' is undefined"):
            html.render("greeting.html")
    finally:
        html._environment.cache_clear()
