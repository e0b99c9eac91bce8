"""The text keeps its promises: words are explained where they first stand, links lead somewhere."""

import base64
import io
import json
import re

import pytest
from conventions import NOTEBOOKS, ROOT, source
from matplotlib.image import imread

from helpers.display.figures import PALETTE

PAGES = {path.name: path.read_text("utf-8") for path in (ROOT / "notebooks").glob("*.md")}

# Said otherwise in the text than in the glossary.
SPOKEN = {
    "bounded shape": r"\*?bounded\*? shape",
    "held out": "held[ -]out",
    "length bucket": "bucket",
    "masked language model": "masked language model(?:ling)?",
}

SHOWN_ON_TPU = ("00", "04", "05", "07", "08")

Cells = list[tuple[str, str]]
NOTEBOOK = {path.name: json.loads(path.read_text("utf-8"))["cells"] for path in NOTEBOOKS}

# Notebook and text of each cell of prose in the order of the course, openings left out.
COURSE: Cells = [
    (name, source(cell))
    for name, cells in NOTEBOOK.items()
    for cell in cells[1:]
    if cell["cell_type"] == "markdown"
]


def anchors(page: str) -> set[str]:
    """Anchors of a page's headings that work both on GitHub and in JupyterLab.

    JupyterLab 4.6 makes one of the heading's text with its capitals and drops every other id
    (tried in a browser, 2026-11); GitHub makes one in small letters and keeps explicit ids.
    """
    found = set()
    for line in re.findall(r"^#+ (.*)$", page, re.MULTILINE):
        text = re.sub(r"<[^>]*>", "", line)
        lab = text.replace(" ", "-")
        github = {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")}
        found |= {lab} & (github | set(re.findall(r'<a id="([^"]*)">', line)))
    return found


def dead_links(text: str, pages: dict[str, str]) -> list[str]:
    """Links of a text to a page that is not there, or to an anchor that it doesn't have."""
    return [
        f"{page}#{anchor}"
        for page, anchor in re.findall(r"\]\((\w+\.md)(?:#([^)]*))?\)", text)
        if page not in pages or (anchor and anchor not in anchors(pages[page]))
    ]


def prose(text: str) -> str:
    """A text of the same length with code, headings, quotations and addresses blanked."""
    for pattern in (
        *(r"(?s)```.*?```", r"`[^`]*`", r"(?m)^#.*$", r"(?m)^    .*$", r"\]\([^)\s]*\)"),
        *(r"(?m)^Next: .*(?:\n.+)*$", r"[\"“][^\"”\n]*[\"”]"),
    ):
        text = re.sub(pattern, lambda m: re.sub(r"\S", " ", m[0]), text)
    return text


def not_linked_at_first_use(word: str, cells: Cells) -> str:
    """Where a word of the glossary is first used without a link to it; empty if nowhere."""
    pattern = SPOKEN.get(word, re.escape(word).replace(r"\ ", r"\s"))
    case = re.IGNORECASE if word == word.lower() else 0
    used = re.compile(rf"(?<![\w/-]){pattern}(?:s|es)?(?![\w-])", case)
    link = f"](GLOSSARY.md#{word.replace(' ', '-')})"
    for name, text in cells:
        if found := used.search(prose(text)):
            behind = text[found.end() :].lstrip("*")
            here = text[max(0, found.start() - 30) : found.end() + 30]
            return "" if behind.startswith(link) else f"{name}: {here!r}"
        if link in text:
            return ""
    return "nowhere"


WORDS = [re.sub(r"<[^>]*>", "", x) for x in re.findall(r"(?m)^## (.*)$", PAGES["GLOSSARY.md"])]


def test_the_glossary_is_in_order_and_each_word_names_its_notebook():
    assert sorted(WORDS, key=str.lower) == WORDS
    assert len(set(WORDS)) == len(WORDS) > 40
    for entry in PAGES["GLOSSARY.md"].split("\n## ")[1:]:
        assert re.search(r"\]\(\d\d_\w+\.ipynb\)", entry), entry


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_the_glossary_is_linked_where_the_course_first_uses_it(word):
    # The other kind of bucket comes first, in notebook 03.
    cells = [c for c in COURSE if c[0] > "04"] if word == "storage bucket" else COURSE
    assert not_linked_at_first_use(word, cells) == ""


def test_a_word_that_is_not_linked_is_seen():
    linked = "An [all-reduce](GLOSSARY.md#all-reduce) adds."
    assert not_linked_at_first_use("all-reduce", [("01", "`all-reduce`"), ("02", linked)]) == ""
    assert "02" in not_linked_at_first_use("all-reduce", [("02", "all-reduces"), ("03", linked)])
    assert not_linked_at_first_use("all-reduce", [("01", "Nothing.")]) == "nowhere"
    # A word in small letters may begin a sentence; one with capitals is another word without them.
    assert "01" in not_linked_at_first_use("chip", [("01", "Chips are square.")])
    assert not_linked_at_first_use("HBM", [("01", "hbm")]) == "nowhere"


@pytest.mark.parametrize("name", [*PAGES, *NOTEBOOK])
def test_links_to_texts_and_their_anchors_lead_somewhere(name):
    text = PAGES.get(name) or "\n".join(text for notebook, text in COURSE if notebook == name)
    assert dead_links(text, PAGES) == []


def test_links_of_the_readme_lead_somewhere():
    readme = (ROOT / "README.md").read_text("utf-8")
    links = "".join(re.findall(r"\]\(notebooks/\w+\.md[^)]*\)", readme))
    assert links and dead_links(links.replace("notebooks/", ""), PAGES) == []


def test_the_readme_shows_what_notebook_00_does():
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = "\n".join(re.findall(r"(?ms)^```(?:python|text)\n(.*?)^```", readme)).splitlines()
    first = NOTEBOOK["00_start_here.ipynb"]
    outputs = [
        o["data"].get("text/plain", "") for c in first for o in c.get("outputs", ()) if "data" in o
    ]
    text = "\n".join([*map(source, first), *map("".join, outputs)])
    assert len(shown) > 8 and [line for line in shown if line not in text] == []


def test_a_dead_link_is_seen():
    page = '# Words\n\n### one\n\n### <a id="TPU-VM"></a>TPU VM\n\n### XLA\n'
    assert anchors(page) == {"one", "TPU-VM"}  # XLA would work in one of the two only
    text = "[a](W.md#one) [b](W.md#TPU-VM) [c](W.md#XLA) [d](W.md) [e](V.md)"
    assert dead_links(text, {"W.md": page}) == ["W.md#XLA", "V.md#"]


def boxes_problems(cells: Cells) -> list[str]:
    """What is wrong with the boxes "What if it fails?"; each leads to a notebook's symptoms."""
    boxed = {name[:2] for name, text in cells if "> **What if it fails?** " in text}
    broken = [f"{name} has no box" for name in SHOWN_ON_TPU if name not in boxed]
    for name, text in cells:
        for found in re.finditer(r"\*\*What if it fails\?\*\*", text):
            box = re.match(r"> .*(?:\n> .*)*", text[max(0, found.start() - 2) :])
            if not box or "](TROUBLESHOOTING.md#Notebook-" not in re.sub(r"\n> ", " ", box[0]):
                broken.append(f"{name}: no box, or no link to the symptoms")
    return broken


def test_what_if_it_fails_is_answered_where_a_tpu_is_used_and_a_box_of_another_form_is_seen():
    assert boxes_problems(COURSE) == []
    link = "[Notebook 04](TROUBLESHOOTING.md#Notebook-04)"
    good = [(name, f"Text.\n\n> **What if it fails?** See\n> {link}.") for name in SHOWN_ON_TPU]
    assert boxes_problems(good) == []
    assert boxes_problems(good[1:]) == ["00 has no box"]
    assert boxes_problems([*good, ("01", f"**What if it fails?** {link}")])
    assert boxes_problems([*good, ("01", f"> **What if it fails?** Ask.\n\n{link}")])


def test_an_issue_is_named_by_a_link():
    for _, text in COURSE:
        assert not re.search(r"(?<![\[\w./-])[\w-]+/[\w.-]+#\d+", prose(text)), text


AWKWARD = dict(
    line.split("\t")
    for line in (ROOT / "tests/repo/awkward.tsv").read_text("utf-8").splitlines()[1:]
)


def test_no_phrase_that_reads_awkwardly():
    texts = {name: "\n".join(map(source, cells)) for name, cells in NOTEBOOK.items()} | PAGES
    files = ["README.md", "CONTRIBUTING.md", "helpers/course/help/symptoms.toml"]
    files += map(str, (ROOT / "helpers/exercises").glob("*.toml"))
    texts |= {name: (ROOT / name).read_text("utf-8") for name in files}
    found = [
        f"{name}: {hit[0]!r}: {better}"
        for name, text in texts.items()
        for phrase, better in AWKWARD.items()
        for hit in re.finditer(phrase.replace(" ", r"\s"), text)
    ]
    assert found == []
    assert len(AWKWARD) > 10


def figures(name: str) -> list[bytes]:
    outputs = [output for cell in NOTEBOOK[name] for output in cell.get("outputs", ())]
    pictures = [output.get("data", {}).get("image/png") for output in outputs]
    return [base64.b64decode("".join(picture)) for picture in pictures if picture]


@pytest.mark.parametrize("name", [name for name in NOTEBOOK if figures(name)])
def test_a_figure_brings_its_white_ground_so_that_it_is_read_in_the_dark(name):
    for png in figures(name):
        picture = imread(io.BytesIO(png))
        assert picture[..., 3].min() == 1.0
        assert picture[[0, 0, -1, -1], [0, -1, 0, -1]].min() == 1.0


def test_figures_take_their_colours_from_the_palette():
    named = []
    for cells in NOTEBOOK.values():
        code = "\n".join(source(cell) for cell in cells if cell["cell_type"] == "code")
        named.append(set(re.findall(r"""color["']?[=:]\s*["']([^"']+)["']""", code)))
    assert sum(map(bool, named)) >= 3  # the pattern finds colours at all
    assert set().union(*named) <= {*PALETTE, "black", "white"}
