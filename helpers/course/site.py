"""What the pages of the course are made from: its files, changed for Sphinx.

Knows Markdown and notebooks; reads files only. `make site` writes these sources and builds them.
"""

import base64
import html
import json
import pathlib
import re
import shutil
import tomllib
from collections.abc import Iterable

from helpers.base.settings import ROOT
from helpers.course import map as course
from helpers.course.explain import SURE, SYMPTOMS, Symptom

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
SOURCE = course.BUILD / "site/source"
IMAGES = course.NOTEBOOKS / "images"
ABOUT = ("CONTRIBUTING", "CHANGELOG")
PAGES = {ROOT / f"{name}.md" for name in ("README", *ABOUT)}
PAGES |= {path for kind in ("md", "ipynb") for path in course.NOTEBOOKS.glob(f"*.{kind}")}


def slug(heading: str) -> str:
    """Name a heading as JupyterLab does, so that the notebooks' links reach it."""
    return heading.replace(" ", "-")


def _contents(lessons: Iterable[course.Notebook]) -> str:
    """Write the sidebar: the notebooks by number, then the texts."""
    parts = {
        "The course": [f"{n.number} {n.title} <notebooks/{n.name}>" for n in lessons],
        "Beside it": [f"notebooks/{path.stem}" for path in sorted(course.NOTEBOOKS.glob("*.md"))],
        "The project": ABOUT,
    }
    return "".join(
        f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(rows) + "\n```"
        for caption, rows in parts.items()
    )


def _file(symptom: Symptom) -> str:
    return "-".join(re.findall(r"\w+", symptom.name.lower())) + ".md"


def _symptom(symptom: Symptom, lesson: course.Notebook) -> str:
    """Write the page of a symptom, with the notebook that teaches it."""
    messages = "\n".join(words.text for words in symptom.seen)
    met = f"[{symptom.source}]({symptom.link})" if symptom.link else symptom.source
    return (
        f"---\norphan: true\n---\n# {symptom.name}\n\n```text\n{messages}\n```\n\n"
        f"**Why** ({SURE[symptom.sure]}): {symptom.why}\n\n**Fix**: {symptom.fix}\n\n"
        f"Taught in [{lesson.number}: {lesson.title}](../notebooks/{lesson.path.name}). "
        f"Met in {met}, read {symptom.checked}. [All symptoms](../notebooks/TROUBLESHOOTING.md)\n"
    )


def _symptoms() -> str:
    """Write the list of all symptoms, which is a table in the repository."""
    intro = "# When it fails: all symptoms"
    for lesson in sorted({symptom.lesson for symptom in SYMPTOMS}):
        intro += f"\n\n## Notebook {lesson}\n"
        for symptom in SYMPTOMS:
            if symptom.lesson == lesson:
                intro += f"\n- [{symptom.name}](../symptoms/{_file(symptom)})"
    return intro


def _target(link: str, folder: pathlib.Path) -> str:
    """Lead to a file's page, or to the file in the repository."""
    target = (folder / link).resolve()
    name = target.relative_to(ROOT).as_posix()
    if target == ROOT / "README.md":
        return link.replace("README.md", "index.md")
    if target in PAGES or target.parent == IMAGES:
        return link
    return f"{REPOSITORY}/blob/main/{name}"


def _markdown(text: str, folder: pathlib.Path) -> str:
    """Let links lead somewhere, and a picture from elsewhere be its words.

    A heading's anchor goes: its name does the same, see `slug`.
    """
    text = re.sub(r'<a id="[^"]*"></a>', "", text)
    text = re.sub(r"!\[([^\]]*)\]\(https?://[^)]*\)", r"\1", text)
    return re.sub(r"(?<=\]\()(?!#|\w+:)[^)#\s]+", lambda found: _target(found[0], folder), text)


def _output(output: dict) -> None:
    """Let a picture keep its words and its width; a widget is its first picture."""
    data = output.get("data", {})
    widget = data.pop("application/vnd.jupyter.widget-view+json", None) is not None
    for kind in ("image/png", "image/svg+xml"):
        if picture := "".join(data.pop(kind, ())):
            if kind != "image/png":
                picture = base64.b64encode(picture.encode()).decode()
            said = {"alt": "", "width": ""} | output["metadata"].get(kind, {})
            alt = html.escape(said["alt"])
            shown = f'<img src="data:{kind};base64,{picture.strip()}" alt="{alt}"'
            data["text/html"] = f'{shown} width="{said["width"]}">'
            data["text/html"] += f"<p><em>{alt}</em></p>" if widget else ""


def _notebook(path: pathlib.Path) -> str:
    notebook = json.loads(path.read_text("utf-8"))
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).removeprefix("# NBVAL_IGNORE_OUTPUT\n")
        if cell["cell_type"] == "markdown":
            source = _markdown(source, path.parent)
        cell["source"] = source
        for output in cell.get("outputs", ()):
            _output(output)
        if title := re.match(r"# @title (.*)", source):
            cell["metadata"]["mystnb"] = {"code_prompt_show": title[1]}
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


def mend(folder: pathlib.Path) -> None:
    """Let the pages of a folder be used without seeing them."""
    for path in folder.rglob("*.html"):
        page = path.read_text("utf-8")
        for wrong, right in _MENDED:
            page = re.sub(wrong, right, page)
        path.write_text(page, "utf-8")


def write() -> None:
    """Write the sources: the repository's texts and notebooks, and a page for each symptom."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(IMAGES, SOURCE / IMAGES.relative_to(ROOT))
    lessons = {notebook.number: notebook for notebook in course.notebooks()}
    pages = {f"symptoms/{_file(s)}": _symptom(s, lessons[s.lesson]) for s in SYMPTOMS}
    for path in PAGES:
        notebook = path.suffix == ".ipynb"
        text = _notebook(path) if notebook else _markdown(path.read_text("utf-8"), path.parent)
        pages[path.relative_to(ROOT).as_posix()] = text
    pages["index.md"] = pages.pop("README.md") + _contents(lessons.values())
    pages["notebooks/TROUBLESHOOTING.md"] = _symptoms()
    for name, text in pages.items():
        (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
        (SOURCE / name).write_text(text, "utf-8")
