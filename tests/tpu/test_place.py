"""Each place is told from a made-up environment and file system; nothing makes it fail."""

import pathlib
import sys

import places
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import table
from terminal import call

from helpers.tpu import place
from helpers.tpu.place import detect

BUSES = {"bus:v5e": "8 v5e", "bus:v4": "4 v4", "bus:v3": "4 v3"}
OTHERS = ["1 0x1ae0 0x0042", "1 0x10de 0x005e"]  # Google's network card; not Google's


def machine(root: pathlib.Path, devices: str) -> pathlib.Path:
    """Make a file system with device files and chips on the bus, from words."""
    words = devices.split()
    buses = [BUSES[word] for word in words if word in BUSES]
    files = [word for word in words if word not in BUSES]
    return places.machine(root, files, *buses, *(OTHERS if buses else []))


@pytest.mark.parametrize("case", places.PLACES, ids=lambda case: case["name"])
def test_a_place_is_told_as_its_source_describes_it(case, tmp_path):
    root = places.machine(tmp_path, case.get("files", []), case.get("bus", ""))
    found = detect(case.get("environment", {}), root)
    accelerator = found.accelerator and found.accelerator.name
    said = (found.kind, accelerator, found.replicas, found.tpu)
    assert " | ".join(map(str, said)) == case["expected"]
    shown = repr(found)
    assert [word for word in case.get("says", []) if word not in shown] == []
    assert [word for word in case.get("silent", []) if word in shown] == []
    assert case["source"]


def test_the_table_of_places_is_up_to_date():
    assert places.page() == places.PAGE.read_text("utf-8"), "python tests/tpu/places.py"


@pytest.mark.parametrize(("environment", "devices", "expected"), table("places.tsv"))
def test_each_place_is_told_by_its_mark(environment, devices, expected, tmp_path):
    variables = dict(word.split("=", 1) for word in environment.split())
    found = detect(variables, machine(tmp_path, devices))
    accelerator = found.accelerator and found.accelerator.name
    said = (found.kind, found.mark, accelerator, found.replicas, found.tpu)
    assert " | ".join(map(str, said)) == expected
    compile(found.code, "advice", "exec")
    assert found.advice


def test_contradictory_marks_an_address_wins_over_a_device(tmp_path):
    marks = [
        ("COLAB_TPU_ADDR", "10.0.0.2:8470", "colab_node"),
        ("COLAB_TPU_1VM", "1", "colab_vm"),
        ("KAGGLE_URL_BASE", "https://example.org", "kaggle"),
        ("TPU_NAME", "10.0.0.2:8470", "node"),
    ]
    everything = {name: value for name, value, _ in marks} | {"ISTPUVM": "1"}
    root = machine(tmp_path, "dev/accel0 dev/nvidia0")
    for name, _, kind in marks:
        assert detect(everything, root).kind == kind
        del everything[name]
    assert detect(everything, root).kind == "tpu_vm"


def test_what_tensorflow_needs_before_its_import(tmp_path):
    plug_in = {"PJRT_DEVICE": "TPU", "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true"}
    root = machine(tmp_path, "dev/accel0")
    assert detect({"TPU_ACCELERATOR_TYPE": "v5e-1"}, root).environment == plug_in
    assert detect({"TPU_ACCELERATOR_TYPE": "v3-8"}, root).environment == {}
    lead = {"TPU_NAME": "x", "TPU_LOAD_LIBRARY": "0"}
    assert detect(lead, root).environment == {"TPU_LOAD_LIBRARY": "0"}
    assert detect({"COLAB_TPU_ADDR": "10.0.0.2:8470"}, root).environment == {}


@pytest.mark.parametrize(("environment", "devices", "words"), table("advice.tsv"))
def test_advice_fits_the_place(environment, devices, words, tmp_path):
    variables = dict(word.split("=", 1) for word in environment.split())
    found = detect(variables, machine(tmp_path, devices))
    assert [word for word in words.split(" | ") if word not in repr(found)] == []
    assert (found.code == "") == found.name.startswith("worker 3")


def test_a_place_reads_well_as_text_and_as_a_table(tmp_path):
    found = detect({"TPU_ACCELERATOR_TYPE": "v5e-8"}, machine(tmp_path, "dev/accel0"))
    assert f"{found!r}\n" == pathlib.Path(__file__).with_name("tpu_vm.txt").read_text("utf-8")
    page = found._repr_html_()
    assert page.startswith("<table>")
    assert page.count("<tr>") == 7
    hostile = detect({"TPU_NAME": "<script>alert(1)</script>"}, tmp_path)
    assert "<script>" not in hostile._repr_html_()


NAMES = [
    *("COLAB_TPU_ADDR", "COLAB_TPU_1VM", "COLAB_RELEASE_TAG", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"),
    *("KUBERNETES_SERVICE_HOST", "KAGGLE_URL_BASE", "KAGGLE_KERNEL_RUN_TYPE", "ISTPUVM"),
    *("TPU_NAME", "TPU_ACCELERATOR_TYPE", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES"),
    *("TPU_LOAD_LIBRARY", "TPU_PROCESS_ADDRESSES", "TPU_HOST_BOUNDS", "MEGASCALE_NUM_SLICES"),
]
VALUES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            *("", " ", "0", "1", "local", "grpc://", "grpc://a:b:c,,", ":8470", "[::1]:8470"),
            *("v5e-1", "v3-32", "v9-9", "TPU \u2603", "\ud800", "a" * 100_000, "h," * 5000, "\0"),
            *("9" * 5000, "2,2,1", "WARNING: none, set it", "tpu7x-8"),
        ]
    ),
)
FILES = st.lists(
    st.sampled_from(
        [
            *("dev/accel0", "dev/vfio/1", "dev/vfio/vfio", "dev/nvidia0", "lib/libtpu.so"),
            *("dev/dxg", "bus:v5e", "bus:v3"),
        ]
    ),
    unique=True,
    max_size=3,
)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(environment=st.dictionaries(st.sampled_from(NAMES), VALUES), files=FILES)
def test_no_environment_makes_it_fail(environment, files, tmp_path_factory):
    found = detect(environment, machine(tmp_path_factory.mktemp("root"), " ".join(files)))
    assert found.kind in place._TEXTS["names"]
    assert found.advice
    assert len(repr(found)) < 3000
    assert found._repr_html_()
    assert found.replicas is None or found.replicas >= 1
    compile(found.code, "advice", "exec")


def test_a_file_system_that_can_not_be_read_has_no_devices(tmp_path):
    (tmp_path / "dev").write_text("a file where a folder is expected")
    assert detect({}, tmp_path).kind == "cpu"
    assert detect({}, tmp_path / "missing").kind == "cpu"
    broken = machine(tmp_path / "b", "dev/accel0")
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
