"""One way to measure for all benchmarks: alternating rounds, medians, ratios with their spread."""

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Sequence


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        paragraphs: Of each language, at most.
        width: The model's hidden size.
        rounds: How often each way to read is repeated.
        step_rounds: How often a few steps of pretraining are repeated.
        compared: Text for the commands that write records, in MB.
        megabytes: Texts that show how time and memory grow.
    """

    paragraphs: int
    width: int
    rounds: int
    step_rounds: int
    compared: float
    megabytes: tuple[float, ...]


FULL = Size(10**6, 256, 3, 5, 20, (50, 500, 1_000))
SMALL = Size(30, 16, 1, 1, 0.1, (0.2,))


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


def turns(names: Sequence[str], rounds: int) -> Iterable[tuple[int, str]]:
    """Say who is next: each name once per round, in turned order every second round."""
    for at in range(rounds):
        yield from zip(itertools.repeat(at), names[:: -1 if at % 2 else 1])


def seconds(call: Callable[[], object]) -> Clock:
    """Run once and say how long it took; a call that works in another process gives its clock."""
    start = Clock.now()
    own = call()
    return own if isinstance(own, Clock) else Clock.now().since(start)


def alternating(
    calls: dict[str, Callable[[], object]], rounds: int, done: Callable[[], None]
) -> dict[str, list[Clock]]:
    """Run each call once per round, after one run that doesn't count.

    Args:
        calls: What to run, by name.
        rounds: How often.
        done: Called after each run.

    Returns:
        The times by name, one per round.
    """
    for call in calls.values():
        call()
    times = {name: [] for name in calls}
    for _, name in turns(list(calls), rounds):
        times[name].append(seconds(calls[name]))
        done()
    return times


def ratio(baseline: Sequence[float], other: Sequence[float]) -> str:
    """Write how many times faster ``other`` is, round by round: median (smallest–largest)."""
    each = [a / b for a, b in zip(baseline, other, strict=True)]
    return f"{statistics.median(each):.2f} ({min(each):.2f}–{max(each):.2f})"
