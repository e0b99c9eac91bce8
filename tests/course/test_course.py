"""Running the course: small notebooks of every kind of ending, without TensorFlow."""

import errno
import html.parser
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console

import helpers.__main__ as commands
from helpers.base import files
from helpers.course import pages
from helpers.course import running as course

ROOT = pathlib.Path(__file__).resolve().parents[2]

OPENING = """# {title}

[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://example.org)

**You will be able to**

- run it, then go on to [the next](07_child.ipynb); what a [TPU VM](WORDS.md#TPU-VM) is

**Time** about 20 minutes to read and try; 1 to run · **Needs** a CPU and 2 GB of memory
"""

# What a browser would fetch, if it were let.
NASTY = """
import IPython.display as show
show.display(show.HTML('''
<script src="https://example.org/a.js"></script><script>alert(1)</script>
<img src="https://example.org/a.png" alt="a far picture" srcset="https://example.org/b.png 2x">
<iframe src="https://example.org/frame"></iframe><link rel="stylesheet" href="//example.org/a.css">
<style>@import "https://example.org/b.css"; p {background: url( 'https://example.org/c.png')}</style>
<p style="background: url(https://example.org/d.png)">kept</p>
<svg><image href="https://example.org/e.png"/></svg><a href="https://example.org">a link</a>
'''))
show.display(show.Javascript("fetch('https://example.org')"))
show.display({"application/vnd.jupyter.widget-view+json": {}, "text/plain": "Slider()"}, raw=True)
show.Image(data=__import__("base64").b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
), format="png", alt="one point")
"""


def write(folder, name, *sources, parameters=None, title=None):
    """Write a notebook: its opening, its parameters, then sections of one code cell each."""
    cells = [new_markdown_cell(OPENING.format(title=title or f"Is {name} a question?"))]
    if parameters is not None:
        cells.append(new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    for at, source in enumerate(sources, 1):
        cells += [new_markdown_cell(f"## Part {at}"), new_code_cell(source)]
    for at, cell in enumerate(cells):
        cell.id = f"cell-{at}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    node = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.ipynb"
    nbformat.write(node, path)
    return path


def quiet():
    return Console(file=io.StringIO(), width=100)


class Ran:
    """One run of notebooks that end in each way a notebook can."""

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
        write(
            self.folder, "07_child", f"import subprocess, sys\nsubprocess.run({child}, check=True)"
        )
        words = '# Words & more\n\n### <a id="TPU-VM"></a>TPU VM\n\nSee [big](06_big.ipynb).\n'
        (self.folder / "WORDS.md").write_text(words)
        self.sources = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        console = quiet()
        self.report = course.run(folder=self.folder, build=self.build, console=console)
        self.said = console.file.getvalue()
        self.results = {result.name: result for result in self.report.results}

    def node(self, name):
        return nbformat.read(self.build / f"{name}.ipynb", 4)

    def page(self, name):
        return (self.build / f"{name}.html").read_text("utf-8")


@pytest.fixture(scope="module")
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


# --- The map ------------------------------------------------------------------------------------


def test_the_map_is_in_order_and_read_from_the_first_cell(tmp_path):
    write(tmp_path, "07_later", "1")
    write(tmp_path, "02_first", "1", parameters="steps = 3\nrate: float = 0.1", title="Why `it`?")
    (tmp_path / "notes.ipynb").write_text("not of the course")
    first, later = course.notebooks(tmp_path)
    assert (first.name, first.number, later.number) == ("02_first", "02", "07")
    assert first.title == "Why it?"
    assert first.reading == "about 20 minutes to read and try; 1 to run"
    assert first.needs == "a CPU and 2 GB of memory"
    assert first.parameters == {"steps": 3, "rate": 0.1}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([], ["01_a", "02_b", "07_c"]),
        (["7", "02"], ["02_b", "07_c"]),
        (["07_c", "7"], ["07_c"]),
    ],
)
def test_notebooks_are_chosen_by_number_or_name_in_the_courses_order(tmp_path, wanted, expected):
    for name in ("02_b", "07_c", "01_a"):
        write(tmp_path, name, "1")
    assert [n.name for n in course.choose(wanted, course.notebooks(tmp_path))] == expected


@pytest.mark.parametrize("word", ["3", "003", "b", "02_", "-1", "02_b.ipynb"])
def test_an_unknown_notebook_is_told_with_the_known_ones(tmp_path, word):
    write(tmp_path, "02_b", "1")
    with pytest.raises(course.UnknownNotebook, match=r"(?s)no notebook.*02_b.*such as 02"):
        course.choose([word], course.notebooks(tmp_path))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b'{"cells": [', "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[]", "not a notebook"),
        (b'{"cells": 1, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "not a notebook"),
        (b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "not a notebook"),
        (b'{"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "no code cells"),
    ],
)
def test_a_damaged_notebook_is_told(tmp_path, content, why):
    (tmp_path / "02_b.ipynb").write_bytes(content)
    with pytest.raises(course.DamagedNotebook, match=f"(?s)02_b.*{why}.*git restore") as raised:
        course.notebooks(tmp_path)
    assert len(str(raised.value).splitlines()) == 3


@pytest.mark.parametrize("cell", ["steps = 2 + len('a')", "steps = ", "a, b = make()"])
def test_parameters_that_are_not_plain_values_are_told(tmp_path, cell):
    write(tmp_path, "02_b", "1", parameters=cell)
    with pytest.raises(course.DamagedNotebook, match="parameters cell"):
        course.notebooks(tmp_path)


def test_missing_notebooks_are_told(tmp_path):
    with pytest.raises(course.MissingNotebook, match="There are no notebooks"):
        course.notebooks(tmp_path / "nowhere")
    with pytest.raises(course.MissingNotebook, match=r"02_b\.ipynb is gone"):
        course.load(tmp_path / "02_b.ipynb")


# --- Parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        ("3", "50", 50),
        ("3", "-1", -1),
        ("0.1", "1e-4", 1e-4),
        ("0.1", "2", 2.0),
        ("False", "True", True),
        ("'a'", "word", "word"),
        ("'a'", "2", "2"),
        ("'a'", "'2'", "2"),
        ("'a'", "", ""),
        ("None", "word", "word"),
        ("[1]", "[2, 3]", [2, 3]),
    ],
)
def test_values_are_read_by_the_type_of_the_default(tmp_path, default, text, value):
    write(tmp_path, "02_b", "1", parameters=f"x = {default}")
    read = course.values([("x", text)], course.notebooks(tmp_path))["02_b"]["x"]
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("default", "text"),
    [("3", "abc"), ("3", "1.5"), ("3", "True"), ("True", "1"), ("True", "yes"), ("0.1", "big")],
)
def test_a_value_of_the_wrong_type_is_told(tmp_path, default, text):
    write(tmp_path, "02_b", "1", parameters=f"x = {default}")
    with pytest.raises(course.WrongValue, match=rf"(?s)x can't be.*02_b.*default {default}"):
        course.values([("x", text)], course.notebooks(tmp_path))


def test_a_parameter_goes_to_the_notebooks_that_have_it(tmp_path):
    write(tmp_path, "02_b", "1", parameters="steps = 1\nonly = 'a'")
    write(tmp_path, "07_c", "1", parameters="steps = 2.5")
    write(tmp_path, "08_d", "1")
    known = course.notebooks(tmp_path)
    assert course.values([("steps", "4"), ("only", "b")], known) == {
        "02_b": {"steps": 4, "only": "b"},
        "07_c": {"steps": 4.0},
        "08_d": {},
    }
    message = "(?s)parameter 'stpes'.*02_b has steps, only; 07_c has steps; 08_d has none"
    with pytest.raises(course.UnknownParameter, match=message):
        course.values([("stpes", "4")], known)


def test_a_changed_parameter_reaches_the_kernel_and_the_map(tmp_path):
    write(tmp_path, "02_b", "print(steps * 2)", parameters="steps = 1")
    report = course.run(["2"], [("steps", "21")], tmp_path, tmp_path / "build", quiet())
    assert report.results[0].parameters == {"steps": 21}
    node = nbformat.read(tmp_path / "build/02_b.ipynb", 4)
    assert node.cells[-1].outputs[0].text == "42\n"
    assert "with steps = 21" in report.page.read_text("utf-8")


# --- How a notebook ends ------------------------------------------------------------------------


def test_each_ending_is_told_apart_and_the_run_goes_on(ran):
    assert [(result.name, result.state) for result in ran.report.results] == [
        ("01_ok", "passed"),
        ("02_fails", "failed"),
        ("03_killed", "died"),
        ("04_crashes", "died"),
        ("05_leaves", "failed"),
        ("06_big", "passed"),
        ("07_child", "passed"),
    ]
    assert ran.report.status == 1
    assert ran.report.summary == "3 passed, 2 failed, 2 died"


def test_a_report_of_success_has_status_0():
    assert course.Report((course.Result("02_b", "passed"),)).status == 0


def test_notebooks_run_in_their_folder_with_this_interpreter(ran):
    outputs = [cell.outputs[0].text for cell in ran.node("01_ok").cells if cell.get("outputs")]
    assert outputs[0] == f"{ran.folder}\n{sys.executable}\n"
    assert outputs[1] == "{'PYTHONDONTWRITEBYTECODE': None, 'MARK': 'seen'}\n"


def test_the_notebooks_themselves_stay_as_they_are(ran):
    now = {path.name: path.read_bytes() for path in ran.folder.iterdir()}
    assert now == ran.sources


def test_progress_names_the_cell_and_its_heading(ran):
    assert "  cell 3 of 6: Part 1\n" in ran.said
    assert "  cell 5 of 6: Part 2\n" in ran.said
    assert re.search(r"^01_ok: passed \(\d+\.\d s, peak \d+ MB\)$", ran.said, re.MULTILINE)


def test_a_failure_shows_the_cell_and_the_last_lines_without_colour_codes(ran):
    said = ran.said[ran.said.index("02_fails, cell 5") :]
    assert said.startswith("02_fails, cell 5 (Part 2): ValueError: no <b>such</b> [thing]\n")
    assert (
        "    def boom():\n        raise ValueError('no <b>such</b> [thing]')\n    boom()\n" in said
    )
    assert "----> 2     raise ValueError" in said
    assert "\x1b" not in ran.said


def test_a_failed_notebook_keeps_what_it_did(ran):
    cells = ran.node("02_fails").cells
    assert [len(cell.outputs) for cell in cells if cell.cell_type == "code"] == [1, 1, 0]
    assert len(cells) == 7  # none of papermill's own
    assert "before" in ran.page("02_fails")


def test_a_killed_kernel_is_told_as_that(ran):
    failure = ran.results["03_killed"].failure
    assert failure.cell == 3
    assert re.search(r"killed \(SIGKILL\).* memory runs out; at most \d+ MB of", failure.error)
    assert failure.lines == ("last words of native code",)
    assert "    last words of native code\n" in ran.said


def test_a_crashed_kernel_is_told_as_that(ran):
    assert "died of SIGSEGV: native code crashed" in ran.results["04_crashes"].failure.error


def test_leaving_with_exit_is_no_success(ran):
    assert ran.results["05_leaves"].failure.error == "SystemExit: 0"


def test_peak_memory_counts_what_the_kernel_and_its_children_held(ran):
    small = ran.results["01_ok"].peak
    assert 20e6 < small < 150e6
    assert 200e6 < ran.results["06_big"].peak - small + 20e6 < 320e6
    assert 200e6 < ran.results["07_child"].peak - small + 20e6 < 320e6


def test_a_kernel_that_does_not_start_is_told(tmp_path, monkeypatch):
    write(tmp_path, "02_b", "1")
    argv = [sys.executable, "-c", "raise SystemExit('no such module')", "{connection_file}"]
    monkeypatch.setattr(
        course._ThisInterpreter,
        "get_kernel_spec",
        lambda self, name: course.KernelSpec(argv=argv, language="python"),
    )
    with pytest.raises(course.CantStart, match=r"(?s)02_b does not start.*no such module"):
        course.run(folder=tmp_path, build=tmp_path / "build", console=quiet())


def test_the_live_table_fits_the_terminal(tmp_path):
    write(tmp_path, "02_b", "1")
    write(tmp_path, "03_c", "1")
    console = Console(file=io.StringIO(), width=70, force_terminal=True)
    with course._Progress(course.notebooks(tmp_path), console) as progress:
        progress.notebook("02_b")
        progress.cell(3, 12, "A heading so long that it can't stand in one line " * 2)
        table = console.render_lines(progress._table())
    lines = ["".join(segment.text for segment in line).rstrip() for line in table]
    assert len(lines) == 3
    assert re.match(r"02_b\s+cell 3 of 12 · A heading.*…\s+\d\.\d s$", lines[1])
    assert re.match(r"03_c\s+waiting$", lines[2])


# --- Interrupted --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A course of its own, to start the command line in."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "helpers", folder / "helpers", ignore=shutil.ignore_patterns("__py*"))
    write(folder / "notebooks", "02_quick", "print(1)", parameters="steps = 3")
    write(folder / "notebooks", "03_endless", "print('begun')", "import time\ntime.sleep(600)")
    write(folder / "notebooks", "04_never", "print(2)")
    return folder


def start_and_wait_for(checkout, line, words):
    """Start the command line; return it with its kernels once it has said a line."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "helpers", *words],
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert any(line in said for said in process.stdout)
    time.sleep(1)  # the line is said just before the cells are sent
    return process, psutil.Process(process.pid).children(recursive=True)


def whole(build):
    """Check that every file of a build folder is whole, and none is left over."""
    for path in build.iterdir():
        if path.suffix == ".ipynb":
            nbformat.validate(nbformat.read(path, 4))
        else:
            assert path.suffix == ".html"
            assert path.read_text("utf-8").rstrip().endswith("</html>")


def test_ctrl_c_keeps_what_is_done(checkout):
    build = checkout / "build"
    shutil.rmtree(build, ignore_errors=True)
    process, kernels = start_and_wait_for(checkout, "cell 4 of 5", ["run"])
    assert kernels
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "1 passed, 1 interrupted, 1 not run. Results: " in out
    assert err == ""
    assert not any(kernel.is_running() for kernel in kernels)
    whole(build)
    assert sorted(path.name for path in build.iterdir()) == [
        "02_quick.html",
        "02_quick.ipynb",
        "03_endless.html",
        "03_endless.ipynb",
        "index.html",
    ]
    states = re.findall(r"</span> ([a-z ]+)</span>", (build / "index.html").read_text("utf-8"))
    assert states == ["passed", "interrupted", "not run"]
    begun = nbformat.read(build / "03_endless.ipynb", 4).cells[2]
    assert begun.outputs[0].text == "begun\n"


def test_a_run_that_is_killed_leaves_whole_files_and_no_kernel(checkout):
    process, kernels = start_and_wait_for(checkout, "cell 4 of 5", ["run"])
    process.kill()
    process.communicate()
    whole(checkout / "build")
    gone, alive = psutil.wait_procs(kernels, timeout=30)
    assert gone and not alive


# --- What a run leaves behind -------------------------------------------------------------------


def test_results_of_earlier_runs_are_kept_with_their_date(tmp_path):
    build = tmp_path / "build"
    write(tmp_path, "02_b", "1")
    write(tmp_path, "03_c", "1/0")
    write(tmp_path, "04_d", "1")
    earlier = course.run(["2"], folder=tmp_path, build=build, console=quiet())
    before = (build / "02_b.ipynb").read_bytes()
    report = course.run(["3"], folder=tmp_path, build=build, console=quiet())
    assert (build / "02_b.ipynb").read_bytes() == before
    page = report.page.read_text("utf-8")
    assert re.findall(r"</span> ([a-z ]+)</span>", page) == ["passed", "failed", "not run"]
    dates = re.findall(r'<time datetime="([^"]+)"', page)
    assert dates[0] == earlier.results[0].finished.isoformat() < dates[1]
    assert 'href="03_c.html#cell-id=cell-2"' in page
    assert 'id="cell-id=cell-2"' in (build / "03_c.html").read_text("utf-8")
    assert "in cell 3: ZeroDivisionError: division by zero" in page
    (build / "02_b.ipynb").write_text("{")  # not one of ours any more
    report = course.run(["4"], folder=tmp_path, build=build, console=quiet())
    states = re.findall(r"</span> ([a-z ]+)</span>", report.page.read_text("utf-8"))
    assert states == ["not run", "failed", "passed"]


def test_a_full_disk_is_told_once_and_leaves_no_half_file(tmp_path, monkeypatch):
    write(tmp_path / "notebooks", "02_b", "1")
    build = tmp_path / "build"
    course.run(folder=tmp_path / "notebooks", build=build, console=quiet())
    before = {path.name: path.read_bytes() for path in build.iterdir()}

    def full(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "replace", full)
    with pytest.raises(files.CantWrite, match="disk is full") as raised:
        course.run(folder=tmp_path / "notebooks", build=build, console=quiet())
    assert len(str(raised.value).splitlines()) == 3
    assert {path.name: path.read_bytes() for path in build.iterdir()} == before


def test_a_place_that_is_not_writable_is_told_before_anything_runs(tmp_path, monkeypatch):
    write(tmp_path / "notebooks", "02_b", "1")
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setattr(course._Job, "run", lambda self: pytest.fail("a notebook was run"))
    with pytest.raises(files.CantWrite):
        course.run(folder=tmp_path / "notebooks", build=tmp_path / "taken", console=quiet())


# --- Pages --------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """Collects a page's tags, and the text of its styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.styles, self._open = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open == "style":
            self.styles.append(data)

    def named(self, *names):
        return [attributes for tag, attributes in self.tags if tag in names]


@pytest.mark.parametrize("name", ["01_ok", "02_fails", "03_killed", "06_big", "WORDS", "index"])
def test_a_page_loads_nothing_from_outside(ran, name):
    page = Page(ran.page(name))
    assert not page.named("script", "iframe", "object", "embed", "base", "link", "video", "audio")
    assert all(image["src"].startswith("data:") for image in page.named("img"))
    for tag, attributes in page.tags:
        # A remote address may stand in a link for people only.
        far = [
            name for name, value in attributes.items() if re.search(r"(https?:)?//", value or "")
        ]
        assert far in ([], ["href"] if tag == "a" else [], ["xmlns"]), (tag, attributes)
    for style in page.styles:
        assert not re.search(r"@import|url\(\s*['\"]?\s*(?!data:|#)\S", style)
    policies = [meta["content"] for meta in page.named("meta") if "http-equiv" in meta]
    assert policies == [html.POLICY]
    assert "default-src 'none'" in html.POLICY and "script-src" not in html.POLICY


def test_the_pages_test_can_fail(ran):
    bad = "<img src='https://example.org/a.png'><style>p {background: url(https://x/y)}</style>"
    page = Page(bad)
    assert page.named("img")[0]["src"].startswith("https:")
    assert re.search(r"url\(\s*['\"]?\s*(?!data:|#)\S", page.styles[0])


def test_a_page_keeps_text_links_and_alternatives(ran):
    page = ran.page("06_big")
    assert '<a href="https://example.org">a link</a>' in page
    assert ">Open in Colab</a>" in page
    assert '<a href="07_child.html">the next</a>' in page
    assert "a far picture" in page and "kept</p>" in page
    assert 'alt="one point"' in page
    assert "A widget is here: open the notebook itself" in page
    assert '<a href="index.html">← Map of the course</a>' in page


def test_a_text_beside_the_notebooks_is_a_page_too_and_links_lead_there_and_back(ran):
    assert '<a href="WORDS.html#TPU-VM">TPU VM</a>' in ran.page("06_big")
    page = ran.page("WORDS")
    assert "<title>Words &amp; more</title>" in page
    assert 'id="TPU-VM"' in page and '<a href="06_big.html">big</a>' in page


def test_texts_of_a_notebook_are_escaped_in_the_map(ran):
    page = ran.page("index")
    assert "Big code? &lt;script&gt;alert(2)&lt;/script&gt;" in page
    assert "no &lt;b&gt;such&lt;/b&gt; [thing]" in page
    assert "<b>" not in page
    assert "<title>Big code? &lt;script&gt;" in ran.page("06_big")


def test_the_map_can_be_used_without_seeing_it(ran):
    text = ran.page("index")
    page = Page(text)
    assert page.named("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.named(
        "meta"
    )
    assert len(page.named("h1")) == 1 and len(page.named("title")) == 1
    assert len(page.named("main")) == len(page.named("caption")) == 1
    assert {head["scope"] for head in page.named("th")} == {"col", "row"}
    # The state is a word; its sign is not read aloud.
    signs = re.findall(r'<span aria-hidden="true">(.)</span> (passed|failed|died)</span>', text)
    assert len(signs) == 7
    assert Page(ran.page("01_ok")).named("html") == [{"lang": "en"}]


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_maps_colours_are_readable_in_light_and_dark(ran):
    """Contrast as WCAG 2.2 defines it (1.4.3): at least 4.5 to 1."""
    light, dark = re.findall(r"--paper:.*?\}", "".join(Page(ran.page("index")).styles), re.DOTALL)
    for theme in (light, dark):
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", theme))
        for ground in ("paper", "card"):
            for ink in ("ink", "soft", "link", "good", "bad", "wait"):
                both = sorted(luminance(colours[name]) for name in (ground, ink))
                assert (both[1] + 0.05) / (both[0] + 0.05) >= 4.5, (ground, ink)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s")],
)
def test_times_are_written_for_people(seconds, text):
    assert pages.duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(54_300_000, "54 MB"), (999_600_000, "1.0 GB"), (25_300_000_000, "25.3 GB")]
)
def test_memory_is_written_for_people(size, text):
    assert pages.memory(size) == text


# --- Storing ------------------------------------------------------------------------------------


def test_store_writes_outputs_without_traces_and_twice_the_same(tmp_path):
    native = "import os\nprint('a', flush=True)\nprint('b')\nos.system('echo native')"
    path = write(tmp_path, "02_b", native, "{'x': 1}", parameters="steps = 3")
    node = nbformat.read(path, 4)
    node.cells[1].metadata |= {"scrolled": True, "vscode": {"languageId": "python"}}
    node.cells[2].metadata |= {"slideshow": {"slide_type": "slide"}, "tags": []}
    node.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    nbformat.write(node, path)
    assert course.store(folder=tmp_path, console=quiet()).status == 0
    first = path.read_bytes()
    stored = nbformat.read(path, 4)
    nbformat.validate(stored)
    assert stored.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert [cell.id for cell in stored.cells] == [cell.id for cell in node.cells]
    assert [cell.source for cell in stored.cells] == [cell.source for cell in node.cells]
    assert [dict(cell.metadata) for cell in stored.cells] == [
        {},
        {"tags": ["parameters"]},
        {"slideshow": {"slide_type": "slide"}},
        {},
        {},
        {},
    ]
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2, 3]
    assert [output.get("text") for output in code[1].outputs] == ["a\nb\n", None]
    assert first.decode() == nbformat.writes(stored) + "\n"
    assert course.store(folder=tmp_path, console=quiet()).status == 0
    assert path.read_bytes() == first
    # What is stored is what nbval sees, native output included.
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", str(path)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    compared = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert "3 passed" in compared.stdout, compared.stdout


def test_store_leaves_a_notebook_that_fails_as_it_is(tmp_path):
    bad, good = write(tmp_path, "02_b", "print(1)", "1/0"), write(tmp_path, "03_c", "print(1)")
    before, untouched = bad.read_bytes(), good.read_bytes()
    report = course.store(folder=tmp_path, console=quiet())
    assert [result.state for result in report.results] == ["failed", "passed"]
    assert report.status == 1
    assert bad.read_bytes() == before
    assert good.read_bytes() != untouched


# --- The command line ---------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """The command line on a course of two notebooks; gives its status, output and errors."""
    write(tmp_path, "02_quick", "print(1)", parameters="steps = 3")
    write(tmp_path, "04_other", "print(2)")
    run, store = course.run, course.store
    build = tmp_path / "build"
    monkeypatch.setattr(
        course, "run", lambda *words, **more: run(*words, folder=tmp_path, build=build, **more)
    )
    monkeypatch.setattr(course, "store", lambda *words: store(*words, folder=tmp_path))

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["helpers", *words])
        with pytest.raises(SystemExit) as left:
            commands.command()
        out, err = capsys.readouterr()
        return left.value.code, out, err

    return call


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "9"], "There is no notebook '9'"),
        (["store", "9"], "There is no notebook '9'"),
        (["run", "2", "-p", "stpes", "4"], "No chosen notebook has a parameter 'stpes'"),
        (["run", "2", "-p", "steps", "many"], "steps can't be 'many'"),
        (["run", "-p", "steps"], "-p takes a name and a value"),
        (["run", "-p", "steps=4", "2"], "-p takes a name and a value"),
        (["run", "--parameter=steps"], "write it as -p NAME VALUE"),
        (["badges", "nothing"], "'nothing' is no repository"),
    ],
)
def test_bad_input_ends_with_one_message_and_status_2(command, words, message):
    status, out, err = command(*words)
    assert status == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert out == ""


def test_the_command_line_takes_several_parameters_and_notebooks(command, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(commands.webbrowser, "open", opened.append)
    words = ["-p", "steps", "-7", "2", "04_other", "-p", "steps", "8"]
    status, out, err = command("run", *words)
    page = tmp_path / "build/index.html"
    assert (status, err) == (0, "")
    assert out.endswith(f"2 passed. Results: {page}\n")
    node = nbformat.read(tmp_path / "build/02_quick.ipynb", 4)
    assert node.metadata.course.parameters == {"steps": 8}
    assert opened == []  # no one sits here
    assert command("run", "4", "--open")[0] == 0
    assert opened == [page.as_uri()]


@pytest.mark.parametrize("name", ["run", "store", "badges"])
def test_help_shows_an_example(command, name):
    status, out, _ = command(name, "--help")
    assert status == 0
    assert f"python -m helpers {name}" in out.replace("Usage: python -m helpers", "")


def test_without_a_command_the_list_of_commands_is_shown(command):
    _, out, err = command()
    assert re.search(r"(?s)run .*store .*badges ", out + err)


def test_the_module_is_the_command_line_and_a_damaged_notebook_ends_it_with_status_2(tmp_path):
    shutil.copytree(ROOT / "helpers", tmp_path / "helpers")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/02_b.ipynb").write_text('{"cells": [')
    done = subprocess.run(
        [sys.executable, "-m", "helpers", "run"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("02_b.ipynb can't be run.\n  Why: The file is not JSON")
    assert len(done.stderr.splitlines()) == 3


def test_a_command_that_runs_no_notebook_imports_neither_tensorflow_nor_jupyter():
    code = (
        "import sys, helpers.__main__, helpers.preflight.apart\n"
        "print({'tensorflow', 'nbformat', 'papermill'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_the_course_is_run_without_importing_tensorflow():
    code = "import sys, helpers.course.running; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n"
