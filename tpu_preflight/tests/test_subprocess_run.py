"""The preflight in a process of its own: code that dies, hangs or prints does no harm."""

import os
import pathlib
import subprocess
import sys
import time

import psutil
import pytest
from programs import ROOT

from tpu_preflight.processes import family
from tpu_preflight.report import FAIL, NOTHING, PASS, Report
from tpu_preflight.subprocess_run import run_in_subprocess

pytestmark = pytest.mark.long

MODULE = pathlib.Path(__file__).with_name("harmful_module.txt").read_text()


@pytest.fixture
def module(tmp_path, monkeypatch):
    (folder := tmp_path / "폴더").mkdir()
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
    result = run_in_subprocess(name, ["v5e-8"], **limits)
    assert result.status == "can't tell" and says in result.items[0].finding
    # multiprocessing's own children, of another test, stay
    family = psutil.Process().children(recursive=True)
    assert not [p for p in family if "-m tpu_preflight." in " ".join(p.cmdline())]
    assert not left_over(module.parent)


def left_over(folder):
    file = folder / "daemon"
    daemon = [p for p in psutil.process_iter() if file.exists() and str(p.pid) == file.read_text()]
    return [p for p in psutil.wait_procs(daemon, 2)[1] if p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("name", ["mine:build", "mine:forks", "mine:leaves"])
def test_code_that_imports_jax_first_or_forks_answers_once(name, module):
    module.write_text("import tensorflow, jax\n" * (name == "mine:build") + MODULE)
    module.with_name("random.py").write_text("mine = 1")  # not to be taken for Python's
    result = run_in_subprocess(name, ["v5e-8"])
    assert result.status == "ready" and result.estimates and not left_over(module.parent)


@pytest.mark.parametrize(("name", "target"), [("on_jax", "tpu7x-8"), ("keras_by_choice", "v5e-8")])
def test_other_libraries_answer_as_well(name, target, module, monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")  # the learner's choice
    result = run_in_subprocess(f"mine:{name}", [target])
    assert result.status == "ready" and result.estimates, repr(result)
    assert ("(Keras 3 on tensorflow) for" in result.summary) == (name == "keras_by_choice")


def test_keras_on_jax_goes_by_each_batch_divides_it_and_runs_it_here(module):
    result = run_in_subprocess("mine:keras_on_jax", ["v5e-8", "v5e-1"])
    told = {item.name: (item.state, item.finding) for item in result.items}
    assert "(Keras 3 on jax) for v5e-8, v5e-1: ready" in result.summary
    assert {state for state, _ in told.values()} == {PASS, NOTHING}, repr(result)
    assert "float32" in told["types"][1] and "same on this CPU" in told["results on real values"][1]
    assert "JAX traces it" in told["train step under JAX"][1]
    assert [estimate.rows for estimate in result.estimates] == [2, 16]
    assert result.estimates[0].all_reduce_bytes >= 4 * (8 * 4 + 4)


@pytest.mark.parametrize(
    ("name", "variable"), [("on_jax", "JAX_PLATFORMS"), ("depends", "JAX_DEBUG_NANS")]
)
def test_the_environment_is_named_and_is_no_verdict(name, variable, module, monkeypatch):
    monkeypatch.setenv(variable, "tpu" if name == "on_jax" else "1")
    result = run_in_subprocess(f"mine:{name}", ["v5e-8"])
    assert result.status == "can't tell" and variable in repr(result.items[0])


def test_what_the_data_show_is_kept_where_a_compiler_ends_the_process(module):
    result = run_in_subprocess("mine:aborts_late", ["v5e-8"])
    told = {item.name: item.state for item in result.items}
    assert told["the step"] == "not checked" and told["batch over 8 replicas"] == FAIL


@pytest.mark.parametrize("end", [subprocess.Popen.terminate, subprocess.Popen.kill])
def test_nothing_is_left_of_a_command_that_was_ended(end, module):
    command = [sys.executable, "-m", "tpu_preflight", "mine:never_lets_go"]
    folder = module.with_name("temporary")
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(folder)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as ran:
        assert any(b"making the model" in line for line in ran.stderr)
        while len(members := family(ran.pid)) < 5 and ran.poll() is None:
            time.sleep(0.1)
        end(ran)
    assert len(members) >= 5  # itself, its child, the compiler's, and who watches them
    _, left = psutil.wait_procs(members, timeout=3)
    assert [p for p in left if p.status() != psutil.STATUS_ZOMBIE] == [*folder.iterdir()] == []


def test_the_command_prints_a_report_and_leaves_nothing(module):
    module.with_name("json.py").write_text("mine = 1")  # not to be taken for Python's
    words = ["--json", "--steps", "1000", "--price", "v5e=1.2"]
    command = [sys.executable, "-m", "tpu_preflight", "mine:on_jax", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}
    environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert all(line.startswith("preflight, ") for line in ran.stderr.splitlines()), ran.stderr
    told = Report.from_json(ran.stdout)
    assert told.estimates and told.prices == () and "there is no price" in told.timings[0].factor
    assert "noise" not in ran.stdout and not [*module.parent.glob("*.html")]
