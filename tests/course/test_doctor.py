"""The doctor finds what was put in its way, and says what to do."""

import json
import os
import pathlib
import re
import sys
from unittest.mock import Mock

import pytest
from terminal import call
from typer.testing import CliRunner

from helpers.base.errors import CourseError
from helpers.base.settings import ANY_VERSION, BOOTSTRAP, DRIVER, locked_versions
from helpers.course import doctor
from helpers.course.commands.app import app
from helpers.course.doctor import ILL, WARN, WELL, Diagnosis, Finding
from helpers.tpu import connection, place

LOCKED = locked_versions()
GOOD = {name: LOCKED[name] for name in (*BOOTSTRAP, *ANY_VERSION)}


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


AS_LOCKED = r"Python 3\.11, TensorFlow 2\.20\.0, transformers 4\.57\.\d+: as locked"
TPU_WHEEL = {**GOOD, "tensorflow-tpu": LOCKED["tensorflow"]}
del TPU_WHEEL["tensorflow"]


@pytest.mark.parametrize(
    ("found", "python", "state", "told"),
    [
        (GOOD, (3, 11), WELL, AS_LOCKED),
        (TPU_WHEEL, (3, 13), WELL, r"TensorFlow 2\.20\.0"),
        (GOOD | {"transformers": "5.1.0"}, (3, 11), ILL, r"transformers is 5\.1\.0"),
        ({}, (3, 11), ILL, "tensorflow is missing"),
        (GOOD, (3, 10), ILL, r"Python is 3\.10 \(the course needs 3\.11 to 3\.13\)"),
        (GOOD, (3, 14), ILL, r"Python is 3\.14"),
    ],
)
def test_versions(found, python, state, told):
    finding = doctor.check_versions(found, LOCKED, python)
    assert (finding.name, finding.state) == ("versions", state)
    assert re.search(told, finding.said)
    assert bool(finding.fix) == (state == ILL)


INSTALL = "pip install tensorflow==2.20"
INSTEAD = f"tensorflow tensorflow-tpu && pip install tensorflow-tpu==2.20.0 {DRIVER}"


@pytest.mark.parametrize(
    ("wheels", "where", "state", "said", "fix"),
    [
        ("tensorflow", "cpu", WELL, "", ""),
        ("tensorflow-tpu", "vm", WELL, "", ""),
        ("tensorflow tensorflow-tpu", "vm", ILL, "are installed together", INSTEAD),
        ("tensorflow tensorflow-cpu", "cpu", ILL, "", INSTALL),
        ("tensorflow", "vm", ILL, "build for CPU and GPU, but a TPU is in this machine", ""),
        ("tensorflow", "cloud", WARN, "", ""),
        ("", "cpu", ILL, "", INSTALL),
    ],
)
def test_wheels(request, tmp_path, wheels, where, state, said, fix):
    if where == "cloud":
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev/accel0").touch()
    there = place.detect({}, tmp_path) if where == "cloud" else request.getfixturevalue(where)
    found = doctor.check_wheel(dict.fromkeys(wheels.split(), "2.20.0"), there)
    assert (found.state, said in found.said, fix in found.fix) == (state, True, True), found


def test_a_tpu_that_is_only_announced(cpu, vm):
    assert doctor.check_place(cpu, {}).state == WELL
    assert "v5e-1: chips: 1" in doctor.check_place(vm, {}).said
    finding = doctor.check_place(cpu, {"TPU_NAME": "local"})
    assert finding.state == WARN and finding.fix.startswith("unset TPU_NAME")
    assert "TPU_NAME is set, but no TPU is attached" in finding.said


def process(root: pathlib.Path, pid: int, name: str, *targets: str) -> None:
    folder = root / f"proc/{pid}/fd"
    folder.mkdir(parents=True)
    (folder.parent / "comm").write_text(f"{name}\n")
    for number, target in enumerate(targets):
        (folder / str(number)).symlink_to(target)


def test_holders_of_the_chip_are_found(tmp_path):
    process(tmp_path, 12, "python", "/dev/null", "/dev/accel0")
    process(tmp_path, 7, "jupyter", "/dev/vfio/0", "socket:[1]")
    process(tmp_path, 8, "qemu", "/dev/vfio/vfio", "/dev/accel/accel0", "/tmp/dev/accel0")
    (tmp_path / "proc/9").mkdir()  # ended meanwhile
    held = doctor.holders(tmp_path)
    assert list(held.items()) == [(7, "jupyter"), (12, "python")]
    assert doctor.holders(tmp_path / "nothing") == {}
    finding = doctor.check_chip(held, own={12, 1})
    assert finding.state == ILL and finding.fix.endswith("kill 7")
    assert finding.said.startswith("held by another process: jupyter (7);")
    assert doctor.check_chip({12: "python"}, own={3, 12}).said.startswith("held by this")
    assert doctor.check_chip({}, own={12}).state == WELL


def test_a_real_holder_is_seen_and_then_the_tpu_is_not_asked(monkeypatch, tmp_path, vm):
    held = tmp_path / "stands-for-a-chip"
    held.touch()
    monkeypatch.setattr(doctor, "CHIP", re.compile(re.escape(str(held))))
    assert doctor.holders() == {}
    with held.open():
        assert list(doctor.holders()) == [os.getpid()]
    monkeypatch.setattr(doctor, "holders", lambda: {os.getppid(): "ipykernel"})
    monkeypatch.setattr(doctor, "check_devices", lambda place: pytest.fail("asked"))
    monkeypatch.setattr(doctor, "detect", lambda: vm)
    found = {finding.name: finding for finding in doctor.doctor().findings}
    assert [*found] == ["versions", "wheel", "place", "chip", "devices", "disk", "memory"]
    # The notebook that asks is no other process.
    assert (found["chip"].state, found["devices"].said[:9]) == (WELL, "not asked")


@pytest.mark.parametrize(
    ("bucket", "fix"),
    [("my-bucket", "gs://my-bucket"), ("gs:/b/c", "gs://b/c"), ("", "gs://BUCKET")],
)
def test_a_bucket_without_its_scheme_is_refused_before_anything_else(bucket, fix, monkeypatch):
    monkeypatch.setattr(doctor, "detect", lambda: pytest.fail("asked"))
    with pytest.raises(CourseError, match=f"Write {fix}."):
        doctor.doctor(bucket)


def says(*kinds: str) -> str:
    return f"print('noise'); print({json.dumps(json.dumps(kinds))})"


def listed(where: place.Place, script: str, **more: float) -> tuple[str, str, str]:
    found = doctor.check_devices(where, command=(sys.executable, "-c", script), **more)
    return found.state, found.said, found.fix


def test_devices_are_listed_or_the_reason_is_told(cpu, vm):
    assert listed(cpu, says("CPU"))[:2] == (WELL, "CPU × 1")
    assert listed(vm, says("CPU", "TPU", "TPU"))[:2] == (WELL, "CPU × 1, TPU × 2")
    assert listed(vm, says("CPU"))[:2] == (ILL, "CPU × 1: TensorFlow sees no TPU")


def test_tensorflow_that_hangs_or_breaks_is_told(cpu):
    late = "TensorFlow did not list them within 0.5 seconds"
    assert listed(cpu, "import time; time.sleep(99)", seconds=0.5)[:2] == (ILL, late)
    state, said, _ = listed(cpu, "import no_such_tensorflow")
    assert state == ILL and said.endswith("No module named 'no_such_tensorflow'")
    _, dies, fix = listed(cpu, "import os; os.abort()")
    assert dies == "TensorFlow can't be used: it ended: -6"
    held = "raise RuntimeError('libtpu.so already in use by process with pid 5')"
    state, _, known = listed(cpu, held)
    assert state == ILL and known != fix  # a symptom that the course explains


def test_devices_of_an_address_are_asked_of_the_worker(monkeypatch, tmp_path):
    node = place.detect({"COLAB_TPU_ADDR": "10.0.0.2:8470"}, tmp_path)
    devices = {"grpc://10.0.0.2:8470": ["CPU:0", "TPU:0", "TPU:1", "TPU_SYSTEM:0"]}
    monkeypatch.setattr(connection, "devices_at", devices.__getitem__)
    said = "CPU × 1, TPU × 2, TPU_SYSTEM × 1 in another machine"
    assert listed(node, "raise SystemExit(1)")[1] == said
    dead = Mock(side_effect=CourseError("Nobody answers.", "It is off.", "Start it."))
    monkeypatch.setattr(connection, "devices_at", dead)
    found = doctor.check_devices(node)
    assert found == Finding("devices", ILL, "Nobody answers. It is off.", "Start it.")


@pytest.mark.parametrize(
    ("disk", "memory", "states"),
    [(50, 8, (WELL, WELL)), (1, 2, (WARN, WARN)), (0.1, 0.5, (ILL, ILL)), (50, 0.5, (WELL, ILL))],
)
def test_room(disk, memory, states):
    found = doctor.check_room({"disk": disk, "memory": memory})
    assert tuple(finding.state for finding in found) == states
    assert found[0].said == f"{disk:.1f} GiB free"
    assert all(bool(finding.fix) == (finding.state != WELL) for finding in found)


def test_memory_is_the_containers_when_that_is_less(tmp_path):
    assert doctor.free_memory(tmp_path) > 0
    folder = tmp_path / "sys/fs/cgroup"
    folder.mkdir(parents=True)
    (folder / "memory.max").write_text("3000\n")
    (folder / "memory.current").write_text("1000\n")
    assert doctor.free_memory(tmp_path) == 2000
    (folder / "memory.max").write_text("max\n")
    assert doctor.free_memory(tmp_path) > 10_000


FINDINGS = (
    Finding("versions", WELL, "as locked"),
    Finding("disk", WARN, "1.0 GiB free", "make room"),
    Finding("wheel", ILL, "two <wheels>", "uninstall one"),
)


def test_a_diagnosis_reads_well(cpu):
    for count, answers in ((3, (1, "uninstall one")), (2, (0, "make room")), (1, (0, cpu.advice))):
        found = Diagnosis(FINDINGS[:count], cpu)
        assert (found.exit_status, found.next) == answers
    ill = Diagnosis(FINDINGS, cpu)
    assert repr(ill) == (
        "✓ versions  as locked\n"
        "! disk      1.0 GiB free\n"
        "            Fix: make room\n"
        "✗ wheel     two <wheels>\n"
        "            Fix: uninstall one\n"
        "Next: uninstall one"
    )
    plain = json.loads(ill.json())
    assert (plain["place"], plain["findings"][2]["fix"]) == ("cpu", "uninstall one")


def test_the_command_tells_by_its_exit_status_and_examines_a_bucket_when_it_is_named(monkeypatch):
    told = CourseError("It is in europe-west4.", "The TPU is not.", "Move it.")
    answers = Mock(side_effect=["gs://b: readable, writable", told])
    monkeypatch.setattr(doctor.buckets, "check_bucket", answers)
    monkeypatch.setattr(doctor, "check_devices", lambda place: Finding("devices", WELL, "CPU × 1"))
    words = ["doctor", "--bucket", "gs://b", "--region", "us-central1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "✓ bucket    gs://b: readable, writable" in done.output
    answers.assert_called_with("gs://b")
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 1 and json.loads(done.output)["next"] == "Move it."


@pytest.mark.slow
def test_the_real_command_on_this_machine():
    done = call(sys.executable, "-m", "helpers", "doctor", "--json", timeout=120)
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.stderr == ""
    assert found["versions"]["state"] == WELL
    assert "CPU × 1" in found["devices"]["said"]
