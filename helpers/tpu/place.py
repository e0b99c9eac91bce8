"""Where this kernel runs, recognised by environment variables and device files alone.

It uses neither network nor TensorFlow: asking TensorFlow for TPUs takes hold of the TPU, and a
machine without one may wait for minutes. ``helpers.runtime`` passes ``detect`` on.
"""

import dataclasses
import ipaddress
import json
import os
import pathlib
import re
from collections.abc import Mapping

from helpers.base import html
from helpers.tpu.hardware import CHIPS, Slice, UnknownAccelerator, facts, slice_of

# Chips on the PCI bus: Google's vendor number, and the device numbers that jax 0.10 knows
# (jax/_src/hardware_utils.py). v2 and v3 share the first.
_GOOGLE = "0x1ae0"
_PCI = {"0x0027": "", "0x005e": "v4", "0x0062": "v5p", "0x0063": "v5e", "0x006f": "v6e"}

LOCAL = ("colab_vm", "kaggle", "tpu_vm", "gke_vm")
_TEXTS = facts("places.toml")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a kernel runs.

    Attributes:
        kind: ``cpu``, ``gpu``, ``colab_node``, ``rehearsal``, ``colab_vm``, ``kaggle``,
            ``tpu_vm``, ``pod_slice``, ``node``, ``gke_node`` or ``gke_vm``.
        name: The same in words.
        mark: The sign by which it was recognised.
        accelerator: The TPU, if its type is known.
        replicas: How many replicas a strategy has here; None if only the TPU itself can say.
        tpu: What `connect` and TensorFlow's resolver are given: ``"local"``, an address or a
            name; None without TPU.
        environment: Variables that TensorFlow must find when it is imported here.
        advice: What to do, in sentences.
        code: Lines of Python that make a strategy here.
    """

    kind: str
    name: str
    mark: str
    accelerator: Slice | None
    replicas: int | None
    tpu: str | None
    environment: Mapping[str, str]
    advice: str
    code: str

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
            f"{name:9} {text}".replace("\n", "\n" + " " * 10) for name, text in self._rows()
        )

    def _repr_html_(self) -> str:
        return html.render("place.html", rows=self._rows())


class _Files:
    """Reads a file system below a root; what can't be read counts as absent."""

    def __init__(self, root: str | os.PathLike) -> None:
        self._root = pathlib.Path(root)

    def names(self, folder: str, pattern: str) -> list[str]:
        """Names in a folder that fit a pattern entirely, sorted."""
        try:
            found = [path.name for path in (self._root / folder).iterdir()]
        except (OSError, ValueError):
            return []
        return sorted(name for name in found if re.fullmatch(pattern, name))

    def text(self, path: str) -> str:
        """The first characters of a file, without the spaces around them."""
        try:
            with (self._root / path).open(encoding="utf-8", errors="replace") as file:
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


def _on_the_bus(files: _Files) -> tuple[Slice | None, int]:
    """Find this machine's own chips on the PCI bus: as a slice, if that exists, and how many."""
    devices = [
        files.text(f"sys/bus/pci/devices/{name}/device")
        for name in files.names("sys/bus/pci/devices", ".*")
        if files.text(f"sys/bus/pci/devices/{name}/vendor") == _GOOGLE
    ]
    chips = [_PCI[device] for device in devices if device in _PCI]
    kind = chips[0] if len(set(chips)) == 1 else ""
    size = len(chips) * CHIPS[kind].counted_per_chip if kind else 0
    return _slice(f"{kind}-{size}"), len(chips)


def _device(environment: Mapping[str, str], files: _Files) -> str:
    """Find the device file of a TPU; empty if there is none.

    /dev/vfio has devices of other kinds, too, so there a second sign is needed.
    """
    if names := files.names("dev", r"accel\d+"):
        return f"/dev/{names[0]}"
    names = files.names("dev/vfio", r"\d+")
    _, chips = _on_the_bus(files)
    library = files.names("lib", r"libtpu\.so") or files.names("usr/lib", r"libtpu\.so")
    if names and (chips or library or environment.get("TPU_ACCELERATOR_TYPE")):
        return f"/dev/vfio/{names[0]}"
    return ""


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


def _recognise(
    environment: Mapping[str, str], files: _Files
) -> tuple[str, str, str | None, Slice | None]:
    """Find kind, mark, what the resolver is given, and the TPU. The most explicit mark wins."""

    def mark(name: str) -> str:
        return f"{name}={_short(environment[name])}" if environment.get(name) else ""

    def has(name: str) -> bool:
        return bool(environment.get(name, "").strip())

    device, told = _device(environment, files), _slice(environment.get("TPU_ACCELERATOR_TYPE", ""))
    here, _ = _on_the_bus(files)
    tpu_name = environment.get("TPU_NAME", "").strip()
    if has("COLAB_TPU_ADDR"):
        reached = address(environment["COLAB_TPU_ADDR"])
        host = reached.removeprefix("grpc://").rpartition(":")[0]
        if host in ("localhost", "[::1]") or host.startswith("127."):
            return "rehearsal", "COLAB_TPU_ADDR with this machine's own address", reached, None
        return "colab_node", mark("COLAB_TPU_ADDR"), reached, slice_of("v2-8")
    if has("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"):
        name = "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"
        return "gke_node", mark(name), address(environment[name]), told
    if has("COLAB_TPU_1VM"):
        return "colab_vm", mark("COLAB_TPU_1VM"), "local", told or here
    kaggle = mark("KAGGLE_KERNEL_RUN_TYPE") or mark("KAGGLE_URL_BASE")
    tpu = mark("ISTPUVM") or mark("TPU_PROCESS_ADDRESSES") or mark("TPU_WORKER_ID") or device
    if kaggle and tpu and environment.get("ISTPUVM") != "0":
        return "kaggle", f"{kaggle}, {tpu}", "local", told or here
    if tpu_name and tpu_name != "local":
        if is_address(tpu_name):
            return "node", mark("TPU_NAME"), address(tpu_name), told
        if environment.get("TPU_LOAD_LIBRARY") == "0" or device:
            second = mark("TPU_LOAD_LIBRARY") or device
            return "pod_slice", f"{mark('TPU_NAME')}, {second}", tpu_name, told
        return "node", mark("TPU_NAME"), tpu_name, told
    named = [x for x in environment.get("TPU_WORKER_HOSTNAMES", "").split(",") if x.strip()]
    hosts = max(len(named), told.hosts if told else 1)
    if device and hosts > 1:
        return "pod_slice", f"{device}, one of {hosts} hosts", None, told
    if device and has("KUBERNETES_SERVICE_HOST"):
        return "gke_vm", f"{device}, {mark('KUBERNETES_SERVICE_HOST')}", "local", told or here
    if device:
        return "tpu_vm", device, "local", told or here
    if gpus := files.names("dev", r"nvidia\d+|kfd|dxg"):
        return "gpu", f"/dev/{gpus[0]}", None, None
    lead = kaggle or mark("COLAB_RELEASE_TAG")
    return "cpu", f"no sign of a TPU{f', {lead}' if lead else ''}", None, None


def _worker(environment: Mapping[str, str]) -> str:
    return _short(environment.get("TPU_WORKER_ID", "").strip() or "0")


def _needs(kind: str, accelerator: Slice | None) -> dict[str, str]:
    """List the variables that TensorFlow must find when it is imported.

    On a v5e, v5p or v6e it drives the TPU by the plug-in interface PJRT (keras-io's example
    distributed_embedding_tf.py, 2025-09); the lead of a pod slice must leave the TPU of its own
    machine to the workers (Cloud TPU, "Run TensorFlow on TPU Pod slices"). Not confirmed on a TPU.
    """
    if kind == "pod_slice":
        return {"TPU_LOAD_LIBRARY": "0"}
    if kind not in LOCAL or (accelerator and accelerator.chip.name in ("v2", "v3", "v4")):
        return {}
    return {"PJRT_DEVICE": "TPU", "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true"}


def _advise(kind: str, tpu: str | None, environment: Mapping[str, str]) -> tuple[str, str]:
    """Give the advice in sentences, and the lines that make a strategy."""
    case = kind
    if kind == "pod_slice":
        lead = "lead" if tpu else "lead_without_name"
        case = lead if _worker(environment) == "0" else "worker"
    elif kind in LOCAL or kind.endswith("node"):
        case = "local" if kind in LOCAL else "remote"
    said, code = _TEXTS["advice"][case], _TEXTS["code"].get(case, _TEXTS["code"]["tpu"])
    stray = [x for x in ("TPU_NAME", "TPU_ACCELERATOR_TYPE", "ISTPUVM") if environment.get(x)]
    if kind == "cpu" and stray:
        said = f"{stray[0]} is set, but no TPU is attached to this machine. {said}"
    return said, code.replace("{tpu}", json.dumps(_short(tpu or "NAME")))


def detect(environment: Mapping[str, str] = os.environ, root: str | os.PathLike = "/") -> Place:
    """Find out where this kernel runs, by which mark, and what to do there; never raises.

    It reads environment variables and device files below ``root`` only, so it neither waits nor
    takes hold of a TPU. If marks contradict each other, the most explicit one wins: an address
    before a device.
    """
    files = _Files(root)
    kind, mark, tpu, accelerator = _recognise(environment, files)
    advice, code = _advise(kind, tpu, environment)
    replicas = accelerator.replicas if accelerator else None
    if kind in ("cpu", "rehearsal"):
        replicas = 1
    elif kind == "gpu":
        replicas = len(files.names("dev", r"nvidia\d+")) or 1
    name = _TEXTS["names"][kind].replace("{worker}", _worker(environment))
    needs = _needs(kind, accelerator)
    return Place(kind, name, mark, accelerator, replicas, tpu, needs, advice, code)
