"""The plans in TEACHING.md add up, and lead to sections and exercises that exist."""

import re

import nbformat
import pytest
from conventions import NOTEBOOKS, ROOT

TEXT = (ROOT / "notebooks/TEACHING.md").read_text("utf-8")
PLANS = {"90 minutes": 90, "Half a day": 240, "Day one": 360, "Day two": 360}


def rows(heading: str) -> list[tuple[int, str, str]]:
    """Minutes, notebook's file name (or nothing) and section of each row below a heading."""
    below = re.split(rf"^#{{2,3}} {heading}$", TEXT, flags=re.MULTILINE)[1]
    own = re.split(r"^#{2,3} ", below, flags=re.MULTILINE)[0]
    found = re.findall(r"^\| (\d+) \| (?:\[\d\d\]\((.+?)\))? ?\| (.+?) \|", own, re.MULTILINE)
    return [(int(minutes), notebook, section) for minutes, notebook, section in found]


@pytest.mark.parametrize("plan", PLANS)
def test_every_line_of_a_plan_is_read_and_its_minutes_add_up(plan):
    own = TEXT.split(f" {plan}\n")[1]
    table = own[own.index("| minutes") :].split("\n\n")[0]
    assert len(rows(plan)) == len(table.splitlines()) - 2
    assert sum(minutes for minutes, _, _ in rows(plan)) == PLANS[plan]


@pytest.mark.parametrize(
    ("notebook", "section"), sorted({row[1:] for plan in PLANS for row in rows(plan) if row[1]})
)
def test_every_section_and_exercise_exists(notebook, section):
    cells = [cell.source for cell in nbformat.read(ROOT / "notebooks" / notebook, 4).cells]
    if section.startswith("Exercise"):
        named = re.findall(r"\d\d-\d", section)
        assert named
        assert all(any(c.startswith(f'check("{name}"') for c in cells) for name in named)
    else:
        assert any(c.startswith(f"## {section}") for c in cells)


def test_every_sitting_has_its_line():
    table = TEXT.split("| sitting |")[1].split("\n\n")[0]
    planned = re.findall(r"(?m)^\| \[?(\d\d)", table)
    sittings = []
    for path in NOTEBOOKS:
        tags = [
            tag for cell in nbformat.read(path, 4).cells for tag in cell.metadata.get("tags", ())
        ]
        sittings += [path.name[:2]] * (1 + tags.count("sitting"))
    assert planned == sittings


def test_every_link_leads_somewhere():
    headings = {h.lower().replace(" ", "-") for h in re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)}
    for link in re.findall(r"\]\(([^)]+)\)", TEXT):
        page, _, anchor = link.partition("#")
        if page.startswith("https:"):
            continue
        assert (ROOT / "notebooks" / page).is_file() if page else anchor in headings, link


def test_every_command_exists():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"`make ([a-z]+)", TEXT):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
