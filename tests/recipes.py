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


@dataclasses.dataclass(frozen=True)
class Step:
    """One instruction, and the block of code below it, if it has one."""

    text: str
    code: str = ""

    def carry_out(self, folder: pathlib.Path) -> None:
        """Change the copy as the instruction says; without one, the code is commands."""
        if not self.text:
            run(self.code, folder)
            return
        for pattern, change in CHANGES.items():
            match = re.match(pattern, self.text)
            if match:
                name, *words = match.groups()
                change(folder / name, self.code, *words)


def run(commands: str, folder: pathlib.Path) -> None:
    """Run commands as in an activated environment; one that fails is an `AssertionError`."""
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


def append(path: pathlib.Path, code: str) -> None:
    content = path.read_text("utf-8").rstrip("\n")
    path.write_text(f"{content}\n{code}", "utf-8")


def create(path: pathlib.Path, code: str) -> None:
    assert not path.exists()
    path.write_text(code, "utf-8")


def insert(path: pathlib.Path, code: str, side: str, anchor: str) -> None:
    lines = path.read_text("utf-8").splitlines(keepends=True)
    places = [index for index, line in enumerate(lines) if line.strip() == anchor]
    assert len(places) == 1, f"{anchor} is {len(places)} times in {path.name}"
    index = places[0] if side == "above" else places[0] + 1
    lines.insert(index, code)
    path.write_text("".join(lines), "utf-8")


def reword(path: pathlib.Path, _: str, replacement: str, original: str) -> None:
    content = path.read_text("utf-8")
    assert content.count(original) == 1, f"{original} is {content.count(original)} times there"
    content = content.replace(original, replacement)
    if path.suffix == ".ipynb":
        content = as_jupyterlab_saves_it(content)
    path.write_text(content, "utf-8")


def add_cell(path: pathlib.Path, code: str, kind: str, tag: str | None, slide: str) -> None:
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
    is_recap = ["".join(other["source"]).startswith("## Recap") for other in cells]
    cells.insert(is_recap.index(True), cell)
    path.write_text(as_jupyterlab_saves_it(json.dumps(notebook)), "utf-8")


def as_jupyterlab_saves_it(text: str) -> str:
    """Add to a notebook what JupyterLab does: the version of Python, an empty cell at the end."""
    notebook = json.loads(text)
    notebook["metadata"]["language_info"] = {"name": "python", "version": "3.11.9"}
    notebook["cells"][0]["metadata"]["editable"] = True
    if notebook["cells"][-1]["source"]:
        cell = {"id": "empty", "cell_type": "code", "metadata": {"trusted": True}, "source": []}
        notebook["cells"].append(cell | {"outputs": [], "execution_count": None})
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


# What an instruction says, and who does it: with the file, the code below it, and other words.
REWORD = r"In `([^`]+)`, write `([^`]+)` in place of `([^`]+)`\.$"
CELL = r"In `([^`]+)`, above \*Recap\*, a cell of (text|code)(?: tagged `(\w+)`)?, "
CHANGES = {
    r"At the end of `([^`]+)`:$": append,
    r"In the new file `([^`]+)`:$": create,
    r"In `([^`]+)`, (above|below) `([^`]+)`:$": insert,
    CELL + r"\*Slide Type\* `([^`]+)`:$": add_cell,
    REWORD: reword,
}


def recipe(title: str) -> list[Step]:
    """Read the steps of a section of CONTRIBUTING.md, in their order."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)[1]
    steps = []
    position = 0
    for block in BLOCK.finditer(section):
        paragraphs = section[position : block.start()].strip().split("\n\n")
        steps += [Step(paragraph) for paragraph in paragraphs if re.match(REWORD, paragraph)]
        language, code = block.groups()
        instruction = "" if language == "sh" else paragraphs[-1].splitlines()[-1]
        is_known = any(re.match(pattern, instruction) for pattern in CHANGES)
        assert is_known or language == "sh", instruction
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
