"""The preflight in a process of its own: code that dies, hangs or prints does no harm."""

import os
import pathlib
import subprocess
import sys
import time

import psutil
import pytest
from programs import ROOT

from tpu_preflight.errors import PreflightError
from tpu_preflight.processes import family
from tpu_preflight.report import FAIL, NOTHING, PASS, Report
from tpu_preflight.subprocess_run import run_in_subprocess

pytestmark = pytest.mark.long

MODULE = pathlib.Path(__file__).with_name("harmful_module.txt").read_text()


@pytest.fixture
def module(tmp_path, monkeypatch):
    folder = tmp_path / "폴더"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "mine.py").write_text(MODULE)
    return folder / "mine.py"


@pytest.mark.parametrize(
    ("name", "limits", "says"),
    [
        ("mine:dies", {}, "SIGSEGV, while making the model"),
        ("mine:sleeps", {"timeout": 4}, "time limit of 4 s"),
        ("mine:hungry", {"memory_limit": 25 * 10**8}, "2.5 GB of this machine's memory, while"),
    ],
)
def test_code_that_dies_or_never_returns_is_a_result(name, limits, says, module):
    report = run_in_subprocess(name, ["v5e-8"], **limits)
    assert report.status == "can't tell"
    assert says in report.items[0].finding
    # multiprocessing's own children, of another test, stay
    children = psutil.Process().children(recursive=True)
    assert not [child for child in children if "-m tpu_preflight." in " ".join(child.cmdline())]
    assert not running_daemons(module.parent)


def alive_after(seconds, processes):
    """Wait for processes to end, and give those that still run."""
    _, alive = psutil.wait_procs(processes, seconds)
    return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def running_daemons(folder):
    """Give the daemon that `leaves` of the module started, where it still runs."""
    file = folder / "daemon"
    if not file.exists():
        return []
    number = file.read_text()
    return alive_after(2, [p for p in psutil.process_iter() if str(p.pid) == number])


@pytest.mark.parametrize("name", ["mine:build", "mine:forks", "mine:leaves"])
def test_code_that_imports_jax_first_or_forks_answers_once(name, module):
    if name == "mine:build":
        module.write_text("import tensorflow, jax\n" + MODULE)
    module.with_name("random.py").write_text("mine = 1")  # not to be taken for Python's
    report = run_in_subprocess(name, ["v5e-8"])
    assert report.status == "ready"
    assert report.estimates
    assert not running_daemons(module.parent)


@pytest.mark.parametrize(("name", "target"), [("on_jax", "tpu7x-8"), ("keras_by_choice", "v5e-8")])
def test_other_libraries_answer_as_well(name, target, module, monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")  # the learner's choice
    report = run_in_subprocess(f"mine:{name}", [target])
    assert report.status == "ready", repr(report)
    assert report.estimates, repr(report)
    assert ("(Keras 3 on tensorflow) for" in report.summary) == (name == "keras_by_choice")


def test_keras_on_jax_goes_by_each_batch_divides_it_and_runs_it_here(module):
    report = run_in_subprocess("mine:keras_on_jax", ["v5e-8", "v5e-1"])
    findings = {item.name: item.finding for item in report.items}
    assert "(Keras 3 on jax) for v5e-8, v5e-1: ready" in report.summary
    assert {item.state for item in report.items} == {PASS, NOTHING}, repr(report)
    assert "float32" in findings["types"]
    assert "same on this CPU" in findings["results on real values"]
    assert "JAX traces it" in findings["train step under JAX"]
    assert [estimate.rows for estimate in report.estimates] == [2, 16]
    assert report.estimates[0].all_reduce_bytes >= 4 * (8 * 4 + 4)


@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [("on_jax", "JAX_PLATFORMS", "tpu"), ("depends", "JAX_DEBUG_NANS", "1")],
)
def test_the_environment_is_named_and_is_no_verdict(name, variable, value, module, monkeypatch):
    monkeypatch.setenv(variable, value)
    report = run_in_subprocess(f"mine:{name}", ["v5e-8"])
    assert report.status == "can't tell"
    assert variable in repr(report.items[0])


@pytest.mark.parametrize("is_imported", [False, True])
def test_a_connection_to_a_tpu_is_to_be_left_out(is_imported, module):
    if is_imported:
        module.write_text(MODULE + "\n\nconnects()\n")
    with pytest.raises(PreflightError) as caught:
        run_in_subprocess("mine:connects", ["v5e-8"])
    assert "Leave the connection out here" in caught.value.fix


def test_what_the_data_show_is_kept_where_a_compiler_ends_the_process(module):
    report = run_in_subprocess("mine:aborts_late", ["v5e-8"])
    states = {item.name: item.state for item in report.items}
    assert states["the step"] == "not checked"
    assert states["batch over 8 replicas"] == FAIL


@pytest.mark.parametrize("end", [subprocess.Popen.terminate, subprocess.Popen.kill])
def test_nothing_is_left_of_a_command_that_was_ended(end, module):
    command = [sys.executable, "-m", "tpu_preflight", "mine:never_lets_go"]
    folder = module.with_name("temporary")
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(folder)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        assert any(b"making the model" in line for line in process.stderr)
        members = family(process.pid)
        while len(members) < 5 and process.poll() is None:
            time.sleep(0.1)
            members = family(process.pid)
        end(process)
    assert len(members) >= 5  # itself, its child, the compiler's, and who watches them
    assert alive_after(3, members) == []
    assert list(folder.iterdir()) == []


def test_the_command_prints_a_report_and_leaves_nothing(module):
    module.with_name("json.py").write_text("mine = 1")  # not to be taken for Python's
    words = ["--json", "--steps", "1000", "--price", "v5e=1.2"]
    command = [sys.executable, "-m", "tpu_preflight", "mine:on_jax", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}
    environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    process = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert process.returncode == 0, process.stderr
    for line in process.stderr.splitlines():
        assert line.startswith("preflight, "), process.stderr
    report = Report.from_json(process.stdout)
    assert report.estimates
    assert report.prices == ()
    assert "there is no price" in report.timings[0].factor
    assert "noise" not in process.stdout
    assert not list(module.parent.glob("*.html"))
