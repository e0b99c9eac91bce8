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
from course.catalog import TEMPLATES
from helpers.base import html
from helpers.base.language import translated
from helpers.display import explain, failure
from helpers.exercises import Question, Verdict, find, hint, read

# A cell that asks for a check or a hint: the function, the exercise, its notebook's number.
CALL = re.compile(r'^(check|hint)\("((\d\d)-\w+)"', re.MULTILINE)
CHOICE = re.compile(r"(?:^- )?\(([a-e])\)\s+", re.MULTILINE)
TITLE = re.compile(r"# @title (.*)")
GLOSSARY_ENTRY = re.compile(r"^## (?:<a id=.*?</a>)?(.+)\n\n((?:.+\n)+)", re.MULTILINE)
LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")
API_NAME = re.compile(r"\b(?:tf|np|keras|layers|losses)(?:\.\w+)+|\bTF\w+")
BOUNDED = "Keep the full size and let a mask decide what counts."  # as the preflight says it
# What site.js takes from failure.py, by name.
FAILURE_PATTERNS = (
    "RAISED",
    "TRACEBACK",
    "REPORTED",
    "OTHER_CLASS",
    "ENDED",
    "QUOTED_ERROR",
    "HARMLESS",
    "LOGGED",
    "FRAME",
    "ARROW",
    "MESSAGE_MARK",
    "CAUSED",
    "HANDLED",
    "ADVICE",
    "MARKS",
    "PACKAGE",
    "STANDARD",
    "CELL",
    "IGNORED",
    "MILD",
    "LEVEL",
    "LOGGED_ERROR",
    "STEP",
    "WENT_ON",
    "COUNTED",
    "FILTERED",
    "ENDED_WELL",
    "ENDED_BADLY",
    "PRIVATE",
)
FAILURE_VALUES = (
    "UNTELLING",
    "CELL_NAME",
    "EXCERPT",
    "LONGEST_MESSAGE",
    "LONGEST_OWN_LINE",
    "LONGEST_ADVICE",
    "MOST_CAUSES",
    "LAST_LINES",
    "FEWEST_STEPS",
    "MOST_LINES",
    "MOST_WORDS",
)
# The columns of a table of verdicts that not every table has.
OPTIONAL_COLUMNS = {"where": "", "code": "", "tpu": "", "instead": ""}


def answer_in_place(source: str) -> str:
    """Let a notebook, JSON, answer: its choices and hints stand where cells ask for them."""
    notebook = json.loads(source)
    _fold_results(notebook["cells"])
    text: dict = {}  # the Markdown above a cell
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = cell
            continue
        _keep_title(cell)
        call = CALL.search("".join(cell["source"]))
        if call is None:
            continue
        function, name, number = call.groups()
        exercise = read(number)[name]
        if isinstance(exercise, Question):
            rows = _choices(name, exercise, text)
            cell["metadata"]["tags"].append("remove-input")
        # In a notebook's JSON a cell's quotation marks have backslashes.
        elif function == "check" and f'hint(\\"{name}\\")"' in source:
            rows = []  # the hints stand below their own cell
        else:
            rows = _hints(name)
        # What is stored there is said of an answer that nobody has given.
        cell["outputs"] = []
        if rows:
            page = html.render("asked.html", TEMPLATES, name=name, rows=rows)
            output = {"output_type": "display_data", "metadata": {}, "data": {"text/html": page}}
            cell["outputs"].append(output)
    return json.dumps(notebook)


def _fold_results(cells: Sequence[dict]) -> None:
    """Fold what the cells right below a question print: it is the answer."""
    is_below_question = False
    for cell in cells:
        tags = cell["metadata"].setdefault("tags", [])
        if cell["cell_type"] == "markdown":
            is_below_question = False
        elif "question" in tags:
            is_below_question = True
        elif is_below_question:
            tags.append("hide-output")
            cell["metadata"]["mystnb"] = {
                "code_prompt_show": translated("Show the result, after your guess"),
                "code_prompt_hide": translated("Hide the result"),
            }


def _keep_title(cell: dict) -> None:
    """Let a folded cell be opened by its own title instead of the words for all cells."""
    title = TITLE.match("".join(cell["source"]))
    if title:
        # MyST-NB fills in what stands between braces.
        prompt = title[1].replace("{", "{{").replace("}", "}}")
        cell["metadata"]["mystnb"] = {"code_prompt_show": prompt, "code_prompt_hide": prompt}


def glossary(source: str) -> dict[str, str]:
    """Give what each word of the glossary, Markdown, means, by the word's anchor."""
    meanings = {}
    for heading, text in GLOSSARY_ENTRY.findall(source):
        # The last links only number the notebooks that show the word.
        text = re.sub(r"(?:\[\d\d\]\([^)]*\)[,\s]*)+$", "", text)
        words = LINK.sub(r"\1", text).replace("`", "").replace("*", "")
        meanings[catalog.slug(heading)] = " ".join(words.split())
    return meanings


def _choices(name: str, question: Question, text: dict) -> list[tuple[str, html.Markup]]:
    """Move a question's choices out of the text above it: each with the verdict on it."""
    # The expression keeps the letters: after the stem come letter and words in turn.
    stem, *parts = CHOICE.split("".join(text["source"]))
    text["source"] = stem.rstrip()
    letters, words = parts[::2], parts[1::2]
    choices = dict(zip(letters, words, strict=True))
    rows = []
    for letter in question.letters:
        verdict = Verdict(name, *question.judge(letter))
        choice = choices[letter].strip(" -,\n")
        rows.append((f"({letter}) {choice}", html.Markup(verdict._repr_html_())))
    return rows


def _hints(name: str) -> list[tuple[str, html.Markup]]:
    """Give an exercise's hints and its solution, which comes after the last of them."""
    rows = []
    for _ in range(len(find(name).hints) + 1):
        card = hint(name)  # each call gives the next
        rows.append((card.title, html.Markup(card._repr_html_())))
    return rows


def cards(notebook_by_page: Mapping[str, catalog.Notebook]) -> str:
    """Show notebooks, by page, each by one of its pictures or prints: of the cell tagged `card`."""
    cells = []
    for page, notebook in notebook_by_page.items():
        for cell in json.loads(notebook.path.read_bytes())["cells"]:
            if "card" in cell["metadata"].get("tags", ()):
                cells.append((page, notebook, cell))
    return html.render(
        "cards.html", TEMPLATES, cells=cells, sha=hashlib.sha256, decode=base64.b64decode
    )


def symptoms_page(
    symptoms: Sequence[explain.Symptom] = explain.SYMPTOMS,
    families: Sequence[explain.Family] = explain.FAMILIES,
    say: Callable[[str], str] = str,
) -> str:
    """Write symptoms as one page in Markdown, ordered by notebook, and families of errors below.

    ``say`` translates the rest.
    """
    return html.render(
        "symptoms.md",
        TEMPLATES,
        symptoms=symptoms,
        families=families,
        say=say,
        plain=_escape_markdown,
    )


def _escape_markdown(text: str) -> str:
    """Keep Markdown from reading underscores and stars of names as its own."""
    parts = text.replace("|", "&#124;").split("`")
    for index in range(0, len(parts), 2):  # what is between backquotes is code
        parts[index] = re.sub(r"([_*<])", r"\\\1", parts[index])
    return "`".join(parts)


def paste_form() -> str:
    """Write the field for a pasted error, with `explain`'s own expressions for site.js.

    A symptom's texts are in the page already: ``row`` counts its cards.
    """
    data: dict[str, object] = {}
    for name in ("ESCAPES", "QUOTED", "BEFORE"):
        data[name] = getattr(explain, name).pattern
    for name in FAILURE_PATTERNS:
        data[name] = getattr(failure, name).pattern
    for name in ("REACH", "MOST_MATCHES", "LONGEST_EVIDENCE", "MOST_BYTES"):
        data[name] = getattr(explain, name)
    for name in FAILURE_VALUES:
        data[name] = getattr(failure, name)
    data["nothing"] = translated(explain.NOTHING)
    data["try"] = translated(explain.TRY)
    data["by_class"] = translated(explain.BY_CLASS)
    data["note"] = translated("note")
    data["labels"] = {label: translated(label) for label in explain.LABELS}
    page_order = sorted(explain.SYMPTOMS, key=lambda symptom: symptom.lesson)
    rows = []
    for symptom in explain.SYMPTOMS:
        row = {
            "seen": explain.lowered("|".join(symptom.seen)).pattern,
            "near": explain.lowered(symptom.near).pattern,
            "unless": explain.lowered(symptom.unless).pattern,
            "not_in": explain.lowered(symptom.not_in).pattern,
            "note": symptom.sure == "note",
            "row": page_order.index(symptom),
        }
        rows.append(row)
    data["symptoms"] = rows
    family_rows = []
    for number, family in enumerate(explain.FAMILIES, len(rows)):
        family_row = {
            "seen": family.seen,
            "unless": family.unless,
            "reports": family.reports,
            "row": number,
        }
        family_rows.append(family_row)
    data["families"] = family_rows
    # A text with </script> in it would end the page's own script.
    script = json.dumps(data).replace("</", "<\\/")
    return html.render("paste.html", TEMPLATES, data=html.Markup(script))


def verdicts() -> str:
    """Write the tables of what two compilers took and refused, as one table to search."""
    notebooks = catalog.notebooks()
    names_by_number = {}
    for notebook in notebooks:
        names = API_NAME.findall(notebook.path.read_text("utf-8"))
        names_by_number[notebook.number] = set(names)
    rows: list[dict] = []
    for table in ("ops", "layers", "models"):
        path = catalog.NOTEBOOKS / f"data/{table}.tsv"
        if path.is_file():
            rows += _verdicts(path, names_by_number)
    return html.render("takes.html", TEMPLATES, rows=rows, notebooks=notebooks)


def _verdicts(path: pathlib.Path, names_by_number: Mapping[str, set[str]]) -> Iterator[dict]:
    # The first line names the versions that gave the verdicts; the columns come after it.
    lines = path.read_text("utf-8").splitlines()[1:]
    # Messages have quotation marks that belong to them.
    for columns in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
        row = OPTIONAL_COLUMNS | {"subject": columns.get("kind")} | columns
        row["numbers"] = _notebooks_that_use(row["code"] or row["name"], names_by_number)
        matches = explain.explain(row["message"]).matches
        if matches and matches[0].sure != explain.BY_CLASS:
            row["numbers"].add(matches[0].symptom.lesson)
            row["instead"] = row["instead"] or matches[0].symptom.fix
        elif row["verdict"] == "bounded":
            row["numbers"].add("02")
            row["instead"] = row["instead"] or BOUNDED
        row["code"] = row["code"].replace("\\n", "\n")
        yield row


def _notebooks_that_use(code: str, names_by_number: Mapping[str, set[str]]) -> set[str]:
    """Give the numbers of the notebooks in which all names of the API occur that ``code`` has."""
    names = set(API_NAME.findall(code))
    if not names:
        return set()
    return {number for number, used_names in names_by_number.items() if names <= used_names}
