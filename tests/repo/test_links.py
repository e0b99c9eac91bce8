"""What the repository's texts name is there: files, headings, commands."""

import json
import re

import pytest
import typer
from conventions import NOTEBOOKS, ROOT, source

from course.commands.app import app

# Those of another language are made from these.
PAGES = [
    p
    for f in (".", "notebooks", "helpers", "course", "benchmarks")
    for p in (ROOT / f).glob("*.md")
]
PAGES = [path for path in PAGES if path.stem.isupper()]


def text(path) -> str:
    """What a page says; of a notebook its Markdown."""
    if path.suffix != ".ipynb":
        return path.read_text("utf-8")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join(source(cell) for cell in cells if cell["cell_type"] == "markdown")


def anchors(path) -> set[str]:
    """The headings of a page as GitHub and as JupyterLab call them, and what it names itself."""
    headings = re.findall(r"^#+ (.*)$", text(path), re.MULTILINE)
    named = {name for heading in headings for name in re.findall(r'id="([^"]+)"', heading)}
    plain = [re.sub(r"<[^>]*>|[`*]|\]\([^)]*\)|(?<!\w)\[", "", heading) for heading in headings]
    small = {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in plain}
    lab = {name.replace(" ", "-").replace("(", "%28").replace(")", "%29") for name in plain}
    return named | small | lab


def dead(path) -> list[str]:
    """The links of a page or notebook that lead to no file, or to no heading of it."""
    found = []
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text(path), flags=re.M | re.S)
    for link in re.findall(r"\]\((?!\w+:)([^)\s]+)", prose):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        readable = target.suffix in (".md", ".ipynb") and target.is_file()
        if not target.exists() or (anchor and readable and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("path", [*PAGES, *NOTEBOOKS], ids=lambda p: f"{p.parent.name}/{p.name}")
def test_every_link_inside_the_repository_leads_somewhere(path):
    assert dead(path) == []


def test_every_command_that_a_page_names_exists():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    known = typer.main.get_command(app).commands
    for path in (p for p in (*PAGES, *NOTEBOOKS) if p.name != "CHANGELOG.md"):
        said = text(path)
        for target in re.findall(r"`make ([a-z]+)", said):
            assert re.search(rf"^(?:[a-z]+ )*{target}(?: [a-z]+)*:", makefile, re.M), (path, target)
        for name, more in re.findall(r"tpu-course (?!of|and|is|itself)([a-z]+)([^`\n]*)", said):
            options = {o for p in known[name].params for o in (*p.opts, *p.secondary_opts)}
            typed = {*re.findall(r"(?<=\s)--[\w-]+", more.partition(" -- ")[0])}
            assert typed <= options | {"--help"}, more
