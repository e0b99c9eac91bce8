"""What a run costs on each target, as a range: steps, estimate, chips and the price typed in.

No prices are shipped: they differ by region and contract, and they change
(https://cloud.google.com/tpu/pricing).
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from tpu_preflight.chips import hardware
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate.calibration import least_ms
from tpu_preflight.estimate.step import Estimate, Timing


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
    kinds = {target: hardware.slice_of(target, jax=True).chip.name for target in targets}
    typed: dict[str, float] = {}  # by kind; by nothing, what counts for the others
    for word in words:
        kind, _, number = map(str.strip, word.lower().rpartition("="))
        if not re.fullmatch(r"\d+(\.\d+)?|\.\d+", number):
            raise PreflightError(
                f"{word!r} is no price.",
                "A price is a number: what one chip costs for an hour, in your currency.",
                "Write --price 1.2, or --price v5e=1.20 for each kind.",
            )
        if kind and kind not in kinds.values():
            raise PreflightError(
                f"There is a price for {kind!r}, which is not compared.",
                f"The targets are of the kinds {', '.join(sorted(set(kinds.values())))}.",
                "Write the kind as in the target, without its size: v5e=1.20.",
            )
        if kind in typed:
            raise PreflightError(
                f"There are two prices for {kind or 'all kinds'}.",
                "A run has one price, and it isn't known which counts.",
                "Leave one out: --price v5e=1.20.",
            )
        typed[kind] = float(number)
    return {t: typed.get(k, typed.get("")) for t, k in kinds.items() if {k, ""} & typed.keys()}


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
    rows = {e.target: e.rows and e.rows * e.replicas for e in estimates}
    return tuple(
        Price(
            t.target,
            steps,
            rows.get(t.target),
            hardware.slice_of(t.target, jax=True).chips,
            t.low_ms * steps / 3.6e6,
            t.high_ms * steps / 3.6e6,
            per_chip_hour.get(t.target),
        )
        for t in timings
        if t.ms >= least_ms()
    )


def table(found: Sequence[Price]) -> list[dict[str, str]]:
    """Write the prices as rows of a table, by the names of its columns."""
    return [
        {
            "target": p.target,
            "rows a step": "–" if p.rows is None else f"{p.rows:,}",
            "chips": str(p.chips),
            "hours": f"{p.low_hours:.3g} to {p.high_hours:.3g}",
            "chip-hours": f"{p.low_hours * p.chips:.3g} to {p.high_hours * p.chips:.3g}",
            "a chip-hour": "–" if p.per_chip_hour is None else f"{p.per_chip_hour:g}",
            "cost": "–" if p.per_chip_hour is None else f"{p.low:,.2f} to {p.high:,.2f}",
        }
        for p in found
    ]


def verdict(found: Sequence[Price]) -> str:
    """Say in a sentence which target is cheapest, and whether another's range reaches it.

    Where a step has other numbers of rows on some targets, the cost of a row counts.
    """
    said = f"{found[0].steps:,} steps; hours of steps alone; nothing is added for start or saving."
    priced = [p for p in found if p.per_chip_hour is not None]
    if len(priced) < 2:
        return said
    by_row = None not in (each := {p.rows for p in priced}) and len(each) > 1
    costs = [  # low and high of each
        (p.low / rows, p.high / rows, p.target)
        for p, rows in ((p, p.rows if by_row else 1) for p in priced)
    ]
    (_, highest, name), *others = sorted(costs, key=lambda cost: cost[0] * cost[1])
    if near := [target for low, _, target in others if low < highest]:
        name = f"{name}, but the range of {', '.join(near)} overlaps with it"
    return f"{said} Cheapest{' for each row' if by_row else ''}: {name}."
