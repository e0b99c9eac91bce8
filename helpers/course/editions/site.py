"""What the pages of the course are made from: its files, changed for Sphinx.

Knows Markdown and notebooks; reads files only. `make site` writes these sources and builds them.
"""

import base64
import html
import json
import os.path
import pathlib
import re
import shutil
import tomllib
from collections.abc import Iterable

from babel import Locale

from helpers.base import language
from helpers.base.language import ENGLISH, translated
from helpers.base.settings import ROOT
from helpers.course import map as course
from helpers.course.help.explain import SURE, SYMPTOMS, Symptom

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
IMAGES = course.NOTEBOOKS / "images"
ABOUT = ("CONTRIBUTING", "CHANGELOG")


def pages(code: str = ENGLISH) -> dict[pathlib.Path, str]:
    """Name the files that become pages of a language's site, by where they stand in it."""
    folder, readme = (
        course.edition(code)[0],
        "README.md" if code == ENGLISH else f"README.{code}.md",
    )
    found = {ROOT / readme: "index.md"}
    if code == ENGLISH:
        found |= {ROOT / f"{name}.md": f"{name}.md" for name in ABOUT}
    paths = [path for kind in ("md", "ipynb") for path in folder.glob(f"*.{kind}")]
    return found | {path: f"notebooks/{path.name}" for path in paths}


def slug(heading: str) -> str:
    """Name a heading as JupyterLab does, so that the notebooks' links reach it.

    The symptoms of a notebook keep their English name, which the links of every edition have.
    """
    return re.sub(r"^\S+ (?=\d\d$)", "Notebook-", heading).replace(" ", "-")


def _contents(lessons: Iterable[course.Notebook], code: str) -> str:
    """Write the sidebar: the notebooks by number, then the texts."""
    texts = sorted(name.removesuffix(".md") for name in pages(code).values() if name[-3:] == ".md")
    parts = {
        "The course": [f"{n.number} {n.title} <notebooks/{n.name}>" for n in lessons],
        "Beside it": [name for name in texts if "/" in name],
        "The project": [name for name in texts if name in ABOUT],
    }
    return "".join(
        f"\n\n```{{toctree}}\n:hidden:\n:caption: {translated(caption, code)}\n\n"
        + "\n".join(rows)
        + "\n```"
        for caption, rows in parts.items()
        if rows
    )


def _file(symptom: Symptom) -> str:
    return "-".join(re.findall(r"\w+", symptom.name.lower())) + ".md"


def _symptom(symptom: Symptom, lesson: course.Notebook, code: str) -> str:
    """Write the page of a symptom, with the notebook that teaches it."""

    def say(text: str) -> str:
        return translated(text, code)

    messages = "\n".join(words.text for words in symptom.seen)
    met = f"[{symptom.source}]({symptom.link})" if symptom.link else symptom.source
    return (
        f"---\norphan: true\n---\n# {say(symptom.name)}\n\n```text\n{messages}\n```\n\n"
        f"**{say('Why')}** ({say(SURE[symptom.sure])}): {say(symptom.why)}\n\n"
        f"**{say('Fix')}**: {say(symptom.fix)}\n\n"
        f"{say('Taught in')} [{lesson.number}: {lesson.title}](../notebooks/{lesson.path.name})\n"
        f"· {say('Met in')} {met}, {symptom.checked}\n"
        f"· [{say('All symptoms')}](../notebooks/TROUBLESHOOTING.md)\n"
    )


def _symptoms(code: str) -> str:
    """Write the list of all symptoms, which is a table in the repository."""
    intro = f"# {translated('When it fails: all symptoms', code)}"
    for lesson in sorted({symptom.lesson for symptom in SYMPTOMS}):
        intro += f"\n\n## {translated(f'Notebook {lesson}', code)}\n"
        for symptom in SYMPTOMS:
            if symptom.lesson == lesson:
                intro += f"\n- [{translated(symptom.name, code)}](../symptoms/{_file(symptom)})"
    return intro


def _markdown(text: str, path: pathlib.Path, names: dict[pathlib.Path, str]) -> str:
    """Let links lead to a file's page or to the file in the repository, a picture be its words.

    A heading's anchor goes: its name does the same, see `slug`.
    """

    def led(found: re.Match[str]) -> str:
        target = (path.parent / found[0]).resolve()
        name = target.relative_to(ROOT).as_posix()
        if target in names or target.parent == IMAGES:
            return os.path.relpath(names.get(target, name), os.path.dirname(names[path]) or ".")  # noqa: PTH120
        return f"{REPOSITORY}/blob/main/{name}"

    text = re.sub(r'<a id="[^"]*"></a>', "", text)
    text = re.sub(r"(?m)^\[.*\]\(README(\.\w+)?\.md\)\n", "", text)  # the site has its switch
    text = re.sub(r"!\[([^\]]*)\]\(https?://[^)]*\)", r"\1", text)
    text = re.sub(r"(?<=\))\s(?=\[Open in )", " · ", text)  # else two badges read as one
    return re.sub(r"(?<=\]\()(?!#|\w+:)[^)#\s]+", led, text)


def _output(output: dict, code: str) -> None:
    """Let a picture keep its words and its width; a widget is its first picture."""
    data = output.get("data", {})
    widget = data.pop("application/vnd.jupyter.widget-view+json", None) is not None
    for kind in ("image/png", "image/svg+xml"):
        if picture := "".join(data.pop(kind, ())):
            if kind != "image/png":
                picture = base64.b64encode(picture.encode()).decode()
            said = {"alt": "", "width": ""} | output["metadata"].get(kind, {})
            alt = html.escape(translated(said["alt"], code))
            shown = f'<img src="data:{kind};base64,{picture.strip()}" alt="{alt}"'
            width = said["width"]
            data["text/html"] = f'{shown} width="{width}" style="--own: {width or 0}px">'
            data["text/html"] += f"<p><em>{alt}</em></p>" if widget else ""
    if caption := re.fullmatch(r"\*(.*)\*", "".join(data.get("text/markdown", ())), re.DOTALL):
        data["text/markdown"] = f"*{translated(caption[1], code)}*"


def _notebook(path: pathlib.Path, names: dict[pathlib.Path, str], code: str) -> str:
    notebook = json.loads(path.read_text("utf-8"))
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            source = _markdown(source, path, names)
        cell["source"] = source
        for output in cell.get("outputs", ()):
            _output(output, code)
        if title := re.match(r"# @title (.*)", source):
            cell["metadata"]["mystnb"] = {"code_prompt_show": translated(title[1], code)}
    return json.dumps(notebook)


# What axe finds in the pages that Sphinx and Furo write, and how it should be.
_MENDED = (
    (r' role="heading"', ' role="heading" aria-level="2"'),
    (r'<(aside class="sidebar-drawer")', r'<\1 aria-label="Course"'),
    (r'<(aside class="toc-drawer)', r'<\1 aria-label="On this page"'),
    (r"<th[^>]*>(?:<p></p>)?</th>", "<td></td>"),
    (r'<(input class="task-list-item-checkbox")', r'<\1 aria-hidden="true"'),
    (r'(<div id="search-results">)', r"<h1>Search</h1>\1"),
)


def mend(folder: pathlib.Path, code: str = ENGLISH) -> None:
    """Let the pages of a folder be used without seeing them, and lead to the other languages."""
    for path in folder.rglob("*.html"):
        page = path.read_text("utf-8")
        for wrong, right in _MENDED:
            page = re.sub(wrong, right, page)
        if path.stem == "CHEATSHEET":
            page = page.replace("<body>", '<body id="one-page">', 1)
        links = _switch(path.relative_to(folder), code)
        path.write_text(page.replace('<div class="sidebar-sticky">', links, 1), "utf-8")


def _folder(code: str) -> pathlib.Path:
    return pathlib.Path("" if code == ENGLISH else code)


def _switch(page: pathlib.Path, code: str) -> str:
    """Write the links from a page to the same page in the other languages, or to their first."""
    links = '<div class="sidebar-sticky">'
    for other in (ENGLISH, *language.translations()):
        if other == code:
            continue
        names = [*pages(other).values(), *(f"symptoms/{_file(symptom)}" for symptom in SYMPTOMS)]
        there = {pathlib.Path(name).with_suffix(".html") for name in names}
        name = page if page in there else pathlib.Path("index.html")
        to = os.path.relpath(_folder(other) / name, _folder(code) / page.parent)
        said = Locale.parse(other).get_display_name()
        links += f'<a class="switch" href="{to}" hreflang="{other}" lang="{other}">{said}</a>'
    return links


def write(source: pathlib.Path, code: str = ENGLISH) -> None:
    """Write the sources: the repository's texts and notebooks, and a page for each symptom."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(IMAGES, source / IMAGES.relative_to(ROOT))
    lessons = {n.number: n for n in course.notebooks(course.edition(code)[0])}
    written = {f"symptoms/{_file(s)}": _symptom(s, lessons[s.lesson], code) for s in SYMPTOMS}
    names = pages(code)
    for path, name in names.items():
        notebook = path.suffix == ".ipynb"
        text = path.read_text("utf-8")
        written[name] = _notebook(path, names, code) if notebook else _markdown(text, path, names)
    written["index.md"] += _contents(lessons.values(), code)
    written["notebooks/TROUBLESHOOTING.md"] = _symptoms(code)
    for name, text in written.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, "utf-8")
