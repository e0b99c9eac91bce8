"""The notebooks as slides: decks for reveal.js, each one file that opens without a network.

Which cell begins a slide is marked in the notebooks (``slideshow``, as JupyterLab writes it). Of a
cell tagged ``hide-input`` only the output is shown.
"""

import functools
import pathlib

import nbformat

from helpers.base import html
from helpers.base.errors import CourseError
from helpers.course import pages

# `make slides` unpacks it here: a package of the index that carries reveal.js.
REVEAL = pathlib.Path("sphinx_revealjs/_static/revealjs")

_FOR_TESTS = "# NBVAL_IGNORE_OUTPUT\n"

# As on the other pages, but for the script that turns the slides; nothing is fetched.
_POLICY = f"{html.POLICY}; script-src 'unsafe-inline'"


@functools.cache
def _exporter() -> "nbconvert.SlidesExporter":  # noqa: F821
    from nbconvert.preprocessors import TagRemovePreprocessor

    no_script = "{%- block footer_js -%}{%- endblock -%}"
    exporter = pages.exporter("SlidesExporter", "reveal", no_script)
    exporter.register_preprocessor(
        TagRemovePreprocessor(remove_input_tags={"hide-input"}), enabled=True
    )
    return exporter


def deck(path: pathlib.Path, title: str, reveal: pathlib.Path) -> str:
    """Write a notebook, with its stored outputs, as slides, with reveal.js (MIT licence) inside.

    ``reveal`` is where the package that carries reveal.js is unpacked.

    Raises:
        CourseError: reveal.js is not in that folder.
    """
    dist = reveal / REVEAL / "dist"
    try:
        style, script = ((dist / file).read_text("utf-8") for file in ("reveal.css", "reveal.js"))
    except OSError:
        raise CourseError(
            "The slides can't be made.",
            f"reveal.js is not in {reveal}.",
            "Run `make slides`: it fetches reveal.js once.",
        ) from None
    node = nbformat.reads(path.read_text("utf-8"), as_version=4)
    for cell in node.cells:
        cell.source = cell.source.removeprefix(_FOR_TESTS)
    soup = pages.page(_exporter(), node, path.stem, title, str(path.parent))
    for text in (style, html.text("slides.css")):
        soup.head.append(soup.new_tag("style", string=text))
    soup.body.append(soup.new_tag("div", attrs={"class": "section-name"}))
    for text in (script, html.text("slides.js")):
        soup.body.append(soup.new_tag("script", string=text))
    pages.add_policy(soup, _POLICY)
    return str(soup)
