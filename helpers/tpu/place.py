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
MARKS = (
    *("COLAB_TPU_ADDR", "COLAB_TPU_1VM", "COLAB_RELEASE_TAG", "VERTEX_PRODUCT"),
    *("KAGGLE_KERNEL_RUN_TYPE", "KAGGLE_URL_BASE", "ISTPUVM"),
    *("TPU_NAME", "TPU_ACCELERATOR_TYPE", "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID"),
)
_TEXTS = tomllib.loads(pathlib.Path(__file__).with_name("places.toml").read_text("utf-8"))
# Google's vendor number on the PCI bus (its network cards have it, too), and the device numbers
# that jax 0.10 knows (jax/_src/hardware_utils.py). v2 and v3 share one.
_BUS, _GOOGLE = "sys/bus/pci/devices", "0x1ae0"
_PCI = {number: name for name, chip in ALL_CHIPS.items() for number in chip.pci}


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
        needs = ", ".join(f"{name}={value}" for name, value in self.environment.items())
        unknown = "its type can't be told from here" if self.tpu else ""
        rows = {
            "place": self.name,
            "told by": self.mark,
            "TPU": repr(self.accelerator) if self.accelerator else unknown,
            "replicas": f"{self.replicas or 'known once connected'}",
            "needs": needs and f"{needs} before TensorFlow is imported",
            "advice": self.advice,
        }
        said = {translated(name): translated(text) for name, text in rows.items() if text}
        return "\n".join(f"{name:9} {text}" for name, text in said.items())


def _names(root: str | os.PathLike, folder: str, pattern: str) -> list[str]:
    """List names in a folder that fit a pattern; a folder that can't be read has none."""
    with contextlib.suppress(OSError):
        found = [path.name for path in pathlib.Path(root, folder).iterdir()]
        return sorted(name for name in found if re.fullmatch(pattern, name))
    return []


def _chips(root: str | os.PathLike) -> list[str] | None:
    """List this machine's chips on the PCI bus by kind; None where the bus can't be seen."""
    devices = [pathlib.Path(root, _BUS, name) for name in _names(root, _BUS, ".*")]
    with contextlib.suppress(OSError):
        google = [x for x in devices if (x / "vendor").read_text().strip() == _GOOGLE]
        numbers = [(x / "device").read_text().strip() for x in google]
        return [_PCI[x] for x in numbers if x in _PCI] if devices else None
    return None


def _slice(accelerator_type: str) -> Slice | None:
    with contextlib.suppress(UnknownAccelerator):
        return slice_of(accelerator_type)
    return None


def is_address(name: str) -> bool:
    """Tell an address of a TPU (it has a scheme, a port, or is in numbers) from a name."""
    return bool(re.fullmatch(r"grpc://.+|[^/]+:\d+|[\d.]+", name))


def _kind(given: Mapping[str, str], device: str, chips: list[str]) -> str:
    """Tell what kind of place has a TPU in this machine; ``cpu`` if it has none."""
    enterprise = given.get("VERTEX_PRODUCT") == "COLAB_ENTERPRISE"
    if "COLAB_TPU_1VM" in given or (enterprise and device):
        return "colab_vm"
    kaggle = any(name.startswith("KAGGLE") for name in given)
    if kaggle and given.get("ISTPUVM", "1" if device else "0") != "0":
        return "kaggle"
    if not device:
        return "no_device" if chips else "cpu"
    named, hosts = given.get("TPU_ACCELERATOR_TYPE", ""), given.get("TPU_WORKER_HOSTNAMES", "")
    if "tpu7x" in chips or named.startswith("tpu7x"):
        return "tpu7x"
    several = [
        "," in hosts and not hosts.startswith("WARNING"),
        given.get("TPU_WORKER_ID", "0") != "0",
        (told := _slice(named)) and told.hosts > 1,
    ]
    return "pod_slice" if any(several) else "tpu_vm"


def detect(environment: Mapping[str, str] = os.environ, root: str | os.PathLike = "/") -> Place:
    """Find out where this kernel runs, by which marks, and what to do there; never raises.

    It reads environment variables, and names and files in ``dev`` and ``sys`` below ``root``, so it
    neither waits nor takes hold of a TPU. An address wins over a device.
    """
    given = {name: value for name in MARKS if (value := environment.get(name, "").strip())}
    marks = [f"{name}={value[:40]}" for name, value in given.items() if value.isprintable()]
    for target in (given.get("COLAB_TPU_ADDR", ""), given.get("TPU_NAME", "")):
        if is_address(target):
            return Place("node", ", ".join(marks), tpu=f"grpc://{target.removeprefix('grpc://')}")

    named, bus = given.get("TPU_ACCELERATOR_TYPE", ""), _chips(root)
    chips, accelerator = bus or [], _slice(named)
    # Other drivers make such files, too: /dev/vfio has network cards (ray-project/ray#65034,
    # 2026-07), an AMD NPU was seen as /dev/accel0 (ray-project/ray#45302, 2025-12). So the chips
    # count, as for jax; where the bus can't be seen, the variables do.
    files = [f"/dev/{name}" for name in _names(root, "dev", r"accel\d+")]
    files += [f"/dev/vfio/{name}" for name in _names(root, "dev/vfio", r"\d+") if chips or named]
    device = "" if bus == [] else "".join(files[:1])
    kind = _kind(given, device, chips)
    if kind == "cpu":
        stray = [name for name in ("TPU_NAME", "TPU_ACCELERATOR_TYPE", "ISTPUVM") if name in given]
        hint = _TEXTS["hints"]["stray"].format(name=stray[0]) if stray else ""
        return Place(kind, ", ".join(marks) or "no sign of a TPU", hint=hint)

    marks += [device] if device else []
    marks += [f"{len(chips)} {chips[0]} chips on the PCI bus"] if chips else []
    if kind in LOCAL and accelerator is None and len(chips) in (1, 8):
        # A whole v5e or v6e; four chips may be one host's of a larger slice.
        accelerator = _slice(f"{chips[0]}-{len(chips)}")
    tpu, needs = ("local" if kind in LOCAL else None), {}
    # On a v5e, v5p or v6e TensorFlow drives the TPU by the plug-in interface PJRT (keras-io's
    # example distributed_embedding_tf.py, 2025-09). Not confirmed on a TPU.
    chip = accelerator.chip.name if accelerator else "".join(chips[:1])
    if tpu and chip not in ("v2", "v3", "v4") and (chip or "accel" not in device):
        needs = {"PJRT_DEVICE": "TPU", "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true"}
    if kind == "pod_slice":
        # The program on worker 0 leaves its own machine's TPU to the workers (Cloud TPU, "Run
        # TensorFlow on TPU Pod slices"). Not confirmed on a TPU.
        needs = {"TPU_LOAD_LIBRARY": "0"}
        tpu = given.get("TPU_NAME") if environment.get("TPU_LOAD_LIBRARY") == "0" else None
    hint = _TEXTS["hints"]["unknown"] if kind == "tpu_vm" and not accelerator else ""
    return Place(kind, ", ".join(marks), accelerator, tpu, needs, hint)
