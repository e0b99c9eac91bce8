"""The rules every notebook of the course keeps, as one function for each part of a notebook.

``problems(notebook, name)`` lists what is broken; ``test_conventions.py`` runs it on the course and
proves on broken notebooks that each rule can fail.
"""

import pathlib
import re
import statistics
import tomllib
from collections.abc import Iterator

from course.tidy import FOLDED, METADATA, OWN_METADATA
from helpers import exercises

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

LONGEST_CELL = 25
LONGEST_MEDIAN = 6  # of the lines that are shown of a cell
LONGEST_OF_NINE_IN_TEN = 12
MOST_IGNORED = 0.25
SLIDE_MARKS = {"slide", "subslide", "fragment", "-", "skip", "notes"}
ABSOLUTE_PATH = re.compile(
    r"(?:(?<![\w:/.])/(?:home|root|tmp|Users|usr|var|opt|mnt|private|content)/\w)|\b[A-Z]:\\\w"
)
PICTURE_WITHOUT_WORDS = re.compile(r"!\[\s*\]\(|<img(?![^>]*\balt=\"[^\"]+\")[^>]*>")
FENCED_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def repository() -> str:
    """The public address, from the one place where it is written."""
    return project()["urls"]["Repository"]


def release() -> str:
    """The tag that Colab and Kaggle take notebooks and helpers of, so that they fit together."""
    return f"v{project()['version']}"


def badges(name: str) -> dict[str, str]:
    """The links of the badges that belong to a notebook, by the place that they open it in."""
    page = f"{repository()}/blob/{release()}/notebooks/{name}"
    return {
        "Colab": page.replace("https://github.com/", "https://colab.research.google.com/github/"),
        "Kaggle": f"https://kaggle.com/kernels/welcome?src={page}",
    }


def source(cell: dict) -> str:
    return "".join(cell["source"])


def tags(cell: dict) -> list[str]:
    return cell["metadata"].get("tags", [])


def tagged(notebook: dict, tag: str) -> list[int]:
    """The numbers of the cells with a tag, from 0."""
    return [index for index, cell in enumerate(notebook["cells"]) if tag in tags(cell)]


def shown(cell: dict) -> str:
    """Everything that a cell's outputs show as text."""
    texts = []
    for output in cell.get("outputs", ()):
        for kind, data in output.get("data", {}).items():
            if kind.startswith("text/"):
                texts.append("".join(data))
        texts.append("".join(output.get("text", "")))
    return "\n".join(texts)


def first_line(cell: dict) -> str:
    return source(cell).partition("\n")[0]


def _opening(notebook: dict, code: list[dict], name: str) -> Iterator[str]:
    cell = notebook["cells"][0]
    text = source(cell)
    if cell["cell_type"] != "markdown" or not re.match(r"# .+\?\n", text):
        yield "the first cell is not a title that asks the notebook's question"
    for place, link in badges(name).items():
        if f"[![Open in {place}](" not in text or f"]({link})" not in text:
            yield f"the {place} badge does not lead to {link}"
    if not re.search(r"\*\*You will be able to\*\*\s+(?:[-*] .+\n?)+", text):
        yield "no objectives under **You will be able to**"
    if not re.search(r"^\*\*Time\*\* .*\d+ minutes.*\*\*Needs\*\*", text, re.MULTILINE):
        yield "no line **Time** … minutes … **Needs** …"
    for cell, tag in zip(code, ("setup", "parameters"), strict=False):
        if [notebook["cells"][index] for index in tagged(notebook, tag)] != [cell]:
            yield f"the one {tag} cell is not where it belongs"


def _outputs(code: list[dict]) -> Iterator[str]:
    if not all(map(source, code)):
        yield "a cell is empty: tpu-course tidy"
    counts = [cell["execution_count"] for cell in code]
    if counts != list(range(1, len(code) + 1)):
        yield "the stored outputs are not from one run from top to bottom"
    for cell in code:
        place = f"in the cell {first_line(cell)!r}"
        for output in cell["outputs"]:
            if output["output_type"] == "error" or output.get("name") == "stderr":
                yield f"an error or stderr is stored {place}"
            for kind in output.get("data", {}):
                words = output.get("metadata", {}).get(kind, {}).get("alt", "")
                if kind.startswith("image/") and not words.strip():
                    yield f"a figure has no alt text {place}"


def _paths(cells: list[dict]) -> Iterator[str]:
    for cell in cells:
        match = ABSOLUTE_PATH.search(f"{source(cell)}\n{shown(cell)}")
        if match:
            yield f"an absolute path: {match.string[match.start() :][:30]!r}"


def _text(cells: list[dict]) -> Iterator[str]:
    for cell in cells:
        if cell["cell_type"] != "markdown":
            continue
        text = source(cell)
        if PICTURE_WITHOUT_WORDS.search(text):
            yield "a picture in the text has no alt text"
        if re.search(r"\n#{1,3} ", FENCED_CODE.sub("", text)):
            yield f"a heading in the middle of a cell: {text[:40]!r}"


def _slides(cells: list[dict]) -> Iterator[str]:
    for cell in cells:
        mark = cell["metadata"].get("slideshow", {}).get("slide_type", "")
        is_heading = cell["cell_type"] == "markdown" and re.match(r"##? ", source(cell))
        if mark not in SLIDE_MARKS or (is_heading and mark != "slide"):
            yield f"a wrong mark for slides: {source(cell)[:40]!r}"


def _code_lengths(code: list[dict]) -> Iterator[str]:
    lengths = [len(source(cell).splitlines()) for cell in code if not source(cell).startswith("%%")]
    if max(lengths) > LONGEST_CELL:
        yield f"a cell of {max(lengths)} lines (at most {LONGEST_CELL})"
    visible_lengths = []
    for cell in code:
        if "hide-input" not in tags(cell):
            lines = [line for line in source(cell).splitlines() if line.strip()]
            visible_lengths.append(len(lines))
    ninth_tenth = sorted(visible_lengths)[int(0.9 * len(visible_lengths))]
    if ninth_tenth > LONGEST_OF_NINE_IN_TEN:
        yield (
            f"a tenth of the cells shows {ninth_tenth} lines or more "
            f"(at most {LONGEST_OF_NINE_IN_TEN})"
        )
    median = statistics.median(visible_lengths)
    if median > LONGEST_MEDIAN:
        yield f"a median of {median} lines (at most {LONGEST_MEDIAN})"


def _code_marks(code: list[dict]) -> Iterator[str]:
    ignored = [tag for cell in code for tag in tags(cell) if "nbval" in tag]
    if {*ignored} - {"nbval-ignore-output"} or len(ignored) > MOST_IGNORED * len(code):
        yield f"{len(ignored)} of {len(code)} outputs are not compared (at most a quarter)"
    for cell in code:
        marks = {"hide-input" in tags(cell), first_line(cell).startswith("# @title ")}
        marks.update(cell["metadata"].get(key) == value for key, value in FOLDED.items())
        if len(marks) > 1:
            yield f"the cell {first_line(cell)!r} is folded by half: tag, metadata, # @title"


def _questions(notebook: dict, number: str) -> Iterator[str]:
    cells = notebook["cells"]
    question_by_name = {}
    for name, exercise in exercises.read(number).items():
        if isinstance(exercise, exercises.Question):
            question_by_name[name] = exercise
    names = []
    for index in tagged(notebook, "question"):
        match = re.search(r'check\("(\d\d-[a-z])"', source(cells[index]))
        name = match[1] if match else ""
        names.append(name)
        letters = question_by_name[name].letters if name in question_by_name else []
        if re.findall(r"\((\w)\)", source(cells[index - 1])) != letters:
            yield f"the cell before {name} doesn't name its answers {letters}"
        if "not yet" not in shown(cells[index]):
            yield f"the question {name} is stored answered"
    if names != list(question_by_name):
        own = list(question_by_name)
        yield f"the questions {names} aren't those of notebook_{number}.toml: {own}"


def is_appendix(cells: list[dict]) -> bool:
    """Whether a notebook's first cell says so: it has no exercise, and no sitting of a class."""
    return "**An appendix.**" in source(cells[0])


def _ending(cells: list[dict], number: str) -> Iterator[str]:
    text = "\n".join(map(source, cells))
    if not re.search(r"^## Recap\n(?:.*\n)*?- \[ \] ", text, re.MULTILINE):
        yield "no recap as a checklist"
    if not is_appendix(cells) and f'check("{number}-1"' not in text:
        yield "no exercise with a check"


def _metadata(notebook: dict) -> Iterator[str]:
    keys = {*OWN_METADATA, *FOLDED}
    is_clean = all(keys.issuperset(cell["metadata"]) for cell in notebook["cells"])
    if notebook["metadata"] != METADATA or not is_clean:
        yield "metadata of one machine or one run is stored: tpu-course tidy"


def problems(notebook: dict, name: str) -> list[str]:
    """A sentence for each convention that a notebook, given as JSON and by file name, breaks."""
    cells = notebook["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    number = name[:2]
    return [
        *_opening(notebook, code, name),
        *_outputs(code),
        *_paths(cells),
        *_text(cells),
        *_slides(cells),
        *_code_lengths(code),
        *_code_marks(code),
        *_questions(notebook, number),
        *_ending(cells, number),
        *_metadata(notebook),
    ]
