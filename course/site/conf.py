"""The course as pages: what Sphinx, MyST-NB and Furo are told. `make site` builds them.

They read the repository's texts and notebooks where they stand, with the stored outputs; nothing is
executed or fetched. The README is the first page. ``EDITION`` chooses the language.
"""

import html
import json
import os
import pathlib
import re
import shutil
import tomllib

from babel import Locale
from docutils import nodes
from sphinx import addnodes
from sphinx.search import SearchLanguage

from course import catalog, pages
from helpers.base.language import ENGLISH, translated, translations
from helpers.base.settings import ROOT

EDITION = os.environ.get("EDITION", ENGLISH)
os.environ["LC_ALL"] = EDITION  # the language of our messages
FOLDER = catalog.edition(EDITION)[0].relative_to(ROOT)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERDICTS_TITLE = "Will a TPU take it?"
NOTEBOOK_BY_PAGE = {f"{FOLDER}/{n.name}": n for n in catalog.notebooks(ROOT / FOLDER)}

# --- What Sphinx reads ---

project = html_title = "TensorFlow on TPU"
language = EDITION
root_doc = "README" if EDITION == ENGLISH else f"README.{EDITION}"
include_patterns = [f"{root_doc}.md", f"{FOLDER}/*.md", f"{FOLDER}/*.ipynb"]
if EDITION == ENGLISH:
    include_patterns += ["CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = [".*", "build", "work", "*/data", "tests", "helpers", "course", "tpu_preflight"]
extensions = ["myst_nb"]
myst_enable_extensions = ["tasklist"]
myst_heading_anchors = 4
myst_heading_slug_func = "course.catalog.slug"
nb_execution_mode = "off"
nb_code_prompt_show = translated("Show the code")
nb_code_prompt_hide = translated("Hide the code")
suppress_warnings = ["myst.xref_missing", "myst.header", "misc.highlighting_failure"]
smartquotes = False  # commands stand in plain text, too: 'numpy<2', --flag

# --- How the pages look ---

html_theme = "furo"
html_static_path = ["site.css", "site.js"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_search_scorer = str(pathlib.Path(__file__).with_name("scorer.js"))  # an absolute path
templates_path = ["."]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
        "languages.html",
    ]
}

MEANING_BY_ANCHOR = pages.glossary((ROOT / FOLDER / "GLOSSARY.md").read_text("utf-8"))

# A page that no server sends can't fetch the texts in which Sphinx's search shows a word.
FETCH = """if (location.protocol == "file:") window.fetch = async (url) => ({
  text: async () => TEXTS[url.slice(document.documentElement.dataset.content_root.length)] });
"""
PARTICLES = re.compile(
    r"(\w{2,}?)(?:은|는|이|가|을|를|의|에|에서|에는|로|으로|와|과|도|만|까지|부터|보다|입니다|이다)"
)


class Korean(SearchLanguage):
    """Finds a Korean word also where a particle follows it."""

    lang = "ko"

    def split(self, input: str) -> list[str]:
        """Give the words of a text, and those without their particles."""
        words = super().split(input)
        stems = []
        for word in words:
            match = PARTICLES.fullmatch(word)
            if match:
                stems.append(match[1])
        return words + stems


def prepare_source(app: object, page: str, source: list[str]) -> None:
    """List the pages in the sidebar, notebooks by number, then texts; let a page answer."""
    # In the list of headings an anchor would stand within a link; `slug` names the headings.
    text = re.sub(r'<a id="[\w-]+"></a>', "", source[0])
    if page in NOTEBOOK_BY_PAGE:
        text = pages.answer_in_place(text)
    elif page.endswith("TROUBLESHOOTING"):
        text = text.replace("\n## ", f"{_raw_html(pages.paste_form())}\n## ", 1)
    if page == root_doc:
        # The table of the course follows its notebooks as cards.
        text = text.replace("\n| ", f"{_raw_html(pages.cards(NOTEBOOK_BY_PAGE))}\n| ", 1)
        text += _contents(app.env.found_docs)
    source[0] = text


def _raw_html(body: str) -> str:
    return f"\n```{{raw}} html\n{body}\n```\n"


def _contents(names: set[str]) -> str:
    """Write the list of all pages, of which Sphinx makes the sidebar."""
    rows = [f"{n.number} {n.title} <{name}>" for name, n in NOTEBOOK_BY_PAGE.items()]
    rows += sorted(names - {*NOTEBOOK_BY_PAGE, root_doc})
    return "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(rows) + "\n```\n"


def finish_links_and_pictures(app: object, doctree: nodes.document) -> None:
    """Let links to other files lead to the repository, and pictures have words.

    A picture from elsewhere (a badge) is replaced by its words; one of a cell takes those below it.
    """
    for kind in (addnodes.download_reference, addnodes.pending_xref):
        for link in list(doctree.findall(kind)):
            if link["reftype"] == "myst" and link["reftarget"] not in app.env.found_docs:
                address = _repository_address(app.env.docname, link)
                link.replace_self(nodes.reference("", "", *link.children, refuri=address))
    for image in list(doctree.findall(nodes.image)):
        captions = image.findall(nodes.emphasis, include_self=False, ascend=True)
        caption = next((node.astext() for node in captions), "")
        image.setdefault("alt", caption)
        if "://" in image["uri"]:
            image.replace_self(nodes.Text(f"{image['alt']} "))


def _repository_address(page: str, link: nodes.Element) -> str:
    path = os.path.normpath(pathlib.Path(page).parent / link["reftarget"])
    suffix = ".md" if link.get("refdomain") == "doc" else ""
    return f"{PROJECT['urls']['Repository']}/blob/main/{path}{suffix}"


def verdicts_page(app: object) -> list[tuple[str, dict, str]]:
    """Give the page that no file holds: a search in the tables of verdicts."""
    context = {"title": translated(VERDICTS_TITLE), "body": pages.verdicts()}
    return [(f"{FOLDER}/takes", context, "page.html")]


def explain_words(app: object, doctree: nodes.document, page: str) -> None:
    """Give the first link to each word of the glossary in a section what the word means."""
    explained = set()
    for link in doctree.findall(nodes.reference):
        address, _, anchor = link.get("refuri", "").partition("#")
        if not address.endswith("GLOSSARY.html") or anchor not in MEANING_BY_ANCHOR:
            continue
        section = next(link.findall(nodes.section, ascend=True, siblings=False), doctree)
        if (id(section), anchor) not in explained:
            explained.add((id(section), anchor))
            link["reftitle"] = MEANING_BY_ANCHOR[anchor]
            link["classes"].append("word")


def complete_page(app: object, name: str, template: str, context: dict, doctree: object) -> None:
    """Lead to the same page in the other languages, or to their first; mark the page to print."""
    if name == "search":
        app.add_js_file("texts.js")
    if name.endswith("CHEATSHEET"):
        context["body"] = f'<div id="one-page">{context["body"]}</div>'
    context["take"] = translated(VERDICTS_TITLE)
    context["paste"] = translated("Paste an error")
    context["here"] = FOLDER
    context["languages"] = []
    for code in sorted({ENGLISH, *translations()} - {EDITION}):
        display_name = Locale.parse(code).get_display_name()
        context["languages"].append((code, _page_in_language(name, code), display_name))


def _page_in_language(name: str, code: str) -> str:
    """Give the address, from the top of this edition, of a page in another language."""
    source = catalog.edition(code)[0].relative_to(ROOT) / pathlib.Path(name).name
    exists = name.startswith("notebooks") and any(ROOT.glob(f"{source}.*"))
    target = "index.html"
    if exists:
        target = f"{source}.html"
    if code != ENGLISH:
        target = f"{code}/{target}"
    if EDITION != ENGLISH:
        target = f"../{target}"
    return target


def finish_site(app: object, error: Exception | None) -> None:
    """Give the first page the name that a server and a reader look for; keep texts to search."""
    folder = pathlib.Path(app.outdir)
    texts = {}
    for name in app.env.found_docs:
        tree = app.env.get_doctree(name)
        for raw in list(tree.findall(nodes.raw)):
            raw.parent.remove(raw)
        texts[f"{name}.html"] = f'<div role="main">{_searchable(tree)}</div>'
    script = f"const TEXTS = {json.dumps(texts)};\n{FETCH}"
    (folder / "_static/texts.js").write_text(script, "utf-8")
    shutil.copy(folder / f"{root_doc}.html", folder / "index.html")
    shutil.rmtree(folder / "jupyter_execute", ignore_errors=True)  # the pictures, once more


def _searchable(node: nodes.Node) -> str:
    """Write a page's text with its sections and headings, by which a search finds the place."""
    if isinstance(node, nodes.title):
        return f"<h2>{html.escape(node.astext())}</h2>"
    if not any(node.findall(nodes.section)):
        return html.escape(node.astext()) + "\n"
    body = "".join(map(_searchable, node.children))
    if isinstance(node, nodes.section):
        return f'<section id="{node["ids"][0]}">{body}</section>'
    return body


def setup(app: object) -> None:
    """Tell Sphinx what is ours."""
    app.add_search_language(Korean)
    app.connect("source-read", prepare_source)
    app.connect("doctree-read", finish_links_and_pictures)
    app.connect("doctree-resolved", explain_words)
    app.connect("html-collect-pages", verdicts_page)
    app.connect("html-page-context", complete_page)
    app.connect("build-finished", finish_site)
