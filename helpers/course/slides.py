"""The notebooks as slides: decks for reveal.js, each one file that opens without a network.

Which cell begins a slide is marked in the notebooks (``slideshow``, as JupyterLab writes it). Of a
cell tagged ``hide-input`` only the output is shown.
"""

import functools
import pathlib

import jinja2
import nbformat

from helpers.base import html
from helpers.base.errors import CourseError
from helpers.course import pages

# `make slides` unpacks it here: a package of the index that carries reveal.js.
REVEAL = pathlib.Path("sphinx_revealjs/_static/revealjs")

_FOR_TESTS = "# NBVAL_IGNORE_OUTPUT\n"

# As on the other pages, but for the script that turns the slides; nothing is fetched.
_POLICY = f"{html.POLICY}; script-src 'unsafe-inline'"

_STYLE = """
:root { --jp-content-font-size1: 22px; --jp-ui-font-size1: 18px; --jp-code-font-size: 17px; }
body { background: #ffffff; margin: 0; }
main { height: 100vh; }
.reveal, .section-name {
  font: 22px/1.4 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif;
}
.reveal .slides { text-align: left; }
.reveal .slides section { padding: 34px 0 0; }
.reveal h1 { font-size: 38px; } .reveal h2 { font-size: 32px; } .reveal h3 { font-size: 25px; }
.reveal :is(h1, h2, h3) { margin: 0 0 14px; line-height: 1.2; color: #1f2328; }
.reveal .jp-Cell { padding: 4px 0; }
.reveal .jp-RenderedHTMLCommon { padding-right: 0; }
.reveal .jp-RenderedHTMLCommon table { font-size: 18px; margin: 0 0 8px; }
.reveal :is(.jp-InputPrompt, .jp-OutputPrompt) { display: none; }
.reveal .jp-Cell pre {
  box-sizing: border-box; font: 17px/1.3 ui-monospace, "DejaVu Sans Mono", monospace;
}
.reveal .jp-Cell-outputWrapper { max-height: 480px; overflow: auto; }
.reveal :is(.jp-OutputArea, .jp-OutputArea-child, .jp-OutputArea-output) { overflow: visible; }
.reveal .jp-OutputArea-output pre { width: 100%; }
.reveal .jp-RenderedImage img { max-width: 100%; max-height: 400px; }
.reveal a { color: #0b57a4; }
.reveal .slide-number { color: #57606a; background: none; }
.section-name { position: fixed; left: 2vw; top: 10px; color: #57606a; font-size: 16px; }
@media print { .section-name { display: none; } }
"""

# Another system has other fonts: what is too long by a few lines is drawn smaller.
_SCRIPT = """
function fit() {
  const slide = Reveal.getCurrentSlide(), {width, height} = Reveal.getConfig();
  for (let zoom = 1; zoom > 0.5; zoom -= 0.05) {
    slide.style.zoom = zoom;
    slide.style.width = width / zoom + "px";
    if (slide.scrollHeight * zoom <= height) break;
  }
  const title = slide.parentElement.querySelector("h1, h2");
  document.querySelector(".section-name").textContent =
    title && !slide.contains(title) ? title.textContent : "";
}
Reveal.on("ready", fit);
Reveal.on("slidechanged", fit);
Reveal.initialize({
  width: 1280, height: 720, margin: 0.04, center: false, hash: true, slideNumber: "h.v",
  transition: "none", navigationMode: "linear"
});
"""


class NoReveal(CourseError):
    """reveal.js, which turns the slides, is not there."""


@functools.cache
def _exporter() -> "nbconvert.SlidesExporter":  # noqa: F821
    import nbconvert
    from nbconvert.preprocessors import TagRemovePreprocessor

    template = '{%- extends "reveal/index.html.j2" -%}{%- block footer_js -%}{%- endblock -%}'
    exporter = nbconvert.SlidesExporter(
        template_file="deck.html.j2",
        extra_loaders=[jinja2.DictLoader({"deck.html.j2": template + pages.BLOCKS})],
        embed_images=True,
        exclude_anchor_links=True,
    )
    exporter.register_preprocessor(
        TagRemovePreprocessor(remove_input_tags={"hide-input"}), enabled=True
    )
    return exporter


def deck(path: pathlib.Path, title: str, reveal: pathlib.Path) -> str:
    """Write a notebook, with the outputs stored in it, as slides.

    Args:
        path: The notebook's file.
        title: The deck's title.
        reveal: Where the package that carries reveal.js is unpacked.

    Returns:
        The page, with reveal.js (MIT licence, named in it) inside.

    Raises:
        NoReveal: reveal.js is not in that folder.
    """
    dist = reveal / REVEAL / "dist"
    try:
        style, script = ((dist / file).read_text("utf-8") for file in ("reveal.css", "reveal.js"))
    except FileNotFoundError:
        raise NoReveal(
            "The slides can't be made.",
            f"reveal.js is not in {reveal}.",
            "Run `make slides`: it fetches reveal.js once.",
        ) from None
    node = nbformat.reads(path.read_text("utf-8"), as_version=4)
    for cell in node.cells:
        cell.source = cell.source.removeprefix(_FOR_TESTS)
    soup = pages.page(_exporter(), node, path.stem, title, str(path.parent))
    for text in (style, _STYLE):
        soup.head.append(soup.new_tag("style", string=text))
    soup.body.append(soup.new_tag("div", attrs={"class": "section-name"}))
    for text in (script, _SCRIPT):
        soup.body.append(soup.new_tag("script", string=text))
    pages.add_policy(soup, _POLICY)
    return str(soup)
