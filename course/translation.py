"""The course in another language: what is to be translated, and what becomes of it.

A translation is a file of gettext, ``notebooks/locale/ko.po``. Each of its messages knows where the
English stands: when that changes, the message is fuzzy, and the English is shown until somebody has
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

PAGES = ("GLOSSARY.md", "CHEATSHEET.md")
SYMPTOMS, README = "TROUBLESHOOTING.md", "README.md"
CHANGED = "The English has changed; the translation follows."
MISSING = "Not translated yet."
ESCAPE = 'Write other quotation marks for """, no backslash, no other control character.'
GOOGLE = r"\]\(https://(?:(?:docs\.)?cloud\.google\.com|www\.tensorflow\.org)/[^)#?\s]+(?=[)#])"
# Short words of the code have no other place: who adds one adds it to a translation by hand.
WORDS = "words"
TITLES, COMMENTS = "titles of folded cells", "comments of cells"
# What isn't program in a cell: what stands before it, its mark, the text, what ends it.
REMARKS = [
    (TITLES, re.compile(r"\A()(# @title )(.*)()")),
    (COMMENTS, re.compile(r'^( +)(""")(.*?)((?:\n +)?""")$', re.DOTALL | re.MULTILINE)),
    (COMMENTS, re.compile(r"^( *)(# )(?!@title )(.*(?:\n\1# .*)*)()", re.MULTILINE)),
    (COMMENTS, re.compile(r"(?<=\S)()(  # )(.*)()")),
]
PARTS = ("name", "why", "fix")  # what is translated of a symptom
# A learner reads what stands below these keys of data, and code's strings of three words or more.
KEYS = {"hints", "because", "name", "why", "fix", "finding", "names", "advice", "unusable"}
_COURSE = "exercises/*.toml display/symptoms.toml tpu/places.toml exercises/*.py display/explain.py"
_COURSE += " tpu/place.py tpu/connection.py text/corpus.py text/records/format.py runtime.py"
_COURSE += " bert/pretraining.py display/expect.py xla/compare.py xla/compilations.py"
_TOOL = "findings.toml *.py checks/*.py compiler/*.py estimate/*.py subjects/*.py "
_TOOL += "chips/hardware.py program/tensorflow_export.py program/tracing.py"
SOURCES = [f"helpers/{name}" for name in _COURSE.split()]
SOURCES += [f"tpu_preflight/src/tpu_preflight/{name}" for name in _TOOL.split()]


def blocks(markdown: str) -> list[str]:
    """Cut a page into paragraphs, rows of tables, items of lists, and what is between them.

    Joined, the parts are the page. A fenced block of code is one part.
    """
    parts = re.split(r"(^```.*?^```$|\n{2,}|\n(?=\||- |\d+\. ))", markdown, flags=re.S | re.M)
    return [part for part in parts if part]


def commented(source: str, say: Callable[[str, str], str]) -> str:
    """Write a cell's title, comments and docstrings as ``say`` gives them; the program stays.

    ``say`` is given where a text belongs, and the text; lines of comments below each other are one.

    Raises `CourseError`: What it says would change the program.
    """
    for where, pattern in REMARKS:

        def said(found: re.Match[str], where: str = where) -> str:
            indent, mark, text, end = found.groups()
            line = f"\n{indent}{mark.strip(chr(34))}"
            new = say(where, text.replace(line, "\n")).replace("\n", line)
            new = mark + re.sub(r"\n +(?=\n)", "\n", new) + end
            with unreadable(f"The translation of {text!r:.99} can't stand in a program.", ESCAPE):
                was, now = ([*map(type, ast.walk(ast.parse(x.strip())))] for x in (found[0], new))
                if was != now:
                    raise ValueError("it goes on behind its end")
            return indent + new

        source = pattern.sub(said, source)
    return source


def _told(name: str, cell: Mapping[str, Any], say: Callable[[str, str], str]) -> str:
    """Write a cell as ``say`` gives its texts: all of Markdown, of code what isn't program."""
    source = "".join(cell["source"])
    is_code = cell["cell_type"] == "code"
    return commented(source, say) if is_code else say(f"{name} {cell.get('id')}", source)


def _parts(path: pathlib.Path) -> Iterator[tuple[str, bool]]:
    """Cut a page, and tell what of it is to be translated: no code, no heading with links to it."""
    for part in blocks(path.read_text("utf-8")):
        heading = path.name == "GLOSSARY.md" and part.startswith("## ")
        left = heading or part.startswith("```") or not re.search("[A-Za-z]{2}", part)
        yield part, not left


def _cells(notebook: pathlib.Path) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        _told(notebook.name, cell, lambda *said: found.append(said) or said[1])
        for output in cell.get("outputs", ()):
            metadata = (output.get("metadata") or {}).values()
            for beside in (x for x in metadata if isinstance(x, dict) and "alt" in x):
                found.append((f"{notebook.name} {cell.get('id')} caption", beside["alt"]))
    return found


def _data(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    def walk(node: object, *keys: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, dict):
            for key, value in node.items():
                yield from walk(value, *keys, key)
        elif isinstance(node, list):
            for at, value in enumerate(node, 1):
                own = value["name"] if isinstance(value, dict) else str(at)
                yield from walk(value, *keys, own)
        elif isinstance(node, str) and re.search(r"\w", re.sub(language.BLANK, "", node)):
            # What is wrong with the answer (b); of an exercise it is code.
            because = "wrong" in keys and len(keys[-1]) == 1
            if because or KEYS & {*keys}:
                yield f"{path.name} {'.'.join(keys)}", node

    yield from walk(tomllib.loads(path.read_text("utf-8")))


def _code(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Give the strings of a source; of one with values in it, their expressions in braces."""
    nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
    left_out = set()  # docstrings, pieces of a string with values, and what is a name
    for node in nodes:
        match node:
            case ast.Expr(value=part):
                left_out.add(part)
            case ast.JoinedStr(values=parts) | ast.Dict(keys=parts):
                left_out.update(parts)
            case ast.Compare():
                left_out.update([node.left, *node.comparators])
    for node in nodes:
        match node:
            case ast.JoinedStr(values=parts):
                text = "".join(
                    x.value if isinstance(x, ast.Constant) else f"{{{ast.unparse(x.value)}}}"
                    for x in parts
                )
            case ast.Constant(value=str(text)):
                pass
            case _:
                continue
        plain = re.sub(language.BLANK, "", text)
        words = len(re.findall("[A-Za-z]{2,}", plain)) >= 3 and re.search(r"\w \w", plain)
        if words and node not in left_out and not re.search(r"\\|\n\Z", text):
            yield path.relative_to(ROOT).as_posix(), text


def texts() -> list[tuple[str, str]]:
    """Collect all that is to be translated, each once: where it stands, and the English."""
    found = [text for notebook in catalog.notebooks() for text in _cells(notebook.path)]
    for path in (ROOT / README, *(catalog.NOTEBOOKS / name for name in PAGES)):
        found += [(path.name, part) for part, is_text in _parts(path) if is_text]
    pages.symptoms_page(say=lambda text: found.append((SYMPTOMS, text)) or text)
    for path in (path for pattern in SOURCES for path in sorted(ROOT.glob(pattern))):
        found += (_data if path.suffix == ".toml" else _code)(path)
    found += [(WORDS, CHANGED), (WORDS, MISSING)]
    for code in language.translations():
        found += [(WORDS, m.id) for m in language.read(code) if m.context == WORDS]
    return list(dict.fromkeys(found))


def update(po: Catalog, wanted: list[tuple[str, str]]) -> None:
    """Bring a translation in step with the English, as gettext's msgmerge does.

    What is gone leaves it. What has changed keeps the translation of the message that was most like
    it, and becomes fuzzy; what only moved isn't changed.
    """
    known = {message.id: message for message in po}
    template = Catalog(locale=po.locale)
    for where, english in wanted:
        template.add(english, context=where)
        if english in known and po.get(english, where) is None:
            old = known[english]
            po.add(english, old.string, context=where, flags=old.flags)
    po.update(template, update_creation_date=False)


def to_do(po: Catalog) -> list[str]:
    """List where the English has changed since it was translated, or nobody has yet."""
    return [m.context for m in po if m.id and (m.fuzzy or not m.string)]


def said(po: Catalog, where: str, english: str) -> str:
    """Give a message's translation, or the English, with a note below its heading."""
    message = po.get(english, where)
    if message and message.string and not message.fuzzy:
        return message.string
    if where in (TITLES, COMMENTS, WORDS) or re.match(r"\||- |\d+\. ", english):
        return english  # a note would break the program, the table or the list
    why = said(po, WORDS, CHANGED if message and message.string else MISSING)
    heading, rest = re.fullmatch(r"(#+ [^\n]*|)\n*(.*)", english, re.DOTALL).groups()
    return "\n\n".join(part for part in (heading, f"*{why}*", rest) if part)


def generated(code: str, po: Catalog) -> dict[pathlib.Path, str]:
    """Make the notebooks and pages in a language: text by file. What a program printed stays."""
    nodes = {n.path.name: json.loads(n.path.read_text("utf-8")) for n in catalog.notebooks()}
    # The files of the folder, each with the anchors that are called otherwise there.
    own: dict[str, dict[str, str]] = {name: {} for name in (*nodes, *PAGES, SYMPTOMS)}
    cells = [(name, cell) for name, node in nodes.items() for cell in node["cells"]]
    for name, cell in cells:
        english = "".join(cell["source"])
        cell["source"] = _told(name, cell, functools.partial(said, po))
        if cell["cell_type"] == "markdown":
            own[name] |= zip(_anchors(english), _anchors(cell["source"]), strict=False)
    setup = f'\nruntime.setup(language="{code}")'
    learned = (catalog.NOTEBOOKS / "data" / f"{code}.txt").is_file()  # texts in the language, too
    bare = functools.partial(commented, say=lambda *_: "")
    folder = catalog.NOTEBOOKS / code
    there = [n.path for n in catalog.notebooks(folder)] if folder.is_dir() else []
    kept = [(p.name, c) for p in there for c in json.loads(p.read_text("utf-8"))["cells"]]
    stored = {(n, c.get("id"), bare("".join(c["source"]))): c.get("outputs") for n, c in kept}
    for name, cell in cells:
        text = cell["source"].replace("\nruntime.setup()", setup)
        text = text.replace('LANGUAGE = "en"', f'LANGUAGE = "{code}"') if learned else text
        text = _linked(text, code, own) if cell["cell_type"] == "markdown" else text
        cell["source"] = text.splitlines(keepends=True)
        if outputs := stored.get((name, cell.get("id"), bare(text))):
            cell["outputs"] = outputs
    made = {n: json.dumps(node, ensure_ascii=False, indent=1) + "\n" for n, node in nodes.items()}
    pages = {name: _page(po, catalog.NOTEBOOKS / name) for name in PAGES}
    pages[SYMPTOMS] = _symptoms(po)
    made |= {name: _linked(page, code, own) for name, page in pages.items()}
    names = "|".join(map(re.escape, own))
    readme = _page(po, ROOT / README)
    readme = re.sub(rf"(?<=\]\()notebooks/(?={names})", f"notebooks/{code}/", readme)
    written = {catalog.NOTEBOOKS / code / name: text for name, text in made.items()}
    written[ROOT / f"README.{code}.md"] = readme
    badge, hl = r"(?<=/blob/main/notebooks/)(?=\d\d_)", rf"\g<0>?hl={code}"
    return {p: re.sub(GOOGLE, hl, re.sub(badge, f"{code}/", x)) for p, x in written.items()}


def _page(po: Catalog, path: pathlib.Path) -> str:
    parts = _parts(path)
    return "".join(said(po, path.name, x) if is_text else x for x, is_text in parts)


def _symptoms(po: Catalog) -> str:
    told = {m.id: m.string for m in po if m.string and not m.fuzzy}
    rows = [
        dataclasses.replace(row, **{x: told.get(getattr(row, x), getattr(row, x)) for x in PARTS})
        for row in explain.SYMPTOMS
    ]
    return pages.symptoms_page(rows, lambda text: told.get(text, text))


def _anchors(markdown: str) -> list[str]:
    """Name the headings of a text as JupyterLab does; brackets would end a link."""
    names = map(catalog.plain, re.findall(r"^#+ (.*)$", markdown, re.MULTILINE))
    return [re.sub("[ ()]", lambda x: {" ": "-", "(": "%28", ")": "%29"}[x[0]], n) for n in names]


def _linked(text: str, code: str, own: Mapping[str, Mapping[str, str]]) -> str:
    """Let links lead on from a language's folder, else one folder up."""

    def led(found: re.Match[str]) -> str:
        name, anchor = found.groups()
        if name in own:
            return name + (f"#{own[name].get(anchor, anchor)}" if anchor else "")
        return f"../../README.{code}.md" if name == "../README.md" else f"../{found[0]}"

    # Where a link of Markdown leads in the repository: a file, and an anchor there.
    return re.sub(r"(?<=\]\()(?!#|\w+:)([^)#\s]+)(?:#([^)\s]+))?", led, text)


def write(code: str) -> tuple[list[str], list[pathlib.Path]]:
    """Bring a language's translation in step and make its notebooks and pages.

    Gives what is to do (`to_do`), and the files that changed.
    """
    path, stream = language.file(code), io.BytesIO()
    read = path.is_file() and path.read_bytes()
    po = language.read(code)
    had = {m.string for m in (*po, *po.obsolete.values()) if m.id}
    update(po, texts())
    pofile.write_po(stream, po, width=0, ignore_obsolete=True)
    new = {path: stream.getvalue().decode()} | generated(code, po)
    if read != (path.is_file() and path.read_bytes()):
        what = f"{path.name} was changed meanwhile."
        raise CourseError(what, "The change would be lost.", "Run the same command again.")
    changed = [p for p, text in new.items() if not p.is_file() or p.read_text("utf-8") != text]
    if had - {"", *(m.string for m in po)}:
        outputs.keep(path, read, catalog.BUILD / "earlier", "loses texts whose English is gone")
    files.write(path, new[path])  # what was edited by hand is in it
    for made in changed:
        outputs.write_own(made, new[made], catalog.BUILD / "earlier")
    return to_do(po), changed
