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
from helpers.course import storing

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
KEPT = {"tags", "slideshow", *storing.FOLDED}
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


def tagged(notebook: dict, tag: str) -> list[int]:
    return [at for at, c in enumerate(notebook["cells"]) if tag in c["metadata"].get("tags", ())]


def _opening(first: dict, name: str) -> Iterator[str]:
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


def _order(notebook: dict, code: list[dict]) -> Iterator[str]:
    for cell, ordinal, tag in ((code[0], "first", "setup"), (code[1], "second", "parameters")):
        if [notebook["cells"][at] for at in tagged(notebook, tag)] != [cell]:
            yield f"the {ordinal} code cell is not the one {tag} cell"


def _outputs(code: list[dict]) -> Iterator[str]:
    if [c["execution_count"] for c in code] != list(range(1, len(code) + 1)):
        yield "the stored outputs are not from one run from top to bottom"
    for cell in code:
        where = f"in the cell {source(cell).splitlines()[0]!r}"
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                yield f"an error is stored {where}"
            if output.get("name") == "stderr":
                yield f"stderr is stored {where}"
            for kind in output.get("data", {}):
                alt = output.get("metadata", {}).get(kind, {}).get("alt", "")
                if kind.startswith("image/") and not alt.strip():
                    yield f"a figure has no alt text {where}"


def _shown(output: dict) -> list[str]:
    """Everything that an output shows as text."""
    data = [text for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    return ["".join(text) for text in [output.get("text", ""), *data]]


def _text(notebook: dict) -> Iterator[str]:
    for cell in notebook["cells"]:
        shown = [text for output in cell.get("outputs", ()) for text in _shown(output)]
        for text in [source(cell), *shown]:
            if found := ABSOLUTE.search(text):
                yield f"an absolute path: {text[found.start() :][:30]!r}"
        if cell["cell_type"] != "markdown":
            continue
        if re.search(r"!\[\s*\]\(|<img(?![^>]*\balt=\"[^\"]+\")[^>]*>", source(cell)):
            yield "a picture in the text has no alt text"
        for link in re.findall(r"\]\(([^):#]+\.ipynb)\)", source(cell)):
            if not (ROOT / "notebooks" / link).is_file():
                yield f"a link to {link}, which does not exist"


def _length(code: list[dict]) -> Iterator[str]:
    longest = max(len(source(c).splitlines()) for c in code)
    if longest > LONGEST_CELL:
        yield f"a cell of {longest} lines (at most {LONGEST_CELL})"
    shown = [source(c) for c in code if "hide-input" not in c["metadata"].get("tags", ())]
    lines = [sum(bool(line.strip()) for line in text.splitlines()) for text in shown]
    if (most := sorted(lines)[int(0.9 * len(lines))]) > LONGEST_OF_NINE_IN_TEN:
        yield f"a tenth of the cells shows {most} lines or more (at most {LONGEST_OF_NINE_IN_TEN})"
    if statistics.median(lines) > LONGEST_MEDIAN:
        yield f"a median of {statistics.median(lines)} lines (at most {LONGEST_MEDIAN})"


def _checked(code: list[dict]) -> Iterator[str]:
    if any(re.search(r"(?m)^# *(NBVAL|PYTEST_VALIDATE)_", source(cell)) for cell in code):
        yield "a comment for nbval, which a learner must wonder at: tag the cell"
    tags = [tag for cell in code for tag in cell["metadata"].get("tags", ()) if "nbval" in tag]
    if {*tags} - {"nbval-ignore-output"}:
        yield "a cell is tagged with more than nbval-ignore-output"
    if len(tags) > MOST_IGNORED * len(code):
        yield f"{len(tags)} of {len(code)} outputs are not compared (at most a quarter)"


def _folded(code: list[dict]) -> Iterator[str]:
    """Whether each cell whose code needn't be read is folded everywhere: pages, Jupyter, Colab."""
    for cell in code:
        first = source(cell).splitlines()[0]
        marks = {"the tag hide-input": "hide-input" in cell["metadata"].get("tags", ())}
        marks |= {k: cell["metadata"].get(k) == v for k, v in storing.FOLDED.items()}
        marks["a first line # @title …"] = first.startswith("# @title ")
        if len({*marks.values()}) > 1:
            missing = ", ".join(mark for mark, there in marks.items() if not there)
            yield f"the cell {first!r} is folded by half: it lacks {missing}"


def _sittings(notebook: dict) -> Iterator[str]:
    begun, titles = tagged(notebook, "sitting"), ""
    for number, at in enumerate(begun, 2):
        text = source(notebook["cells"][at])
        title = (
            rf"## Sitting {number} of {len(begun) + 1}: \S.*\n\n\*\*Time\*\* about \d+ minutes\."
        )
        if not re.match(title, text):
            yield f"sitting {number} has no title, or no Time, as the others: {text[:40]!r}"
        titles += f" · {number} {text.partition(': ')[2].partition(chr(10))[0]}"
        if not re.search(r"(?m)^- ", text) or "Run All Above Selected Cell" not in text:
            yield f"sitting {number} has no recap, or doesn't say how to come back"
    first = " ".join(source(notebook["cells"][0]).split())
    named = rf"\*\*Sittings\*\* 1 [^a-z·][^·]*{re.escape(titles)} \*\*Time\*\*"
    if begun and not re.search(named, first):
        yield f"the first cell doesn't say **Sittings** 1 …{titles}"


def _questions(notebook: dict, number: str) -> Iterator[str]:
    known = exercises.questions(number)
    asked = []
    for at in tagged(notebook, "question"):
        before, cell = notebook["cells"][at - 1 : at + 1]
        name = next(iter(re.findall(r'check\("(\d\d-[a-z])"', source(cell))), "")
        asked.append(name)
        letters = known[name].letters if name in known else []
        *most, last = [f'"{letter}"' for letter in letters] or [""]
        choice = f"{', '.join(most)} or {last}"
        if source(cell) != f'answer = None  # {choice}\ncheck("{name}", answer)':
            yield f"the question {name!r} isn't asked as the others: {source(cell)!r}"
        text = source(before)
        if "**Before you run it.**" not in text or re.findall(r"\((\w)\)", text) != letters:
            yield f"the cell before {name} doesn't name its answers {letters}: {text[:60]!r}"
        if not any("not yet" in text for x in cell["outputs"] for text in _shown(x)):
            yield f"the question {name} is stored answered"
    if asked != [*known] or asked != [f"{number}-{chr(97 + n)}" for n in range(len(asked))]:
        yield f"the questions {asked} aren't those of notebook_{number}.toml, in order: {[*known]}"


def _stubs(notebook: dict) -> Iterator[str]:
    for at in tagged(notebook, "exercise"):
        stub, asked = (source(cell) for cell in notebook["cells"][at : at + 2])
        name = next(iter(re.findall(r'check\("(\d\d-\d+)"', asked)), "")
        if stub.count("raise ") != 1 or f'raise NotImplementedError("{name}")' not in stub:
            yield f"the stub of {name} doesn't raise NotImplementedError with its name"


def _slides(cells: list[dict]) -> Iterator[str]:
    for cell in cells:
        first = next(iter(source(cell).splitlines()), "")
        mark = cell["metadata"].get("slideshow", {}).get("slide_type", "")
        text = source(cell) if cell["cell_type"] == "markdown" else ""
        if mark not in SLIDE_MARKS:
            yield f"no mark for slides in the cell {first!r}"
        elif re.match(r"##? ", text) and mark != "slide":
            yield f"a section that begins no slide: {first!r}"
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        if re.search(r"\n#{1,3} ", prose):
            yield f"a heading in the middle of the cell {first!r}: begin a cell with it"


def _ending(cells: list[dict], number: str) -> Iterator[str]:
    text = "\n".join(source(c) for c in cells)
    if not re.search(r"^## Recap\n(?:.*\n)*?- \[ \] ", text, re.MULTILINE):
        yield "no recap as a checklist"
    if len(set(re.findall(rf'\bcheck\("{number}-\d+"', text))) < 3:
        yield "fewer than three exercises with a check"


def problems(notebook: dict, name: str) -> list[str]:
    """A sentence for each convention that a notebook, given as JSON and by file name, breaks."""
    cells = notebook["cells"]
    code = [c for c in cells if c["cell_type"] == "code"]
    broken = [*_opening(cells[0], name), *_order(notebook, code), *_outputs(code)]
    broken += [*_text(notebook), *_length(code), *_checked(code)]
    broken += [*_ending(cells, name[:2]), *_slides(cells), *_folded(code)]
    broken += [*_sittings(notebook), *_stubs(notebook), *_questions(notebook, name[:2])]
    if notebook["metadata"] != METADATA or any(set(c["metadata"]) - KEPT for c in cells):
        broken.append("metadata of one machine or one run is stored")
    return broken
