"""What the repository's texts name is there: files, headings, commands."""

import json
import re

import pytest
import typer
from conventions import NOTEBOOKS, ROOT, source

from course.commands.app import app

FOLDERS = (".", "notebooks", "helpers", "course", "benchmarks")


def pages() -> list:
    """The pages in English; those of another language are made from them."""
    paths = []
    for folder in FOLDERS:
        paths += [path for path in (ROOT / folder).glob("*.md") if path.stem.isupper()]
    return paths


PAGES = pages()


def text(path) -> str:
    """What a page says; of a notebook its Markdown."""
    if path.suffix != ".ipynb":
        return path.read_text("utf-8")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join(source(cell) for cell in cells if cell["cell_type"] == "markdown")


def anchors(path) -> set[str]:
    """The headings of a page as GitHub and as JupyterLab call them, and what it names itself."""
    names = set()
    for heading in re.findall(r"^#+ (.*)$", text(path), re.MULTILINE):
        names.update(re.findall(r'id="([^"]+)"', heading))
        plain = re.sub(r"<[^>]*>|[`*]|\]\([^)]*\)|(?<!\w)\[", "", heading)
        names.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
        names.add(plain.replace(" ", "-").replace("(", "%28").replace(")", "%29"))
    return names


def dead_links(path) -> list[str]:
    """The links of a page or notebook that lead to no file, or to no heading of it."""
    links = []
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text(path), flags=re.M | re.S)
    for link in re.findall(r"\]\((?!\w+:)([^)\s]+)", prose):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        has_headings = target.suffix in (".md", ".ipynb") and target.is_file()
        if not target.exists() or (anchor and has_headings and anchor not in anchors(target)):
            links.append(link)
    return links


@pytest.mark.parametrize("path", [*PAGES, *NOTEBOOKS], ids=lambda p: f"{p.parent.name}/{p.name}")
def test_every_link_inside_the_repository_leads_somewhere(path):
    assert dead_links(path) == []


# What is there today, of what the changelog tells, is in other pages.
TEXTS = [path for path in (*PAGES, *NOTEBOOKS) if path.name != "CHANGELOG.md"]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_command_that_a_page_names_exists(path):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"`make ([a-z]+)", text(path)):
        assert re.search(rf"^(?:[a-z]+ )*{target}(?: [a-z]+)*:", makefile, re.MULTILINE), target
    commands = typer.main.get_command(app).commands
    calls = re.findall(r"tpu-course (?!of|and|is|itself)([a-z]+)([^`\n]*)", text(path))
    for name, words in calls:
        options = {"--help"}
        for parameter in commands[name].params:
            options.update(parameter.opts, parameter.secondary_opts)
        typed = re.findall(r"(?<=\s)--[\w-]+", words.partition(" -- ")[0])
        assert options.issuperset(typed), words
