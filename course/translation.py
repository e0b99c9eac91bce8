"""The course in another language: what is to be translated, and what becomes of it.

A translation is a file of gettext, ``notebooks/locale/ko.po``. Each of its messages knows where the
English stands: when that changes, the message is fuzzy, and the English is shown until someone has
looked at it. Notebooks in the language are made from the English ones; their programs are the same.
"""

import ast
import dataclasses
import functools
import io
import json
import pathlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from babel.messages import Catalog, pofile

from course import catalog, outputs, pages
from helpers.base import files, language
from helpers.base.errors import CourseError, unreadable
from helpers.base.settings import ROOT
from helpers.display import explain

# Where a text stands, and the English.
Text = tuple[str, str]
# Gives what is written in the place of a text.
Say = Callable[[str, str], str]

PAGES = ("GLOSSARY.md", "CHEATSHEET.md")
SYMPTOMS = "TROUBLESHOOTING.md"
README = "README.md"
CHANGED = "The English has changed; the translation follows."
MISSING = "Not translated yet."
ESCAPE = 'Write other quotation marks for """, no backslash, no other control character.'
# Google's own pages exist in many languages: the end of a link to one of them.
GOOGLE = r"\]\(https://(?:(?:docs\.)?cloud\.google\.com|www\.tensorflow\.org)/[^)#?\s]+(?=[)#])"
BADGE = r"(?<=/notebooks/)(?=\d\d_)"
# A link of Markdown within the repository: a file, and an anchor there.
LINK = re.compile(r"(?<=\]\()(?!#|\w+:)([^)#\s]+)(?:#([^)\s]+))?")

# Short words of the code have no other place: who adds one adds it to a translation by hand.
WORDS = "words"
TITLES = "titles of folded cells"
COMMENTS = "comments of cells"
# What isn't program in a cell: what stands before it, its mark, the text, what ends it.
REMARKS = [
    (TITLES, re.compile(r"\A()(# @title )(.*)()")),
    (COMMENTS, re.compile(r'^( +)(""")(.*?)((?:\n +)?""")$', re.DOTALL | re.MULTILINE)),
    (COMMENTS, re.compile(r"^( *)(# )(?!@title )(.*(?:\n\1# .*)*)()", re.MULTILINE)),
    (COMMENTS, re.compile(r"(?<=\S)()(  # )(.*)()")),
]
SYMPTOM_FIELDS = ("name", "why", "fix")  # what is translated of a symptom
# A learner reads what stands below these keys of data, and code's strings of three words or more.
KEYS = {"hints", "because", "name", "why", "fix", "finding", "names", "advice", "unusable"}
SOURCES = [
    "helpers/exercises/*.toml",
    "helpers/display/symptoms.toml",
    "helpers/display/families.toml",
    "helpers/tpu/places.toml",
    "helpers/exercises/*.py",
    "helpers/display/explain.py",
    "helpers/tpu/place.py",
    "helpers/tpu/connection.py",
    "helpers/text/corpus.py",
    "helpers/text/records/format.py",
    "helpers/runtime.py",
    "helpers/bert/pretraining.py",
    "helpers/display/expect.py",
    "helpers/xla/compare.py",
    "helpers/xla/compilations.py",
    "tpu_preflight/src/tpu_preflight/findings.toml",
    "tpu_preflight/src/tpu_preflight/*.py",
    "tpu_preflight/src/tpu_preflight/checks/*.py",
    "tpu_preflight/src/tpu_preflight/compiler/*.py",
    "tpu_preflight/src/tpu_preflight/estimate/*.py",
    "tpu_preflight/src/tpu_preflight/subjects/*.py",
    "tpu_preflight/src/tpu_preflight/chips/hardware.py",
    "tpu_preflight/src/tpu_preflight/program/tensorflow_export.py",
    "tpu_preflight/src/tpu_preflight/program/tracing.py",
]


# --- What is to be translated ---


def blocks(markdown: str) -> list[str]:
    """Cut a page into paragraphs, rows of tables, items of lists, and what is between them.

    Joined, the parts are the page. A fenced block of code is one part.
    """
    parts = re.split(r"(^```.*?^```$|\n{2,}|\n(?=\||- |\d+\. ))", markdown, flags=re.S | re.M)
    return [part for part in parts if part]


def rewrite_remarks(source: str, say: Say) -> str:
    """Write a cell's title, comments and docstrings as ``say`` gives them; the program stays.

    ``say`` is given where a text belongs, and the text; lines of comments below each other are one.

    Raises `CourseError`: What it says would change the program.
    """
    for place, pattern in REMARKS:
        source = pattern.sub(functools.partial(_rewrite_remark, say, place), source)
    return source


def _rewrite_remark(say: Say, place: str, match: re.Match[str]) -> str:
    indent, mark, text, end = match.groups()
    # Each line of a comment begins with its mark, each line of a docstring with its indent.
    line_start = f"\n{indent}{mark.strip(chr(34))}"
    translation = say(place, text.replace(line_start, "\n")).replace("\n", line_start)
    without_trailing_spaces = re.sub(r"\n +(?=\n)", "\n", translation)
    remark = mark + without_trailing_spaces + end
    with unreadable(f"The translation of {text!r:.99} can't stand in a program.", ESCAPE):
        if _node_types(remark) != _node_types(match[0]):
            raise ValueError("it goes on behind its end")
    return indent + remark


def _node_types(program: str) -> list[type]:
    return [type(node) for node in ast.walk(ast.parse(program.strip()))]


def rewrite_cell(notebook: str, cell: Mapping[str, Any], say: Say) -> str:
    """Write a cell as ``say`` gives its texts: all of Markdown, of code what isn't program."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "code":
        return rewrite_remarks(source, say)
    return say(f"{notebook} {cell.get('id')}", source)


def _page_parts(path: pathlib.Path) -> Iterator[tuple[str, bool]]:
    """Cut a page; tell of each part whether it is to be translated."""
    for part in blocks(path.read_text("utf-8")):
        # The notebooks link to the glossary's headings.
        is_linked_heading = path.name == "GLOSSARY.md" and part.startswith("## ")
        is_code = part.startswith("```")
        has_words = bool(re.search("[A-Za-z]{2}", part))
        yield part, has_words and not is_linked_heading and not is_code


def _notebook_texts(notebook: pathlib.Path) -> list[Text]:
    texts: list[Text] = []

    def collect(place: str, english: str) -> str:
        texts.append((place, english))
        return english

    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        rewrite_cell(notebook.name, cell, collect)
        for output in cell.get("outputs", ()):
            for metadata in (output.get("metadata") or {}).values():
                if isinstance(metadata, dict) and "alt" in metadata:
                    collect(f"{notebook.name} {cell.get('id')} caption", metadata["alt"])
    return texts


def data_texts(path: pathlib.Path) -> Iterator[Text]:
    """Give the texts of a file of TOML that a learner reads, with their keys."""
    for keys, value in _leaves(tomllib.loads(path.read_text("utf-8"))):
        has_words = re.search(r"\w", re.sub(language.BLANK, "", value))
        # What is wrong with the answer (b); of an exercise it is code.
        is_reason = "wrong" in keys and len(keys[-1]) == 1
        if has_words and (is_reason or not KEYS.isdisjoint(keys)):
            yield f"{path.name} {'.'.join(keys)}", value


def _leaves(node: object, *keys: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Walk through data: the keys that lead to each string, and the string."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, *keys, key)
    elif isinstance(node, list):
        for number, value in enumerate(node, 1):
            key = value.get("name", str(number)) if isinstance(value, dict) else str(number)
            yield from _leaves(value, *keys, key)
    elif isinstance(node, str):
        yield keys, node


def code_texts(path: pathlib.Path) -> Iterator[Text]:
    """Give the strings of a source; of one with values in it, their expressions in braces."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    no_texts = _nodes_of_names(nodes)
    for node in nodes:
        match node:
            case ast.JoinedStr(values=parts):
                text = "".join(_with_blank(part) for part in parts)
            case ast.Constant(value=str(text)):
                pass
            case _:
                continue
        if node not in no_texts and _is_sentence(text):
            yield path.relative_to(ROOT).as_posix(), text


def _nodes_of_names(nodes: list[ast.AST]) -> set[ast.AST]:
    """Give docstrings, pieces of a string with values, and strings that name something."""
    names: set[ast.AST] = set()
    for node in nodes:
        match node:
            case ast.Expr(value=docstring):
                names.add(docstring)
            case ast.JoinedStr(values=parts) | ast.Dict(keys=parts):
                names.update(parts)
            case ast.Compare():
                names.update([node.left, *node.comparators])
    return names


def _with_blank(part: ast.AST) -> str:
    if isinstance(part, ast.Constant):
        return part.value
    return f"{{{ast.unparse(part.value)}}}"


def _is_sentence(text: str) -> bool:
    plain = re.sub(language.BLANK, "", text)
    word_count = len(re.findall("[A-Za-z]{2,}", plain))
    if word_count < 3 or not re.search(r"\w \w", plain):
        return False
    return not re.search(r"\\|\n\Z", text)


def collect_texts() -> list[Text]:
    """Collect all that is to be translated, each once: where it stands, and the English."""
    texts: list[Text] = []
    for notebook in catalog.notebooks():
        texts += _notebook_texts(notebook.path)
    for path in (ROOT / README, *(catalog.NOTEBOOKS / name for name in PAGES)):
        texts += [(path.name, part) for part, is_text in _page_parts(path) if is_text]

    def collect(english: str) -> str:
        texts.append((SYMPTOMS, english))
        return english

    pages.symptoms_page(say=collect)
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            texts += data_texts(path) if path.suffix == ".toml" else code_texts(path)
    texts += [(WORDS, CHANGED), (WORDS, MISSING)]
    for code in language.translations():
        messages = language.read(code)
        texts += [(WORDS, message.id) for message in messages if message.context == WORDS]
    return list(dict.fromkeys(texts))


# --- A translation in step with the English ---


def update(po: Catalog, texts: list[Text]) -> None:
    """Bring a translation in step with the English, as gettext's msgmerge does.

    What is gone leaves it. What has changed keeps the translation of the message that was most like
    it, and becomes fuzzy; what only moved isn't changed.
    """
    message_by_english = {message.id: message for message in po}
    template = Catalog(locale=po.locale)
    for place, english in texts:
        template.add(english, context=place)
        moved = message_by_english.get(english)
        if moved is not None and po.get(english, place) is None:
            po.add(english, moved.string, context=place, flags=moved.flags)
    po.update(template, update_creation_date=False)


def to_do(po: Catalog) -> list[str]:
    """List where the English has changed since it was translated, or no translation exists yet."""
    return [m.context for m in po if m.id and (m.fuzzy or not m.string)]


def translate(po: Catalog, place: str, english: str) -> str:
    """Give a message's translation, or the English, with a note below its heading."""
    message = po.get(english, place)
    if message and message.string and not message.fuzzy:
        return message.string
    is_row = re.match(r"\||- |\d+\. ", english)
    if is_row or place in (TITLES, COMMENTS, WORDS):
        return english  # a note would break the program, the table or the list
    reason = MISSING
    if message and message.string:
        reason = CHANGED
    note = f"*{translate(po, WORDS, reason)}*"
    heading, body = re.fullmatch(r"(#+ [^\n]*|)\n*(.*)", english, re.DOTALL).groups()
    return "\n\n".join(part for part in (heading, note, body) if part)


# --- The edition in a language ---


def generate(code: str, po: Catalog) -> dict[pathlib.Path, str]:
    """Make the notebooks and pages in a language: text by file. What a program printed stays."""
    notebooks = {}
    for notebook in catalog.notebooks():
        notebooks[notebook.path.name] = json.loads(notebook.path.read_text("utf-8"))
    # All headings first: a link leads to a heading of another file by its translation.
    anchors: dict[str, dict[str, str]] = {name: {} for name in (*notebooks, *PAGES, SYMPTOMS)}
    say = functools.partial(translate, po)
    for name, cell in _cells(notebooks):
        english = "".join(cell["source"])
        cell["source"] = rewrite_cell(name, cell, say)
        if cell["cell_type"] == "markdown":
            pairs = zip(_anchors(english), _anchors(cell["source"]), strict=False)
            anchors[name].update(pairs)

    stored = _stored_outputs(catalog.NOTEBOOKS / code)
    for name, cell in _cells(notebooks):
        text = _set_language(cell["source"], code)
        if cell["cell_type"] == "markdown":
            text = _relink(text, code, anchors)
        cell["source"] = text.splitlines(keepends=True)
        cell_outputs = stored.get(_program_of(name, cell))
        if cell_outputs:
            cell["outputs"] = cell_outputs

    folder = catalog.NOTEBOOKS / code
    edition = {}
    for name, node in notebooks.items():
        edition[folder / name] = json.dumps(node, ensure_ascii=False, indent=1) + "\n"
    for name in PAGES:
        edition[folder / name] = _relink(_page(po, catalog.NOTEBOOKS / name), code, anchors)
    edition[folder / SYMPTOMS] = _relink(_symptoms_page(po), code, anchors)
    names = "|".join(map(re.escape, anchors))
    readme = _page(po, ROOT / README)
    readme = re.sub(rf"(?<=\]\()notebooks/(?={names})", f"notebooks/{code}/", readme)
    edition[ROOT / f"README.{code}.md"] = readme
    return {path: _address_edition(text, code) for path, text in edition.items()}


def _cells(notebooks: Mapping[str, dict]) -> Iterator[tuple[str, dict]]:
    for name, notebook in notebooks.items():
        for cell in notebook["cells"]:
            yield name, cell


def _program_of(notebook: str, cell: dict) -> tuple[str, str, str]:
    """Name a cell by what it runs: its remarks are in another language in each edition."""
    program = rewrite_remarks("".join(cell["source"]), lambda place, text: "")
    return notebook, cell.get("id"), program


def _stored_outputs(folder: pathlib.Path) -> dict[tuple, list[dict]]:
    """Read what the cells of an edition printed, by `_program_of`; none if it is not there yet."""
    if not folder.is_dir():
        return {}
    notebooks = {}
    for notebook in catalog.notebooks(folder):
        notebooks[notebook.path.name] = json.loads(notebook.path.read_text("utf-8"))
    return {_program_of(name, cell): cell.get("outputs") for name, cell in _cells(notebooks)}


def _set_language(text: str, code: str) -> str:
    text = text.replace("\nruntime.setup()", f'\nruntime.setup(language="{code}")')
    has_corpus = (catalog.NOTEBOOKS / "data" / f"{code}.txt").is_file()
    if has_corpus:  # BERT learns from texts in the language
        text = text.replace('LANGUAGE = "en"', f'LANGUAGE = "{code}"')
    return text


def _address_edition(text: str, code: str) -> str:
    """Let badges open the edition's notebooks, and links to Google its pages in the language."""
    text = re.sub(BADGE, f"{code}/", text)
    return re.sub(GOOGLE, rf"\g<0>?hl={code}", text)


def _page(po: Catalog, path: pathlib.Path) -> str:
    page = ""
    for part, is_text in _page_parts(path):
        if is_text:
            part = translate(po, path.name, part)
        page += part
    return page


def _symptoms_page(po: Catalog) -> str:
    translations = {m.id: m.string for m in po if m.string and not m.fuzzy}

    def say(english: str) -> str:
        return translations.get(english, english)

    symptoms = []
    for symptom in explain.SYMPTOMS:
        fields = {name: say(getattr(symptom, name)) for name in SYMPTOM_FIELDS}
        symptoms.append(dataclasses.replace(symptom, **fields))
    families = []
    for family in explain.FAMILIES:
        fields = {name: say(getattr(family, name)) for name in SYMPTOM_FIELDS}
        families.append(dataclasses.replace(family, **fields))
    return pages.symptoms_page(symptoms, families, say)


def _anchors(markdown: str) -> list[str]:
    """Name the headings of a text as JupyterLab does; brackets would end a link."""
    escapes = str.maketrans({" ": "-", "(": "%28", ")": "%29"})
    headings = re.findall(r"^#+ (.*)$", markdown, re.MULTILINE)
    return [catalog.plain(heading).translate(escapes) for heading in headings]


def _relink(text: str, code: str, anchors: Mapping[str, Mapping[str, str]]) -> str:
    """Let links lead on from a language's folder, else one folder up.

    ``anchors`` has the files of the folder, each with its anchors: the translated by the English.
    """

    def target(match: re.Match[str]) -> str:
        name, anchor = match.groups()
        if name == "../README.md":
            return f"../../README.{code}.md"
        if name not in anchors:
            return f"../{match[0]}"
        if not anchor:
            return name
        return f"{name}#{anchors[name].get(anchor, anchor)}"

    return LINK.sub(target, text)


def write(code: str) -> tuple[list[str], list[pathlib.Path]]:
    """Bring a language's translation in step and make its notebooks and pages.

    Gives what is to do (`to_do`), and the files that changed.

    Raises `CourseError`: The translation was changed meanwhile, or a file can't be written.
    """
    path = language.file(code)
    content = _content(path)
    po = language.read(code)
    translations = {m.string for m in (*po, *po.obsolete.values()) if m.id}
    update(po, collect_texts())
    stream = io.BytesIO()
    pofile.write_po(stream, po, width=0, ignore_obsolete=True)
    edition = {path: stream.getvalue().decode()} | generate(code, po)
    # Making an edition takes seconds, in which someone may have saved the file in an editor.
    if _content(path) != content:
        what = f"{path.name} was changed meanwhile."
        raise CourseError(what, "The change would be lost.", "Run the same command again.")

    outdated = []
    for target, text in edition.items():
        if not target.is_file() or target.read_text("utf-8") != text:
            outdated.append(target)
    lost_translations = translations - {"", *(m.string for m in po)}
    if lost_translations:
        outputs.keep(path, content, catalog.BUILD / "earlier", "loses texts whose English is gone")
    files.write(path, edition[path])  # what was edited by hand is in it
    for target in outdated:
        outputs.write_own(target, edition[target], catalog.BUILD / "earlier")
    return to_do(po), outdated


def _content(path: pathlib.Path) -> bytes:
    if not path.is_file():
        return b""
    return path.read_bytes()
