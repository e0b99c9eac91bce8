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
    for at in range(-1, rounds):
        for name in list(calls)[:: -1 if at % 2 else 1]:
            start = Clock.now()
            own = calls[name]()
            if at >= 0:
                times[name].append(own if isinstance(own, Clock) else Clock.now().since(start))
        print(f"round {at + 1} of {rounds}", file=sys.stderr)
    return times


def ratio(baseline: Sequence[float], other: Sequence[float]) -> str:
    """Write how many times faster ``other`` is, round by round: median (smallest–largest)."""
    each = [a / b for a, b in zip(baseline, other, strict=True)]
    return f"{statistics.median(each):.2f} ({min(each):.2f}–{max(each):.2f})"
