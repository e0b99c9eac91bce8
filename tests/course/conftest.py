"""One run of notebooks that end in each way a notebook can."""

import json

import nbformat
import pytest
from made_notebooks import DATA, quiet, write

from helpers.course import running


class Ran:
    def __init__(self, folder):
        self.folder, self.build = folder / "notebooks", folder / "build"
        nasty = DATA["nasty"].replace("PICTURE", DATA["picture"])
        titles = {"06_big": "Big `code`? <script>alert(2)</script>"}
        given = {"01_ok": "steps = 3"}
        for name, cells in DATA["ran"].items():
            cells = [*cells, nasty] if name == "06_big" else cells
            write(self.folder, name, *cells, parameters=given.get(name), title=titles.get(name))
        self.sources = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        console = quiet()
        self.report = running.run(folder=self.folder, build=self.build, console=console, jobs=2)
        self.said = console.file.getvalue()
        self.results = {result.name: result for result in self.report.results}

    def node(self, name):
        return nbformat.read(self.build / f"{name}.ipynb", 4)

    def page(self, name):
        return (self.build / f"{name}.html").read_text("utf-8")


@pytest.fixture(scope="session")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    # A kernel of the same name that the user installed: it must not be taken.
    kernel = folder / "jupyter/kernels/python3"
    kernel.mkdir(parents=True)
    spec = {"argv": ["false"], "display_name": "Python 3", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder / "jupyter"))
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        patch.setenv("MARK", "seen")
        return Ran(folder)
