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
TAKE = "Will a TPU take it?"
NUMBERED = {f"{FOLDER}/{n.name}": n for n in catalog.notebooks(ROOT / FOLDER)}

project = html_title = "TensorFlow on TPU"
language = EDITION
root_doc = "README" if EDITION == ENGLISH else f"README.{EDITION}"
include_patterns = [f"{root_doc}.md", f"{FOLDER}/*.md", f"{FOLDER}/*.ipynb"]
include_patterns += ["CHANGELOG.md", "CONTRIBUTING.md"] * (EDITION == ENGLISH)
exclude_patterns = [".*", "build", "work", "*/data", "tests", "helpers", "course", "tpu_preflight"]
extensions = ["myst_nb"]
myst_enable_extensions = ["tasklist"]
myst_heading_anchors = 4
myst_heading_slug_func = "course.catalog.slug"
nb_execution_mode = "off"
nb_code_prompt_show, nb_code_prompt_hide = map(translated, ("Show the code", "Hide the code"))
suppress_warnings = ["myst.xref_missing", "myst.header", "misc.highlighting_failure"]
smartquotes_action = "q"  # --flag stays --flag
html_theme = "furo"
html_static_path, templates_path = ["site.css", "site.js"], ["."]
# A page that no server sends can't fetch the texts in which Sphinx's search shows a word.
FETCH = """if (location.protocol == "file:") window.fetch = async (url) => ({
  text: async () => TEXTS[url.slice(document.documentElement.dataset.content_root.length)] });
"""
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_copy_source = html_show_sourcelink = html_show_sphinx = html_show_copyright = False
html_sidebars = {"**": [f"sidebar/{x}.html" for x in ("brand", "search", "scroll-start")]}
html_sidebars["**"] += ["sidebar/navigation.html", "sidebar/scroll-end.html", "languages.html"]


class Korean(SearchLanguage):
    """Finds a Korean word also where a particle follows it."""

    lang = "ko"

    def split(self, input: str) -> list[str]:
        """Give the words of a text, and those without their particles."""
        words = super().split(input)
        stems = (PARTICLES.fullmatch(word) for word in words)
        return [*words, *(found[1] for found in stems if found)]


PARTICLES = re.compile(
    r"(\w{2,}?)(?:은|는|이|가|을|를|의|에|에서|에는|로|으로|와|과|도|만|까지|부터|보다|입니다|이다)"
)


def contents(app: object, docname: str, source: list[str]) -> None:
    """List the pages in the sidebar, notebooks by number, then texts; let a page answer."""
    # In the list of headings an anchor would stand within a link; `slug` names the headings.
    source[0] = re.sub(r'<a id="[\w-]+"></a>', "", source[0])
    if docname in NUMBERED:
        source[0] = pages.answered(source[0])
    elif docname.endswith("TROUBLESHOOTING"):
        form = f"\n```{{raw}} html\n{pages.symptoms()}\n```\n\n## "
        source[0] = source[0].replace("\n## ", form, 1)
    if docname == root_doc:
        rows = [f"{n.number} {n.title} <{name}>" for name, n in NUMBERED.items()]
        rows += sorted(app.env.found_docs - {*NUMBERED, root_doc})
        cards = f"\n```{{raw}} html\n{pages.cards(NUMBERED)}\n```\n\n| "
        source[0] = source[0].replace("\n| ", cards, 1)
        source[0] += "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(rows) + "\n```\n"


def settled(app: object, doctree: nodes.document) -> None:
    """Let links to other files lead to the repository, and pictures have words.

    A far picture (a badge) is its words; one of a cell takes those that stand below it.
    """
    for kind in (addnodes.download_reference, addnodes.pending_xref):
        for node in [*doctree.findall(kind)]:
            if node["reftype"] == "myst" and node["reftarget"] not in app.env.found_docs:
                here = pathlib.Path(app.env.docname).parent
                path = os.path.normpath(here / node["reftarget"])
                suffix = ".md" if node.get("refdomain") == "doc" else ""
                address = f"{PROJECT['urls']['Repository']}/blob/main/{path}{suffix}"
                node.replace_self(nodes.reference("", "", *node.children, refuri=address))
    for image in [*doctree.findall(nodes.image)]:
        words = image.findall(nodes.emphasis, include_self=False, ascend=True)
        image.setdefault("alt", next((word.astext() for word in words), ""))
        if "://" in image["uri"]:
            image.replace_self(nodes.Text(f"{image['alt']} "))


def more(app: object) -> list[tuple[str, dict, str]]:
    """Give the page that no file holds: a search in the tables of verdicts."""
    context = {"title": translated(TAKE), "body": pages.verdicts()}
    return [(f"{FOLDER}/takes", context, "page.html")]


def page(app: object, name: str, template: str, context: dict, doctree: object) -> None:
    """Lead to the same page in the other languages, or to their first; mark the page to print."""
    if name == "search":
        app.add_js_file("texts.js")
    if name.endswith("CHEATSHEET"):
        context["body"] = f'<div id="one-page">{context["body"]}</div>'
    context["take"], context["paste"] = map(translated, (TAKE, "Paste an error"))
    context["here"], context["languages"] = FOLDER, []
    for code in sorted({ENGLISH, *translations()} - {EDITION}):
        there = catalog.edition(code)[0].relative_to(ROOT) / pathlib.Path(name).name
        own = [*ROOT.glob(f"{there}.*")] and name.startswith("notebooks")
        to = f"{there}.html" if own else "index.html"
        root = "" if code == ENGLISH else f"{code}/"
        up = "" if EDITION == ENGLISH else "../"
        said = Locale.parse(code).get_display_name()
        context["languages"].append((code, f"{up}{root}{to}", said))


def first(app: object, error: Exception | None) -> None:
    """Give the first page the name that a server and a reader look for; keep texts to search."""
    out, texts = pathlib.Path(app.outdir), {}
    for name in app.env.found_docs:
        tree = app.env.get_doctree(name)
        for raw in [*tree.findall(nodes.raw)]:
            raw.parent.remove(raw)
        texts[f"{name}.html"] = f'<div role="main">{html.escape(tree.astext())}</div>'
    (out / "_static/texts.js").write_text(f"const TEXTS = {json.dumps(texts)};\n{FETCH}", "utf-8")
    shutil.copy(out / f"{root_doc}.html", out / "index.html")
    shutil.rmtree(out / "jupyter_execute", ignore_errors=True)  # the pictures, once more


def setup(app: object) -> None:
    """Tell Sphinx what is ours."""
    app.add_search_language(Korean)
    app.connect("source-read", contents)
    app.connect("doctree-read", settled)
    app.connect("html-collect-pages", more)
    app.connect("html-page-context", page)
    app.connect("build-finished", first)
