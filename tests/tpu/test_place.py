"""Each place is told from a made-up environment and file system; nothing makes it fail."""

import pathlib
import sys
import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from terminal import call

from helpers.tpu import place
from helpers.tpu.place import detect

PLACES = tomllib.loads(pathlib.Path(__file__).with_name("places.toml").read_text("utf-8"))["place"]
# What stands on the PCI bus, by vendor and device.
CHIPS = {
    "v3": "0x1ae0 0x0027",
    "v4": "0x1ae0 0x005e",
    "v5p": "0x1ae0 0x0062",
    "v5e": "0x1ae0 0x0063",
    "v6e": "0x1ae0 0x006f",
    "tpu7x": "0x1ae0 0x0076",
}


def machine(root: pathlib.Path, files: list[str], bus: str = "") -> pathlib.Path:
    """Make a file system with empty files and devices on the PCI bus (``4 v5e``)."""
    if bus:
        count, chip = bus.split(" ", maxsplit=1)
        vendor, device = CHIPS.get(chip, chip).split()
        for number in range(int(count)):
            folder = root / f"sys/bus/pci/devices/0000:00:{number:02}.0"
            folder.mkdir(parents=True)
            (folder / "vendor").write_text(f"{vendor}\n")
            (folder / "device").write_text(f"{device}\n")
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    return root


@pytest.mark.parametrize("case", PLACES, ids=lambda case: case["name"])
def test_a_place_is_told_as_its_source_describes_it(case, tmp_path):
    root = machine(tmp_path, case.get("files", []), case.get("bus", ""))
    detected = detect(case.get("environment", {}), root)
    accelerator = detected.accelerator and detected.accelerator.name
    words = (detected.kind, accelerator, detected.replicas, detected.tpu)
    assert " | ".join(map(str, words)) == case["expected"]
    assert detected.name in repr(detected)
    assert detected.advice in repr(detected)


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({"COLAB_TPU_ADDR": "10.0.0.2:8470", "COLAB_TPU_1VM": "1"}, "node"),
        ({"TPU_NAME": "10.0.0.2"}, "node"),
        ({"TPU_NAME": "local"}, "tpu_vm"),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Batch", "ISTPUVM": "0"}, "tpu_vm"),
        ({"TPU_NAME": "x", "TPU_WORKER_ID": "3"}, "pod_slice"),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "pod_slice"),
        ({"COLAB_TPU_1VM": ""}, "tpu_vm"),
    ],
)
def test_the_most_explicit_mark_wins(environment, kind, tmp_path):
    assert detect(environment, machine(tmp_path, ["dev/accel0"])).kind == kind


def test_what_tensorflow_must_find_when_it_is_imported(tmp_path):
    root = machine(tmp_path, ["dev/vfio/0"])
    plug_in = {"PJRT_DEVICE": "TPU", "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true"}
    assert detect({"TPU_ACCELERATOR_TYPE": "v5e-8"}, root).environment == plug_in
    assert detect({"TPU_ACCELERATOR_TYPE": "v3-8"}, root).environment == {}
    lead = {"TPU_NAME": "x", "TPU_LOAD_LIBRARY": "0", "TPU_ACCELERATOR_TYPE": "v5e-16"}
    assert detect(lead, root).environment == {"TPU_LOAD_LIBRARY": "0"}
    assert detect(lead, root).tpu == "x"
    assert detect({"COLAB_TPU_ADDR": "10.0.0.2:8470"}, root).environment == {}


def test_what_else_must_be_known_is_said(tmp_path):
    stray = repr(detect({"TPU_NAME": "local"}, tmp_path))
    assert "TPU_NAME is set, but no TPU is attached" in stray
    unknown = repr(detect({}, machine(tmp_path, ["dev/accel0"])))
    assert "Nothing here tells its type" in unknown
    assert "local files will do" in unknown


ADDRESSES = ["local", "grpc://", "grpc://a:b:c,,", ":8470", "[::1]:8470", "h," * 5000]
TYPES = ["v5e-1", "v3-32", "v9-9", "tpu7x-8", "2,2,1"]
ODD_TEXTS = ["", " ", "0", "1", "TPU \u2603", "\ud800", "\0", "a" * 100_000, "9" * 5000]
WARNINGS = ["WARNING: none, set it"]
VALUES = st.one_of(st.text(max_size=20), st.sampled_from(ADDRESSES + TYPES + ODD_TEXTS + WARNINGS))
FILES = ["dev/accel0", "dev/vfio/1", "dev/vfio/vfio"]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    environment=st.dictionaries(st.sampled_from(place.MARKS), VALUES),
    files=st.lists(st.sampled_from(FILES), unique=True),
    bus=st.sampled_from(["", "1 v5e", "4 v3", "8 tpu7x", "1 0x10de 0x005e"]),
)
def test_no_environment_makes_it_fail(environment, files, bus, tmp_path_factory):
    detected = detect(environment, machine(tmp_path_factory.mktemp("root"), files, bus))
    assert detected.name
    assert detected.advice
    assert len(repr(detected)) < 3000
    assert (detected.tpu == "local") == (detected.kind in place.LOCAL)
    assert detected.replicas is None or detected.replicas >= 1


def test_a_file_system_that_can_not_be_read_has_no_devices(tmp_path):
    (tmp_path / "dev").write_text("a file where a folder is expected")
    assert detect({}, tmp_path).kind == "cpu"
    broken = machine(tmp_path / "b", ["dev/accel0"])
    (broken / "sys/bus/pci/devices/0000:00:00.0/vendor").mkdir(parents=True)
    assert detect({}, broken).kind == "tpu_vm"


@pytest.mark.slow  # a Python of its own
def test_it_asks_neither_network_nor_tensorflow():
    script = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise AssertionError('network')\n"
        "socket.socket = socket.getaddrinfo = socket.create_connection = refuse\n"
        "from helpers import runtime\n"
        "for name in ('my-tpu', 'grpc://10.0.0.2:8470', 'local'):\n"
        "    runtime.detect({'TPU_NAME': name})\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = call(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
