"""What the course's pages answer by themselves: questions, hints, a pasted error, a search.

`make site` makes it from what `check`, `hint`, `explain` and the tables know; site.js moves it.
"""

import base64
import csv
import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from course import catalog
from course.outputs import TEMPLATES
from helpers.base import html
from helpers.base.language import translated
from helpers.display import explain
from helpers.exercises import Question, Verdict, find, hint, read

CALLED = re.compile(r'^(check|hint)\("((\d\d)-\w+)"', re.MULTILINE)
CHOICE = re.compile(r"(?:^- )?\(([a-e])\)\s+", re.MULTILINE)
NAMES = re.compile(r"\b(?:tf|np|keras|layers|losses)(?:\.\w+)+|\bTF\w+")  # of code in a table
BOUNDED = "Keep the full size and let a mask decide what counts."  # as the preflight says it


def answered(source: str) -> str:
    """Let a notebook, JSON, answer: its choices and hints stand where cells ask for them."""
    notebook, text = json.loads(source), {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = cell
        elif called := CALLED.search("".join(cell["source"])):
            call, name, number = called.groups()
            if isinstance(asked := read(number)[name], Question):
                before, *parts = CHOICE.split("".join(text["source"]))
                said = dict(zip(parts[::2], (x.strip(" -,\n") for x in parts[1::2]), strict=True))
                text["source"] = before.rstrip()
                cell["metadata"]["tags"].append("remove-input")
                shown = [Verdict(name, *asked.judge(letter)) for letter in asked.letters]
                labels = [f"({letter}) {said[letter]}" for letter in asked.letters]
            elif call == "check" and f'hint(\\"{name}\\")"' in source:
                shown = labels = []  # they stand below that cell
            else:
                shown = [hint(name) for _ in range(len(find(name).hints) + 1)]
                labels = [each.title for each in shown]
            cards = [html.Markup(each._repr_html_()) for each in shown]
            page = html.render(
                "asked.html", TEMPLATES, name=name, rows=[*zip(labels, cards, strict=True)]
            )
            output = {"output_type": "display_data", "metadata": {}, "data": {"text/html": page}}
            cell["outputs"] = [output] * bool(shown)
    return json.dumps(notebook)


def cards(known: Mapping[str, catalog.Notebook]) -> str:
    """Show notebooks, by page, each by one of its pictures or prints: of the cell tagged `card`."""
    read = ((x, n, c) for x, n in known.items() for c in json.loads(n.path.read_bytes())["cells"])
    cells = [(x, n, cell) for x, n, cell in read if "card" in cell["metadata"].get("tags", ())]
    return html.render(
        "cards.html", TEMPLATES, cells=cells, sha=hashlib.sha256, decode=base64.b64decode
    )


def symptoms_page(
    symptoms: Sequence[explain.Symptom] = explain.SYMPTOMS, say: Callable[[str], str] = str
) -> str:
    """Write symptoms as one page in Markdown, ordered by notebook; ``say`` translates the rest."""

    def plain(text: str) -> str:
        """Keep Markdown from reading underscores and stars of names as its own."""
        parts = text.replace("|", "&#124;").split("`")
        parts[::2] = [re.sub(r"([_*<])", r"\\\1", part) for part in parts[::2]]  # else it is code
        return "`".join(parts)

    return html.render("symptoms.md", TEMPLATES, symptoms=symptoms, say=say, plain=plain)


def symptoms() -> str:
    """Write the field for a pasted error, with `explain`'s own expressions for site.js.

    A symptom's texts stand in the page already: ``row`` counts the rows of its tables.
    """
    order = sorted(explain.SYMPTOMS, key=lambda symptom: symptom.lesson)
    data = {x: getattr(explain, x).pattern for x in ("ESCAPES", "QUOTED", "BEFORE", "RAISED")}
    data |= {x: getattr(explain, x) for x in ("REACH", "MOST_MATCHES", "LONGEST_EVIDENCE")}
    data["nothing"] = translated(explain.NOTHING)
    data["symptoms"] = [
        {"seen": "|".join(s.seen), "near": s.near, "unless": s.unless}
        | {"note": s.sure == "note", "row": order.index(s)}
        for s in explain.SYMPTOMS
    ]
    for row in data["symptoms"]:
        row |= {x: explain.lowered(row[x]).pattern for x in ("seen", "near", "unless")}
    return html.render(
        "paste.html", TEMPLATES, data=html.Markup(json.dumps(data).replace("</", "<\\/"))
    )


def verdicts() -> str:
    """Write the tables of what two compilers took and refused, as one table to search."""
    known = catalog.notebooks()
    used = {n.number: {*NAMES.findall(n.path.read_text("utf-8"))} for n in known}
    paths = [catalog.NOTEBOOKS / f"data/{x}.tsv" for x in ("ops", "layers", "models")]
    rows = [row for path in paths if path.is_file() for row in _verdicts(path, used)]
    return html.render("takes.html", TEMPLATES, rows=rows, notebooks=known)


def _verdicts(path: pathlib.Path, used: dict[str, set[str]]) -> Iterator[dict]:
    lines = path.read_text("utf-8").splitlines()[1:]
    for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
        row = {"where": "", "code": "", "tpu": "", "subject": row.get("kind"), "instead": ""} | row
        names = {*NAMES.findall(row["code"] or row["name"])}
        row["numbers"] = {n for n, own in used.items() if names and names <= own}
        if found := explain.explain(row["message"]).matches:
            row["numbers"].add(found[0].symptom.lesson)
            row["instead"] = row["instead"] or found[0].symptom.fix
        elif row["verdict"] == "bounded":
            row |= {"numbers": row["numbers"] | {"02"}, "instead": row["instead"] or BOUNDED}
        yield row | {"code": row["code"].replace("\\n", "\n")}
