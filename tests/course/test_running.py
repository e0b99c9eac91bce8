"""Running notebooks: each ending is told apart, Ctrl-C keeps what is done, files are whole."""

import shutil
import signal
import subprocess
import sys

import nbformat
import psutil
import pytest
from bs4 import BeautifulSoup
from made_notebooks import quiet, write
from nbformat.v4 import new_output
from terminal import call, wait_for, without

from course import running, tidy
from course.catalog import notebooks
from course.tidy import METADATA
from helpers.base import files
from helpers.base.settings import ROOT

pytestmark = pytest.mark.slow

ENDLESS = ["21_endless", "22_endless", "23_endless", "24_endless"]  # as many as run at once
LEAVE_PROCESSES = (
    "import subprocess\n"
    "subprocess.Popen(['sleep', '611'], start_new_session=True)\n"
    "subprocess.Popen(['/bin/sleep', '613'], env={}, start_new_session=True);"
)
SOURCES = {
    "01_ok": ["import os, sys\nprint(os.getcwd(), sys.executable)", "os.write(2, b'native');"],
    "02_fails": ["print('before')", "def boom():\n    raise ValueError('no <b>')\nboom()", "1"],
    "03_killed": ["import os; print('it')", "os.write(2, b'last words')\nos.kill(os.getpid(), 9)"],
    "04_leaves": ["import sys\nsys.exit(0)", "1"],
    "05_leaves": [
        LEAVE_PROCESSES,
        "print('a' * 2_000_000)\nprint('10 %', end='\\r')\nprint('20 %')",
    ],
    "06_shows": ["import IPython.display as x", "x.publish_display_data({'text/html': 5})"],
}


def files_of(folder) -> dict:
    return {path: path.read_bytes() for path in folder.iterdir()}


def test_each_ending_is_told_apart_and_the_run_goes_on(tmp_path):
    folder, build = tmp_path / "notebooks", tmp_path / "build"
    for name, sources in SOURCES.items():
        write(folder, name, *sources)
    originals = files_of(folder)
    console = quiet()
    results = running.run(notebooks(folder), build, console)
    assert files_of(folder) == originals
    assert [result.name for result in results] == [*SOURCES]
    endings = [(result.state, result.cell) for result in results]
    assert endings[:2] == [("passed", 0), ("failed", 3)]
    assert endings[2:4] == [("died", 3), ("failed", 2)]
    assert endings[4:] == [("passed", 0), ("died", 3)]

    # What a cell started has ended, also where it had no variable of its kernel's.
    commands = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert ["sleep", "611"] not in commands
    assert ["/bin/sleep", "613"] not in commands

    messages = console.file.getvalue()
    assert "02_fails: failed at cell 3" in messages
    assert "\x1b" not in messages
    assert "native" not in messages
    error = results[1].error
    assert "----> 2     raise ValueError('no <b>')" in error
    assert error.endswith("ValueError: no <b>")
    assert "last words" in results[2].error
    assert "the cells below never ran" in results[3].error

    stored = nbformat.read(build / "01_ok.ipynb", 4)
    assert stored.cells[1].outputs[0].text == f"{folder} {sys.executable}\n"
    long_output = nbformat.read(build / "05_leaves.ipynb", 4).cells[2].outputs[0]
    assert long_output.text == "a" * 2_000_000 + "\n20 %\n"
    index = BeautifulSoup((build / "index.html").read_text("utf-8"), "html.parser")
    assert [link["href"] for link in index.select("a")] == [f"{name}.html" for name in SOURCES]
    assert "no <b>" in index.select_one("pre").text
    failed_page = (build / "02_fails.html").read_text("utf-8")
    assert "before" in failed_page
    assert "no &lt;b&gt;" in failed_page
    assert "<pre>it\n" in (build / "03_killed.html").read_text("utf-8")


def test_a_page_shows_so_much_of_a_text(tmp_path):
    node = nbformat.read(write(tmp_path, "02_b", "1"), 4)
    colored = "\x1b[31ma\x1b[32mb" * 6_000
    node.cells[1].outputs = [
        new_output("stream", text=colored),
        new_output("execute_result", {"text/plain": colored}),
        new_output("error", ename="E", evalue="", traceback=[colored]),
    ]
    page = running._page(node, notebooks(tmp_path)[0])
    assert page.count("ansi-red-fg") < 3 * 5_000


def test_a_changed_parameter_and_a_workshop(tmp_path, monkeypatch):
    spec = tmp_path / "kernels/python3/kernel.json"  # of another Python, which is gone
    files.write(spec, '{"argv": ["/gone"], "display_name": "a", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    write(tmp_path, "02_b", "print(steps * 2)", "1/0", parameters="steps = 1", tags=["beyond-core"])
    running.run(notebooks(tmp_path), tmp_path, quiet(), workshop=True, parameters={"steps": 21})
    cells = nbformat.read(tmp_path / "02_b.ipynb", 4).cells
    assert [o.text for c in cells for o in c.get("outputs", ())] == ["42\n"]


@pytest.mark.long
def test_store_writes_outputs_without_traces_and_twice_the_same(tmp_path):
    native = "import os\nprint('a', flush=True)\nprint('b')\nos.system('echo native')"
    path = write(tmp_path, "02_b", native, "{'x': 1}", parameters="steps = 3", tags=["hide-input"])
    failing = write(tmp_path, "03_c", "print(1)", "1/0")
    failing_text = failing.read_bytes()
    node = nbformat.read(path, 4)
    node.cells[1].metadata |= {"scrolled": True, "vscode": {"languageId": "python"}}
    node.cells[2].metadata |= {"slideshow": {"slide_type": "slide"}, "tags": []}
    nbformat.write(node, path)

    results = running.store(notebooks(tmp_path), quiet())
    assert [result.state for result in results] == ["passed", "failed"]
    assert failing.read_bytes() == failing_text
    stored = nbformat.read(path, 4)
    assert stored.metadata == METADATA
    for cell, original in zip(stored.cells, node.cells, strict=True):
        assert (cell.id, cell.source) == (original.id, original.source)
    title, parameters, slide, folded = [cell.metadata for cell in stored.cells]
    assert title == {}
    assert parameters == {"tags": ["parameters"]}
    assert slide == {"slideshow": {"slide_type": "slide"}}
    assert folded == {"tags": ["hide-input"], **tidy.FOLDED}
    assert [cell.get("execution_count") for cell in stored.cells] == [None, 1, 2, 3]

    stored_text = path.read_bytes()
    running.store(notebooks(tmp_path)[:1], quiet())
    assert path.read_bytes() == stored_text
    # What is stored is what nbval sees, native output included.
    words = sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", path
    assert "3 passed" in call(*words, cwd=tmp_path, env=without("PYTEST")).stdout


CHANGE = """\
import json
with open("04_d.ipynb", "r+") as file:
    node = json.load(file)
    file.seek(0)
    node["cells"][0].update({change})
    json.dump(node, file)
    file.truncate()
"""


@pytest.mark.parametrize(
    "change", ["source='# mine'", "metadata={'tags': ['mine']}", "attachments={'a': {}}"]
)
def test_a_notebook_that_is_changed_while_it_runs_is_not_written_over(tmp_path, change):
    write(tmp_path, "04_d", CHANGE.replace("{change}", change))
    with pytest.raises(running.CourseError, match="changed while it ran"):
        running.store(notebooks(tmp_path), quiet())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A course of its own, to start the command line in."""
    folder = tmp_path_factory.mktemp("checkout")
    for room in ("course", "helpers"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__py*"))
    write(folder / "notebooks", "20_quick", "print(1)")
    for name in ENDLESS:
        mark = f"open({str(folder / name)!r}, 'w').close()"
        write(folder / "notebooks", name, f"{mark}\nimport time; time.sleep(600)")
    write(folder / "notebooks", "25_never", "print(2)")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_a_kill_end_all_kernels_and_leave_whole_files(checkout, sent):
    """One notebook is done, and others are at work."""
    shutil.rmtree(checkout / "build", ignore_errors=True)
    started = checkout / ENDLESS[0]
    started.unlink(missing_ok=True)
    done = checkout / "build/20_quick.html"
    process = subprocess.Popen(
        [sys.executable, "-m", "course", "run"],
        cwd=checkout,
        env=without("PYTHON") | {"PYTHONPATH": f"{checkout}:{ROOT / 'tpu_preflight/src'}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: process.poll() is not None or (started.exists() and done.exists()), 300)
        kernels = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert kernels, errors
    interrupted = sent == signal.SIGINT
    assert "Traceback" not in errors
    assert ("Stopped." in errors) == interrupted
    assert process.returncode == (130 if interrupted else -sent)
    ended_kernels, living_kernels = psutil.wait_procs(kernels, timeout=30)
    assert ended_kernels
    assert not living_kernels
    names = [path.name for path in (checkout / "build").iterdir() if path.is_file()]
    if not interrupted:  # SIGKILL can leave a hidden file that was on its way to its name
        names = [name for name in names if not name.startswith(".")]
    assert sorted(names) == ["20_quick.html", "20_quick.ipynb", "index.html"]
