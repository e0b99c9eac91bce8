"""Pages, written from the templates in the folder next to this file."""

import functools
import html
import pathlib
import re

import jinja2

from helpers.base.language import translated

Markup = jinja2.utils.markupsafe.Markup
TEMPLATES = pathlib.Path(__file__).with_name("templates")


def _escaped(value: object) -> object:
    if hasattr(value, "__html__"):
        return value
    # As Python's html does it: &#x27; stands in stored outputs, where Jinja would write &#39;.
    return Markup(html.escape(str(value)))


def _marked(text: str) -> Markup:
    """Escape a text; text between backticks becomes code."""
    escaped = html.escape(text)
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped))


@functools.cache
def _environment(folder: pathlib.Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, TEMPLATES]),  # every page may use a card
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_escaped,
    )
    environment.filters.update(marked=_marked, said=translated)
    return environment


def render(template: str, folder: pathlib.Path = TEMPLATES, **values: object) -> str:
    """Write a page from a template of a folder, such as ``card.html``, and its ``values``.

    Strings are escaped unless they are ``Markup``. A variable that was not given is an error.
    """
    return _environment(folder).get_template(template).render(values)
