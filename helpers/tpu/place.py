"""Where this kernel runs, recognised by environment variables and the system's files alone.

It uses neither network nor TensorFlow: asking TensorFlow for TPUs takes hold of the TPU, and a
machine without one may wait for minutes. ``helpers.runtime`` passes ``detect`` on. The places it
was tried on, made up from what others report of them, are listed in ``tests/tpu/places.md``.
"""

import dataclasses
import ipaddress
import json
import math
import os
import pathlib
import re
from collections.abc import Mapping

from helpers.base import html
from helpers.base.language import translated
from helpers.tpu.facts import facts
from tpu_preflight.chips.hardware import CHIPS, CHIPS_PER_HOST, Slice, UnknownAccelerator, slice_of

# Chips on the PCI bus: Google's vendor number (its network cards have it, too), and the device
# numbers that jax 0.10 knows (jax/_src/hardware_utils.py). v2 and v3 share the first.
_GOOGLE = "0x1ae0"
_PCI = {
    **{"0x0027": "v3", "0x005e": "v4", "0x0062": "v5p"},
    **{"0x0063": "v5e", "0x006f": "v6e", "0x0076": "tpu7x"},
}

LOCAL = ("colab_vm", "kaggle", "tpu_vm", "gke_vm")
UNUSABLE = ("no_device", "tpu7x", "gke_slice")  # a TPU is there, but not for TensorFlow
ATTACHED = (*LOCAL, "pod_slice", *UNUSABLE)
_TEXTS = facts("places.toml")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a kernel runs."""

    # ``cpu``, ``gpu``, ``colab_node``, ``rehearsal``, ``colab_vm``, ``kaggle``, ``tpu_vm``,
    # ``pod_slice``, ``node``, ``gke_node``, ``gke_vm``, or of `UNUSABLE`.
    kind: str
    name: str  # the same in words
    mark: str  # the sign by which it was recognised
    accelerator: Slice | None  # the TPU, if its type is known
    # How many replicas a strategy has here; None if only the TPU itself can say.
    replicas: int | None
    # What `connect` and TensorFlow's resolver are given: ``"local"``, an address or a name; None
    # without TPU.
    tpu: str | None
    environment: Mapping[str, str]  # variables that TensorFlow must find when it is imported here
    advice: str  # what to do, in sentences
    code: str  # lines of Python that make a strategy here

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("place", self.name), ("told by", self.mark)]
        if self.accelerator:
            rows.append(("TPU", repr(self.accelerator)))
        elif self.kind == "rehearsal":
            rows.append(("TPU", "none; the worker has CPU devices instead of cores"))
        elif self.tpu is not None:
            rows.append(("TPU", "its type can't be told from here"))
        rows.append(
            ("replicas", "known once connected" if self.replicas is None else f"{self.replicas}")
        )
        if self.environment:
            pairs = ", ".join(f"{name}={value}" for name, value in self.environment.items())
            rows.append(("needs", f"{pairs} before TensorFlow is imported"))
        rows.append(("advice", self.advice))
        return [*rows, ("strategy", self.code)] if self.code else rows

    def __repr__(self) -> str:
        return "\n".join(
            f"{translated(name):9} {translated(text)}".replace("\n", "\n" + " " * 10)
            for name, text in self._rows()
        )

    def _repr_html_(self) -> str:
        return html.render("place.html", rows=self._rows())


class _Files:
    """Reads a file system below a root; what can't be read counts as absent."""

    def __init__(self, root: str | os.PathLike) -> None:
        self.root = pathlib.Path(root)

    def names(self, folder: str, pattern: str) -> list[str]:
        """Names in a folder that fit a pattern entirely, sorted."""
        try:
            found = [path.name for path in (self.root / folder).iterdir()]
        except (OSError, ValueError):
            return []
        return sorted(name for name in found if re.fullmatch(pattern, name))

    def text(self, path: str) -> str:
        """The first characters of a file, without the spaces around them."""
        try:
            with (self.root / path).open(encoding="utf-8", errors="replace") as file:
                return file.read(200).strip()
        except (OSError, ValueError):
            return ""


def _short(text: str) -> str:
    """A value from the environment, so that it can be shown."""
    return text if len(text) <= 60 and text.isprintable() else f"{text[:57]!a}..."


def _slice(accelerator_type: str) -> Slice | None:
    try:
        return slice_of(accelerator_type)
    except UnknownAccelerator:
        return None


@dataclasses.dataclass(frozen=True)
class _Chips:
    """TPU chips on the PCI bus: kind (v3 for a v2, too), number, and whether the bus is seen."""

    kind: str
    number: int
    seen: bool

    @property
    def slice(self) -> Slice | None:
        """The slice that they are if no other host belongs to it; None if v2 or v3 or no slice."""
        if self.kind not in CHIPS or self.kind == "v3":
            return None
        return _slice(f"{self.kind}-{self.number * CHIPS[self.kind].counted_per_chip}")

    @property
    def names(self) -> str:
        """The slice that they may be, in words."""
        return "v2-8 or v3-8" if self.kind == "v3" else getattr(self.slice, "name", self.kind)


def _on_the_bus(files: _Files) -> _Chips:
    """Find this machine's own chips on the PCI bus."""
    bus = "sys/bus/pci/devices"
    vendors = {name: files.text(f"{bus}/{name}/vendor") for name in files.names(bus, ".*")}
    devices = [
        files.text(f"{bus}/{name}/device") for name, vendor in vendors.items() if vendor == _GOOGLE
    ]
    chips = [_PCI[device] for device in devices if device in _PCI]
    return _Chips(chips[0] if len(set(chips)) == 1 else "", len(chips), any(vendors.values()))


def _device(environment: Mapping[str, str], files: _Files, chips: _Chips) -> str:
    """Find the device file of a TPU; empty if there is none.

    Other drivers make such files, too: /dev/vfio has network cards and GPUs for virtual machines
    (ray-project/ray#65034, 2026-07), an AMD NPU was seen as /dev/accel0 (ray-project/ray#45302,
    2025-12). So the chips count, as for jax; where the bus can't be seen, a second sign does.
    """
    accel, vfio = files.names("dev", r"accel\d+"), files.names("dev/vfio", r"\d+")
    library = files.names("lib", r"libtpu\.so") or files.names("usr/lib", r"libtpu\.so")
    if chips.seen and not chips.number:
        return ""
    if accel:
        return f"/dev/{accel[0]}"
    if vfio and (chips.number or library or environment.get("TPU_ACCELERATOR_TYPE")):
        return f"/dev/vfio/{vfio[0]}"
    return ""


def _warnings(environment: Mapping[str, str]) -> list[str]:
    """List the variables that hold the text of a failed look-up, as Kaggle's may."""
    names = "TPU_WORKER_HOSTNAMES", "TPU_ACCELERATOR_TYPE"
    return [name for name in names if environment.get(name, "").startswith("WARNING")]


def _hosts(environment: Mapping[str, str], told: Slice | None) -> int | None:
    """Count the slice's machines as the variables tell; None if they tell nothing.

    TPU_HOST_BOUNDS comes first: it tells apart slices of one name (v5litepod-8 on GKE has one host
    or two), and with 1,1,1 a host of a larger slice works alone (pytorch/xla#7714, 2024-07).
    """
    bounds = environment.get("TPU_HOST_BOUNDS", "")
    if re.fullmatch(r"\d{1,4}(,\d{1,4}){2}", bounds):
        return math.prod(map(int, bounds.split(",")))
    names = environment.get("TPU_WORKER_HOSTNAMES", "").split(",")
    worker = environment.get("TPU_WORKER_ID", "")
    counts = [
        0 if _warnings(environment) else len([name for name in names if name.strip()]),
        told.hosts if told else 0,
        int(worker) + 1 if re.fullmatch(r"0*[1-9]\d{0,4}", worker) else 0,
    ]
    return max(counts) or None


def on_google_cloud(root: str | os.PathLike = "/") -> bool:
    """Tell by the firmware whether this is a virtual machine of Google Cloud."""
    return _Files(root).text("sys/class/dmi/id/product_name").startswith("Google")


def is_address(name: str) -> bool:
    """Tell an address of a TPU (it has a scheme, a port, or is in numbers) from a name."""
    first = name.split(",")[0].strip()
    if first.startswith("grpc://") or re.fullmatch(r"[^/]+:\d+", first):
        return True
    try:
        ipaddress.ip_address(first)
    except ValueError:
        return False
    return True


def address(name: str) -> str:
    """Write an address, or several with commas between, with ``grpc://`` before each."""
    parts = (part.strip().removeprefix("grpc://") for part in name.split(","))
    return ",".join(f"grpc://{part}" for part in parts if part)


@dataclasses.dataclass(frozen=True)
class _Found:
    """What was recognised; the first four as in `Place`."""

    kind: str
    mark: str
    tpu: str | None = None
    accelerator: Slice | None = None
    hint: str = ""


def _attached(environment: Mapping[str, str], device: str, chips: _Chips) -> _Found:
    """Tell what a machine with a TPU's device file is: alone, or one of several."""
    pod, kind = environment.get("KUBERNETES_SERVICE_HOST", ""), "tpu_vm"
    if pod:
        device, kind = f"{device}, KUBERNETES_SERVICE_HOST={_short(pod)}", "gke_vm"
    named = environment.get("TPU_ACCELERATOR_TYPE", "")
    if chips.kind == "tpu7x" or named.startswith(("tpu7x", "v7x")):
        return _Found("tpu7x", device)
    told = _slice(named)
    hosts = _hosts(environment, told)
    name = environment.get("TPU_NAME", "").strip()
    if name not in ("", "local") and environment.get("TPU_LOAD_LIBRARY") == "0":
        return _Found("pod_slice", f"TPU_NAME={_short(name)}, TPU_LOAD_LIBRARY=0", name, told)
    if hosts and hosts > 1:
        mark = f"{device}, one of {hosts} hosts"
        if pod:  # where TPU_NAME is the pod's, not that of a TPU at Google Cloud
            return _Found("gke_slice", mark, None, told)
        return _Found("pod_slice", mark, None if name == "local" else name or None, told)
    if told and told.hosts == 1:
        return _Found(kind, device, "local", told)
    # The hosts of a larger slice have four chips each.
    if hosts == 1 or (chips.slice and chips.number != CHIPS_PER_HOST):
        return _Found(kind, device, "local", chips.slice)
    return _Found(kind, device, "local", None, "several" if chips.number else "unknown")


def _recognise(environment: Mapping[str, str], files: _Files, chips: _Chips) -> _Found:
    """Find what this is. The most explicit mark wins."""

    def mark(name: str) -> str:
        return f"{name}={_short(environment[name])}" if environment.get(name) else ""

    def has(name: str) -> bool:
        return bool(environment.get(name, "").strip())

    device = _device(environment, files, chips)
    told = _slice(environment.get("TPU_ACCELERATOR_TYPE", ""))
    tpu_name = environment.get("TPU_NAME", "").strip()
    if has("COLAB_TPU_ADDR"):
        reached = address(environment["COLAB_TPU_ADDR"])
        host = reached.removeprefix("grpc://").rpartition(":")[0]
        if host in ("localhost", "[::1]") or host.startswith("127."):
            return _Found("rehearsal", "COLAB_TPU_ADDR with this machine's own address", reached)
        return _Found("colab_node", mark("COLAB_TPU_ADDR"), reached, slice_of("v2-8"))
    if has("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"):
        name = "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"
        return _Found("gke_node", mark(name), address(environment[name]), told)
    if has("COLAB_TPU_1VM"):
        return _Found("colab_vm", mark("COLAB_TPU_1VM"), "local", told or chips.slice)
    kaggle = mark("KAGGLE_KERNEL_RUN_TYPE") or mark("KAGGLE_URL_BASE")
    tpu = mark("ISTPUVM") or mark("TPU_PROCESS_ADDRESSES") or mark("TPU_WORKER_ID") or device
    if kaggle and tpu and environment.get("ISTPUVM") != "0":
        return _Found("kaggle", f"{kaggle}, {tpu}", "local", told or chips.slice)
    if is_address(tpu_name):
        return _Found("node", mark("TPU_NAME"), address(tpu_name), told)
    if device:
        return _attached(environment, device, chips)
    if chips.number:
        return _Found("no_device", f"{chips.kind or 'TPU'} chips on the PCI bus: {chips.number}")
    if tpu_name not in ("", "local") and environment.get("TPU_LOAD_LIBRARY") == "0":
        signs = f"{mark('TPU_NAME')}, {mark('TPU_LOAD_LIBRARY')}"
        return _Found("pod_slice", signs, tpu_name, told)
    pod = has("KUBERNETES_SERVICE_HOST")  # where a Node would have told its address
    if tpu_name not in ("", "local") and not pod and on_google_cloud(files.root):
        return _Found("node", mark("TPU_NAME"), tpu_name, told)
    if gpus := files.names("dev", r"nvidia\d+|kfd|dxg"):
        return _Found("gpu", f"/dev/{gpus[0]}")
    lead = kaggle or mark("COLAB_RELEASE_TAG") or mark("TPU_NAME")
    lead = lead and f", {lead}"
    return _Found("cpu", f"no sign of a TPU{lead}")


def _worker(environment: Mapping[str, str]) -> str:
    return _short(environment.get("TPU_WORKER_ID", "").strip() or "0")


def _needs(found: _Found, chips: _Chips) -> dict[str, str]:
    """List the variables that TensorFlow must find when it is imported.

    On a v5e, v5p or v6e it drives the TPU by the plug-in interface PJRT (keras-io's example
    distributed_embedding_tf.py, 2025-09); the lead of a pod slice must leave the TPU of its own
    machine to the workers (Cloud TPU, "Run TensorFlow on TPU Pod slices"). Not confirmed on a TPU.
    """
    if found.kind == "pod_slice":
        return {"TPU_LOAD_LIBRARY": "0"}
    chip = found.accelerator.chip.name if found.accelerator else chips.kind
    older = chip in ("v2", "v3", "v4") or (not chip and found.mark.startswith("/dev/accel"))
    if found.kind not in LOCAL or older:
        return {}
    return {"PJRT_DEVICE": "TPU", "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true"}


def _hints(found: _Found, chips: _Chips, environment: Mapping[str, str]) -> list[str]:
    """Write what else must be known of the place, in sentences."""
    texts, said = _TEXTS["hints"], []
    if found.hint:
        words = {"chips": f"{chips.number}", "slices": chips.names}
        said.append(texts[found.hint].format(**words))
    number = environment.get("MEGASCALE_NUM_SLICES", "")
    if found.kind in ATTACHED:
        if re.fullmatch(r"[2-9]|[1-9]\d{1,4}", number):
            said.append(texts["multislice"].format(number=number))
        said += [texts["warning"].format(name=name) for name in _warnings(environment)]
    stray = [x for x in ("TPU_NAME", "TPU_ACCELERATOR_TYPE", "ISTPUVM") if environment.get(x)]
    if found.kind == "cpu" and stray:
        said.append(texts["stray"].format(name=stray[0]))
    return said


def _advise(found: _Found, environment: Mapping[str, str]) -> tuple[str, str]:
    """Give the advice in sentences, and the lines that make a strategy."""
    case = kind = found.kind
    if kind == "pod_slice":
        lead = "lead" if found.tpu else "lead_without_name"
        case = lead if _worker(environment) == "0" else "worker"
    elif kind in LOCAL or kind in ("colab_node", "node", "gke_node"):
        case = "local" if kind in LOCAL else "remote"
    said, code = _TEXTS["advice"][case], _TEXTS["code"].get(case, _TEXTS["code"]["tpu"])
    return said, code.replace("{tpu}", json.dumps(_short(found.tpu or "NAME")))


def detect(environment: Mapping[str, str] = os.environ, root: str | os.PathLike = "/") -> Place:
    """Find out where this kernel runs, by which mark, and what to do there; never raises.

    It reads environment variables, and names and files in ``dev``, ``lib`` and ``sys`` below
    ``root``, so it neither waits nor takes hold of a TPU. If marks contradict each other, the most
    explicit one wins: an address before a device, a device before a name.
    """
    files = _Files(root)
    chips = _on_the_bus(files)
    found = _recognise(environment, files, chips)
    kind, accelerator = found.kind, found.accelerator
    advice, code = _advise(found, environment)
    advice = " ".join([*_hints(found, chips, environment), advice])
    replicas = accelerator.replicas if accelerator else None
    if kind in ("cpu", "rehearsal", "no_device", "tpu7x"):
        replicas = 1
    elif kind == "gpu":
        replicas = len(files.names("dev", r"nvidia\d+")) or 1
    name = _TEXTS["names"][kind].replace("{worker}", _worker(environment))
    needs = _needs(found, chips)
    return Place(kind, name, found.mark, accelerator, replicas, found.tpu, needs, advice, code)
