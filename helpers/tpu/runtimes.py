"""The images of TPU VMs and the TensorFlow in them, read from ``runtimes.toml``."""

import dataclasses
import re

from helpers.base.errors import CourseError
from helpers.tpu.hardware import Slice, facts, slice_of

_FACTS = facts("runtimes.toml")
RELEASES = _FACTS["images"]["releases"]
BASE_IMAGES = _FACTS["base"]["images"]
WHEELS = _FACTS["wheels"]["releases"]
SOURCE = "{source}, {checked}".format(**_FACTS["images"])


@dataclasses.dataclass(frozen=True)
class Runtime:
    """How a TPU VM comes to a TensorFlow.

    Attributes:
        version: The image, for ``TpuVm.version``.
        install: What to type on the VM; empty when the image brings TensorFlow along.
    """

    version: str
    install: str = ""

    def __repr__(self) -> str:
        return f"{self.version}, then on the VM: {self.install}" if self.install else self.version


def _before_pjrt(release: str) -> bool:
    """Tell whether a release came before the images for PJRT."""

    def number(version: str) -> list[int]:
        return [int(part) for part in version.split(".")[:2]]

    return number(release) < number(_FACTS["pjrt"]["first"])


def _image(release: str, accelerator: Slice, interface: str = "-pjrt") -> str:
    """Name the image that has a TensorFlow for a TPU, through PJRT where that is there."""
    pod = "-pod" * (accelerator.hosts > 1)
    return f"tpu-vm-tf-{release}{pod}{'' if _before_pjrt(release) else interface}"


def runtime(tensorflow: str, accelerator_type: str) -> Runtime:
    """Find the image for a TensorFlow on a TPU: one that has it, or one to install it on.

    Args:
        tensorflow: Its version, such as ``tf.__version__``.
        accelerator_type: Such as ``v5e-8``.

    Returns:
        The image and what to install on it. Installing ``tensorflow-tpu`` on a base image was not
        confirmed on a TPU by us.

    Raises:
        UnknownAccelerator: There is no such type of TPU.
        CourseError: No image and no package has this version, or the TPU needs a newer one.
    """
    accelerator = slice_of(accelerator_type)
    if tensorflow in RELEASES:
        version = _image(tensorflow, accelerator)
        check(version, accelerator)
        return Runtime(version)
    if tensorflow not in WHEELS:
        raise CourseError(
            f"No TPU VM image and no package tensorflow-tpu has TensorFlow {tensorflow[:40]}.",
            f"Images: {RELEASES[0]} to {RELEASES[-1]} ({SOURCE}); packages: {', '.join(WHEELS)}.",
            "Train with one of these versions.",
        )
    install = (
        "pip uninstall -y tensorflow && "
        f"pip install tensorflow-tpu=={tensorflow} && "
        f"pip install --no-deps 'tf-keras~={tensorflow.rpartition('.')[0]}.0'"
    )
    return Runtime(BASE_IMAGES[accelerator.chip.name], install)


def check(version: str, accelerator: Slice) -> None:
    """Refuse an image that does not exist or does not fit a TPU.

    Args:
        version: The image.
        accelerator: The TPU.

    Raises:
        CourseError: The image is unknown, too old for the TPU, or made for another device
            interface or number of hosts.
    """
    chip = accelerator.chip.name
    if version == BASE_IMAGES[chip]:
        return
    match = re.fullmatch(r"tpu-vm-tf-(\d+\.\d+\.\d+)(-pod)?(-pjrt|-se)?", version, re.ASCII)
    if not match or match[1] not in RELEASES:
        raise CourseError(
            f"{version[:60]!r} is no TPU VM image that we know.",
            f"For a {chip} they are {BASE_IMAGES[chip]} (without TensorFlow), and "
            f"tpu-vm-tf-x.y.z[-pod][-pjrt] with TensorFlow {RELEASES[0]} to {RELEASES[-1]} "
            f"({SOURCE}).",
            "helpers.tpu.cloud.runtime(tf.__version__, accelerator_type) finds yours; "
            "`gcloud compute tpus tpu-vm versions list --zone=ZONE` shows what there is today.",
        )
    release, pod, interface = match.groups(default="")
    pjrt = _FACTS["pjrt"]
    only_pjrt, before, hosts = chip in pjrt["chips"], _before_pjrt(release), accelerator.hosts
    take = f"Take {_image(release, accelerator, '-pjrt' if only_pjrt else interface)}."
    for mistaken, what, why, fix in (
        (
            only_pjrt and before,
            f"TensorFlow {release} can't run on a {chip}.",
            f"A {chip} needs TensorFlow {pjrt['first']} or newer",
            f"Take {_image(RELEASES[-1], accelerator)}, or an older TPU.",
        ),
        (
            only_pjrt and interface != "-pjrt",
            f"{version} is not made for a {chip}.",
            f"{', '.join(pjrt['chips'])} are driven through PJRT alone",
            take,
        ),
        (
            before and interface,
            f"{version} does not exist.",
            f"Images before TensorFlow {pjrt['first']} have no choice of device interface",
            take,
        ),
        (
            hosts > 1 and not pod,
            f"{version} is for one host; a {accelerator.name} has {hosts}.",
            "Slices of several hosts need an image with -pod",
            take,
        ),
        (
            hosts == 1 and pod,
            f"{version} is for pod slices; a {accelerator.name} has one host.",
            "-pod stands for slices of several hosts",
            take,
        ),
    ):
        if mistaken:
            raise CourseError(what, f"{why} ({SOURCE}).", fix)
