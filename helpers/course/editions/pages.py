"""The pages of a run: the map of the course and each notebook, readable without a network.

Knows HTML only. A page loads nothing from outside itself, and its content policy forbids it.
"""

import datetime
import functools
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import jinja2
import nbformat
from bs4 import BeautifulSoup, Tag
from pygments.formatters import HtmlFormatter

from helpers.base import html
from helpers.base.language import ENGLISH, language, translated

# How a result is shown: the colour of its chip, and a sign beside the word.
SHOWN = {
    **dict.fromkeys(("failed", "died"), ("bad", "✗")),
    "passed": ("good", "✓"),
    "interrupted": ("wait", "…"),
}


def duration(seconds: float) -> str:
    """Write a time for people: ``0.8 s``, ``41 s``, ``2 min 05 s``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def memory(size: int) -> str:
    """Write a number of bytes for people: ``210 MB``, ``1.3 GB`` (powers of ten)."""
    return f"{size / 1e9:.1f} GB" if size >= 999.5e6 else f"{size / 1e6:.0f} MB"


def _date(moment: datetime.datetime) -> str:
    local = moment.astimezone()
    return f"{local.day} {local:%b %Y, %H:%M}"


def index(
    rows: Sequence[tuple[Any, Any]], machine: str, workshop: bool = False, code: str = ENGLISH
) -> str:
    """Write the map of the course: each `map.Notebook` with its `kernels.Result`.

    ``machine`` says in words what it ran on, ``code`` is the page's language. Every text is
    escaped.
    """
    again = "tpu-course run" + " --workshop" * workshop
    return html.render(
        "course_map.html",
        rows=rows,
        ran=[result for _, result in rows if result.state != "not run"],
        machine=machine,
        workshop=workshop,
        shown=SHOWN,
        duration=duration,
        memory=memory,
        date=_date,
        lang=code,
        say=functools.partial(translated, code=code),
        again=again + f" --language {code}" * (code != ENGLISH),
    )


# Attributes and rules that make a browser fetch something.
_FETCHING = ("src", "srcset", "poster", "background", "data", "action", "formaction")
_FETCHING_CSS = re.compile(r"@import[^;]*;?|url\(\s*['\"]?(?!\s*(?:data:|#))[^)]*\)")


def _blocks(of: str) -> str:
    """Give the template of a page that nbconvert makes: its own (``basic``, ``reveal``) with ours.

    Ours fetch nothing and keep a picture's text alternative.
    """
    return f'{{%- extends "{of}/index.html.j2" -%}}' + html.text("nbconvert.html")


@functools.cache
def exporter(kind: str, of: str, more: str = "") -> "nbconvert.HTMLExporter":  # noqa: F821
    """Make an exporter of nbconvert, such as ``HTMLExporter``, with `_blocks` as its template."""
    import nbconvert

    return getattr(nbconvert, kind)(
        template_file="course.html.j2",
        extra_loaders=[jinja2.DictLoader({"course.html.j2": _blocks(of) + more})],
        embed_images=True,
        exclude_anchor_links=True,
    )


def notebook(node: nbformat.NotebookNode, name: str, title: str, folder: str) -> str:
    """Write an executed notebook as a page that opens without a network; arguments as for `page`.

    For the outputs of a run; the pages to read are written by `make site`. Pictures are embedded;
    remote ones (badges) become their text, formulas stay LaTeX source.
    """
    made = exporter("HTMLExporter", "basic")
    made.exclude_input_prompt = made.exclude_output_prompt = True
    code = language({}, pathlib.Path(folder).resolve())
    soup = page(made, node, name, title, folder)
    for cell in soup.select(".celltag_hide-input"):
        _fold(cell, code)
    cells = html.Markup(soup)
    light, dark = (
        html.Markup(HtmlFormatter(style=style).get_style_defs(".highlight"))
        for style in ("xcode", "lightbulb")  # their colours are readable on the page's ground
    )
    say = functools.partial(translated, code=code)
    return html.render(
        "notebook.html", title=title, cells=cells, light=light, dark=dark, lang=code, say=say
    )


def _fold(cell: Tag, language: str) -> None:
    """Put a cell's code behind its title, the comment in its first line; outputs stay in sight."""
    code = cell.select_one(".input")
    first = code.get_text().strip().partition("\n")[0]
    folded = code.wrap(BeautifulSoup().new_tag("details"))
    said = translated(first.removeprefix("# @title "), language)
    summary = BeautifulSoup().new_tag("summary", string=said)
    folded.insert(0, summary)


def page(
    exporter: "nbconvert.HTMLExporter",  # noqa: F821
    node: nbformat.NotebookNode,
    name: str,
    title: str,
    folder: str,
) -> BeautifulSoup:
    """Convert a notebook to HTML that fetches and runs nothing; links to notebooks go to pages.

    Gives a page to be completed with styles and a policy, or the part of one (``basic``).

    Args:
        exporter: From `exporter`.
        node: The notebook with its outputs; it is not changed.
        name: File name without suffix.
        title: The page's title.
        folder: Where the notebook's relative pictures are.
    """
    node = nbformat.from_dict(node)
    node.metadata.title = title
    for output in (output for cell in node.cells for output in cell.get("outputs", [])):
        data = output.get("data", {})
        data.pop("application/javascript", None)
        data.pop("application/vnd.jupyter.widget-view+json", None)  # its first picture is shown
    resources = {"metadata": {"name": name, "path": folder}}
    converted, _ = exporter.from_notebook_node(node, resources)
    soup = BeautifulSoup(converted, "html.parser")
    _cut_network(soup)
    for link in soup.select("a[href]"):
        if re.match(r"#|[\w./-]+\.md\b", link["href"]):  # only `make site` writes where it leads
            link.unwrap()
        else:
            link["href"] = re.sub(r"^(\w+)\.ipynb(#.*)?$", r"\1.html", link["href"])
    for between in (link.previous_sibling for link in soup.select("a + a")):
        if not between.get_text(strip=True):  # else two badges read as one
            between.replace_with(" · ")
    for box in soup.select(".task-list-item > input"):
        box["aria-label"] = box.parent.get_text(" ", strip=True)
    for corner in soup.select("th"):  # the empty corner of a table is no header of anything
        if not corner.get_text(strip=True):
            corner.name = "td"
    return soup


def add_policy(soup: BeautifulSoup, policy: str) -> None:
    """Write a content policy before anything else in the head: it holds from where it stands."""
    attributes = {"http-equiv": "Content-Security-Policy", "content": policy}
    soup.head.insert(0, soup.new_tag("meta", attrs=attributes))


def _cut_network(soup: BeautifulSoup) -> None:
    """Take out of a page everything that a browser would fetch or run; links stay."""
    for tag in soup.select("script, base, link, object, embed, meta[http-equiv]"):
        tag.decompose()
    for tag in soup.select("iframe, video, audio"):
        source = tag.get("src", "")
        tag.replace_with(soup.new_tag("a", attrs={"href": source}, string=source or tag.name))
    for tag in soup.select("img"):
        if not tag.get("src", "").startswith("data:"):
            tag.replace_with(tag.get("alt") or "picture")
    for tag in soup.find_all(True):
        for name, value in list(tag.attrs.items()):
            fetched = name in _FETCHING or (name.endswith("href") and tag.name != "a")
            if fetched and not str(value).startswith(("data:", "#")):
                del tag[name]
        if "style" in tag.attrs:
            tag["style"] = _FETCHING_CSS.sub("", tag["style"])
    for tag in soup.select("style"):
        tag.string = _FETCHING_CSS.sub("", tag.string or "")
