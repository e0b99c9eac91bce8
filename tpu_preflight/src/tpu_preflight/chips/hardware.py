"""The kinds of TPU, read from ``chips.toml``, where each has its source and the month of reading.

A new kind is a new entry there, and nothing else.

The number in an accelerator type doesn't count the same thing everywhere: ``v3-8`` has 8 cores on
4 chips, ``v4-8`` also has 8 cores on 4 chips, but each chip works as one device, and ``v5e-8`` has
8 chips. What a TensorFlow program sees is the number of replicas: 8, 4 and 8.
"""

import dataclasses
import pathlib
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
    # GiB of it that a program may use on one device: less than there is, the rest is the system's.
    available_gib: float
    hbm_gb_per_s: float  # its bandwidth, in 10⁹ bytes a second
    # Bandwidth of the interconnect, in 10⁹ bytes a second: of all links of a chip, both directions
    # together, as Google's pages count.
    ici_gb_per_s: float
    ici_links: int  # links to other chips
    cores: int  # TensorCores
    # Devices that TensorFlow sees, each with its own copy of the model. A v4 or v5p chip joins its
    # two cores to one device, so this is 1 there.
    replicas: int
    clock_ghz: float  # cycles of a core in a nanosecond
    pci: tuple[str, ...]  # device numbers on the PCI bus; another kind may have the same
    sizes: tuple[int, ...]  # numbers after the dash in the accelerator types that exist
    counted_per_chip: int  # what one chip adds to such a number
    largest_host: int  # most chips in one machine that is a slice by itself
    dimensions: int  # of the network that joins the chips of a slice: 2 (a torus) or 3
    source: str  # page or paper with the numbers
    checked: str  # when they were read there, year and month
    # Measured, 0 where nobody published it: a copy from memory to memory, in 10⁹ bytes read and
    # written a second; a message to the next chip, in microseconds for its start and in 10⁹ bytes a
    # second over one link, one way.
    copy_gb_per_s: float = 0.0
    hop_us: float = 0.0
    hop_gb_per_s: float = 0.0
    # Bandwidth between a chip and its host's memory, in 10⁹ bytes a second each way; 0 if unknown.
    pcie_gb_per_s: float = 0.0
    # Whether published steps took what kernels do whose transfers run beside their computing; the
    # compiler's estimate is the sum of both (`estimate.measured`). Needs `copy_gb_per_s`.
    overlaps: bool = False
    # Whether kernels hide what devices send each other meanwhile, as the compiled schedule has it.
    hides_exchanges: bool = True
    measured: str = ""  # who measured them
    # Whether `ici_gb_per_s` is quoted from a paper, by others, as Google's pages don't say it.
    ici_quoted: bool = False
    aliases: tuple[str, ...] = ()  # other names of this kind in accelerator types
    # Where TensorFlow doesn't run: who says so, and what to take instead, a sentence each.
    without_tensorflow: tuple[str, ...] = ()
    # The kind that libtpu compiles for, where it doesn't know this one's name.
    compiles_as: str = ""

    def __repr__(self) -> str:
        return (
            f"TPU {self.name} chip: {self.bf16_tflops:g} TFLOP/s (bf16), {self.hbm_gib} GiB at "
            f"{self.hbm_gb_per_s:g} GB/s, cores: {self.cores}, replicas: {self.replicas}"
        )


def read(path: pathlib.Path) -> dict[str, Chip]:
    """Read the kinds of TPU from a file such as ``chips.toml``, by name."""
    chips = {}
    for name, row in tomllib.loads(path.read_text("utf-8")).items():
        for field, value in row.items():
            if isinstance(value, list):
                row[field] = tuple(value)
        chips[name] = Chip(name=name, **row)
    return chips


ALL_CHIPS = read(pathlib.Path(__file__).with_name("chips.toml"))
# The kinds on which TensorFlow runs.
CHIPS = {name: chip for name, chip in ALL_CHIPS.items() if not chip.without_tensorflow}


@dataclasses.dataclass(frozen=True)
class Slice:
    """Chips that are rented together."""

    name: str  # the accelerator type, with ``v5e`` for what the API calls ``v5litepod``
    chip: Chip  # their kind
    chips: int  # how many
    replicas: int  # devices that TensorFlow sees on all hosts together
    hosts: int  # machines that run your program; with more than one, a pod slice
    # How the chips are arranged, as libtpu names it: ``v5e:2x4``. libtpu's compiler lists one
    # device per chip there (for v4 with an option), but one per core for v2, v3 and TPU7x.
    topology: str

    def __repr__(self) -> str:
        return (
            f"{self.name}: chips: {self.chips}, cores: {self.chips * self.chip.cores}, "
            f"replicas: {self.replicas} with {self.chip.hbm_gib / self.chip.replicas:g} GiB each, "
            f"hosts: {self.hosts}"
        )


def _arrangement(chips: int, dimensions: int) -> str:
    """Arrange chips as nearly a square or cube as powers of two can: 2x4, 2x2x1, 4x4x8."""
    exponent = chips.bit_length() - 1
    # libtpu names four chips 2x2x1, where the rule below would give 1x2x2.
    if dimensions == 3 and exponent == 2:
        return "2x2x1"
    shorter, longer_dimensions = divmod(exponent, dimensions)
    sizes = [2**shorter] * (dimensions - longer_dimensions)
    sizes += [2 ** (shorter + 1)] * longer_dimensions
    return "x".join(map(str, sizes))


def slice_of(accelerator_type: str, jax: bool = False) -> Slice:
    """Look up a TPU by the name under which it is rented: ``v3-8``, ``v5litepod-8`` or ``v5e-8``.

    For ``jax`` a kind on which TensorFlow doesn't run (``tpu7x-8``) is looked up as well.

    Raises:
        UnknownAccelerator: There is no such type.

    Example:
        >>> slice_of("v3-8")
        v3-8: chips: 4, cores: 8, replicas: 8 with 16 GiB each, hosts: 1
    """
    name, _, size = accelerator_type.strip().lower().partition("-")
    chip = _chip(name)
    if chip and chip.without_tensorflow and not jax:
        what = f"{accelerator_type[:40]!r} does not run TensorFlow."
        raise UnknownAccelerator(what, *chip.without_tensorflow)
    if chip is None or size not in map(str, chip.sizes):
        raise UnknownAccelerator(
            f"{accelerator_type[:40]!r} is no type of TPU that is known here.",
            _existing_types(chip, jax),
            "Write kind, dash and size, such as v3-8 or v5e-8.",
        )

    chips = int(size) // chip.counted_per_chip
    hosts = 1
    if chips > chip.largest_host:
        hosts = chips // CHIPS_PER_HOST
    return Slice(
        name=f"{chip.name}-{size}",
        chip=chip,
        chips=chips,
        replicas=chips * chip.replicas,
        hosts=hosts,
        topology=f"{chip.compiles_as or chip.name}:{_arrangement(chips, chip.dimensions)}",
    )


def _chip(name: str) -> Chip | None:
    """Find a kind of TPU by one of its names."""
    for chip in ALL_CHIPS.values():
        if name == chip.name or name in chip.aliases:
            return chip
    return None


def _existing_types(chip: Chip | None, jax: bool) -> str:
    """Say which sizes a kind comes in, or, where there is no such kind, which there are."""
    if chip:
        return f"A {chip.name} comes in the sizes {', '.join(map(str, chip.sizes))}."
    kinds = ALL_CHIPS if jax else CHIPS
    checked = min(kind.checked for kind in kinds.values())
    aliases = [f"{kind.aliases[0]} is {kind.name}" for kind in kinds.values() if kind.aliases]
    return f"The kinds are {', '.join(kinds)} ({', '.join(aliases)}), as of {checked}."
