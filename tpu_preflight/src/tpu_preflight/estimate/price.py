"""What a run costs on each target, as a range: steps, estimate, chips and the price typed in.

No prices are shipped: they differ by region and contract, and they change
(https://cloud.google.com/tpu/pricing).
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tpu_preflight.chips import hardware
from tpu_preflight.display import MISSING
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate.calibration import is_short
from tpu_preflight.estimate.step import Estimate, Timing, count
from tpu_preflight.text import plain_number

_MS_PER_HOUR = 3.6e6


@dataclasses.dataclass(frozen=True)
class Price:
    """What a run of so many steps takes and costs on one target."""

    target: str  # such as ``v5e-8``
    steps: int  # of the run
    rows: int | None  # of a step's batch, on all replicas together; None where a batch has no rows
    chips: int  # that are paid for
    low_hours: float  # hours of training by the low end of the step's range
    high_hours: float  # by the high end
    per_chip_hour: float | None = None  # the price of a chip for an hour, as typed in; None without

    @property
    def low(self) -> float:
        """The cost by the low end of the range; 0 without a price."""
        return self.low_hours * self.chips * (self.per_chip_hour or 0.0)

    @property
    def high(self) -> float:
        """The cost by the high end of the range; 0 without a price."""
        return self.high_hours * self.chips * (self.per_chip_hour or 0.0)


def read(words: Sequence[str], targets: Sequence[str]) -> dict[str, float]:
    """Read prices of a chip for an hour: ``1.2`` for all, ``v5e=1.20`` for those of one kind.

    Gives a price for each target that has one.

    Raises:
        PreflightError: A word is no price, is the second for its kind, or is for a kind that isn't
            among the targets.
    """
    # Chips are paid for, so targets of one kind have the same price, whatever their size.
    kinds = {}
    for target in targets:
        kinds[target] = hardware.slice_of(target, jax=True).chip.name
    by_kind: dict[str, float] = {}  # under the empty name: the price of all other kinds
    for word in words:
        kind, _, number = word.lower().rpartition("=")
        kind, number = kind.strip(), number.strip()
        if not re.fullmatch(r"\d+(\.\d+)?|\.\d+", number):
            raise PreflightError(
                f"{word!r} is not a price.",
                "A price is a number: what one chip costs for an hour, in your currency.",
                "Write --price 1.2, or --price v5e=1.20 for each kind.",
            )
        if kind and kind not in kinds.values():
            raise PreflightError(
                f"There is a price for {kind!r}, which is not among the targets.",
                f"The targets are of the kinds {', '.join(sorted(set(kinds.values())))}.",
                "Write the kind as in the target, without its size: v5e=1.20.",
            )
        if kind in by_kind:
            raise PreflightError(
                f"There are two prices for {kind or 'all kinds'}.",
                "A run has one price, and it isn't clear which of them counts.",
                "Leave one out: --price v5e=1.20.",
            )
        by_kind[kind] = float(number)

    # The price of a kind counts before the one of all others.
    by_target = {}
    for target, kind in kinds.items():
        if kind in by_kind:
            by_target[target] = by_kind[kind]
        elif "" in by_kind:
            by_target[target] = by_kind[""]
    return by_target


def prices(
    timings: Iterable[Timing],
    estimates: Iterable[Estimate],
    steps: int,
    per_chip_hour: Mapping[str, float],
) -> tuple[Price, ...]:
    """Multiply steps, time, chips and price (from `read`), for each target with a time.

    A step that is smaller than all published ones has no price: see `estimate.calibration`.
    The estimates of the same targets have the rows of a batch.
    """
    rows = {}
    for estimate in estimates:
        if estimate.rows is not None:
            rows[estimate.target] = estimate.rows * estimate.replicas

    entries = []
    for timing in timings:
        # No published run tells how long a smaller step takes.
        if is_short(timing.target, timing.ms):
            continue
        slice_ = hardware.slice_of(timing.target, jax=True)
        entry = Price(
            target=timing.target,
            steps=steps,
            rows=rows.get(timing.target),
            chips=slice_.chips,
            low_hours=timing.low_ms * steps / _MS_PER_HOUR,
            high_hours=timing.high_ms * steps / _MS_PER_HOUR,
            per_chip_hour=per_chip_hour.get(timing.target),
        )
        entries.append(entry)
    return tuple(entries)


def table(entries: Sequence[Price]) -> list[dict[str, str]]:
    """Write the prices as rows of a table, by the names of its columns."""
    rows = []
    for entry in entries:
        rate = cost = MISSING
        if entry.per_chip_hour is not None:
            rate = f"{entry.per_chip_hour:g}"
            cost = f"{entry.low:,.2f} to {entry.high:,.2f}"
        low_chip_hours = entry.low_hours * entry.chips
        high_chip_hours = entry.high_hours * entry.chips
        row = {
            "target": entry.target,
            "rows a step": count(entry.rows),
            "chips": str(entry.chips),
            "hours": f"{plain_number(entry.low_hours)} to {plain_number(entry.high_hours)}",
            "chip-hours": f"{plain_number(low_chip_hours)} to {plain_number(high_chip_hours)}",
            "a chip-hour": rate,
            "cost": cost,
        }
        rows.append(row)
    return rows


class _CostRange(NamedTuple):
    """The cost of a run, or of a row of it, on one target."""

    target: str
    low: float
    high: float

    @property
    def middle_squared(self) -> float:
        """The square of the geometric mean, which orders ranges as the mean itself does."""
        return self.low * self.high


def verdict(entries: Sequence[Price]) -> str:
    """Say in a sentence which target is cheapest, and whether another's range reaches it.

    Where a step has other numbers of rows on some targets, the cost of a row counts.
    """
    steps = entries[0].steps
    summary = f"{steps:,} steps. The hours are of the steps alone, without start-up and saving."
    priced = [entry for entry in entries if entry.per_chip_hour is not None]
    # One price by itself compares nothing.
    if len(priced) < 2:
        return summary

    # The cost of a run compares only runs over the same rows.
    row_counts = {entry.rows for entry in priced}
    compare_by_row = None not in row_counts and len(row_counts) > 1
    ranges = []
    for entry in priced:
        divisor = entry.rows if compare_by_row else 1
        ranges.append(_CostRange(entry.target, entry.low / divisor, entry.high / divisor))
    # By their middle: the ends of a range are a fast run and a slow one.
    ranges.sort(key=lambda cost: cost.middle_squared)

    cheapest = ranges[0]
    overlapping = [cost.target for cost in ranges[1:] if cost.low < cheapest.high]
    answer = cheapest.target
    if overlapping:
        answer += f", but the range of {', '.join(overlapping)} overlaps with it"
    if compare_by_row:
        return f"{summary} Cheapest for each row: {answer}."
    return f"{summary} Cheapest: {answer}."
