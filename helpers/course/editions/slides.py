"""The notebooks as slides: decks for reveal.js, each one file that opens without a network.

The marks in the notebooks (``slideshow``, as JupyterLab writes it) say where a section begins
(``slide``), where a slide may begin (``subslide``) and what is left out (``skip``). The rest is
done here: what belongs together shares a slide while it fits, and a class sees the question first,
then the code, then its output.
"""

import base64
import functools
import math
import pathlib
import re
import struct
import tomllib
from collections.abc import Iterator

import nbformat
from bs4 import BeautifulSoup
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook

from helpers import exercises
from helpers.base import html
from helpers.base.errors import CourseError
from helpers.base.language import ENGLISH, language, translated
from helpers.base.settings import ROOT
from helpers.course import map as course
from helpers.course.editions import pages

# `make slides` unpacks it here: a package of the index that carries reveal.js.
REVEAL = pathlib.Path("sphinx_revealjs/_static/revealjs")

WELCOME = ROOT / "notebooks" / "WELCOME.md"  # to be projected while people install
NOTES = pathlib.Path(__file__).with_name("notes.toml")

MOST = 45  # slides of a deck: more than one can show in the longest sitting of a workshop
FEWEST_WORDS = 15  # a slide with fewer, and without a picture, joins its neighbour
PICTURE = 400  # points: the height of a picture in slides.css
FULL = 680  # points of the 720 of a slide, as `_height` estimates them
TIGHT = 110  # points that one slide may have more, rather than two that look empty: drawn smaller
LITTLE = 200  # points: a slide with a text of less would look empty
LONGEST_OUTPUT, MOST_ROWS = 18, 12  # lines, and rows of a table; the rest is in the notebook

_LEFT_OUT = {"beyond-core", "setup", "parameters", "exercise", "question"}
# How these paragraphs begin, in English; `arrange` asks for other languages' words.
_ASKED, _STOP = "Before you run it.", "A good place to stop."
# A text that leads to code or asks what it does; in English, whose colon another language may lack.
_LEADS = re.compile(rf":\s*\Z|^\*\*{_ASKED}\*\*", re.MULTILINE)
_BADGES = re.compile(r"^(\[!\[[^\]]*\]\([^)]*\)\]\([^)]*\)\s*)+", re.MULTILINE)

# As on the other pages, but for the script that turns the slides; nothing is fetched.
_POLICY = f"{html.POLICY}; script-src 'unsafe-inline'"


def _tags(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", ()))


def _mark(cell: NotebookNode) -> str:
    return cell.metadata.get("slideshow", {}).get("slide_type", "-")


def _marked(cell: NotebookNode, mark: str, *tags: str) -> NotebookNode:
    cell.metadata = nbformat.from_dict({"slideshow": {"slide_type": mark}, "tags": [*tags]})
    return cell


def _has_picture(cell: NotebookNode) -> bool:
    data = [output.get("data", {}) for output in cell.get("outputs", ())]
    return any("<svg" in d.get("text/html", "") or any("image/" in k for k in d) for d in data)


def _shown(output: NotebookNode) -> str:
    """Give an output as HTML, or as text if it has none."""
    data = output.get("data", {})
    return (
        data.get("text/html")
        or data.get("text/markdown")
        or output.get("text", data.get("text/plain", ""))
    )


def _words(cell: NotebookNode) -> int:
    texts = [cell.source, *(re.sub("<[^>]*>", " ", _shown(o)) for o in cell.get("outputs", ()))]
    return sum(len(re.findall(r"\w+", text)) for text in texts)


def _lines(text: str, most: int, each: float) -> float:
    return each * sum(max(1, math.ceil(len(line) / most)) for line in text.splitlines())


def _picture(output: NotebookNode) -> float:
    png = output.get("data", {}).get("image/png")
    if not png:
        return PICTURE
    width, height = struct.unpack(">II", base64.b64decode(png[:44])[16:24])
    return min(PICTURE, height * output.metadata["image/png"].get("width", width) / width)


def _height(cell: NotebookNode) -> float:
    """Estimate how many points of a slide a block takes, as slides.css draws it."""
    if cell.cell_type == "markdown":
        points = 8.0
        for line in cell.source.splitlines():
            if line.startswith("#"):
                points += 52
            elif line.startswith("!["):
                points += PICTURE
            elif line.startswith("|"):
                points += 32 * max(1, math.ceil(len(line) / 150))
            else:
                points += _lines(line, 118, 31) if line.strip() else 20
        return points
    points = 0.0 if "hide-input" in _tags(cell) else 16 + _lines(cell.source, 118, 22)
    for output in cell.get("outputs", ()):
        data, text = output.get("data", {}), _shown(output)
        rows = text.count("<tr")
        if any("image/" in kind for kind in data) or "<svg" in text:
            points += 40 + _picture(output)
        elif rows:
            points += 28 + 24 * rows + 0.12 * len(re.sub("<[^>]*>", "", text))
        else:
            blocks = len(re.findall(r"<(?:p|pre|li|summary|h\d)\b", text))
            points += 14 + 26 * blocks + _lines(re.sub("<[^>]*>", "", text), 122, 22)
    return points


def _total(cells: list[NotebookNode]) -> float:
    return sum(_height(cell) for cell in cells if _mark(cell) != "notes")


def _cut(output: NotebookNode, code: str) -> NotebookNode:
    """Shorten an output that would have to scroll, and say so."""
    if "text" in output:
        lines = output.text.splitlines()
        if len(lines) > LONGEST_OUTPUT + 1:
            more = f"… ({len(lines) - LONGEST_OUTPUT} more lines in the notebook)"
            output.text = "\n".join([*lines[:LONGEST_OUTPUT], translated(more, code)])
    elif "<tr" in output.get("data", {}).get("text/html", ""):
        soup = BeautifulSoup(output.data["text/html"], "html.parser")
        for table in soup.select("table"):
            extra = table.select("tr")[MOST_ROWS + 1 :]
            for row in extra[1:]:
                row.decompose()
            if extra[1:]:
                extra[0].clear()
                cell = soup.new_tag("td", attrs={"colspan": "99"})
                more = f"… ({len(extra)} more rows in the notebook)"
                cell.string = translated(more, code)
                extra[0].append(cell)
        output.data["text/html"] = str(soup)
    return output


def _leading(node: NotebookNode, number: str, code: str) -> set[str]:
    """Find the texts that lead to the cell below them, by their ids."""
    english = [] if code == ENGLISH else [*course.NOTEBOOKS.glob(f"{number}_*.ipynb")]
    cells = read(english[0]).cells if english else node.cells
    return {c.id for c in cells if c.cell_type == "markdown" and _LEADS.search(c.source)}


def _units(cell: NotebookNode, code: str, leads: bool) -> Iterator[list[NotebookNode]]:
    """Divide a cell into what must stay on one slide: a text, or code with its output."""
    mark = _mark(cell)
    if cell.cell_type == "markdown":
        stop = rf"^\*{re.escape(translated(_STOP, code))}(?:.|\n.)*\n?"
        source = re.sub(stop, "", _BADGES.sub("", cell.source), flags=re.MULTILINE).strip()
        parts = [source]
        if _height(new_markdown_cell(source)) > FULL:
            parts = re.split(r"\n\n(?=\S)(?![|`])", source)
        for at, part in enumerate(parts, 1):
            tags = ["leads"] if leads and at == len(parts) else []
            yield [_marked(new_markdown_cell(part), mark, *tags)]
            mark = "-"
        return
    typed = nbformat.from_dict({**cell, "outputs": [], "id": f"{cell.id}-code"})
    unit = [] if "hide-input" in _tags(cell) else [_marked(typed, mark)]
    for output in (_cut(output, code) for output in cell.outputs):
        if unit and "text/markdown" in output.get("data", {}) and _has_picture(unit[-1]):
            unit[-1].outputs.append(output)  # the sentence below a picture comes with it
            continue
        shown = {**cell, "outputs": [output], "id": f"{cell.id}-{len(unit)}"}
        unit.append(_marked(nbformat.from_dict(shown), "-" if unit else mark, "hide-input"))
    if unit and _total(unit) <= FULL:
        yield unit
    else:
        yield from ([block] for block in unit)


def _answers(cell: NotebookNode, code: str) -> list[NotebookNode]:
    """Write the right answer to a question as a text, and for the speaker what the others get."""
    name = re.search(r'check\("(\d\d-[a-z])"', cell.source)[1]
    asked = exercises.questions(name[:2])[name]
    wrong = (f"- ({letter}) {translated(why, code)}" for letter, why in asked.wrong.items())
    note = "\n".join([translated("Let them vote, then press on.", code), "", *wrong])
    because = f"**({asked.right})** {translated(asked.because, code)}"
    return [_marked(new_markdown_cell(because), "-"), _marked(new_markdown_cell(note), "notes")]


def _kept(node: NotebookNode, number: str, code: str) -> Iterator[list[NotebookNode]]:
    """Give the units of what a class is shown; a question's answer follows the code it asks of."""
    leading = _leading(node, number, code)
    answers: list[NotebookNode] = []
    for cell in nbformat.from_dict(node).cells:
        if "beyond-core" not in _tags(cell) and "question" in _tags(cell):
            answers = _answers(cell, code)
        if _tags(cell) & _LEFT_OUT or _mark(cell) in ("skip", "notes"):
            continue
        yield from _units(cell, code, cell.id in leading)
        if cell.cell_type == "code":
            yield from [answers] if answers else []
            answers = []


def _short(slide: list[NotebookNode]) -> bool:
    words = sum(_words(cell) for cell in slide if _mark(cell) != "notes")
    return words < FEWEST_WORDS and not any(map(_has_picture, slide))


def _led(units: Iterator[list[NotebookNode]]) -> Iterator[list[NotebookNode]]:
    """Join a text that leads to code, or asks what it does, with it, if both fit on a slide."""
    text: list[NotebookNode] = []
    for unit in units:
        if text and _total(text + unit) > FULL + (TIGHT if _total(text) < LITTLE else 0):
            yield text
            text = []
        joined, text = text + unit, []
        if "leads" in _tags(joined[-1]):
            text = joined
        else:
            yield joined
    if text:
        yield text


def _packed(units: list[list[NotebookNode]], begins: str) -> list[list[NotebookNode]]:
    """Put units on slides: a slide ends where a text ``begins`` the next, and where it is full."""
    slides: list[list[NotebookNode]] = []
    for unit in units:
        text = unit[0].source if unit[0].cell_type == "markdown" else ""
        little = slides and _total(slides[-1]) < LITTLE
        ends = re.match(begins, text) and not (little and text[0] != "#")
        room = FULL + (TIGHT if text or little else 0)
        fits = slides and not ends and _total(slides[-1] + unit) <= room
        if fits or (slides and _short(slides[-1])):
            slides[-1] += unit
        else:
            slides.append(list(unit))
    if len(slides) > 1 and _short(slides[-1]):
        slides[-2:] = [slides[-2] + slides[-1]]
    return slides


def _note(number: str, cell: NotebookNode, code: str) -> list[NotebookNode]:
    """Give the speaker's note to a section, if there is one, as a cell that reveal.js hides."""
    heading = re.match(r"#+ (.+)", cell.source)
    note = notes(code).get(number, {}).get(heading[1] if heading else "")
    if not note:
        return []
    minutes = translated(f"{note['minutes']} minutes.", code)
    lines = [f"**{minutes}** {note['ask']}", ""]
    lines += [f"- {wrong}" for wrong in note["wrong"]]
    return [_marked(new_markdown_cell("\n".join(lines)), "notes")]


def _headings(path: pathlib.Path) -> list[str]:
    cells = nbformat.reads(path.read_text("utf-8"), as_version=4).cells
    texts = (cell.source for cell in cells if cell.cell_type == "markdown")
    return [heading for text in texts for heading in re.findall(r"(?m)^#+ (.+)$", text)]


@functools.cache
def notes(code: str = ENGLISH) -> dict[str, dict[str, dict]]:
    """Read the speaker's notes: by a notebook's number and a heading in it.

    Each has ``ask`` (the question to ask), ``wrong`` (the usual wrong guesses, with what to say)
    and ``minutes``. In another language (its ``code``) the headings are those of its notebooks,
    which are as many and in the same order.
    """
    english = tomllib.loads(NOTES.read_text("utf-8"))
    if code == ENGLISH:
        return english
    found: dict[str, dict[str, dict]] = {}
    for notebook in course.notebooks():
        number = notebook.path.stem[:2]
        here = course.edition(code)[0] / notebook.path.name
        names = dict(zip(_headings(notebook.path), _headings(here), strict=True))
        for heading, note in english.get(number, {}).items():
            wrong = [translated(text, code) for text in note["wrong"]]
            said = {"ask": translated(note["ask"], code), "wrong": wrong}
            found.setdefault(number, {})[names[heading]] = note | said
    return found


def arrange(node: NotebookNode, number: str, code: str = ENGLISH) -> NotebookNode:
    """Arrange a notebook's cells as slides; the notebook itself is not changed.

    Of the copy, each cell is what appears at one press of a key: a text, a code, its outputs.
    What begins a slide is marked ``slide`` or ``subslide``.

    Args:
        node: The notebook with its outputs.
        number: Its number, such as ``02``, by which its speaker's notes are found.
        code: Its language.
    """
    cells: list[NotebookNode] = []
    asked = re.escape(f"**{translated(_ASKED, code)}**")
    units = [*_led(_kept(node, number, code))]
    # What begins a slide though there is room on the last one: a deck that would be too long gives
    # up questions, then lesser headings.
    for begins in (rf"#|{asked}", "#", "##? "):
        slides = _packed(units, begins)
        if len(slides) <= MOST:
            break
    for slide in slides:
        first, *rest = slide
        section = not cells or _mark(first) == "slide"
        cells.append(_marked(first, "slide" if section else "subslide", *_tags(first)))
        cells += [note for cell in slide for note in _note(number, cell, code)]
        for cell in rest:
            own = "notes" if _mark(cell) == "notes" else "fragment"
            cells.append(_marked(cell, own, *_tags(cell)))
    return nbformat.from_dict({**node, "cells": cells})


def count(arranged: NotebookNode) -> int:
    """Count the slides of what `arrange` gives."""
    return sum(_mark(cell) in ("slide", "subslide") for cell in arranged.cells)


def read(path: pathlib.Path) -> NotebookNode:
    """Read a notebook, or a text (``.md``): each of its sections becomes a slide."""
    text = path.read_text("utf-8")
    if path.suffix != ".md":
        return nbformat.reads(text, as_version=4)
    sections = re.split(r"^(?=#{1,2} )", text, flags=re.MULTILINE)
    cells = [_marked(new_markdown_cell(part), "slide") for part in sections if part.strip()]
    return new_notebook(cells=cells)


@functools.cache
def _exporter() -> "nbconvert.SlidesExporter":  # noqa: F821
    from nbconvert.preprocessors import TagRemovePreprocessor

    no_script = "{%- block footer_js -%}{%- endblock -%}"
    exporter = pages.exporter("SlidesExporter", "reveal", no_script)
    exporter.register_preprocessor(
        TagRemovePreprocessor(remove_input_tags={"hide-input"}), enabled=True
    )
    return exporter


def deck(arranged: NotebookNode, path: pathlib.Path, title: str, reveal: pathlib.Path) -> str:
    """Write what `arrange` gives as one page, with reveal.js (MIT licence) inside.

    ``path`` is the notebook's, ``reveal`` where the package that carries reveal.js is unpacked.

    Raises:
        CourseError: reveal.js is not in that folder.
    """
    dist = reveal / REVEAL / "dist"
    try:
        style, script = ((dist / file).read_text("utf-8") for file in ("reveal.css", "reveal.js"))
    except OSError:
        raise CourseError(
            "The slides can't be made.",
            f"reveal.js is not in {reveal}.",
            "Run `make slides`: it fetches reveal.js once.",
        ) from None
    soup = pages.page(_exporter(), arranged, path.stem, title, str(path.parent))
    soup.html["lang"] = language({}, path.parent)
    for text in (style, html.text("slides.css")):
        soup.head.append(soup.new_tag("style", string=text))
    soup.body.append(soup.new_tag("div", attrs={"class": "section-name"}))
    for text in (script, html.text("slides.js")):
        soup.body.append(soup.new_tag("script", string=text))
    pages.add_policy(soup, _POLICY)
    return str(soup)
