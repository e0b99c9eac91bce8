"""One way to measure for all benchmarks: alternating rounds, medians, ratios with their spread."""

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Clock:
    """Seconds that something took, by the wall and of all processors."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Clock":
        """Read both clocks."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: "Clock") -> "Clock":
        """Give what passed since an earlier reading."""
        return Clock(self.wall - start.wall, self.cpu - start.cpu)


def alternating(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[Clock]]:
    """Run each call once per round, in turned order every second round; give their times.

    A call that works in another process gives its own `Clock`. Each runs once before, which counts
    for nothing.
    """
    times = {name: [] for name in calls}
    # Round 0 warms up.
    for number in range(rounds + 1):
        names = list(calls)
        if number % 2 == 0:
            names.reverse()
        for name in names:
            start = Clock.now()
            result = calls[name]()
            clock = Clock.now().since(start)
            if isinstance(result, Clock):
                clock = result
            if number > 0:
                times[name].append(clock)
        print(f"round {number} of {rounds}", file=sys.stderr)
    return times


def ratio(baseline: Sequence[float], other: Sequence[float]) -> str:
    """Write how many times faster ``other`` is, round by round: median (smallest–largest)."""
    ratios = [a / b for a, b in zip(baseline, other, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
