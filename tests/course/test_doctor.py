"""The doctor finds what was put in its way, and says what to do."""

import json
import os
import re
import sys

import pytest
from terminal import call

from helpers.base.settings import ANY_VERSION, BOOTSTRAP, DRIVER, locked_versions
from helpers.course import doctor
from helpers.course.doctor import Diagnosis, Finding
from helpers.tpu import place

LOCKED = locked_versions()
GOOD = {name: LOCKED[name] for name in (*BOOTSTRAP, *ANY_VERSION)}
TPU_WHEEL = {"tensorflow-tpu" if n == "tensorflow" else n: version for n, version in GOOD.items()}


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in [x for x in os.environ if "TPU" in x or x.startswith("KAGGLE")]:
        monkeypatch.delenv(name)


@pytest.fixture
def cpu(tmp_path):
    return place.detect({}, tmp_path / "empty")


@pytest.fixture
def vm(tmp_path):
    return place.detect({"COLAB_TPU_1VM": "1", "TPU_ACCELERATOR_TYPE": "v5e-1"}, tmp_path)


@pytest.mark.parametrize(
    ("found", "told", "well"),
    [
        (GOOD, "TensorFlow 2.20.0, transformers 4.57", True),
        (TPU_WHEEL, "TensorFlow 2.20.0", True),
        (GOOD | {"transformers": "5.1.0"}, "transformers is 5.1.0", False),
        ({}, "tensorflow is missing", False),
    ],
)
def test_versions(found, told, well):
    finding = doctor.check_versions(found, LOCKED)
    assert told in finding.said and bool(finding.fix) != well


INSTALL = "pip install tensorflow==2.20"
INSTEAD = f"tensorflow tensorflow-tpu && pip install tensorflow-tpu==2.20.0 {DRIVER}"


@pytest.mark.parametrize(
    ("wheels", "where", "said", "fix"),
    [
        ("tensorflow", "cpu", "alone", None),
        ("tensorflow-tpu", "vm", "alone", None),
        ("tensorflow tensorflow-tpu", "vm", "are installed together", INSTEAD),
        ("tensorflow tensorflow-cpu", "cpu", "are installed together", INSTALL),
        ("tensorflow", "vm", "build for CPU and GPU, but a TPU is in this machine", "tpu"),
        ("", "cpu", "not installed", INSTALL),
    ],
)
def test_wheels(request, wheels, where, said, fix):
    versions = dict.fromkeys(wheels.split(), "2.20.0")
    found = doctor.check_wheel(versions, request.getfixturevalue(where))
    assert said in found.said and (fix in found.fix if fix else not found.fix)


def test_a_real_holder_is_seen_and_then_the_tpu_is_not_asked(monkeypatch, tmp_path, vm):
    held = tmp_path / "stands-for-a-chip"
    held.touch()
    monkeypatch.setattr(doctor, "CHIP", re.compile(re.escape(str(held))))
    assert doctor.holders() == {}
    with held.open():
        assert list(doctor.holders()) == [pid := os.getpid()]
        finding = doctor.check_chip(doctor.holders(), own={1})
        assert finding.said.startswith("held by another process: ") and f"({pid})" in finding.said
        assert finding.fix.endswith(f"kill {pid}")
    monkeypatch.setattr(doctor, "holders", lambda: {os.getppid(): "ipykernel"})
    monkeypatch.setattr(doctor, "check_devices", lambda place: pytest.fail("asked"))
    monkeypatch.setattr(doctor, "detect", lambda: vm)
    found = {finding.name: finding for finding in doctor.doctor().findings}
    assert [*found] == ["versions", "wheel", "place", "chip", "devices", "memory"]
    # The notebook that asks is no other process.
    assert (found["chip"].fix, found["devices"].said[:9]) == ("", "not asked")


def says(*kinds: str) -> str:
    return f"print('noise'); print({json.dumps(json.dumps(kinds))})"


def test_devices_are_listed_or_the_reason_is_told(cpu, vm):
    def listed(where: place.Place, script: str, **more: float) -> Finding:
        return doctor.check_devices(where, command=(sys.executable, "-c", script), **more)

    assert listed(cpu, says("CPU")) == Finding("devices", "CPU × 1")
    assert listed(vm, says("CPU", "TPU", "TPU")) == Finding("devices", "CPU × 1, TPU × 2")
    blind = listed(vm, says("CPU"))
    assert blind.said == "CPU × 1: TensorFlow sees no TPU" and blind.fix
    late = listed(cpu, "import time; time.sleep(99)", seconds=0.5)
    assert late.said == "TensorFlow did not list them within 0.5 seconds" and late.fix
    missing = listed(cpu, "import no_such_tensorflow")
    assert missing.said.endswith("No module named 'no_such_tensorflow'")
    dies = listed(cpu, "import os; os.abort()")
    assert dies.said == "TensorFlow can't be used: it ended: -6"
    held = listed(cpu, "raise RuntimeError('libtpu.so already in use by process with pid 5')")
    assert held.fix != dies.fix  # a symptom that the course explains


def test_memory_is_the_container_s_where_it_has_a_limit(tmp_path):
    folder = tmp_path / "sys/fs/cgroup"
    folder.mkdir(parents=True)
    (folder / "memory.max").write_text("3000\n")
    (folder / "memory.current").write_text("1000\n")
    assert doctor.free_memory(tmp_path) == 2000
    (folder / "memory.max").write_text("max\n")
    assert doctor.free_memory(tmp_path) > 10_000
    assert doctor.check_memory(0.5 * doctor.GIB).fix
    assert doctor.check_memory(8 * doctor.GIB) == Finding("memory", "8.0 GiB free")


def test_a_diagnosis_ends_with_what_to_do_first(cpu):
    well, ill = Finding("versions", "as locked"), Finding("wheel", "two wheels", "uninstall one")
    assert repr(Diagnosis((well,), cpu)).endswith(f"\nNext: {cpu.advice}")
    assert repr(Diagnosis((well, ill), cpu)).endswith("Fix: uninstall one\nNext: uninstall one")


@pytest.mark.slow
def test_the_real_command_on_this_machine():
    done = call(sys.executable, "-m", "helpers", "doctor", timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "✓ versions" in done.stdout and "✓ devices   CPU × 1" in done.stdout
