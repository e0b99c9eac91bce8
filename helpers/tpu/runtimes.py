"""The images of TPU VMs and the TensorFlow in them, read from ``runtimes.toml``."""

import dataclasses
import re

from helpers.base.errors import CourseError
from helpers.base.settings import DRIVER
from helpers.tpu.facts import facts
from tpu_preflight.chips.hardware import Slice, slice_of

_FACTS = facts("runtimes.toml")
RELEASES = _FACTS["images"]["releases"]
BASE_IMAGES = _FACTS["base"]["images"]
WHEELS = _FACTS["wheels"]["releases"]
SOURCE = "{source}, {checked}".format(**_FACTS["images"])


@dataclasses.dataclass(frozen=True)
class Runtime:
    """How a TPU VM comes to a TensorFlow: by its image alone, or by what to ``install`` on it."""

    version: str
    install: str = ""

    def __repr__(self) -> str:
        if not self.install:
            return self.version
        commands = self.install.replace(" && ", " &&\n    ")
        return f"{self.version}, then on the VM:\n    {commands}"


def _before_pjrt(release: str) -> bool:
    """Tell whether a release came before the images for PJRT."""
    return RELEASES.index(release) < RELEASES.index(f"{_FACTS['pjrt']['first']}.0")


def _image(release: str, accelerator: Slice, interface: str = "-pjrt") -> str:
    """Name the image that has a TensorFlow for a TPU, through PJRT where that is there."""
    pod = "-pod" * (accelerator.hosts > 1)
    return f"tpu-vm-tf-{release}{pod}{'' if _before_pjrt(release) else interface}"


def runtime(tensorflow: str, accelerator_type: str) -> Runtime:
    """Find the image for a TensorFlow on a TPU: one that has it, or one to install it on.

    We have not tried ``tensorflow-tpu`` on a base image with a TPU.

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
    driver = f" {DRIVER}" if tensorflow == WHEELS[-1] else ""  # older ones name theirs
    install = (
        "pip uninstall -y tensorflow && "
        f"pip install tensorflow-tpu=={tensorflow}{driver} && "
        f"pip install --no-deps 'tf-keras~={tensorflow.rpartition('.')[0]}.0'"
    )
    return Runtime(BASE_IMAGES[accelerator.chip.name], install)


def check(version: str, accelerator: Slice) -> None:
    """Refuse an image that does not exist or does not fit a TPU.

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
    if only_pjrt and before:
        raise CourseError(
            f"TensorFlow {release} can't run on a {chip}.",
            f"A {chip} needs TensorFlow {pjrt['first']} or newer ({SOURCE}).",
            f"Take {_image(RELEASES[-1], accelerator)}, or an older TPU.",
        )
    several = f"A {accelerator.name} has {hosts} host{'s' * (hosts > 1)}"
    reasons = {
        f"{', '.join(pjrt['chips'])} work through PJRT alone": only_pjrt and interface != "-pjrt",
        f"Images before TensorFlow {pjrt['first']} have no choice of device interface": (
            before and interface
        ),
        f"{several}, and slices of several need an image with -pod": hosts > 1 and not pod,
        f"{several}, and -pod is for slices of several": hosts == 1 and pod,
    }
    if wrong := [reason for reason, holds in reasons.items() if holds]:
        raise CourseError(
            f"{version} does not fit a {accelerator.name}.",
            f"{'. '.join(wrong)} ({SOURCE}).",
            f"Take {_image(release, accelerator, '-pjrt' if only_pjrt else interface)}.",
        )
