"""Running notebooks: each ending is told apart, Ctrl-C keeps what is done, files are whole."""

import contextlib
import errno
import io
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
from made_notebooks import quiet, write
from rich.console import Console

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.settings import ROOT
from helpers.course import kernels
from helpers.course import running as course
from helpers.course.map import notebooks

pytestmark = pytest.mark.slow


def test_a_changed_parameter_reaches_the_kernel_and_the_map(tmp_path):
    write(tmp_path, "02_b", "print(steps * 2)", parameters="steps = 1")
    report = course.run(["2"], [("steps", "21")], tmp_path, tmp_path / "build", quiet())
    assert report.results[0].parameters == {"steps": 21}
    node = nbformat.read(tmp_path / "build/02_b.ipynb", 4)
    assert node.cells[-1].outputs[0].text == "42\n"
    assert "with steps = 21" in report.page.read_text("utf-8")


def test_each_ending_is_told_apart_and_the_run_goes_on(ran):
    assert {result.name: result.state for result in ran.report.results} == {
        **{"01_ok": "passed", "02_fails": "failed", "03_killed": "died", "04_crashes": "died"},
        **{"05_leaves": "failed", "06_big": "passed", "07_child": "passed"},
    }
    assert list(ran.results) == sorted(ran.results)
    assert (ran.report.status, ran.report.summary) == (1, "3 passed, 2 failed, 2 died")
    assert course.Report((kernels.Result("02_b", "passed"),)).status == 0


def test_notebooks_run_in_their_folder_with_this_interpreter_and_stay_as_they_are(ran):
    outputs = [cell.outputs[0].text for cell in ran.node("01_ok").cells if cell.get("outputs")]
    assert outputs[0] == f"{ran.folder}\n{sys.executable}\n"
    assert outputs[1] == "{'PYTHONDONTWRITEBYTECODE': None, 'MARK': 'seen'}\n"
    now = {path.name: path.read_bytes() for path in ran.folder.iterdir()}
    assert now == ran.sources


def test_progress_names_the_cell_and_its_heading_and_a_failure_shows_its_last_lines(ran):
    assert "  01_ok, cell 3 of 6: Part 1\n" in ran.said
    assert "  01_ok, cell 5 of 6: Part 2\n" in ran.said
    assert re.search(r"^01_ok: passed \(\d+\.\d s, peak \d+ MB\)$", ran.said, re.MULTILINE)
    said = ran.said[ran.said.index("02_fails, cell 5") :]
    assert said.startswith("02_fails, cell 5 (Part 2): ValueError: no <b>such</b> [thing]\n")
    shown = "    def boom():\n        raise ValueError('no <b>such</b> [thing]')\n    boom()\n"
    assert shown in said and "----> 2     raise ValueError" in said
    assert "\x1b" not in ran.said  # no colour codes
    # And the notebook keeps what it did.
    cells = ran.node("02_fails").cells
    assert [len(cell.outputs) for cell in cells if cell.cell_type == "code"] == [1, 1, 0]
    assert len(cells) == 7  # none of papermill's own
    assert "before" in ran.page("02_fails")


def test_a_killed_or_crashed_kernel_is_told_as_that_and_leaving_is_no_success(ran):
    failure = ran.results["03_killed"].failure
    assert failure.cell == 3
    assert re.search(r"killed \(SIGKILL\).* memory runs out; at most \d+ MB of", failure.error)
    assert failure.lines == ("last words of native code",)
    assert "    last words of native code\n" in ran.said
    assert "died of SIGSEGV: native code crashed" in ran.results["04_crashes"].failure.error
    assert ran.results["05_leaves"].failure.error == "SystemExit: 0"


def test_peak_memory_counts_what_the_kernel_and_its_children_held(ran):
    small = ran.results["01_ok"].peak
    assert 20e6 < small < 150e6
    for name in ("06_big", "07_child"):
        assert 200e6 < ran.results[name].peak - small + 20e6 < 320e6


def test_a_kernel_that_does_not_start_is_told(tmp_path, monkeypatch):
    write(tmp_path, "02_b", "1")
    argv = [sys.executable, "-c", "raise SystemExit('no such module')", "{connection_file}"]
    spec = kernels.KernelSpec(argv=argv, language="python")
    monkeypatch.setattr(kernels.ThisInterpreter, "get_kernel_spec", lambda self, name: spec)
    with pytest.raises(CourseError, match=r"(?s)02_b does not start.*no such module"):
        course.run(folder=tmp_path, build=tmp_path / "build", console=quiet())


def test_the_live_table_fits_the_terminal(tmp_path):
    write(tmp_path, "02_b", "1")
    write(tmp_path, "03_c", "1")
    console = Console(file=io.StringIO(), width=70, force_terminal=True)
    with course._Display(notebooks(tmp_path), console) as display:
        display.start("02_b")
        display.cell("02_b", 3, 12, "A heading so long that it can't stand in one line " * 2)
        table = console.render_lines(display._table())
    lines = ["".join(segment.text for segment in line).rstrip() for line in table]
    assert len(lines) == 3
    assert re.match(r"02_b\s+cell 3 of 12 · A heading.*…\s+\d\.\d s$", lines[1])
    assert re.match(r"03_c\s+waiting$", lines[2])


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A course of its own, to start the command line in."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "helpers", folder / "helpers", ignore=shutil.ignore_patterns("__py*"))
    write(folder / "notebooks", "02_quick", "print(1)")
    write(folder / "notebooks", "04_never", "print(2)")
    for name in ("03_endless", "05_endless"):
        write(folder / "notebooks", name, "print('begun')", "import time\ntime.sleep(600)")
    return folder


@contextlib.contextmanager
def started(checkout, *words, endless=1):
    """Start the command line; give it with its kernels once endless cells are sent to them."""
    shutil.rmtree(checkout / "build", ignore_errors=True)
    command = [sys.executable, "-u", "-m", "helpers", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=checkout, **pipes)
    try:
        for _ in range(endless):
            assert any("endless, cell 4 of 5" in said for said in process.stdout)
        time.sleep(1)  # the line is said just before the cells are sent
        yield process, psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.communicate()


def whole(build):
    """Check that every file of a build folder is whole, and none is left over."""
    for path in build.iterdir():
        if path.suffix == ".ipynb":
            nbformat.validate(nbformat.read(path, 4))
        else:
            assert path.suffix == ".html"
            assert path.read_text("utf-8").rstrip().endswith("</html>")


def interrupted(checkout, *words, endless=1):
    """Press Ctrl-C in a run; give what it said."""
    with started(checkout, *words, endless=endless) as (process, kernels):
        assert len(kernels) >= endless
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "")
    assert not any(kernel.is_running() for kernel in kernels)
    whole(checkout / "build")
    return out


def states(page):
    shown = r">[^\w<]+ ([a-z ]+)</(?:strong|span)>"
    return re.findall(shown, page.read_text("utf-8"))


def test_ctrl_c_keeps_what_is_done(checkout):
    out = interrupted(checkout, "run", "2", "3", "4", "--jobs", "1")
    assert "1 passed, 1 interrupted, 1 not run. Results: " in out
    build = checkout / "build"
    both = ["02_quick.html", "02_quick.ipynb", "03_endless.html", "03_endless.ipynb"]
    assert sorted(path.name for path in build.iterdir()) == [*both, "index.html"]
    assert states(build / "index.html") == ["passed", "interrupted", "not run", "not run"]
    begun = nbformat.read(build / "03_endless.ipynb", 4).cells[2]
    assert begun.outputs[0].text == "begun\n"


def test_ctrl_c_ends_all_that_run_side_by_side(checkout):
    out = interrupted(checkout, "run", "3", "5", "--jobs", "2", endless=2)
    assert "2 interrupted. Results: " in out


def test_a_run_that_is_killed_leaves_whole_files_and_no_kernel(checkout):
    with started(checkout, "run", "3") as (process, kernels):
        process.kill()
        process.communicate()
    whole(checkout / "build")
    gone, alive = psutil.wait_procs(kernels, timeout=30)
    assert gone and not alive


def test_two_run_side_by_side_where_there_is_room(monkeypatch):
    for cores, free, jobs in ((2, 8e9, 2), (64, 1e12, 2), (1, 1e12, 1), (2, 7e9, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        monkeypatch.setattr(course, "free_memory", lambda free=free: free)
        assert course.side_by_side() == jobs


def test_the_longest_begins_when_several_run_at_once_and_results_keep_their_order(
    tmp_path, monkeypatch
):
    for name in ("01_a", "02_b", "03_c"):
        write(tmp_path, name, "1")
    monkeypatch.setattr(course, "RUN_SECONDS", {"01": 1, "02": 2, "03": 3})
    begun = []

    def run(job):
        begun.append(job.notebook.name)
        return kernels.Result(job.notebook.name, "passed")

    monkeypatch.setattr(course.Job, "run", run)
    for jobs, first in ((1, "01_a"), (2, "03_c")):
        begun.clear()
        results = course.run_all(notebooks(tmp_path), {}, lambda *_: None, quiet(), jobs=jobs)
        assert begun[0] == first
        assert [result.name for result in results] == ["01_a", "02_b", "03_c"]


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
    assert states(report.page) == ["passed", "failed", "not run"]
    dates = re.findall(r'<time datetime="([^"]+)"', page)
    assert dates[0] == earlier.results[0].finished.isoformat() < dates[1]
    assert 'href="03_c.html#cell-id=cell-2"' in page
    assert 'id="cell-id=cell-2"' in (build / "03_c.html").read_text("utf-8")
    assert "in cell 3: ZeroDivisionError: division by zero" in page
    (build / "02_b.ipynb").write_text("{")  # not one of ours any more
    report = course.run(["4"], folder=tmp_path, build=build, console=quiet())
    assert states(report.page) == ["not run", "failed", "passed"]


def test_a_full_disk_leaves_no_half_file_and_a_taken_path_is_told_at_once(tmp_path, monkeypatch):
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

    (tmp_path / "taken").write_text("a file")
    monkeypatch.setattr(course.Job, "run", lambda self: pytest.fail("a notebook was run"))
    with pytest.raises(files.CantWrite):
        course.run(folder=tmp_path / "notebooks", build=tmp_path / "taken", console=quiet())
