"""What an input pipeline gives, and what a step needs, as data. Imports no TensorFlow."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from tpu_preflight.shown import Shown, Table

MUCH = 0.4  # of the time of a row: below it no stage alone is the slow one
HONEST = "Measured on this machine, not on a TPU's host."


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage of a ``tf.data`` pipeline, and what it adds to the time of a row."""

    name: str  # TensorFlow's, in small letters: ``map``, ``parallelmap``, ``batch``
    where: str  # the learner's line inside it, where there is one
    wall: float  # microseconds of a row
    processor: float  # microseconds of a row on one core

    @property
    def cost(self) -> float:
        """Microseconds of a row: processor time, or waiting where that is longer."""
        return max(self.wall, self.processor)

    @property
    def said(self) -> str:
        """Name and cost, for a sentence."""
        waits = self.wall > 2 * self.processor
        return f"{self.name} ({self.cost:,.0f} µs a row, mostly {'waiting' if waits else 'work'})"


@dataclasses.dataclass(frozen=True, repr=False)
class Rate(Shown):
    """What a pipeline gives on this machine."""

    per_second: float  # rows a second
    per_core: float  # rows a second of one core's processor time
    cores: int  # of this machine, as the system counts
    stages: tuple[Stage, ...]  # from the source on

    @property
    def slowest(self) -> Stage | None:
        """The stage that takes much of a row's time; None where none does."""
        total = sum(stage.cost for stage in self.stages)
        worst = max(self.stages, key=lambda stage: stage.cost, default=None)
        return worst if worst is not None and worst.cost > MUCH * total else None

    @property
    def said(self) -> str:
        """Give the rows a second, for a sentence."""
        return f"{self.per_second:,.0f} rows a second ({self.per_core:,.0f} for each busy core)"

    def blocks(self) -> Iterator[Any]:
        """Give its parts in order; see `Shown`."""
        yield f"This machine ({self.cores} cores) gives {self.said}"
        yield Table(
            {"stage": s.name, "wall µs": f"{s.wall:,.1f}", "core µs": f"{s.processor:,.1f}"}
            | {"line": s.where}
            for s in self.stages
        )
        yield HONEST


@dataclasses.dataclass(frozen=True)
class Need:
    """What a step takes in."""

    target: str  # such as ``v5e-8``
    low: float  # rows a second, of all devices together; 0 where only a bound is known
    high: float  # the same, where a step is as fast as it may be
    source: str  # what it comes from: ``least time`` or ``estimated time``

    def __str__(self) -> str:
        rows = f"{self.low:,.0f} to {self.high:,.0f}" if self.low else f"at most {self.high:,.0f}"
        return f"{rows} rows a second, from the step's {self.source}"
