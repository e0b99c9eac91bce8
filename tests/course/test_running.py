"""Running notebooks: each ending is told apart, Ctrl-C keeps what is done, files are whole."""

import contextlib
import shutil
import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest
from bs4 import BeautifulSoup
from conventions import METADATA
from made_notebooks import quiet, write
from terminal import call, without

from helpers.base import files
from helpers.base.settings import ROOT
from helpers.course import running

pytestmark = pytest.mark.slow

SOURCES = {
    "01_ok": ["import os, sys\nprint(os.getcwd(), sys.executable)", "os.write(2, b'native');"],
    "02_fails": ["print('before')", "def boom():\n    raise ValueError('no <b>')\nboom()", "1"],
    "03_killed": ["import os\nos.write(2, b'last words')\nos.kill(os.getpid(), 9)", "1"],
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One run of notebooks that end in each way a notebook can: folder, results, what was said."""
    folder = tmp_path_factory.mktemp("course")
    for name, sources in SOURCES.items():
        write(folder / "notebooks", name, *sources)
    before = {path: path.read_bytes() for path in (folder / "notebooks").iterdir()}
    console = quiet()
    results = running.run((), (), folder / "notebooks", folder / "build", console)
    assert {path: path.read_bytes() for path in before} == before
    return folder, results, console.file.getvalue()


def test_each_ending_is_told_apart_and_the_run_goes_on(ran):
    folder, results, said = ran
    assert [(result.name, result.state, result.cell) for result in results] == [
        ("01_ok", "passed", 0),
        ("02_fails", "failed", 3),
        ("03_killed", "died", 2),
    ]
    assert "02_fails: failed at cell 3" in said and "\x1b" not in said
    last = results[1].error
    assert "----> 2     raise ValueError('no <b>')" in last and last.endswith("ValueError: no <b>")
    assert "last words" in results[2].error and "native" not in said
    ok = nbformat.read(folder / "build/01_ok.ipynb", 4)
    assert ok.cells[1].outputs[0].text == f"{folder / 'notebooks'} {sys.executable}\n"


def test_the_index_leads_to_pages_that_show_what_failed(ran):
    folder, _, _ = ran
    index = BeautifulSoup((folder / "build/index.html").read_text("utf-8"), "html.parser")
    assert [link["href"] for link in index.select("a")] == [f"{name}.html" for name in SOURCES]
    assert "no <b>" in index.select_one("pre").text
    page = (folder / "build/02_fails.html").read_text("utf-8")
    assert "before" in page and "no &lt;b&gt;" in page


def test_a_changed_parameter_and_a_workshop(tmp_path):
    write(tmp_path, "02_b", "print(steps * 2)", "1/0", parameters="steps = 1", tags=["beyond-core"])
    build = tmp_path / "build"
    running.run(["2"], [("steps", "21")], tmp_path, build, quiet(), workshop=True)
    cells = nbformat.read(build / "02_b.ipynb", 4).cells
    assert [o.text for c in cells for o in c.get("outputs", ())] == ["42\n"]
    assert "1 of its 4 cells" in cells[1].source


def test_store_writes_outputs_without_traces_and_twice_the_same(tmp_path):
    native = "import os\nprint('a', flush=True)\nprint('b')\nos.system('echo native')"
    path = write(tmp_path, "02_b", native, "{'x': 1}", parameters="steps = 3", tags=["hide-input"])
    bad = write(tmp_path, "03_c", "print(1)", "1/0")
    untouched = bad.read_bytes()
    node = nbformat.read(path, 4)
    node.cells[1].metadata |= {"scrolled": True, "vscode": {"languageId": "python"}}
    node.cells[2].metadata |= {"slideshow": {"slide_type": "slide"}, "tags": []}
    nbformat.write(node, path)
    results = running.store((), tmp_path, quiet())
    assert [result.state for result in results] == ["passed", "failed"]
    assert bad.read_bytes() == untouched
    first, stored = path.read_bytes(), nbformat.read(path, 4)
    assert stored.metadata == METADATA
    assert [(x.id, x.source) for x in stored.cells] == [(x.id, x.source) for x in node.cells]
    tags = {"tags": ["parameters"]}, {"slideshow": {"slide_type": "slide"}}
    folded = {"tags": ["hide-input"], **running.FOLDED}
    assert [dict(cell.metadata) for cell in stored.cells] == [{}, *tags, folded]
    assert [cell.get("execution_count") for cell in stored.cells] == [None, 1, 2, 3]
    running.store(["2"], tmp_path, quiet())
    assert path.read_bytes() == first
    # What is stored is what nbval sees, native output included.
    words = sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", path
    assert "3 passed" in call(*words, cwd=tmp_path, env=without("PYTEST")).stdout


def test_a_taken_path_is_told_before_a_notebook_runs(tmp_path, monkeypatch):
    write(tmp_path, "02_b", "1")
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setattr(running, "execute", lambda *_: pytest.fail("a notebook was run"))
    with pytest.raises(files.CantWrite):
        running.run((), (), tmp_path, tmp_path / "taken", quiet())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A course of its own, to start the command line in."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "helpers", folder / "helpers", ignore=shutil.ignore_patterns("__py*"))
    write(folder / "notebooks", "02_quick", "print(1)")
    for name in ("03_endless", "05_endless"):
        begun = f"open({str(folder / name)!r}, 'w').close()"
        write(folder / "notebooks", name, f"{begun}\nimport time; time.sleep(600)")
    write(folder / "notebooks", "06_never", "print(2)")
    return folder


@contextlib.contextmanager
def started(checkout, *words):
    """Start the command line; give it, with its kernels, when the endless notebooks are at work."""
    shutil.rmtree(checkout / "build", ignore_errors=True)
    marks = [checkout / name for name in ("03_endless", "05_endless")]
    for mark in marks:
        mark.unlink(missing_ok=True)
    path = f"{checkout}:{ROOT / 'tpu_preflight/src'}"
    process = subprocess.Popen(
        [sys.executable, "-m", "helpers", "run", *words],
        cwd=checkout,
        env=without("PYTHON") | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not all(mark.exists() for mark in marks if mark.name[:2].lstrip("0") in words):
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        yield process, psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("words", ["2 3 6", "3 5"])
def test_ctrl_c_ends_all_and_keeps_what_is_done(checkout, words):
    with started(checkout, *words.split()) as (process, kernels):
        kept = {path.name for path in (checkout / "build").iterdir()}
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err and "Stopped." in err
    assert kernels and not any(kernel.is_running() for kernel in kernels)
    assert kept <= {path.name for path in (checkout / "build").iterdir()}
    assert not (checkout / "build/03_endless.ipynb").exists()


def test_a_run_that_is_killed_leaves_whole_files_and_no_kernel(checkout):
    with started(checkout, "3") as (process, kernels):
        process.kill()
        process.communicate()
    assert [path.name for path in (checkout / "build").iterdir()] == ["index.html"]
    gone, alive = psutil.wait_procs(kernels, timeout=30)
    assert gone and not alive
