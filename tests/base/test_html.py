"""Templates escape what they are given and fail on what they are not."""

import jinja2
import pytest

from helpers.base import html


def test_texts_are_escaped_and_style_and_policy_are_there(monkeypatch, tmp_path):
    (tmp_path / "greeting.html").write_text("{{ POLICY }}|{{ STYLE }}|{{ name }}|")
    monkeypatch.setattr(html, "TEMPLATES", tmp_path)
    monkeypatch.setattr(html, "STYLE", "a > b {}")
    html._environment.cache_clear()
    try:
        policy, style, name, _ = html.render("greeting.html", name="<b>Ada</b>").split("|")
        assert policy.startswith("default-src &#x27;none&#x27;;")
        assert (style, name) == ("a > b {}", "&lt;b&gt;Ada&lt;/b&gt;")
        with pytest.raises(jinja2.UndefinedError, match="'name' is undefined"):
            html.render("greeting.html")
    finally:
        html._environment.cache_clear()
