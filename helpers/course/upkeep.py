"""What is counted, collected or carried everywhere: minutes, links, the public address."""

import ast
import dataclasses
import datetime
import io
import json
import pathlib
import re
import tokenize
import tomllib
from collections.abc import Iterator
from typing import Any

from helpers.base import files, html, language
from helpers.base.errors import CourseError
from helpers.base.settings import ROOT

# The lower end of "most adults fall in the range of 175 to 300 words per minute", silent reading of
# English non-fiction (Brysbaert 2019, doi:10.1016/j.jml.2019.104047); readers with English as a
# second language are slower, the paper says. Abstract read 2026-11.
WORDS_PER_MINUTE = 175

# Reviewers read about 500 lines of application code in an hour (Humphrey 1989, as quoted from
# McConnell's Code Complete; second hand, 2026-11).
LINES_PER_MINUTE = 500 / 60

# Our own assumption: nobody has been watched yet.
MINUTES_PER_EXERCISE = 5
MINUTES_PER_QUESTION = 1

# An estimate of this kind is not more exact; a sitting's is halved, so that 40 minutes mean 40.
STEP = 10
STEP_OF_SITTING = 5
LONGEST_SITTING = 40

# Measured seconds by the notebook's number.
RUN_SECONDS: dict[str, float] = tomllib.loads(
    pathlib.Path(__file__).with_name("seconds.toml").read_text("utf-8")
)

LINKS = pathlib.PurePath("notebooks/LINKS.md")

# Tags of code cells that nobody needs to read.
_UNREAD = {"setup", "exercise", "question", "hide-input"}

_FENCE = re.compile(r"^```.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ADDRESS = re.compile(r"https?://[^\s<>\"'`\\)\]|]+")
_PAPER = re.compile(r"\b(doi:|arXiv:)([\w./-]+)")
_PAPERS = {"doi:": "https://doi.org/", "arXiv:": "https://arxiv.org/abs/"}
_BADGES = ("https://colab.research.google.com/", "https://kaggle.com/")


@dataclasses.dataclass(frozen=True)
class Length:
    """What there is to read, try and wait for in a notebook."""

    words: int  # of prose, without code and addresses
    # Of code to read, in cells and in fences; setup, folded cells, stubs and checks don't count.
    lines: int
    exercises: int  # how many
    run_seconds: float  # computing, measured
    questions: int = 0  # how many

    @property
    def minutes(self) -> float:
        """The estimate, not rounded."""
        return (
            self.words / WORDS_PER_MINUTE
            + self.lines / LINES_PER_MINUTE
            + self.exercises * MINUTES_PER_EXERCISE
            + self.questions * MINUTES_PER_QUESTION
            + self.run_seconds / 60
        )

    @property
    def rounded(self) -> int:
        """The estimate as it is printed."""
        return max(STEP, STEP * round(self.minutes / STEP))

    @property
    def rounded_as_sitting(self) -> int:
        """The estimate as it is printed for a sitting."""
        return max(STEP_OF_SITTING, STEP_OF_SITTING * round(self.minutes / STEP_OF_SITTING))

    def words_to_say_it(self, sittings: int = 1) -> str:
        """Give what stands after **Time** in a notebook of so many sittings."""
        run = round(self.run_seconds / 60)
        to_run = f"about {run} minutes" if run > 1 else "about a minute"
        if self.run_seconds < 60:
            to_run = "less than a minute"
        parts = f", in {sittings} sittings" if sittings > 1 else ""
        return f"about {self.rounded} minutes to read and try{parts}; {to_run} to run"

    def __repr__(self) -> str:
        return (
            f"{self.words:,} words, {self.lines} lines, {self.exercises} exercises, "
            f"{self.questions} questions, "
            f"{self.run_seconds:.0f} s to run: {self.minutes:.0f} minutes"
        )


def length(cells: list[dict], run_seconds: float) -> Length:
    """Count what there is in a notebook: its cells as in its file, and the measured run."""
    words, code, exercises, questions = 0, [], 0, 0
    for cell in cells:
        source = "".join(cell["source"])
        tags = cell["metadata"].get("tags", ())
        exercises += "exercise" in tags
        questions += "question" in tags
        if cell["cell_type"] == "markdown":
            code += _FENCE.findall(source)
            text = re.sub(r"\]\([^)]*\)|<[^>]*>", " ", _FENCE.sub("", source))
            words += len(re.findall(r"\w[\w.,'’-]*", text))
        elif not (_UNREAD & {*tags} or re.match(r"(check|hint)\(", source)):
            code.append(source)
    lines = sum(bool(line.strip()) for text in code for line in text.splitlines())
    return Length(words, lines, exercises, run_seconds, questions)


def sittings(cells: list[dict], run_seconds: float) -> list[Length]:
    """Count each sitting of a notebook: up to the first cell tagged ``sitting``, and from each.

    The seconds of computing, measured for the whole, are shared out by the number of code cells.
    """
    parts: list[list[dict]] = [[]]
    for cell in cells:
        if "sitting" in cell["metadata"].get("tags", ()):
            parts.append([])
        parts[-1].append(cell)
    computing = [sum(cell["cell_type"] == "code" for cell in part) for part in parts]
    each = run_seconds / max(1, sum(computing))
    return [length(part, n * each) for part, n in zip(parts, computing, strict=True)]


def _paths(root: pathlib.Path) -> list[pathlib.Path]:
    return sorted((root / "notebooks").glob("*.ipynb"))


def _cells(path: pathlib.Path) -> list[dict]:
    return json.loads(path.read_text("utf-8"))["cells"]


def lengths(root: pathlib.Path = ROOT) -> dict[str, list[Length]]:
    """Count what there is in each notebook of the course in ``root``, by number: its sittings."""
    numbers = {path.name[:2]: path for path in _paths(root)}
    return {n: sittings(_cells(path), RUN_SECONDS[n]) for n, path in numbers.items()}


def whole(parts: list[Length]) -> Length:
    """Add up the sittings of a notebook."""
    return Length(*map(sum, zip(*map(dataclasses.astuple, parts), strict=True)))


def write_lengths(root: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """Write the estimates into the **Time** lines of notebooks and sittings and into the README.

    Gives the files that changed.
    """
    readme = root / "README.md"
    old = {path: path.read_text("utf-8") for path in (readme, *_paths(root))}
    new = dict(old)
    for path, (number, parts) in zip(_paths(root), lengths(root).items(), strict=True):
        counted = whole(parts)
        said = rf"\g<1>{counted.words_to_say_it(len(parts))}\2"
        text = re.sub(r"(\*\*Time\*\* )[^·\n]+?( ·)", said, old[path], count=1)
        minutes = iter(part.rounded_as_sitting for part in parts[1:])
        new[path] = re.sub(
            r"(\*\*Time\*\* about )\d+( minutes\.)",
            lambda found: f"{found[1]}{next(minutes, 0)}{found[2]}",  # noqa: B023 - called at once
            text,
        )
        row = rf"(\| \[{number}\].*?\| )\d+ min(?:, \d sittings)?( \|)"
        many = f", {len(parts)} sittings" if len(parts) > 1 else ""
        new[readme] = re.sub(row, rf"\g<1>{counted.rounded} min{many}\2", new[readme])
    all_of_it = sum(whole(parts).rounded for parts in lengths(root).values())
    hours = rf"\g<1>{round(all_of_it / 60)} hours in all"
    new[readme] = re.sub(r"(About )\d+ hours in all", hours, new[readme])
    return _write_changed(old, new)


def _write_changed(
    old: dict[pathlib.Path, str], new: dict[pathlib.Path, str]
) -> list[pathlib.Path]:
    """Write the texts that differ, in their order; give their files, sorted."""
    changed = [path for path in old if new[path] != old[path]]
    for path in changed:
        files.write(path, new[path])
    return sorted(changed)


def _speech(source: str) -> str:
    """Give what a module says to its readers: comments and docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    said = [token.string for token in tokens if token.type == tokenize.COMMENT]
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return "\n".join([*said, *filter(None, map(ast.get_docstring, nodes))])


def _texts(root: pathlib.Path) -> Iterator[tuple[pathlib.Path, str]]:
    """Give each file that may name an address, and its text."""
    for path in _paths(root):
        yield path, "\n".join("".join(cell["source"]) for cell in _cells(path))
    translated = {root / "notebooks" / code for code in language.translations()}
    for path in sorted([*root.glob("[A-Z]*[A-Z].md"), *(root / "notebooks").rglob("*.md")]):
        if path != root / LINKS and path.parent not in translated:
            yield path, path.read_text("utf-8")
    for path in sorted((root / "helpers").rglob("*.py")):
        yield path, _speech(path.read_text("utf-8"))
    for path in sorted((root / "helpers").rglob("*.toml")):
        yield path, path.read_text("utf-8")


def addresses(text: str) -> list[str]:
    """Find the addresses in a text, Markdown or any other.

    Each is as it is written, without the punctuation of the sentence around it; ``doi:`` and
    ``arXiv:`` become addresses.
    """
    papers = [_PAPERS[kind] + number for kind, number in _PAPER.findall(text)]
    return [found.rstrip(".,:;*_") for found in _ADDRESS.findall(text) + papers]


def links(root: pathlib.Path = ROOT) -> dict[str, tuple[pathlib.Path, ...]]:
    """Collect the addresses outside the course, sorted, with the files that name each.

    The course's own address and its badges are not outside.
    """
    own = (_repository(root), *_BADGES)
    places: dict[str, list[pathlib.Path]] = {}
    for path, text in _texts(root):
        for address in addresses(text):
            if not address.startswith(own):
                places.setdefault(address, []).append(path.relative_to(root))
    return {address: tuple(dict.fromkeys(places[address])) for address in sorted(places)}


def months(page: str) -> dict[str, str]:
    """Read the month of each address, such as ``2026-11``, from the page of links as it stands."""
    return dict(re.findall(r"^\| <(\S+)> \|.*\| (\d{4}-\d\d) \|$", page, re.MULTILINE))


def _checked(root: pathlib.Path) -> dict[str, str]:
    """Read the month of each address from the tables of facts; of several rows the oldest."""
    found: dict[str, str] = {}

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if "source" in value and "checked" in value:
                for address in addresses(value["source"]):
                    found[address] = min(value["checked"], found.get(address, "9"))
            value = list(value.values())
        for inner in value if isinstance(value, list) else ():
            look(inner)

    for path in (root / "helpers").rglob("*.toml"):
        look(tomllib.loads(path.read_text("utf-8")))
    return found


def _named(path: pathlib.Path) -> str:
    if path.suffix in (".py", ".toml"):
        return f"`{path}`"
    name = path.name[:2] if path.suffix == ".ipynb" else path.stem
    inside = path.is_relative_to(LINKS.parent)
    target = path.relative_to(LINKS.parent) if inside else pathlib.PurePath("..") / path
    return f"[{name}]({target})"


def links_page(root: pathlib.Path = ROOT) -> str:
    """Write the page of all links of the course in ``root``, in Markdown.

    An address has the month of its row of facts; any other keeps the month that it has on the
    page, and a new one gets today's.
    """
    kept = months((root / LINKS).read_text("utf-8")) if (root / LINKS).exists() else {}
    kept |= _checked(root)
    today = datetime.date.today().isoformat()[:7]
    rows = [(x, map(_named, paths), kept.get(x, today)) for x, paths in links(root).items()]
    return html.render("links.md", rows=rows)


def write_links(root: pathlib.Path = ROOT) -> int:
    """Write the page of all links into the course in ``root``; tell how many are on it."""
    text = links_page(root)
    files.write(root / LINKS, text)
    return len(months(text))


def _repository(root: pathlib.Path) -> str:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return project["urls"]["Repository"]


def set_repository(name: str, root: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """Carry a new public address, ``owner/name``, to all notebooks and pages that name it.

    Gives the files that changed, sorted.

    Raises:
        CourseError: ``name`` is not of the form ``owner/name``.
    """
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name, re.ASCII):
        raise CourseError(
            f"{name!r} is no repository.",
            "The badges and the setup cell lead to github.com/owner/name.",
            "Call it as: make badges REPO=owner/name",
        )
    own = re.escape(_repository(root).removeprefix("https://github.com/"))
    link = re.compile(rf"((?:github\.com|colab\.research\.google\.com/github)/){own}(?![\w.-])")
    # pyproject.toml last: until it is written, the same call repairs an interrupted one.
    pages = ("README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml")
    paths = [*_paths(root), *(root / "notebooks").glob("*.md"), *map(root.joinpath, pages)]
    old = {path: path.read_text("utf-8") for path in paths}
    return _write_changed(old, {path: link.sub(rf"\g<1>{name}", old[path]) for path in paths})
