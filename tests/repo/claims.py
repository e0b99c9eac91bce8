"""The sentences of the course that could be false, and how each was attacked: ``claims.tsv``.

A sentence is on the list if it holds a word such as *always*, *only* or *because*, or a number, in
a notebook's text or on one of its pages. After you have changed text:

1. ``python tests/repo/claims.py 02`` (or ``README``; without a name: all) adds the new sentences to
   the list and drops those that are gone. One that changed keeps its attack as ``changed: …``.
2. Try to refute each line without ``how``. Run it, read the cell's output, the source, the thread.
3. Write into ``how`` what you did, in one of these forms, several of them joined by ``"; "``:
   ``cell`` (the code next to it shows it), ``cell 03:cell-012`` (that cell shows it),
   ``test tests/xla/test_compare.py::test_name``, ``file helpers/tpu/chips.toml`` (it says so),
   ``source owner/repo#12 or an address, 2026-11``, ``run: python -c "…"``. A sentence that says
   nothing about the world is an ``instruction``, a ``definition``, ``course`` (what the text
   does or means), or ``quoted`` (somebody else's claim, which the text goes on to judge).
4. Write into ``result`` ``holds``, or ``mended`` or ``softened`` if you had to write a better one;
   what says nothing about the world has no result.

``tests/repo/test_claims.py`` says what is missing.
"""

import ast
import dataclasses
import difflib
import functools
import itertools
import json
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator

from markdown_it import MarkdownIt

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_name("claims.tsv")
COLUMNS = ("place", "how", "result", "sentence")
PAGES = (
    "README",
    "CONTRIBUTING",
    "CHEATSHEET",
    "GLOSSARY",
    "TEACHING",
    "WELCOME",
    "TROUBLESHOOTING",
    "APPENDIX",
)

RESULTS = {"holds", "mended", "softened"}
NO_FACT = {"instruction", "definition", "course", "quoted"}
CHANGED = "changed: "

BOLD_WORDS = re.compile(
    r"\b(?:always|never|only|every(?:thing|where|body)?|no|none|nothing|nobody|nowhere|"
    r"any(?:thing|where|body)?|all(?!-)|whatever|first|commonest|most common|because)\b",
    re.IGNORECASE,
)
# A digit that is part of a name (v3-8, float32, UTF-8) is no number, nor is a notebook's or an
# issue's, the month of a source, the minutes of a plan for teaching.
NO_NUMBER = re.compile(
    r"^\d\d(?:, \d\d)*$|https?://\S+|#\d+|\b20\d\d-\d\d\b(?!-)|(?<![\d.,])0\d(?:-\d)?\b(?![.,]\d)|"
    r"\bnotebooks? \d\d(?:(?:,| and| to| or) \d\d)*|\b\d\d-\d · |^\d+ \| "
)
NUMBER = re.compile(
    r"(?<![\w.])(?<!\w[-:])\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|twelve|half|twice|"
    r"hundred|thousand|million|billion)\b",
    re.IGNORECASE,
)
COUNTED = re.compile(r"\d+ hours in all")  # by `helpers minutes`: it is no new claim each time
HIDDEN = "\ue000"  # stands for each character of code

_STOP = re.compile(r"[.!?][\"”’)\]]*\s+")
_SHORT = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|al|approx|resp)|\b[A-Z])\.$")
# What commands count and write; tests/repo/test_minutes.py compares it.
_COUNTED = re.compile(r"^Time about .* to run · |(?<=\| )\d+ min(?:, \d sittings)? \| ")

# A question with its answers to choose from, a sitting's minutes and the way back to it, which end
# their cells, and the titles of the sittings: they claim nothing.
_ASKED = re.compile(
    r"\*\*Before you run it\.\*\*.*|^\*A good place to stop\..*|^\*\*Time\*\* about \d+ minutes\.$|"
    r"^\*\*Sittings\*\* 1 (?:[^\n]+\n?)+",
    re.MULTILINE | re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A line of the list: a sentence, how it was attacked, and with what result."""

    place: str
    sentence: str
    how: str = ""
    result: str = ""


@dataclasses.dataclass(frozen=True)
class Text:
    """A text without its marks, and the same with its code hidden."""

    plain: str
    hidden: str

    def cut(self, start: int, stop: int | None = None) -> "Text":
        """A part of it, without the spaces around it."""
        plain, hidden = self.plain[start:stop], self.hidden[start:stop]
        left, right = len(plain) - len(plain.lstrip()), len(plain.rstrip())
        return Text(plain[left:right], hidden[left:right])

    def sentences(self) -> Iterator["Text"]:
        """The text cut after each full stop, exclamation mark and question mark."""
        start = 0
        for stop in _STOP.finditer(self.hidden):
            if not _SHORT.search(self.hidden[start : stop.start() + 1]):
                yield self.cut(start, stop.end())
                start = stop.end()
        yield self.cut(start)


def _inline(token) -> Text:
    plain = hidden = ""
    for part in token.children:
        if part.type == "code_inline":
            code = f"`{' '.join(part.content.split())}`"
            plain, hidden = plain + code, hidden + HIDDEN * len(code)
        elif part.type in ("text", "softbreak", "hardbreak"):
            text = re.sub(r"\s+", " ", part.content) if part.type == "text" else " "
            plain, hidden = plain + text, hidden + text
    return Text(plain, hidden)


def _blocks(markdown: str) -> Iterator[tuple[str, Text]]:
    """Kind (``p``, ``h``, ``tr``) and text of each paragraph, heading and row of a table."""
    row: list[Text] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    for before, token in itertools.pairwise(tokens):
        if token.type == "tr_open":
            row = []
        elif token.type == "inline" and before.type == "td_open":
            row.append(_inline(token))
        elif token.type == "tr_close" and row:
            yield "tr", Text(*(" | ".join(getattr(x, f) for x in row) for f in ("plain", "hidden")))
        elif token.type == "inline" and before.type != "th_open":
            yield "h" if before.type == "heading_open" else "p", _inline(token)


def is_claim(hidden: str, heading: bool = False) -> bool:
    """Whether a sentence, its code hidden, holds a bold word or a number."""
    text = NO_NUMBER.sub(" ", hidden)
    return bool(BOLD_WORDS.search(text) or (not heading and NUMBER.search(text)))


def claims(markdown: str) -> Iterator[str]:
    """The sentences of a text that hold a bold word or a number; a row of a table is one."""
    for kind, text in _blocks(_ASKED.sub("", markdown)):
        skip = _COUNTED.search(text.plain) or re.match(r"\[[ x]\] |\d+\. (?=\S)", text.plain)
        if skip:
            text = Text(*(x[: skip.start()] + x[skip.end() :] for x in (text.plain, text.hidden)))
        for sentence in [text.cut(0)] if kind == "tr" else text.sentences():
            if is_claim(sentence.hidden, kind == "h"):
                yield sentence.plain


def places() -> dict[str, pathlib.Path]:
    """The files that are attacked, by the name of their place: ``02`` or ``README``."""
    notebooks = {path.name[:2]: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    found = (ROOT / f"{page}.md" for page in PAGES)
    return notebooks | {
        path.stem: path if path.is_file() else ROOT / "notebooks" / path.name for path in found
    }


@functools.cache
def cells(place: str) -> list[dict]:
    """A notebook's cells as in its file; a page is one cell of text."""
    text = places()[place].read_text("utf-8")
    text = COUNTED.sub("some hours in all", text)
    if place in PAGES:
        return [{"id": "", "cell_type": "markdown", "source": text}]
    return json.loads(text)["cells"]


def found(place: str) -> dict[str, int]:
    """Each claim of a place, in order, with the index of its cell."""
    sentences: dict[str, int] = {}
    for at, cell in enumerate(cells(place)):
        if cell["cell_type"] == "markdown":
            for sentence in claims("".join(cell["source"])):
                sentences.setdefault(sentence, at)
    return sentences


def read() -> dict[str, list[Claim]]:
    """The list by place, in its order."""
    listed: dict[str, list[Claim]] = {}
    for line in LIST.read_text("utf-8").splitlines()[1:] if LIST.is_file() else ():
        if line:
            values = dict(zip(COLUMNS, line.split("\t"), strict=True))
            listed.setdefault(values["place"], []).append(Claim(**values))
    return listed


def write(listed: dict[str, list[Claim]]) -> None:
    """Write the list, an empty line between places, so that changes of two of them merge."""
    lines = ["\t".join(COLUMNS)]
    for rows in listed.values():
        lines += ["", *("\t".join(getattr(row, name) for name in COLUMNS) for row in rows)]
    LIST.write_text("\n".join(lines) + "\n", "utf-8")


def renew(place: str, sentences: Iterable[str], rows: list[Claim]) -> list[Claim]:
    """The rows for the sentences that stand there now; what was known of the others is kept."""
    sentences = list(sentences)
    known = {row.sentence: row for row in rows}
    gone = {text: row for text, row in known.items() if text not in sentences and row.how}
    new = []
    for sentence in sentences:
        row = known.get(sentence, Claim(place, sentence))
        near = () if sentence in known else difflib.get_close_matches(sentence, gone, 1, 0.6)
        for old in near:
            attack = gone.pop(old)
            how = CHANGED + attack.how.removeprefix(CHANGED)
            row = dataclasses.replace(attack, sentence=sentence, how=how)
        new.append(row)
    return new


def _shows(cell: dict) -> bool:
    """Whether a cell of code has a stored output, or an assertion."""
    return bool(cell.get("outputs")) or "assert " in "".join(cell["source"])


def _cell_problem(place: str, at: int, named: str) -> str:
    if named:
        notebook, _, name = named.partition(":")
        there = cells(notebook) if notebook in places() else []
        near = [cell for cell in there if cell["id"] == name]
        return "" if any(map(_shows, near)) else f"no cell {named} that shows something"
    # Up and down to the nearest code, past other text.
    around = (cells(place)[at::-1], cells(place)[at:])
    near = [next((x for x in side if x["cell_type"] == "code"), None) for side in around]
    return "" if any(x and _shows(x) for x in near) else "no output near it"


@functools.cache
def _functions(path: pathlib.Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8")) if path.is_file() else ast.Module([], [])
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _one_problem(place: str, at: int, how: str) -> str:
    kind, _, rest = how.partition(" ")
    if kind == "cell":
        return _cell_problem(place, at, rest)
    if kind == "test":
        path, _, name = rest.partition("::")
        return "" if name in _functions(ROOT / path) else f"no test {rest}"
    if kind == "file":
        return "" if rest and (ROOT / rest).exists() else f"no file {rest!r}"
    if kind == "source":
        return "" if re.search(r"\S, 20\d\d-\d\d$", rest) else f"no source with its month: {rest!r}"
    if kind == "run:":
        return "" if rest else "nothing was run"
    return "" if how in NO_FACT else f"no way to attack: {how!r}"


def problem(claim: Claim, at: int) -> str:
    """What is wrong with how a claim was attacked, or its result; empty if nothing."""
    if not claim.how:
        return "not attacked"
    if claim.how.startswith(CHANGED):
        return "changed: look again"
    for how in re.split(r"; (?=(?:cell|test|file|source|run:)(?: |;|$))", claim.how):
        if wrong := _one_problem(claim.place, at, how):
            return wrong
    good = claim.result in RESULTS or (claim.how in NO_FACT and not claim.result)
    return "" if good else f"no such result: {claim.result!r}"


def problems(place: str, rows: list[Claim]) -> list[str]:
    """A line for each sentence of a place that is missing, stale or not attacked."""
    there, listed = found(place), [row.sentence for row in rows]
    broken = [f"missing: {sentence}" for sentence in there if sentence not in listed]
    broken += [f"stale: {sentence}" for sentence in listed if sentence not in there]
    if not broken and listed != list(there):
        broken.append("not in the order of the text, or twice")
    for row in rows:
        if row.sentence in there and (wrong := problem(row, there[row.sentence])):
            broken.append(f"{wrong}: {row.sentence}")
    return broken


def main(names: list[str]) -> None:
    """Bring the list up to date, for some places or all, and count what is left to attack."""
    listed = read()
    for place in places():
        if not names or place in names:
            listed[place] = renew(place, found(place), listed.get(place, []))
    write({place: listed[place] for place in places() if listed.get(place)})
    for place, rows in listed.items():
        left = sum(not row.how or row.how.startswith(CHANGED) for row in rows)
        sys.stdout.write(f"{place}: {len(rows)} sentences, {left} to attack\n")


if __name__ == "__main__":
    main(sys.argv[1:])
