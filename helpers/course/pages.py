"""The pages of a run: the map of the course and each notebook, readable without a network.

Knows HTML only. A page loads nothing from outside itself, and its content policy forbids it.
"""

import dataclasses
import datetime
import functools
import re

import jinja2
import nbformat
from bs4 import BeautifulSoup

from helpers.base.html import POLICY, STYLE

SYMBOLS = {"passed": "✓", "failed": "✕", "died": "✕", "interrupted": "◌", "not run": "–"}

WIDGET = "application/vnd.jupyter.widget-view+json"


@dataclasses.dataclass(frozen=True)
class Row:
    """What the map says about one notebook.

    Attributes:
        number: The notebook's number, such as ``02``.
        title: The question that it answers.
        reading: Time to read and try, in words; may be empty.
        needs: What it needs, in words; may be empty.
        state: One of ``SYMBOLS``.
        detail: Where and why it stopped; empty when it passed or did not run.
        href: The notebook's page, relative to the map; empty when there is none.
        seconds: Wall time of the whole notebook.
        peak: Highest resident memory of its kernel, bytes.
        finished: When it ended.
        parameters: Parameters that were changed, in words; may be empty.
        left_out: Cells that a workshop's run left out.
    """

    number: str
    title: str
    reading: str
    needs: str
    state: str
    detail: str = ""
    href: str = ""
    seconds: float | None = None
    peak: int | None = None
    finished: datetime.datetime | None = None
    parameters: str = ""
    left_out: int = 0

    @property
    def symbol(self) -> str:
        """A sign for the state, beside the word."""
        return SYMBOLS[self.state]


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


# Roles are spelled out because `display: block` (on a phone) takes the table's own away.
_INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{{ policy }}">
<title>TensorFlow on TPU: {{ "a workshop's run" if workshop else "the map of the course" }}</title>
<style>{{ style }}</style>
</head>
<body>
<header>
<h1>TensorFlow on TPU</h1>
{%- if workshop %}
<p class="lead"><strong>A workshop's run:</strong> only the core of each notebook was run. A whole
run is made by <code>make run</code>.</p>
{%- else %}
<p class="lead">A course that you can trust on a machine without a TPU.</p>
{%- endif %}
</header>
<main>
<h2>In short</h2>
<dl>
<div><dt>Passed</dt><dd>{{ passed }} of {{ rows|length }}</dd></div>
<div><dt>Computing time</dt><dd>{{ duration(seconds) if timed else "–" }}</dd></div>
<div><dt>Most memory</dt><dd>{{ memory(peak) if peak else "–" }}</dd></div>
<div><dt>Last run</dt><dd>{{ date(last) if last else "–" }}</dd></div>
</dl>
<table role="table">
<caption>The questions, in order</caption>
<thead role="rowgroup">
<tr role="row">
<th role="columnheader" scope="col">Notebook</th>
<th role="columnheader" scope="col">State</th>
<th role="columnheader" scope="col">Time</th>
<th role="columnheader" scope="col">Peak memory</th>
</tr>
</thead>
<tbody role="rowgroup">
{%- for row in rows %}
<tr role="row">
<th role="rowheader" scope="row"><span class="number">{{ row.number }}</span>
{%- if row.href %}<a href="{{ row.href }}">{{ row.title }}</a>{% else %}{{ row.title }}{% endif %}
{%- if row.reading %}<span class="small">{{ row.reading }}</span>{% endif %}
{%- if row.needs %}<span class="small">Needs {{ row.needs }}</span>{% endif %}</th>
<td role="cell" data-label="State"><span class="state {{ row.state|replace(" ", "-") }}">
{#- #}<span aria-hidden="true">{{ row.symbol }}</span> {{ row.state }}</span>
{%- if row.detail %}<span class="small">{{ row.detail }}</span>{% endif %}
{%- if row.left_out %}
<span class="small">the core; cells left out: {{ row.left_out }}</span>{% endif %}
{%- if row.parameters %}<span class="small">with {{ row.parameters }}</span>{% endif %}
{%- if row.finished %}<span class="small"><time datetime="{{ row.finished.isoformat() }}">
{#- #}{{ date(row.finished) }}</time></span>{% endif %}</td>
<td role="cell" data-label="Time" class="figure">
{#- #}{{ duration(row.seconds) if row.seconds is not none else "–" }}</td>
<td role="cell" data-label="Peak memory" class="figure">
{#- #}{{ memory(row.peak) if row.peak else "–" }}</td>
</tr>
{%- endfor %}
</tbody>
</table>
</main>
<footer>
<p>Times and memory are this machine's: {{ machine }}. They say nothing about a TPU.
Run again with <code>{{ "python -m helpers run --workshop" if workshop else "make run" }}</code>, or
one notebook alone with
<code>python -m helpers run {{ "--workshop " if workshop }}02</code>.</p>
</footer>
</body>
</html>
"""


def index(rows: list[Row], machine: str, workshop: bool = False) -> str:
    """Write the map of the course.

    Args:
        rows: One for each notebook, in order.
        machine: What it ran on, in words.
        workshop: The run was a workshop's: the page says so.

    Returns:
        The page. Every text is escaped.
    """
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_INDEX).render(
        rows=rows,
        machine=machine,
        workshop=workshop,
        policy=POLICY,
        style=jinja2.utils.markupsafe.Markup(STYLE),
        duration=duration,
        memory=memory,
        date=_date,
        passed=sum(row.state == "passed" for row in rows),
        seconds=sum(row.seconds or 0.0 for row in rows),
        timed=any(row.seconds is not None for row in rows),
        peak=max((row.peak or 0 for row in rows), default=0),
        last=max((row.finished for row in rows if row.finished), default=None),
    )


# nbconvert's own scripts only fetch other scripts: without a network they do nothing.
# Its pictures forget the text alternative that the output carries.
BLOCKS = """
{%- block html_head_js -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block data_png scoped -%}
{%- set alt = output | get_metadata("alt", "image/png") -%}
<div class="jp-RenderedImage jp-OutputArea-output {{ extra_class }}">
<img src="data:image/png;base64,{{ output.data["image/png"] | escape_html }}"
{%- if alt %} alt="{{ alt | escape_html }}"{% endif %}>
</div>
{%- endblock -%}
"""

_NOTEBOOK_STYLE = """
/* JupyterLab's own colours for prompts, comments, numbers, words such as "in" are too faint. */
:root { color-scheme: light dark; --jp-cell-prompt-not-active-opacity: 1; }
:root { --jp-cell-prompt-not-active-font-color: var(--jp-ui-font-color2); }
.highlight .c1 { color: light-dark(#2f6b6b, #86b3b3); }
.highlight :is(.mi, .mf, .mh) { color: light-dark(#006b00, #66bb6a); }
.highlight .ow { color: light-dark(#8a1acc, #d9a2ff); }
.jp-RenderedHTMLCommon a:is(:link, :visited) { text-decoration: underline; }
.jp-RenderedHTMLCommon a { text-underline-offset: .2em; }
body.jp-Notebook { background: var(--jp-layout-color0); margin: 0; padding: 0; }
[data-mime-type="application/vnd.jupyter.stderr"] span { color: inherit; }
.jp-OutputArea-child .jp-RenderedText pre { padding-left: 5px; }
.course-map { background: var(--jp-layout-color2); padding: 10px 20px;
  border-bottom: 1px solid var(--jp-border-color1);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; }
.course-map a { color: var(--jp-content-link-color); }
main { max-width: 62rem; margin: 0 auto; padding: 10px 12px 60px; }
.jp-RenderedHTMLCommon img, .jp-RenderedImage img { max-width: 100%; height: auto; }
.jp-RenderedImage img { background: white; }
.jp-OutputArea-output { overflow-x: auto; }
@media (max-width: 44rem) {
  .jp-InputPrompt, .jp-OutputPrompt { display: none; }
  main { padding: 6px 0 40px; }
}
"""


# Attributes and rules that make a browser fetch something.
_FETCHING = ("src", "srcset", "poster", "background", "data", "action", "formaction")
_FETCHING_CSS = re.compile(r"@import[^;]*;?|url\(\s*['\"]?(?!\s*(?:data:|#))[^)]*\)")


@functools.cache
def _exporter() -> "nbconvert.HTMLExporter":  # noqa: F821
    import nbconvert

    return nbconvert.HTMLExporter(
        template_file="course.html.j2",
        extra_loaders=[
            jinja2.DictLoader({"course.html.j2": '{%- extends "lab/index.html.j2" -%}' + BLOCKS})
        ],
        embed_images=True,
        exclude_anchor_links=True,
    )


def notebook(node: nbformat.NotebookNode, name: str, title: str, folder: str) -> str:
    """Write an executed notebook as a page that opens without a network.

    Pictures are embedded; remote ones (badges) become their text, formulas stay LaTeX source, and
    a widget without a picture beside it becomes a sentence that says where to find it.

    Args:
        node: The notebook with its outputs; it is not changed.
        name: File name without suffix.
        title: The page's title.
        folder: Where the notebook's relative pictures are.

    Returns:
        The page.
    """
    exporter = _exporter()
    soup = page(exporter, node, name, title, folder)
    environment = exporter.environment
    dark = environment.loader.get_source(environment, "static/theme-dark.css")[0]
    for attributes, text in (
        ({"media": "(prefers-color-scheme: dark)"}, dark),
        ({}, _NOTEBOOK_STYLE),
    ):
        style = soup.new_tag("style", attrs=attributes)
        style.string = text
        soup.head.append(style)
    add_policy(soup, POLICY)
    nav = soup.new_tag("nav", attrs={"class": "course-map", "aria-label": "Course"})
    nav.append(soup.new_tag("a", attrs={"href": "index.html"}, string="← Map of the course"))
    soup.body.insert(0, nav)
    return str(soup)


def page(
    exporter: "nbconvert.HTMLExporter",  # noqa: F821
    node: nbformat.NotebookNode,
    name: str,
    title: str,
    folder: str,
) -> BeautifulSoup:
    """Convert a notebook to HTML that fetches and runs nothing; links to notebooks go to pages.

    Args:
        exporter: nbconvert's, with ``BLOCKS`` in its template.
        node: The notebook with its outputs; it is not changed.
        name: File name without suffix.
        title: The page's title.
        folder: Where the notebook's relative pictures are.

    Returns:
        The page, to be completed with styles and a policy.
    """
    node = nbformat.from_dict(node)
    node.metadata.title = title
    for output in (output for cell in node.cells for output in cell.get("outputs", [])):
        data = output.get("data", {})
        data.pop("application/javascript", None)
        if data.pop(WIDGET, None) is not None:
            data["text/html"] = "<p>A widget is here: open the notebook itself to move it.</p>"
    resources = {"metadata": {"name": name, "path": folder}}
    html, _ = exporter.from_notebook_node(node, resources)
    soup = BeautifulSoup(html, "html.parser")
    _cut_network(soup)
    for link in soup.select("a[href]"):  # to another notebook or text: a page of it, too
        link["href"] = re.sub(r"^(\w+)\.(?:ipynb|md)(?=#|$)", r"\1.html", link["href"])
    _name_headings(soup)
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


def _name_headings(soup: BeautifulSoup) -> None:
    """Let links reach headings, written as JupyterLab names them and as GitHub does."""
    taken = {tag["id"] for tag in soup.select("[id]")}
    for heading in soup.select("h1, h2, h3, h4"):
        text = heading.get_text(strip=True)
        for name in (
            text.replace(" ", "-"),
            re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-"),
        ):
            if name and name not in taken:
                heading.insert(0, soup.new_tag("span", attrs={"id": name}))
                taken.add(name)


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
