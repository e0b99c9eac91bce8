"""What the course's pages answer by themselves: questions, hints, a pasted error, a search.

All of it is made from what `check`, `hint`, `explain` and the tables know, when `make site` builds
the pages; site.js, beside conf.py, moves what needs more than HTML.
"""

import csv
import functools
import json
import pathlib
import re
import tomllib
from collections.abc import Iterator

from helpers.base import html
from helpers.base.language import translated
from helpers.base.settings import ROOT
from helpers.course import explain
from helpers.course import map as course
from helpers.exercises import Hint, Question, Verdict, find, hint, read

TOOL = ROOT / "tpu_preflight/src/tpu_preflight"
FINDINGS = tomllib.loads((TOOL / "findings.toml").read_text("utf-8"))
DATA = course.NOTEBOOKS / "data"
CALLED = re.compile(r'^(?:check|hint)\("((\d\d)-\w+)"', re.MULTILINE)
HINTED = re.compile(r'"hint\(\\"([\w-]+)\\"\)"')
CHOICE = re.compile(r"(?:^- )?\(([a-e])\)\s+", re.MULTILINE)
# A name of a table's code: what a notebook that shows it has in a cell.
NAMES = re.compile(r"\b(?:tf|np|layers|losses)(?:\.\w+)+|\bTF\w+")


def answered(source: str) -> str:
    """Let a notebook's page answer: its choices and hints stand below the cells that ask for them.

    ``source`` and what is given are a notebook's JSON.
    """
    notebook = json.loads(source)
    hinted = {*HINTED.findall(source)}
    text: dict = {}
    for cell in notebook["cells"]:
        written = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text = cell
        elif (called := CALLED.search(written)) and called[1] in read(called[2]):
            known = read(called[2])[called[1]]
            if isinstance(known, Question):
                before, *parts = CHOICE.split("".join(text["source"]))
                text["source"] = before.rstrip()
                cell["metadata"]["tags"].append("remove-input")
                choices = zip(parts[::2], parts[1::2], strict=True)
                said = {letter: choice.strip(" -,\n") for letter, choice in choices}
                shown = choices_of(called[1], known, said)
            else:
                shown = "" if called[1] in hinted and "check" in written else hints_of(called[1])
            data = {"text/html": shown}
            output = {"output_type": "display_data", "metadata": {}, "data": data}
            cell["outputs"] = [output] if shown else []
    return json.dumps(notebook)


def _card(shown: Verdict | Hint) -> html.Markup:
    return html.Markup(shown._repr_html_())


def choices_of(name: str, question: Question, said: dict[str, str]) -> str:
    """Write a question's choices, ``said`` by letter, each over what `check` says of it."""
    verdicts = {letter: Verdict(name, *question.judge(letter)) for letter in question.letters}
    rows = [(f"({x}) {said[x]}", _card(verdict)) for x, verdict in verdicts.items()]
    return html.render("asked.html", title=verdicts[question.right].title, rows=rows, one=True)


@functools.cache
def hints_of(name: str) -> str:
    """Write an exercise's hints and its solution."""
    shown = [hint(name) for _ in range(len(find(name).hints) + 1)]
    rows = [(x.title, _card(x)) for x in shown]
    return html.render("asked.html", title=name, rows=rows, one=False)


def symptoms() -> str:
    """Write the field for a pasted error: `explain`'s own expressions, for site.js to search with.

    A symptom's texts stand in the page already: ``row`` counts the rows of its tables.
    """
    known = explain.SYMPTOMS
    order = sorted(known, key=lambda symptom: symptom.lesson)
    rows = [
        {
            **{x: explain.lowered(getattr(s, x)).pattern for x in ("near", "unless")},
            "seen": explain.lowered("|".join(s.seen)).pattern,
            "note": s.sure == "note",
            "row": order.index(s),
        }
        for s in known
    ]
    data = {x: getattr(explain, x).pattern for x in ("ESCAPES", "QUOTED", "BEFORE", "RAISED")}
    data |= {x: getattr(explain, x) for x in ("REACH", "MOST_MATCHES", "LONGEST_EVIDENCE")}
    told = {"nothing": translated(explain.NOTHING)}
    data = json.dumps(data | {"symptoms": rows} | told).replace("</", "<\\/")
    return html.render("paste.html", data=html.Markup(data))


def verdicts() -> str:
    """Write the tables of what two compilers took and refused, as one table to search."""
    cells = {
        n.number: " ".join(
            "".join(cell["source"])
            for cell in json.loads(n.path.read_text("utf-8"))["cells"]
            if cell["cell_type"] == "code"
        )
        for n in course.notebooks()
    }
    used = {number: {*NAMES.findall(code)} for number, code in cells.items()}
    paths = [path for x in ("ops", "layers", "models") if (path := DATA / f"{x}.tsv").is_file()]
    rows = [row for path in paths for row in _verdicts(path, used)]
    return html.render("takes.html", rows=rows, notebooks=course.notebooks())


def _verdicts(path: pathlib.Path, used: dict[str, set[str]]) -> Iterator[dict]:
    _, *lines = path.read_text("utf-8").splitlines()
    for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
        code = row.get("code", "").replace("\\n", "\n")
        names = {*NAMES.findall(code or row["name"])}
        numbers = {number for number, own in used.items() if names and names <= own}
        instead = ""
        if row["verdict"] == "bounded":
            instead, numbers = FINDINGS["1"]["bounded"]["fix"], numbers | {"02"}
        elif found := explain.explain(row["message"]).matches:
            symptom = found[0].symptom
            instead, numbers = symptom.fix, numbers | {symptom.lesson}
        more = {"code": code, "kind": row.get("subject") or row.get("kind"), "instead": instead}
        yield {"where": ""} | row | more | {"numbers": numbers}
