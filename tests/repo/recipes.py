"""The recipes of CONTRIBUTING.md, read as steps that change a copy of the repository.

An instruction is the paragraph above a block of code, or one that needs none. A block of ``sh`` is
commands. Whatever else stands in a recipe is for people.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from conventions import ROOT

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
APPEND = re.compile(r"At the end of `([^`]+)`:$")
CREATE = re.compile(r"In the new file `([^`]+)`:$")
INSERT = re.compile(r"In `([^`]+)`, (above|below) `([^`]+)`:$")
CELL = re.compile(
    r"In `([^`]+\.ipynb)`, above \*Recap\*, a cell of (text|code)(?: tagged `(\w+)`)?,"
    r" \*Slide Type\* `([^`]+)`:$"
)
REWORD = re.compile(r"In `([^`]+)`, write `([^`]+)` in place of `([^`]+)`\.$")


@dataclasses.dataclass(frozen=True)
class Step:
    """One instruction, and the block of code below it, if it has one."""

    text: str
    code: str = ""

    def carry_out(self, folder: pathlib.Path) -> None:
        """Change the copy as the instruction says."""
        if match := APPEND.match(self.text):
            path = folder / match[1]
            content = path.read_text("utf-8").rstrip("\n")
            path.write_text(f"{content}\n{self.code}", "utf-8")
        elif match := CREATE.match(self.text):
            (folder / match[1]).write_text(self.code, "utf-8")
        elif match := CELL.match(self.text):
            _add_cell(folder / match[1], self.code, *match.groups()[1:])
        elif match := INSERT.match(self.text):
            _insert(folder / match[1], self.code, match[2], match[3])
        elif match := REWORD.match(self.text):
            _reword(folder / match[1], match[2], match[3])
        else:
            run(self.code, folder)


def recipe(title: str) -> list[Step]:
    """Read the steps of a section of CONTRIBUTING.md, in their order."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)[1]
    steps = []
    position = 0
    for block in BLOCK.finditer(section):
        *paragraphs, last = section[position : block.start()].strip().split("\n\n")
        steps += [Step(paragraph) for paragraph in paragraphs if REWORD.match(paragraph)]
        language, code = block.groups()
        if language == "sh":
            if REWORD.match(last):
                steps.append(Step(last))
            steps.append(Step("", code))
        else:
            instruction = last.splitlines()[-1]
            assert any(x.match(instruction) for x in (APPEND, CREATE, CELL, INSERT)), instruction
            steps.append(Step(instruction, code))
        position = block.end()
    return steps


def copy(folder: pathlib.Path) -> None:
    """Copy the files that git knows, as they are now."""
    names = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for name in names:
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def run(commands: str, folder: pathlib.Path) -> None:
    """Run commands as in an activated environment; an `AssertionError` has what a failing one said."""
    binaries = pathlib.Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(folder / "tpu_preflight/src"),
    }
    for line in commands.splitlines():
        process = subprocess.run(
            line, shell=True, cwd=folder, env=environment, capture_output=True, text=True
        )
        assert process.returncode == 0, f"{line}\n{process.stdout}\n{process.stderr}"


def _insert(path: pathlib.Path, code: str, side: str, anchor: str) -> None:
    lines = path.read_text("utf-8").splitlines(keepends=True)
    places = [index for index, line in enumerate(lines) if line.strip() == anchor]
    assert len(places) == 1, f"{anchor} is {len(places)} times in {path.name}"
    index = places[0] if side == "above" else places[0] + 1
    lines.insert(index, code)
    path.write_text("".join(lines), "utf-8")


def _reword(path: pathlib.Path, new: str, old: str) -> None:
    content = path.read_text("utf-8")
    assert content.count(old) == 1, f"{old} is {content.count(old)} times in {path.name}"
    content = content.replace(old, new)
    if path.suffix == ".ipynb":
        content = as_jupyterlab_saves_it(content)
    path.write_text(content, "utf-8")


def _add_cell(path: pathlib.Path, code: str, kind: str, tag: str | None, slide: str) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    cells = notebook["cells"]
    metadata: dict = {"slideshow": {"slide_type": slide}}
    if tag:
        metadata["tags"] = [tag]
    cell = {"id": f"new-{len(cells)}", "metadata": metadata}
    if kind == "text":
        cell |= {"cell_type": "markdown"}
    else:
        cell |= {"cell_type": "code", "outputs": [], "execution_count": None}
    cell["source"] = code.rstrip("\n").splitlines(keepends=True)
    starts = ["".join(other["source"]).startswith("## Recap") for other in cells]
    cells.insert(starts.index(True), cell)
    path.write_text(as_jupyterlab_saves_it(json.dumps(notebook)), "utf-8")


def as_jupyterlab_saves_it(text: str) -> str:
    """Add to a notebook what JupyterLab does: the kernel's version, and an empty cell at the end."""
    notebook = json.loads(text)
    notebook["metadata"]["language_info"] = {"name": "python", "version": "3.11.9"}
    notebook["cells"][0]["metadata"]["editable"] = True
    empty = {"id": "empty", "cell_type": "code", "metadata": {"trusted": True}, "source": []}
    notebook["cells"].append(empty | {"outputs": [], "execution_count": None})
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
