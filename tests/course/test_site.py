"""What the pages are made from: links, pictures with words, a page for each symptom."""

import json
import re
from pathlib import Path

import pytest
from conventions import ROOT

from helpers.base import language
from helpers.course import map as course
from helpers.course.editions import site
from helpers.course.help.explain import SYMPTOMS

LANGUAGES = ["en", *language.translations()]


@pytest.fixture(scope="module", params=LANGUAGES)
def written(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / request.param
    site.write(folder, request.param)
    return folder


def links(folder):
    for path in (path for kind in ("md", "ipynb") for path in folder.rglob(f"*.{kind}")):
        for link in re.findall(r"\]\((?!#|\w+:)([^)#\s]+\.\w+)", path.read_text("utf-8")):
            yield path, link


def test_every_link_of_the_sources_leads_to_a_page_or_a_picture(written):
    assert len(list(links(written))) > 200
    assert [
        (path.name, to) for path, to in links(written) if not (path.parent / to).is_file()
    ] == []


def test_the_first_page_lists_every_notebook_in_order_and_every_text(written):
    text = (written / "index.md").read_text("utf-8")
    found = re.findall(r"^(?:(\d\d) .*<)?notebooks/([\w-]+)>?$", text, re.MULTILINE)
    names = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
    assert [name for number, name in found if number] == names
    folder, _ = course.edition(written.name)
    texts = {path.stem for path in folder.glob("*.md")}
    assert {name for number, name in found if not number} == texts


def test_each_symptom_has_a_page_with_the_words_of_its_message(written):
    pages = {path.stem: path.read_text("utf-8") for path in (written / "symptoms").iterdir()}
    assert len(pages) == len(SYMPTOMS)
    page = pages["the-on-chip-memory-vmem"]
    name = language.translated("The on-chip memory (vmem)", written.name)
    assert "exceeded scoped vmem limit" in page and f"\n# {name}\n" in page
    listed = (written / "notebooks/TROUBLESHOOTING.md").read_text("utf-8")
    assert listed.count("](../symptoms/") == len(SYMPTOMS)


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("[![Open](https://x.invalid/a.svg)](https://y.invalid)", "[Open](https://y.invalid)"),
        (
            "[![Open in A](https://x.invalid/a.svg)](https://a.invalid)\n"
            "[![Open in B](https://x.invalid/b.svg)](https://b.invalid)",
            "[Open in A](https://a.invalid) · [Open in B](https://b.invalid)",
        ),
        ("[law](../LICENSE#a)", f"[law]({site.REPOSITORY}/blob/main/LICENSE#a)"),
        ("[home](../README.md#ways-in)", "[home](../index.md#ways-in)"),
        ('## <a id="HBM"></a>HBM', "## HBM"),
        ("[own](#here) [word](GLOSSARY.md#HBM)", "[own](#here) [word](GLOSSARY.md#HBM)"),
    ],
)
def test_markdown_is_changed_where_a_page_needs_it(text, page):
    assert site._markdown(text, ROOT / "notebooks/GLOSSARY.md", site.pages()) == page


def test_a_page_leads_to_the_same_page_in_the_other_languages_or_to_their_first():
    def targets(page, code):
        links = re.findall('href="([^"]*)" hreflang="([^"]*)"', site._switch(Path(page), code))
        return {language: to for to, language in links}

    assert targets("notebooks/02_xla_rules.html", "en")["ko"] == "../ko/notebooks/02_xla_rules.html"
    assert targets("notebooks/02_xla_rules.html", "ko")["en"] == "../../notebooks/02_xla_rules.html"
    assert targets("CHANGELOG.html", "en")["ko"] == "ko/index.html"
    assert targets("symptoms/the-on-chip-memory-vmem.html", "ko")["en"][:15] == "../../symptoms/"


@pytest.mark.parametrize(
    ("kind", "stored", "coded"),
    [("image/png", "AAAA\n", "AAAA"), ("image/svg+xml", ["<s", "vg>"], "PHN2Zz4=")],
)
def test_a_picture_keeps_its_words_and_a_widget_is_its_first_picture(tmp_path, kind, stored, coded):
    view = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "VBox()"}
    beside = {kind: {"alt": 'a < "b"', "width": 20}}
    output = {"data": view | {kind: stored}, "metadata": beside}
    cell = {"cell_type": "code", "metadata": {}, "outputs": [output]}
    cell["source"] = ["# @title Optional: draw\n", "draw()"]
    path = tmp_path / "01_a.ipynb"
    path.write_text(json.dumps({"cells": [cell]}))
    (made,) = json.loads(site._notebook(path, {}, "en"))["cells"]
    (shown,) = made["outputs"]
    picture = f'<img src="data:{kind};base64,{coded}" alt="a &lt; &quot;b&quot;" width="20"'
    picture += ' style="--own: 20px">'
    picture += "<p><em>a &lt; &quot;b&quot;</em></p>"
    assert shown["data"] == {"text/plain": "VBox()", "text/html": picture}
    assert made["source"] == "# @title Optional: draw\ndraw()"
    assert made["metadata"]["mystnb"] == {"code_prompt_show": "Optional: draw"}


def test_an_edition_s_folded_cells_are_named_in_its_language_and_its_readme_leads_to_no_other():
    names = site.pages("ko")
    path = next(path for path in names if path.name == "00_start_here.ipynb")
    cells = json.loads(site._notebook(path, names, "ko"))["cells"]
    said = [c["metadata"]["mystnb"]["code_prompt_show"] for c in cells if "mystnb" in c["metadata"]]
    assert said and all(re.search("[가-힣]", title) for title in said)
    readme = site._markdown("# A\n\n[English](README.md)\n\nB", ROOT / "README.ko.md", names)
    assert readme == "# A\n\n\nB"


def test_a_notebooks_symptoms_have_one_address_in_every_language():
    assert [*map(site.slug, ("Notebook 04", "노트북 04", "Ways in"))] == [
        *("Notebook-04", "Notebook-04", "Ways-in")
    ]
