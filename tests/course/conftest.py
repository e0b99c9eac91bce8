"""One run of notebooks that end in each way a notebook can."""

import json

import nbformat
import pytest
from made_notebooks import NASTY, quiet, write

from helpers.course import running


class Ran:
    def __init__(self, folder):
        self.folder, self.build = folder / "notebooks", folder / "build"
        hello = "import os, sys\nprint(os.getcwd())\nprint(sys.executable)"
        environment = "print({k: os.environ.get(k) for k in ('PYTHONDONTWRITEBYTECODE', 'MARK')})"
        write(self.folder, "01_ok", hello, environment, parameters="steps = 3")
        boom = "def boom():\n    raise ValueError('no <b>such</b> [thing]')\nboom()"
        write(self.folder, "02_fails", "print('before')", boom, "print('after')")
        kill = "os.write(2, b'last words of native code\\n')\nos.kill(os.getpid(), 9)"
        write(self.folder, "03_killed", f"import os\n{kill}", "print('after')")
        write(self.folder, "04_crashes", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
        write(self.folder, "05_leaves", "import sys\nsys.exit(0)", "print('after')")
        big = "block = b'x' * 200_000_000\nprint(len(block))"
        write(self.folder, "06_big", big, NASTY, title="Big `code`? <script>alert(2)</script>")
        # Python takes 0.2 s to go away, long enough to be seen.
        child = f"[sys.executable, '-c', {big + '; import time; time.sleep(1)'!r}]"
        run = f"import subprocess, sys\nsubprocess.run({child}, check=True)"
        write(self.folder, "07_child", run)
        words = '# Words & more\n\n### <a id="TPU-VM"></a>TPU VM\n\nSee [big](06_big.ipynb).\n'
        (self.folder / "WORDS.md").write_text(words)
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
