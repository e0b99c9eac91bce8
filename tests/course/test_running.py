"""Running notebooks: each ending is told apart, Ctrl-C keeps what is done, files are whole."""

import pathlib
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
from nbformat.v4 import new_output
from terminal import call, without

from course import running, tidy
from course.catalog import notebooks
from helpers.base import files
from helpers.base.settings import ROOT

pytestmark = pytest.mark.slow

MORE = ["21_endless", "22_endless", "23_endless", "24_endless"]  # as many as run at once
LEFT = (
    "import subprocess\nsubprocess.Popen(['sleep', '611'], start_new_session=True)\n"
    "subprocess.Popen(['/bin/sleep', '613'], env={}, start_new_session=True);"
)
SOURCES = {
    "01_ok": ["import os, sys\nprint(os.getcwd(), sys.executable)", "os.write(2, b'native');"],
    "02_fails": ["print('before')", "def boom():\n    raise ValueError('no <b>')\nboom()", "1"],
    "03_killed": ["import os; print('it')", "os.write(2, b'last words')\nos.kill(os.getpid(), 9)"],
    "04_leaves": ["import sys\nsys.exit(0)", "1"],
    "05_leaves": [LEFT, "print('a' * 2_000_000)\nprint('10 %', end='\\r')\nprint('20 %')"],
    "06_shows": ["import IPython.display as x", "x.publish_display_data({'text/html': 5})"],
}


def test_each_ending_is_told_apart_and_the_run_goes_on(tmp_path):
    folder, console = tmp_path, quiet()
    for name, sources in SOURCES.items():
        write(folder / "notebooks", name, *sources)
    before = {path: path.read_bytes() for path in (folder / "notebooks").iterdir()}
    results = running.run(notebooks(folder / "notebooks"), folder / "build", console)
    assert {path: path.read_bytes() for path in before} == before
    said = console.file.getvalue()
    assert [(result.name, result.state, result.cell) for result in results] == [
        ("01_ok", "passed", 0),
        ("02_fails", "failed", 3),
        ("03_killed", "died", 3),
        ("04_leaves", "failed", 2),
        ("05_leaves", "passed", 0),
        ("06_shows", "died", 3),
    ]
    assert "the cells below never ran" in results[3].error
    commands = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert ["sleep", "611"] not in commands
    assert ["/bin/sleep", "613"] not in commands  # it had no variable of its kernel's
    long = nbformat.read(folder / "build/05_leaves.ipynb", 4).cells[2].outputs[0].text
    assert long == "a" * 2_000_000 + "\n20 %\n"
    assert "02_fails: failed at cell 3" in said and "\x1b" not in said
    last = results[1].error
    assert "----> 2     raise ValueError('no <b>')" in last and last.endswith("ValueError: no <b>")
    assert "last words" in results[2].error and "native" not in said
    ok = nbformat.read(folder / "build/01_ok.ipynb", 4)
    assert ok.cells[1].outputs[0].text == f"{folder / 'notebooks'} {sys.executable}\n"
    index = BeautifulSoup((folder / "build/index.html").read_text("utf-8"), "html.parser")
    assert [link["href"] for link in index.select("a")] == [f"{name}.html" for name in SOURCES]
    assert "no <b>" in index.select_one("pre").text
    pages = "".join((folder / f"build/{x}.html").read_text("utf-8") for x in list(SOURCES)[1:3])
    assert all(said in pages for said in ("before", "no &lt;b&gt;", "<pre>it\n"))


def test_a_page_shows_so_much_of_a_text(tmp_path):
    node, red = nbformat.read(write(tmp_path, "02_b", "1"), 4), "\x1b[31ma\x1b[32mb" * 6_000
    node.cells[1].outputs = [new_output("stream", text=red)]
    node.cells[1].outputs += [new_output("execute_result", {"text/plain": red})]
    node.cells[1].outputs += [new_output("error", ename="E", evalue="", traceback=[red])]
    assert running._page(node, notebooks(tmp_path)[0]).count("ansi-red-fg") < 3 * 5_000


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
    bad = write(tmp_path, "03_c", "print(1)", "1/0")
    untouched = bad.read_bytes()
    node = nbformat.read(path, 4)
    node.cells[1].metadata |= {"scrolled": True, "vscode": {"languageId": "python"}}
    node.cells[2].metadata |= {"slideshow": {"slide_type": "slide"}, "tags": []}
    nbformat.write(node, path)
    results = running.store(notebooks(tmp_path), quiet())
    assert [result.state for result in results] == ["passed", "failed"]
    assert bad.read_bytes() == untouched
    first, stored = path.read_bytes(), nbformat.read(path, 4)
    assert stored.metadata == METADATA
    assert [(x.id, x.source) for x in stored.cells] == [(x.id, x.source) for x in node.cells]
    tags = {"tags": ["parameters"]}, {"slideshow": {"slide_type": "slide"}}
    folded = {"tags": ["hide-input"], **tidy.FOLDED}
    assert [dict(cell.metadata) for cell in stored.cells] == [{}, *tags, folded]
    assert [cell.get("execution_count") for cell in stored.cells] == [None, 1, 2, 3]
    running.store(notebooks(tmp_path)[:1], quiet())
    assert path.read_bytes() == first
    for mine in ("source='# mine'", "metadata={'tags': ['mine']}", "attachments={'a': {}}"):
        edit = "import json\nwith open('04_d.ipynb', 'r+') as f:\n x = json.load(f)\n f.seek(0)"
        edit += f"\n x['cells'][0].update({mine})\n json.dump(x, f)\n f.truncate()"
        write(tmp_path, "04_d", edit)
        with pytest.raises(running.CourseError, match="changed while it ran"):
            running.store(notebooks(tmp_path)[2:], quiet())
    # What is stored is what nbval sees, native output included.
    words = sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", path
    assert "3 passed" in call(*words, cwd=tmp_path, env=without("PYTEST")).stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A course of its own, to start the command line in."""
    folder = tmp_path_factory.mktemp("checkout")
    for room in ("course", "helpers"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__py*"))
    write(folder / "notebooks", "20_quick", "print(1)")
    for name in MORE:
        begun = f"open({str(folder / name)!r}, 'w').close()"
        write(folder / "notebooks", name, f"{begun}\nimport time; time.sleep(600)")
    write(folder / "notebooks", "25_never", "print(2)")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_a_kill_end_all_kernels_and_leave_whole_files(checkout, sent):
    """One notebook is done, and others are at work."""
    shutil.rmtree(checkout / "build", ignore_errors=True)
    marks = [checkout / MORE[0], checkout / "build/20_quick.html"]
    marks[0].unlink(missing_ok=True)
    limit = time.monotonic() + 120
    process = subprocess.Popen(
        [sys.executable, "-m", "course", "run"],
        cwd=checkout,
        env=without("PYTHON") | {"PYTHONPATH": f"{checkout}:{ROOT / 'tpu_preflight/src'}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not all(mark.exists() for mark in marks) and time.monotonic() < limit:
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        kernels = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(sent)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    interrupted = sent == signal.SIGINT
    assert "Traceback" not in err and ("Stopped." in err) == interrupted
    assert process.returncode == (130 if interrupted else -sent)
    gone, alive = psutil.wait_procs(kernels, timeout=30)
    assert gone and not alive
    # SIGKILL can leave a hidden file that was on its way to its name.
    there = filter(pathlib.Path.is_file, (checkout / "build").iterdir())
    left = (path.name for path in there if interrupted or path.name[0] != ".")
    assert sorted(left) == ["20_quick.html", "20_quick.ipynb", "index.html"]
