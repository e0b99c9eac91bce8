"""The course in another language: what is to be translated, and what becomes of it.

A translation is a file of gettext, ``notebooks/locale/ko.po``. Each of its messages knows where the
English stands and what it was: when that changes, the message is fuzzy, and the English is shown
until somebody has looked at it. Notebooks in the language are made from the English ones; their
code and outputs are the same.
"""

import ast
import collections
import dataclasses
import datetime
import difflib
import io
import json
import pathlib
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping

from babel import Locale, UnknownLocaleError
from babel.messages import Catalog, Message, pofile

from helpers.base import files, language
from helpers.base.errors import CourseError
from helpers.base.settings import ROOT
from helpers.course import map as course
from helpers.course.help import explain

SYMPTOMS = "TROUBLESHOOTING.md"
PAGES = ("GLOSSARY.md", "CHEATSHEET.md")
README = "README.md"
CHANGED = "The English has changed; the translation follows."
MISSING = "Not translated yet."
PREFLIGHT = "tpu_preflight/src/tpu_preflight"
# Where messages of `check`, `hint`, `explain`, `doctor` and the preflight stand in the code.
CODE = (
    "helpers/exercises/*.py",
    "helpers/course/help/doctor.py",
    "helpers/course/help/explain.py",
    "helpers/tpu/place.py",
    f"{PREFLIGHT}/*.py",
    f"{PREFLIGHT}/checks/*.py",
    f"{PREFLIGHT}/chips/hardware.py",
    f"{PREFLIGHT}/compiler/*.py",
    f"{PREFLIGHT}/estimate/*.py",
    f"{PREFLIGHT}/numerics/results.py",
    f"{PREFLIGHT}/program/from_tensorflow.py",
    f"{PREFLIGHT}/program/tracing.py",
    f"{PREFLIGHT}/subjects/*.py",
)
# Shorter ones that stand between those.
WORDS = (
    *(CHANGED, MISSING, "Time", "Needs", "likely", "note", "Exercise", "Question"),
    *("right", "not yet", "not right", "Hint", "Seen", "Sure", "Why", "Fix", "Lesson"),
    *("Thread", "Line", "Search", "Try", "Next", "well", "pass", "warn", "fail"),
    *("not checked", "does not apply", "ready", "not ready", "can't tell", "Memory", "Cost"),
    *("versions", "wheel", "place", "chip", "devices", "bucket", "disk", "memory"),
    *("Hint {number} of {count}", "Solution of {name}", "fix", "state", "check"),
    *("what was seen", "In short", "Passed", "Computing time", "Most memory", "Last run"),
    *("The questions, in order", "Notebook", "State", "Peak memory", "passed", "failed", "died"),
    *("interrupted", "not run", "A course that you can trust on a machine without a TPU."),
    *("Times and memory are this machine's, and say nothing about a TPU.", "Again:"),
    *("one notebook:", "all", "the first", "Map of the course"),
    "{number} cores, {size} of memory, {versions}",
    *("train step", "a generator", "a Python function", "TensorFlow on TPU"),
    *("The course", "Beside it", "Taught in", "Met in", "All symptoms"),
    *("When it fails: all symptoms", "{free} GiB free", "notebook {lesson}", "Notebook {lesson}"),
    *("{rows} rows of a batch", "{number} sets of shapes", "{number} set of shapes"),
    "Preflight of {subject} for {targets}: {status} ({counts})",
    *("{number} fail", "{number} warn", "{number} pass", "{number} not checked"),
    *("{number} does not apply", "{number} do not apply", "worse", "better", "now", "help", "Help"),
    *("target", "replicas", "rows each", "compute", "traffic", "peak memory", "of", "links"),
    *("least time", "limited by", "all-reduce", "most rows", "operations", "layers", "lines"),
    *("share", "bound by", "vector", "matrix", "lines of libraries", "rows a step", "chips"),
    *("hours", "chip-hours", "a chip-hour", "cost", "{low} to {high}", "stage", "line"),
    *("wall µs", "core µs", "wall µs a row", "processor µs a row", "estimated time"),
    *("{number} batch", "{number} batches", "{number} real batch", "{number} real batches"),
    *("batch", "batches", "other", "out of memory"),
    *("train step on batch {number}", "all of {one}, {other}", "would fit"),
    *("What would help: {way}", "What would help: {way}.", "optimizer state"),
    "{part} in parts over {number} devices, which needs code of your own: {arithmetic}",
    "state and weights",
    *("{name} ({cost} µs a row, mostly {what})", "waiting", "work"),
    *("{number} host of {count} vCPUs", "{number} hosts of {count} vCPUs"),
    "This machine ({cores} cores) gives {rows} rows a second ({each} for each busy core)",
    *("{number} product", "{number} products", "the weights", "the order of the batches"),
    "padding: dimension {at} of {type} {shape} fills {given} of {there} places, {share} of the "
    "tile is empty; {way}",
    *("advice", "told by", "needs", "strategy", "starting", "importing", "{target}: compiling"),
    "{target}: attempt {number}, batch {batch}: {stage}",
    *("loss", "gradients", "updates", "forward pass", "loss and gradients"),
    *("Before you run it.", "A good place to stop.", "{minutes} minutes."),
    *("Let them vote, then press on.", "… ({number} more lines in the notebook)"),
    "… ({number} more rows in the notebook)",
)
_PARTS = ("name", "why", "fix")  # of a symptom
LEAST_WORDS = 3  # in code, what has fewer is a name, not a message
ALIKE = 0.5  # as far as a changed message of the same file must be like the old one


@dataclasses.dataclass(frozen=True)
class Text:
    """One message to be translated."""

    where: str  # file, and what it is called there: ``02_xla_rules.ipynb rule-1``
    english: str


def _cells(notebook: pathlib.Path) -> Iterator[Text]:
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        where = f"{notebook.name} {cell['id']}"
        if cell["cell_type"] == "markdown":
            yield Text(where, "".join(cell["source"]))
        elif title := re.search(r"\A# @title (.*)", "".join(cell["source"])):
            yield Text("titles of folded cells", title[1])
        for output in cell.get("outputs", ()):
            captions = (beside["alt"] for beside in output.get("metadata", {}).values())
            yield from (Text(f"{where} caption", caption) for caption in captions)


def blocks(markdown: str) -> list[str]:
    """Cut a page into paragraphs, rows of tables, items of lists, and what is between them.

    Joined, the parts are the page. A fenced block of code is one part.
    """
    parts = re.split(r"(^```.*?^```$|\n{2,}|\n(?=\||- |\d+\. ))", markdown, flags=re.S | re.M)
    return [part for part in parts if part]


def _is_text(name: str, block: str) -> bool:
    """Tell what is to be translated of a page: no code, and no heading that links lead to."""
    heading = name == "GLOSSARY.md" and block.startswith("## ")
    code = block.startswith("```")
    return not heading and not code and re.search(r"[A-Za-z]{2}", block) is not None


def _page(name: str, markdown: str) -> Iterator[Text]:
    for block in blocks(markdown):
        if _is_text(name, block):
            yield Text(name, block)


def _frame() -> Iterator[Text]:
    """Give what the page of all symptoms says beside the symptoms."""
    said: list[str] = []
    explain.page(say=lambda text: said.append(text) or text)
    yield from (Text(SYMPTOMS, text) for text in said)


def _exercises(path: pathlib.Path) -> Iterator[Text]:
    for name, text in tomllib.loads(path.read_text("utf-8")).items():
        for number, hint in enumerate(text.get("hints", ())):
            yield Text(f"{path.name} {name}.hint.{number + 1}", hint)
        if "because" in text:
            yield Text(f"{path.name} {name}.because", text["because"])
            for letter, why in text["wrong"].items():
                yield Text(f"{path.name} {name}.wrong.{letter}", why)


def _symptoms(path: pathlib.Path) -> Iterator[Text]:
    for row in tomllib.loads(path.read_text("utf-8"))["symptom"]:
        for part in _PARTS:
            yield Text(f"{path.name} {row['name']} {part}", row[part])


def _findings(path: pathlib.Path) -> Iterator[Text]:
    for check, rows in tomllib.loads(path.read_text("utf-8")).items():
        for key, row in rows.items():
            for part in ("name", "finding", "fix"):
                if re.search(r"\w", re.sub(language.BLANK, "", row.get(part, ""))):
                    yield Text(f"{path.name} {check}.{key}.{part}", row[part])


def _places(path: pathlib.Path) -> Iterator[Text]:
    for table, rows in tomllib.loads(path.read_text("utf-8")).items():
        for name, text in rows.items() if table != "code" else ():
            yield Text(f"{path.name} {table}.{name}", text)
            if table == "names":  # as the doctor says it
                yield Text(f"{path.name} {table}.{name} told", f"{text} ({{mark}}){{more}}")


def _notes(path: pathlib.Path) -> Iterator[Text]:
    for number, rows in tomllib.loads(path.read_text("utf-8")).items():
        for heading, row in rows.items():
            for at, text in enumerate((row["ask"], *row["wrong"])):
                yield Text(f"{path.name} {number} {heading} {at}", text)


def _template(node: ast.AST) -> str | None:
    """Give a string of the source; of one with values in it, their expressions in braces."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
            for part in node.values
        )
    return None


def _strings(node: ast.AST) -> Iterator[str]:
    documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
    docstring = node.body[0] if documented and ast.get_docstring(node) is not None else None
    # Keys and what is compared with are names.
    names = node.keys if isinstance(node, ast.Dict) else [getattr(node, "slice", None)]
    if isinstance(node, ast.Compare):
        names = [node.left, *node.comparators]
    for child in ast.iter_child_nodes(node):
        if child is docstring or child in names:
            continue
        if (text := _template(child)) is not None:
            yield text
        if isinstance(child, ast.JoinedStr):
            blanks = [part.value for part in child.values if isinstance(part, ast.FormattedValue)]
            yield from _strings(ast.Tuple(blanks, ast.Load()))
        else:
            yield from _strings(child)


def _code(path: pathlib.Path) -> Iterator[Text]:
    for text in _strings(ast.parse(path.read_text("utf-8"))):
        if text.endswith("\n"):  # source code
            continue
        plain = re.sub(language.BLANK, "", text)
        if len(re.findall("[A-Za-z]{2,}", plain)) >= LEAST_WORDS and re.search(r"\w \w", plain):
            yield Text(path.relative_to(ROOT).as_posix(), text)


def texts() -> list[Text]:
    """Collect all that is to be translated, in the order of the course, each message once."""
    helpers = ROOT / "helpers"
    found = [text for notebook in course.notebooks() for text in _cells(notebook.path)]
    found += _page(README, (ROOT / README).read_text("utf-8"))
    for name in PAGES:
        found += _page(name, (course.NOTEBOOKS / name).read_text("utf-8"))
    found += _frame()
    for path in sorted((helpers / "exercises").glob("*.toml")):
        found += _exercises(path)
    found += _symptoms(helpers / "course/help/symptoms.toml")
    found += _findings(ROOT / PREFLIGHT / "findings.toml")
    found += _places(helpers / "tpu/places.toml")
    found += _notes(helpers / "course/editions/notes.toml")
    for path in (path for pattern in CODE for path in sorted(ROOT.glob(pattern))):
        found += _code(path)
    found += (Text("words", word) for word in WORDS)
    return list(dict.fromkeys(found))


@dataclasses.dataclass(frozen=True)
class Count:
    """How far a translation has come, in messages."""

    translated: int
    fuzzy: tuple[str, ...]  # where the English has changed since
    missing: tuple[str, ...]  # where nothing is translated yet

    def __repr__(self) -> str:
        return f"{self.translated} translated, {len(self.fuzzy)} fuzzy, {len(self.missing)} missing"


def count(catalog: Catalog) -> Count:
    """Count the messages of a translation."""
    messages = [message for message in catalog if message.id]
    fuzzy = tuple(m.context for m in messages if m.fuzzy)
    missing = tuple(m.context for m in messages if not m.string)
    return Count(len(messages) - len(fuzzy) - len(missing), fuzzy, missing)


def updated(old: Catalog, wanted: Iterable[Text]) -> Catalog:
    """Bring a translation in step with the English.

    A message whose English has changed keeps its translation and becomes fuzzy; it is found by
    where it stands. In a file without names for its messages, the one most like it is taken.
    """
    wanted = list(wanted)
    known = {(message.context, message.id): message for message in old if message.id}
    gone = set(known) - {(text.where, text.english) for text in wanted}
    left: dict[str, list[Message]] = {}
    for key in sorted(gone):
        left.setdefault(key[0], []).append(known[key])
    unnamed = collections.Counter(text.where for text in wanted)
    new = _catalog(str(old.locale))
    for text in wanted:
        message, fuzzy = known.get((text.where, text.english)), False
        if message is None and (candidates := left.get(text.where)):
            best = max(candidates, key=lambda m: _alike(m.id, text.english))
            if unnamed[text.where] == 1 or _alike(best.id, text.english) >= ALIKE:
                message, fuzzy = best, True
                candidates.remove(best)
        string = message.string if message else ""
        flags = {"fuzzy"} if string and (fuzzy or message.fuzzy) else ()
        new.add(text.english, string, context=text.where, flags=flags)
    return new


def _alike(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()


def _catalog(code: str) -> Catalog:
    try:
        Locale.parse(code)
    except (ValueError, UnknownLocaleError):
        raise CourseError(
            f"{code!r} is no language.",
            "A translation is named by the code of its language (ISO 639), such as ko or ja.",
            "Write that code: tpu-course translate ja.",
        ) from None
    day = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)  # Git knows when it really changed
    return Catalog(
        locale=code,
        project="tensorflow-on-tpu",
        version="",
        header_comment="# How to mend or add a sentence: CONTRIBUTING.md, Another language.",
        msgid_bugs_address="",
        last_translator="",
        language_team=code,
        creation_date=day,
        revision_date=day,
        fuzzy=False,
    )


def read(code: str) -> Catalog:
    """Read a language's translation; an empty one where there is none yet.

    Raises:
        CourseError: The file isn't in gettext's PO form.
    """
    path = language.file(code)
    try:
        return language.read(path) if path.is_file() else _catalog(code)
    except (pofile.PoFileError, UnicodeDecodeError) as error:
        raise CourseError(
            f"{path.name} is damaged.",
            f"{error}",
            f"Mend the line, or get the file back with `git restore notebooks/locale/{path.name}`.",
        ) from error


def _written(catalog: Catalog) -> str:
    stream = io.BytesIO()
    pofile.write_po(stream, catalog, width=0)
    return stream.getvalue().decode()


def generated(code: str, catalog: Catalog) -> dict[pathlib.Path, str]:
    """Make the notebooks and pages in a language: text by file.

    A message that is fuzzy or missing is the English, with a note in front.
    """
    folder, made, own = course.NOTEBOOKS / code, {}, {name: {} for name in (*PAGES, SYMPTOMS)}
    nodes = {n.path.name: json.loads(n.path.read_text("utf-8")) for n in course.notebooks()}
    for name, node in nodes.items():
        own[name] = {}
        for cell in (cell for cell in node["cells"] if cell["cell_type"] == "markdown"):
            english = "".join(cell["source"])
            cell["source"] = _said(catalog, Text(f"{name} {cell['id']}", english))
            own[name] |= zip(_anchors(english), _anchors(cell["source"]), strict=False)
    for name, node in nodes.items():
        for cell in (cell for cell in node["cells"] if cell["cell_type"] == "markdown"):
            cell["source"] = _linked(cell["source"], code, own).splitlines(keepends=True)
        made[folder / name] = json.dumps(node, ensure_ascii=False, indent=1) + "\n"
    for name in PAGES:
        page = (course.NOTEBOOKS / name).read_text("utf-8")
        made[folder / name] = _linked(_translated_page(catalog, name, page), code, own)
    made[folder / SYMPTOMS] = _linked(_symptom_page(catalog), code, own)
    readme = _translated_page(catalog, README, (ROOT / README).read_text("utf-8"))
    made[ROOT / f"README.{code}.md"] = _led(readme, code, own)
    return made


def _anchors(markdown: str) -> list[str]:
    """Name the headings of a text as JupyterLab does; brackets would end a link."""
    headings = re.findall(r"^#+ (.*)$", markdown, re.MULTILINE)
    names = (course.plain(heading).replace(" ", "-") for heading in headings)
    return [name.replace("(", "%28").replace(")", "%29") for name in names]


def _said(catalog: Catalog, text: Text) -> str:
    """Give a message's translation, or the English with a note below its heading."""
    message = catalog.get(text.english, text.where)
    if message and message.string and not message.fuzzy:
        return message.string
    if re.match(r"\||- |\d+\. ", text.english):
        return text.english  # a note would break the table or the list
    note = CHANGED if message and message.string else MISSING
    said = catalog.get(note, "words")
    note = f"*{(said and said.string) or note}*"
    heading, rest = re.fullmatch(r"(#+ [^\n]*|)\n*(.*)", text.english, re.DOTALL).groups()
    return "\n\n".join(part for part in (heading, note, rest) if part)


def _translated_page(catalog: Catalog, name: str, markdown: str) -> str:
    parts = blocks(markdown)
    return "".join(
        _said(catalog, Text(name, part)) if _is_text(name, part) else part for part in parts
    )


def _symptom_page(catalog: Catalog) -> str:
    def say(text: str, where: str = SYMPTOMS) -> str:
        message = catalog.get(text, where)
        return message.string if message and message.string and not message.fuzzy else text

    rows = []
    for row in explain.SYMPTOMS:
        parts = {
            part: say(getattr(row, part), f"symptoms.toml {row.name} {part}") for part in _PARTS
        }
        rows.append(dataclasses.replace(row, **parts))
    return explain.page(rows, say)


def _linked(text: str, code: str, own: Mapping[str, Mapping[str, str]]) -> str:
    """Let links lead on from a language's folder, else one folder up.

    ``own`` are the files of the folder, each with the anchors that are called otherwise there.
    """

    def led(found: re.Match[str]) -> str:
        name, anchor = found.groups()
        if name in own:
            return name + (f"#{own[name].get(anchor, anchor)}" if anchor else "")
        return f"../../README.{code}.md" if name == "../README.md" else f"../{found[0]}"

    return re.sub(_LINK, led, _badged(text, code))


def _led(readme: str, code: str, own: Collection[str]) -> str:
    """Let the links of the README lead into the language's folder, as far as it has the file."""

    def led(found: re.Match[str]) -> str:
        name = found[1].removeprefix("notebooks/")
        return found[0].replace("notebooks/", f"notebooks/{code}/", name in own)

    return re.sub(_LINK, led, _badged(readme, code))


def _badged(text: str, code: str) -> str:
    return re.sub(r"(/blob/main/notebooks/)(?=\d\d_)", rf"\1{code}/", text)


# Where a link of Markdown leads in the repository: a file, and an anchor there.
_LINK = r"(?<=\]\()(?!#|\w+:)([^)#\s]+)(?:#([^)\s]+))?"


def write(code: str) -> tuple[Count, list[pathlib.Path]]:
    """Bring a language's translation in step and make its notebooks and pages.

    Gives how far it has come, and the files that changed.

    Raises:
        CourseError: The translation is damaged, or a file can't be written.
    """
    catalog = updated(read(code), texts())
    new = {language.file(code): _written(catalog)} | generated(code, catalog)
    changed = [p for p, text in new.items() if not p.is_file() or p.read_text("utf-8") != text]
    for path in changed:
        files.write(path, new[path])
    return count(catalog), changed
