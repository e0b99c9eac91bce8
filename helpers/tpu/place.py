"""Where this kernel runs, recognised by environment variables and the system's files alone.

It uses neither network nor TensorFlow: asking TensorFlow for TPUs takes hold of the TPU, and a
machine without one may wait for minutes. ``helpers.runtime`` passes ``detect`` on. None of the
places was visited: ``tests/tpu/places.toml`` has what others report of them.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import tomllib
from collections.abc import Mapping

from helpers.base.language import translated
from tpu_preflight.chips.hardware import ALL_CHIPS, Slice, UnknownAccelerator, slice_of

LOCAL = ("colab_vm", "kaggle", "tpu_vm")  # a TPU in this machine
UNUSABLE = ("no_device", "tpu7x")  # a TPU is there, but not for TensorFlow
ATTACHED = (*LOCAL, "pod_slice", *UNUSABLE)
# Environment variables that tell where this is.
COLAB_MARKS = ("COLAB_TPU_ADDR", "COLAB_TPU_1VM", "COLAB_RELEASE_TAG", "VERTEX_PRODUCT")
KAGGLE_MARKS = ("KAGGLE_KERNEL_RUN_TYPE", "KAGGLE_URL_BASE", "ISTPUVM")
TPU_MARKS = ("TPU_NAME", "TPU_ACCELERATOR_TYPE", "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID")
MARKS = COLAB_MARKS + KAGGLE_MARKS + TPU_MARKS
_TEXTS = tomllib.loads(pathlib.Path(__file__).with_name("places.toml").read_text("utf-8"))
# Google's vendor number on the PCI bus (its network cards have it, too), and the device numbers
# that jax 0.10 knows (jax/_src/hardware_utils.py). v2 and v3 share one.
_BUS = "sys/bus/pci/devices"
_GOOGLE = "0x1ae0"
_CHIP_BY_DEVICE: dict[str, str] = {}
for _name, _chip in ALL_CHIPS.items():
    _CHIP_BY_DEVICE.update(dict.fromkeys(_chip.pci, _name))


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a kernel runs."""

    kind: str  # ``cpu``, ``node``, or one of `ATTACHED`
    mark: str  # the signs by which it was recognised
    accelerator: Slice | None = None  # the TPU, if its type is known
    # What TensorFlow's resolver is given: ``"local"``, an address or a name; None without TPU.
    tpu: str | None = None
    # Variables that TensorFlow must find when it is imported here.
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hint: str = ""  # what else must be known, a sentence

    @property
    def name(self) -> str:
        """The kind in words."""
        return _TEXTS["names"][self.kind]

    @property
    def advice(self) -> str:
        """What to do, in sentences."""
        return f"{self.hint} {_TEXTS['advice'][self.kind]}".lstrip()

    @property
    def replicas(self) -> int | None:
        """How many replicas a strategy has here; None if only the TPU itself can say."""
        if self.accelerator:
            return self.accelerator.replicas
        return 1 if self.kind in ("cpu", *UNUSABLE) else None

    def __repr__(self) -> str:
        rows = {
            "place": self.name,
            "told by": self.mark,
            "TPU": self._accelerator_text(),
            "replicas": str(self.replicas or "known once connected"),
            "needs": self._needs_text(),
            "advice": self.advice,
        }
        lines = []
        for label, text in rows.items():
            if text:
                lines.append(f"{translated(label):9} {translated(text)}")
        return "\n".join(lines)

    def _accelerator_text(self) -> str:
        if self.accelerator:
            return repr(self.accelerator)
        if self.tpu:
            return "its type can't be told from here"
        return ""

    def _needs_text(self) -> str:
        if not self.environment:
            return ""
        settings = ", ".join(f"{name}={value}" for name, value in self.environment.items())
        return f"{settings} before TensorFlow is imported"


def _names(root: str | os.PathLike, folder: str, pattern: str) -> list[str]:
    """List names in a folder that fit a pattern; a folder that can't be read has none."""
    names = []
    with contextlib.suppress(OSError):
        for path in pathlib.Path(root, folder).iterdir():
            if re.fullmatch(pattern, path.name):
                names.append(path.name)
        return sorted(names)
    return []


def _chips(root: str | os.PathLike) -> list[str] | None:
    """List this machine's chips on the PCI bus by kind; None where the bus can't be seen."""
    names = _names(root, _BUS, ".*")
    if not names:
        return None
    chips = []
    try:
        for name in names:
            device = pathlib.Path(root, _BUS, name)
            if (device / "vendor").read_text().strip() == _GOOGLE:
                number = (device / "device").read_text().strip()
                if number in _CHIP_BY_DEVICE:
                    chips.append(_CHIP_BY_DEVICE[number])
    except OSError:
        return None
    return chips


def _slice(accelerator_type: str) -> Slice | None:
    with contextlib.suppress(UnknownAccelerator):
        return slice_of(accelerator_type)
    return None


def is_address(name: str) -> bool:
    """Tell an address of a TPU (it has a scheme, a port, or is in numbers) from a name."""
    return bool(re.fullmatch(r"grpc://.+|[^/]+:\d+|[\d.]+", name))


def _kind(marks: Mapping[str, str], device: str, chips: list[str]) -> str:
    """Tell what kind of place has a TPU in this machine; ``cpu`` if it has none."""
    enterprise = marks.get("VERTEX_PRODUCT") == "COLAB_ENTERPRISE"
    if "COLAB_TPU_1VM" in marks or (enterprise and device):
        return "colab_vm"
    kaggle = any(name.startswith("KAGGLE") for name in marks)
    kaggle_has_tpu = marks.get("ISTPUVM", "1" if device else "0") != "0"
    if kaggle and kaggle_has_tpu:
        return "kaggle"
    if not device:
        return "no_device" if chips else "cpu"
    accelerator_type = marks.get("TPU_ACCELERATOR_TYPE", "")
    if "tpu7x" in chips or accelerator_type.startswith("tpu7x"):
        return "tpu7x"
    return "pod_slice" if _of_several_hosts(marks) else "tpu_vm"


def _of_several_hosts(marks: Mapping[str, str]) -> bool:
    hostnames = marks.get("TPU_WORKER_HOSTNAMES", "")
    if "," in hostnames and not hostnames.startswith("WARNING"):
        return True
    if marks.get("TPU_WORKER_ID", "0") != "0":
        return True
    accelerator = _slice(marks.get("TPU_ACCELERATOR_TYPE", ""))
    return accelerator is not None and accelerator.hosts > 1


def _device_file(root: str | os.PathLike, chips: list[str] | None, accelerator_type: str) -> str:
    """Find the file by which a program opens the TPU; empty if there is none."""
    # Other drivers make such files: /dev/vfio has network cards (ray-project/ray#65034, 2026-07),
    # an AMD NPU was seen as /dev/accel0 (ray-project/ray#45302, 2025-12). So the chips count, as
    # for jax; where the bus can't be seen, the variables do.
    if chips == []:
        return ""
    for name in _names(root, "dev", r"accel\d+"):
        return f"/dev/{name}"
    if chips or accelerator_type:
        for name in _names(root, "dev/vfio", r"\d+"):
            return f"/dev/vfio/{name}"
    return ""


def _needs_plugin(accelerator: Slice | None, chips: list[str], device: str) -> bool:
    """Tell whether TensorFlow drives this TPU by the plug-in interface PJRT.

    It does on a v5e, v5p or v6e (keras-io's example distributed_embedding_tf.py, 2025-09). Not
    confirmed on a TPU.
    """
    chip = ""
    if accelerator:
        chip = accelerator.chip.name
    elif chips:
        chip = chips[0]
    if not chip:
        return "accel" not in device
    return chip not in ("v2", "v3", "v4")


def detect(environment: Mapping[str, str] = os.environ, root: str | os.PathLike = "/") -> Place:
    """Find out where this kernel runs, by which marks, and what to do there; never raises.

    It reads environment variables, and names and files in ``dev`` and ``sys`` below ``root``, so it
    neither waits nor takes hold of a TPU. An address wins over a device.
    """
    marks = {}
    for name in MARKS:
        value = environment.get(name, "").strip()
        if value:
            marks[name] = value
    signs = [f"{name}={value[:40]}" for name, value in marks.items() if value.isprintable()]
    for target in (marks.get("COLAB_TPU_ADDR", ""), marks.get("TPU_NAME", "")):
        if is_address(target):
            address = f"grpc://{target.removeprefix('grpc://')}"
            return Place("node", ", ".join(signs), tpu=address)

    accelerator_type = marks.get("TPU_ACCELERATOR_TYPE", "")
    chips_on_bus = _chips(root)
    chips = chips_on_bus or []
    device = _device_file(root, chips_on_bus, accelerator_type)
    kind = _kind(marks, device, chips)
    if kind == "cpu":
        hint = ""
        for name in ("TPU_NAME", "TPU_ACCELERATOR_TYPE", "ISTPUVM"):
            if name in marks:
                hint = _TEXTS["hints"]["stray"].format(name=name)
                break
        return Place(kind, ", ".join(signs) or "no sign of a TPU", hint=hint)

    if device:
        signs.append(device)
    if chips:
        signs.append(f"{len(chips)} {chips[0]} chips on the PCI bus")
    accelerator = _slice(accelerator_type)
    if kind in LOCAL and accelerator is None and len(chips) in (1, 8):
        # A whole v5e or v6e; four chips may be one host's of a larger slice.
        accelerator = _slice(f"{chips[0]}-{len(chips)}")
    tpu = None
    needs = {}
    if kind in LOCAL:
        tpu = "local"
        if _needs_plugin(accelerator, chips, device):
            needs = {"PJRT_DEVICE": "TPU", "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true"}
    elif kind == "pod_slice":
        # The program on worker 0 leaves its own machine's TPU to the workers (Cloud TPU, "Run
        # TensorFlow on TPU Pod slices"). Not confirmed on a TPU.
        needs = {"TPU_LOAD_LIBRARY": "0"}
        if environment.get("TPU_LOAD_LIBRARY") == "0":
            tpu = marks.get("TPU_NAME")
    hint = ""
    if kind == "tpu_vm" and accelerator is None:
        hint = _TEXTS["hints"]["unknown"]
    return Place(
        kind=kind,
        mark=", ".join(signs),
        accelerator=accelerator,
        tpu=tpu,
        environment=needs,
        hint=hint,
    )
