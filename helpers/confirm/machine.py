"""The machine on which notebook 13 measures: a TPU, or a CPU that stands in for one."""

import dataclasses
import importlib.metadata
from typing import Any

from helpers.base.errors import CourseError
from helpers.tpu.connection import connect
from helpers.tpu.place import ATTACHED, Place, detect
from tpu_preflight.chips.hardware import ALL_CHIPS

TENSORFLOW = "tensorflow"
JAX = "jax"
# What a report says about versions, where it is installed.
PACKAGES = {
    TENSORFLOW: ("tensorflow-tpu", "tensorflow", "libtpu"),
    JAX: ("jax", "jaxlib", "libtpu"),
}
# How JAX names the kinds of TPU (`device_kind`).
_CHIP_BY_KIND = {
    "TPU v2": "v2",
    "TPU v3": "v3",
    "TPU v4": "v4",
    "TPU v5 lite": "v5e",
    "TPU v5e": "v5e",
    "TPU v5": "v5p",
    "TPU v5p": "v5p",
    "TPU v6 lite": "v6e",
    "TPU v6e": "v6e",
    "TPU7x": "tpu7x",
    "TPU v7x": "tpu7x",
}


@dataclasses.dataclass(frozen=True)
class Machine:
    """Where the programs run, and through which library."""

    place: Place
    framework: str  # ``tensorflow`` or ``jax``
    chip: str  # the kind of TPU; of a rehearsal, the one that is played
    devices: int
    rehearsed: bool  # whether a CPU stands in for the TPU
    strategy: Any = None  # TensorFlow's

    @property
    def versions(self) -> dict[str, str]:
        """The versions of what runs the programs, by package."""
        versions = {}
        for name in PACKAGES[self.framework]:
            if _installed(name):
                versions[name] = importlib.metadata.version(name)
        return versions

    def __repr__(self) -> str:
        packages = [f"{name} {version}" for name, version in self.versions.items()]
        text = f"{self.chip}, {self.devices} of its devices, {', '.join(packages)}"
        if self.rehearsed:
            text = f"Rehearsed on this CPU, as if it were: {text}"
        return text


def _installed(package: str) -> bool:
    return any(importlib.metadata.distributions(name=package))


def find(framework: str = "", chip: str = "v5e") -> Machine:
    """Find the TPU; without one, this CPU plays it.

    Args:
        framework: ``tensorflow`` or ``jax``. Empty: TensorFlow where its build for TPU is installed
            or there is no TPU, else JAX.
        chip: The kind of TPU, where the machine doesn't tell it.

    Raises `CourseError`: There is no such library or kind of TPU, or the TPU can't be opened.
    """
    place = detect()
    has_tpu = place.kind in ATTACHED
    # One library at a time can open a TPU, so this choice is made before any is imported.
    if not framework:
        use_tensorflow = not has_tpu or (place.tpu and _installed("tensorflow-tpu"))
        framework = TENSORFLOW if use_tensorflow else JAX
    if framework not in PACKAGES or chip not in ALL_CHIPS:
        raise CourseError(
            f"{framework[:40]!r} on {chip[:40]!r} can't be measured.",
            f"The programs are written for {' and '.join(PACKAGES)}.",
            f"Choose one, or leave it empty; the kinds of TPU are {', '.join(ALL_CHIPS)}.",
        )
    if framework == JAX:
        return _with_jax(place, chip, has_tpu)
    return _with_tensorflow(place, chip)


def _with_jax(place: Place, chip: str, has_tpu: bool) -> Machine:
    import jax

    if not has_tpu:
        jax.config.update("jax_platforms", "cpu")  # it would look for a TPU, for minutes
    devices = jax.devices()
    return Machine(
        place=place,
        framework=JAX,
        chip=_CHIP_BY_KIND.get(devices[0].device_kind, chip),
        devices=len(devices),
        rehearsed=devices[0].platform != "tpu",
    )


def _with_tensorflow(place: Place, chip: str) -> Machine:
    import tensorflow as tf

    # Where the place names the TPU, its name counts and not the argument.
    if place.accelerator is not None:
        chip = place.accelerator.chip.name
    rehearsed = place.tpu is None
    if rehearsed:
        strategy = tf.distribute.get_strategy()
    else:
        strategy = connect()
    return Machine(
        place=place,
        framework=TENSORFLOW,
        chip=chip,
        devices=strategy.num_replicas_in_sync,
        rehearsed=rehearsed,
        strategy=strategy,
    )
