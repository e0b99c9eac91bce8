"""The kinds of TPU, read from ``chips.toml``, where each has its source and the month of reading.

The number in an accelerator type doesn't count the same thing everywhere: ``v3-8`` has 8 cores on
4 chips, ``v4-8`` has 8 cores on 4 chips, too, but each chip works as one device, and ``v5e-8`` has
8 chips. What a TensorFlow program sees is the number of replicas: 8, 4 and 8.
"""

import dataclasses
import pathlib
import re
import tomllib

from tpu_preflight.errors import PreflightError

CHIPS_PER_HOST = 4  # in a slice of several hosts, whatever a host alone may have


class UnknownAccelerator(PreflightError):
    """There is no TPU of this type."""


@dataclasses.dataclass(frozen=True)
class Chip:
    """One kind of TPU chip; every number is per chip."""

    name: str  # such as ``v3``
    # Peak of the matrix units in 10¹² floating-point operations a second, bfloat16 inputs.
    bf16_tflops: float
    hbm_gib: int  # high-bandwidth memory, in GiB (Google's pages write GB on some, GiB on others)
    hbm_gb_per_s: float  # its bandwidth, in 10⁹ bytes a second
    # Bandwidth of the interconnect, in 10⁹ bytes a second: of all links of a chip, both directions
    # together, as Google's pages count.
    ici_gb_per_s: float
    ici_links: int  # links to other chips
    cores: int  # TensorCores
    # Devices that TensorFlow sees, each with its own copy of the model. A v4 or v5p chip joins its
    # two cores to one device, so this is 1 there.
    replicas: int
    matrix_unit: int  # rows (and columns) of one matrix unit
    clock_ghz: float  # cycles of a core in a nanosecond
    sizes: tuple[int, ...]  # numbers after the dash in the accelerator types that exist
    sizes_count: str  # what these numbers count: ``cores`` or ``chips``
    largest_host: int  # most chips in one machine that is a slice by itself
    # Virtual processors of a machine with so many chips, as pairs.
    host_vcpus: tuple[tuple[int, int], ...]
    dimensions: int  # of the network that joins the chips of a slice: 2 (a torus) or 3
    source: str  # page or paper with the numbers
    checked: str  # when they were read there, year and month
    # Whether `ici_gb_per_s` is quoted from a paper, by others, as Google's pages don't say it.
    ici_quoted: bool = False
    aliases: tuple[str, ...] = ()  # other names of this kind in accelerator types
    tensorflow: bool = True  # whether TensorFlow runs there

    @property
    def hbm_gib_per_replica(self) -> float:
        """Memory that one replica has, in GiB."""
        return self.hbm_gib / self.replicas

    @property
    def counted_per_chip(self) -> int:
        """What one chip adds to the number in an accelerator type."""
        return self.cores if self.sizes_count == "cores" else 1

    def __repr__(self) -> str:
        return (
            f"TPU {self.name} chip: {self.bf16_tflops:g} TFLOP/s (bf16), {self.hbm_gib} GiB at "
            f"{self.hbm_gb_per_s:g} GB/s, cores: {self.cores}, replicas: {self.replicas}"
        )


def facts(name: str) -> dict:
    """Read a file of facts beside this one; lists become tuples, as a frozen dataclass needs."""

    def frozen(value: object) -> object:
        if isinstance(value, dict):
            return {key: frozen(inner) for key, inner in value.items()}
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    return frozen(tomllib.loads(pathlib.Path(__file__).with_name(name).read_text("utf-8")))


_ALL = {name: Chip(name, **row) for name, row in facts("chips.toml").items()}
CHIPS = {name: chip for name, chip in _ALL.items() if chip.tensorflow}
_ALIASES = {alias: name for name, chip in CHIPS.items() for alias in chip.aliases}


@dataclasses.dataclass(frozen=True)
class Slice:
    """Chips that are rented together."""

    name: str  # the accelerator type, with ``v5e`` for what the API calls ``v5litepod``
    chip: Chip  # their kind
    chips: int  # how many
    replicas: int  # devices that TensorFlow sees on all hosts together
    hosts: int  # machines that run your program; with more than one, a pod slice
    # How the chips are arranged, as libtpu names it: ``v5e:2x4``. libtpu's compiler lists one
    # device per chip there (for v4 if it is told so), but one per core for v2, v3 and TPU7x.
    topology: str

    @property
    def cores(self) -> int:
        """TensorCores of all chips."""
        return self.chips * self.chip.cores

    @property
    def host_vcpus(self) -> int:
        """Virtual processors of each host."""
        return dict(self.chip.host_vcpus)[self.chips // self.hosts]

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


def slice_of(accelerator_type: str, jax: bool = False) -> Slice:
    """Look up a TPU by the name under which it is rented: ``v3-8``, ``v5litepod-8`` or ``v5e-8``.

    For ``jax`` ``tpu7x-8`` will do, too.

    Raises:
        UnknownAccelerator: There is no such type.
    """
    match = re.fullmatch(r"\s*((?:tpu|v)[0-9]+[a-z]*)-([0-9]{1,5})\s*", accelerator_type.lower())
    kind, size = (_ALIASES.get(match[1], match[1]), int(match[2])) if match else ("", 0)
    if not jax and accelerator_type.strip().lower().startswith(("tpu7x", "v7")):
        raise UnknownAccelerator(
            f"{accelerator_type[:40]!r} does not run TensorFlow.",
            "Google's pages on TPU7x (Ironwood) say that TensorFlow is not supported there "
            "(https://docs.cloud.google.com/tpu/docs/tpu7x, 2026-11).",
            "Take v6e or an older kind; TPU7x is for JAX.",
        )
    kinds = _ALL if jax else CHIPS
    chip = kinds.get(kind)
    if chip is None or size not in chip.sizes:
        checked = min(chip.checked for chip in CHIPS.values())
        why = f"The kinds are {', '.join(kinds)} (v5litepod is v5e), as of {checked}."
        if chip:
            why = f"A {kind} comes in the sizes {', '.join(map(str, chip.sizes))}."
        what = f"{accelerator_type[:40]!r} is no type of TPU that the course knows."
        raise UnknownAccelerator(what, why, "Write kind, dash and size, such as v3-8 or v5e-8.")
    chips = size // chip.counted_per_chip
    return Slice(
        name=f"{kind}-{size}",
        chip=chip,
        chips=chips,
        replicas=chips * chip.replicas,
        hosts=1 if chips <= chip.largest_host else chips // CHIPS_PER_HOST,
        topology=f"{kind}:{_arrangement(chips, chip.dimensions)}",
    )
