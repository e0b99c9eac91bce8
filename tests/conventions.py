"""The rules every notebook of the course keeps, as one function per notebook.

``problems(notebook, name)`` lists what is broken; ``test_conventions.py`` runs it on the course and
proves on broken notebooks that each rule can fail.
"""

import pathlib
import re
import statistics
import tomllib
from collections.abc import Iterator

from helpers import exercises

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

LONGEST_CELL = 25
LONGEST_MEDIAN = 6  # of the lines that are shown of a cell
LONGEST_OF_NINE_IN_TEN = 12
MOST_IGNORED = 0.25
SLIDE_MARKS = {"slide", "subslide", "fragment", "-", "skip", "notes"}
ABSOLUTE = re.compile(
    r"(?:(?<![\w:/.])/(?:home|root|tmp|Users|usr|var|opt|mnt|private|content)/\w)|\b[A-Z]:\\\w"
)
# How a cell tagged ``hide-input`` is folded: in JupyterLab, and as a form in Colab.
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def repository() -> str:
    """The public address, from the one place where it is written."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project["urls"]["Repository"]


def badges(name: str) -> dict[str, str]:
    """The links of the badges that belong to a notebook, by the place that they open it in."""
    page = f"{repository()}/blob/main/notebooks/{name}"
    return {
        "Colab": page.replace("https://github.com/", "https://colab.research.google.com/github/"),
        "Kaggle": f"https://kaggle.com/kernels/welcome?src={page}",
    }


def source(cell: dict) -> str:
    return "".join(cell["source"])


def tags(cell: dict) -> list[str]:
    return cell["metadata"].get("tags", [])


def tagged(notebook: dict, tag: str) -> list[int]:
    return [at for at, cell in enumerate(notebook["cells"]) if tag in tags(cell)]


def shown(cell: dict) -> str:
    """Everything that a cell's outputs show as text."""
    outputs = cell.get("outputs", ())
    data = [x for o in outputs for kind, x in o.get("data", {}).items() if kind[:5] == "text/"]
    return "\n".join(map("".join, [*data, *(output.get("text", "") for output in outputs)]))


def _opening(notebook: dict, code: list[dict], name: str) -> Iterator[str]:
    first = notebook["cells"][0]
    text = source(first)
    if first["cell_type"] != "markdown" or not re.match(r"# .+\?\n", text):
        yield "the first cell is not a title that asks the notebook's question"
    for place, link in badges(name).items():
        if f"[![Open in {place}](" not in text or f"]({link})" not in text:
            yield f"the {place} badge does not lead to {link}"
    if not re.search(r"\*\*You will be able to\*\*\s+(?:[-*] .+\n?)+", text):
        yield "no objectives under **You will be able to**"
    if not re.search(r"^\*\*Time\*\* .*\d+ minutes.*\*\*Needs\*\*", text, re.MULTILINE):
        yield "no line **Time** … minutes … **Needs** …"
    for cell, tag in zip(code, ("setup", "parameters"), strict=False):
        if [notebook["cells"][at] for at in tagged(notebook, tag)] != [cell]:
            yield f"the one {tag} cell is not where it belongs"


def _outputs(code: list[dict]) -> Iterator[str]:
    if [c["execution_count"] for c in code] != list(range(1, len(code) + 1)):
        yield "the stored outputs are not from one run from top to bottom"
    for cell in code:
        where = f"in the cell {source(cell).splitlines()[0]!r}"
        for output in cell["outputs"]:
            if output["output_type"] == "error" or output.get("name") == "stderr":
                yield f"an error or stderr is stored {where}"
            for kind in output.get("data", {}):
                alt = output.get("metadata", {}).get(kind, {}).get("alt", "")
                if kind.startswith("image/") and not alt.strip():
                    yield f"a figure has no alt text {where}"


def _text(cells: list[dict]) -> Iterator[str]:
    for cell in cells:
        if found := ABSOLUTE.search(f"{source(cell)}\n{shown(cell)}"):
            yield f"an absolute path: {found.string[found.start() :][:30]!r}"
        text = source(cell) if cell["cell_type"] == "markdown" else ""
        if re.search(r"!\[\s*\]\(|<img(?![^>]*\balt=\"[^\"]+\")[^>]*>", text):
            yield "a picture in the text has no alt text"
        mark = cell["metadata"].get("slideshow", {}).get("slide_type", "")
        if mark not in SLIDE_MARKS or (re.match(r"##? ", text) and mark != "slide"):
            yield f"a wrong mark for slides: {source(cell)[:40]!r}"
        if re.search(r"\n#{1,3} ", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
            yield f"a heading in the middle of a cell: {text[:40]!r}"


def _code(code: list[dict]) -> Iterator[str]:
    longest = max(len(source(c).splitlines()) for c in code if source(c)[:2] != "%%")
    if longest > LONGEST_CELL:
        yield f"a cell of {longest} lines (at most {LONGEST_CELL})"
    read = [source(c) for c in code if "hide-input" not in tags(c)]
    lines = [sum(bool(line.strip()) for line in text.splitlines()) for text in read]
    if (most := sorted(lines)[int(0.9 * len(lines))]) > LONGEST_OF_NINE_IN_TEN:
        yield f"a tenth of the cells shows {most} lines or more (at most {LONGEST_OF_NINE_IN_TEN})"
    if statistics.median(lines) > LONGEST_MEDIAN:
        yield f"a median of {statistics.median(lines)} lines (at most {LONGEST_MEDIAN})"
    ignored = [tag for cell in code for tag in tags(cell) if "nbval" in tag]
    if {*ignored} - {"nbval-ignore-output"} or len(ignored) > MOST_IGNORED * len(code):
        yield f"{len(ignored)} of {len(code)} outputs are not compared (at most a quarter)"
    for cell in code:
        first = source(cell).splitlines()[0]
        marks = {"hide-input" in tags(cell), first.startswith("# @title ")}
        marks |= {cell["metadata"].get(key) == value for key, value in FOLDED.items()}
        if len(marks) > 1:
            yield f"the cell {first!r} is folded by half: tag, metadata, # @title"


def _exercises(notebook: dict, number: str) -> Iterator[str]:
    cells, asked, texts = notebook["cells"], [], exercises.read(number)
    known = {name: text for name, text in texts.items() if isinstance(text, exercises.Question)}
    for at in tagged(notebook, "question"):
        name = next(iter(re.findall(r'check\("(\d\d-[a-z])"', source(cells[at]))), "")
        asked.append(name)
        letters = known[name].letters if name in known else []
        if re.findall(r"\((\w)\)", source(cells[at - 1])) != letters:
            yield f"the cell before {name} doesn't name its answers {letters}"
        if "not yet" not in shown(cells[at]):
            yield f"the question {name} is stored answered"
    if asked != [*known]:
        yield f"the questions {asked} aren't those of notebook_{number}.toml: {[*known]}"
    text = "\n".join(map(source, cells))
    if not re.search(r"^## Recap\n(?:.*\n)*?- \[ \] ", text, re.MULTILINE):
        yield "no recap as a checklist"
    if f'check("{number}-1"' not in text:
        yield "no exercise with a check"


def problems(notebook: dict, name: str) -> list[str]:
    """A sentence for each convention that a notebook, given as JSON and by file name, breaks."""
    cells = notebook["cells"]
    code = [c for c in cells if c["cell_type"] == "code"]
    broken = [*_opening(notebook, code, name), *_outputs(code), *_text(cells), *_code(code)]
    broken += _exercises(notebook, name[:2])
    kept = {"tags", "slideshow", *FOLDED}
    if notebook["metadata"] != METADATA or any(set(c["metadata"]) - kept for c in cells):
        broken.append("metadata of one machine or one run is stored")
    return broken
