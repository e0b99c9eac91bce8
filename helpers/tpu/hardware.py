"""The kinds of TPU: one table, with sources and the date on which they were read.

The number in an accelerator type doesn't count the same thing everywhere: ``v3-8`` has 8 cores on
4 chips, ``v4-8`` has 8 cores on 4 chips, too, but each chip works as one device, and ``v5e-8`` has
8 chips. What a TensorFlow program sees is the number of replicas: 8, 4 and 8.
"""

import dataclasses
import re

from helpers.base.errors import CourseError

DOCS = "https://cloud.google.com/tpu/docs/"
CHECKED = "2026-11"


class UnknownAccelerator(CourseError):
    """There is no TPU of this type."""


@dataclasses.dataclass(frozen=True)
class Chip:
    """One kind of TPU chip; every number is per chip.

    Attributes:
        name: Such as ``v3``.
        bf16_tflops: Peak of the matrix units in 10¹² floating-point operations a second, bfloat16
            inputs.
        hbm_gib: High-bandwidth memory, in GiB (Google's pages write GB on some, GiB on others).
        hbm_gb_per_s: Its bandwidth, in 10⁹ bytes a second.
        cores: TensorCores.
        replicas: Devices that TensorFlow sees, each with its own copy of the model. A v4 or v5p
            chip joins its two cores to one device, so this is 1 there.
        matrix_unit: Rows (and columns) of one matrix unit.
        source: Page or paper with the numbers.
        checked: When they were read there, year and month.
    """

    name: str
    bf16_tflops: float
    hbm_gib: int
    hbm_gb_per_s: float
    cores: int
    replicas: int
    matrix_unit: int
    source: str
    checked: str = CHECKED

    @property
    def hbm_gib_per_replica(self) -> float:
        """Memory that one replica has, in GiB."""
        return self.hbm_gib / self.replicas

    def __repr__(self) -> str:
        return (
            f"TPU {self.name} chip: {self.bf16_tflops:g} TFLOP/s (bf16), {self.hbm_gib} GiB at "
            f"{self.hbm_gb_per_s:g} GB/s, cores: {self.cores}, replicas: {self.replicas}"
        )


_V2 = (
    "Cloud TPU product page: 180 TFLOP/s and 64 GiB for a v2-8; "
    "bandwidth: Jouppi et al. 2020, https://doi.org/10.1145/3360307"
)
CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("v2", 45, 16, 700, 2, 2, 128, _V2),
        Chip("v3", 123, 32, 900, 2, 2, 128, f"{DOCS}v3"),
        Chip("v4", 275, 32, 1200, 2, 1, 128, f"{DOCS}v4"),
        Chip("v5e", 197, 16, 819, 1, 1, 128, f"{DOCS}v5e"),
        Chip("v5p", 459, 95, 2765, 2, 1, 128, f"{DOCS}v5p"),
        Chip("v6e", 918, 32, 1638, 1, 1, 256, f"{DOCS}v6e"),
    )
}

# Accelerator types as the API names them: the number after the dash, by kind.
_SIZES = {
    "v2": (8, 32, 128, 256, 512),
    "v3": (8, 32, 64, 128, 256, 512, 1024, 2048),
    "v4": tuple(2**n for n in range(3, 13)),
    "v5e": (1, 4, 8, 16, 32, 64, 128, 256),
    "v5p": tuple(2**n for n in range(3, 12)),
    "v6e": (1, 4, 8, 16, 32, 64, 128, 256),
}
_NAMED_BY_CHIPS = ("v5e", "v6e")  # the others are named by their TensorCores
_THREE_DIMENSIONS = ("v4", "v5p")
_CHIPS_PER_HOST = 4
_LARGEST_SINGLE_HOST = 8  # of v5e and v6e; their larger slices have machines of 4 chips
_ALIASES = {"v5litepod": "v5e", "v5lite": "v5e"}


@dataclasses.dataclass(frozen=True)
class Slice:
    """Chips that are rented together.

    Attributes:
        name: The accelerator type, with ``v5e`` for what the API calls ``v5litepod``.
        chip: Their kind.
        chips: How many.
        replicas: Devices that TensorFlow sees on all hosts together.
        hosts: Machines that run your program; with more than one, a pod slice.
        topology: How the chips are arranged, as libtpu names it: ``v5e:2x4``. libtpu's compiler
            lists one device per chip there, but one per core for v2, v3 and v4.
    """

    name: str
    chip: Chip
    chips: int
    replicas: int
    hosts: int
    topology: str

    @property
    def cores(self) -> int:
        """TensorCores of all chips."""
        return self.chips * self.chip.cores

    @property
    def hbm_gib(self) -> int:
        """Memory of all chips, in GiB."""
        return self.chips * self.chip.hbm_gib

    def __repr__(self) -> str:
        return (
            f"{self.name}: chips: {self.chips}, cores: {self.cores}, replicas: {self.replicas} "
            f"with {self.chip.hbm_gib_per_replica:g} GiB each, hosts: {self.hosts}"
        )


def _arrangement(chips: int, dimensions: int) -> str:
    """Arrange chips as nearly a square or cube as powers of two can: 2x4, 2x2x1, 4x4x8."""
    exponent = chips.bit_length() - 1
    if dimensions == 3 and exponent == 2:
        return "2x2x1"
    base, longer = divmod(exponent, dimensions)
    return "x".join(str(2 ** (base + (i >= dimensions - longer))) for i in range(dimensions))


def slice_of(accelerator_type: str) -> Slice:
    """Look up a TPU by the name under which it is rented.

    Args:
        accelerator_type: Such as ``v3-8``, ``v5e-8`` or ``v5litepod-8`` (the same), ``v4-32``.

    Returns:
        What it consists of.

    Raises:
        UnknownAccelerator: There is no such type.
    """
    match = re.fullmatch(r"\s*(v[0-9]+[a-z]*)-([0-9]{1,5})\s*", accelerator_type.lower())
    kind, size = (_ALIASES.get(match[1], match[1]), int(match[2])) if match else ("", 0)
    if size not in _SIZES.get(kind, ()):
        known = _SIZES.get(kind)
        raise UnknownAccelerator(
            f"{accelerator_type[:40]!r} is no type of TPU that the course knows.",
            f"A {kind} comes in the sizes {', '.join(map(str, known))}."
            if known
            else f"The kinds are {', '.join(CHIPS)} (v5litepod is v5e), as of {CHECKED}.",
            "Write kind, dash and size, such as v3-8 or v5e-8.",
        )
    chip = CHIPS[kind]
    chips = size if kind in _NAMED_BY_CHIPS else size // chip.cores
    single = kind in _NAMED_BY_CHIPS and chips <= _LARGEST_SINGLE_HOST
    return Slice(
        name=f"{kind}-{size}",
        chip=chip,
        chips=chips,
        replicas=chips * chip.replicas,
        hosts=1 if single else chips // _CHIPS_PER_HOST,
        topology=f"{kind}:{_arrangement(chips, 3 if kind in _THREE_DIMENSIONS else 2)}",
    )
