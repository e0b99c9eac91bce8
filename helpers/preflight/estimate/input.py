"""What an input pipeline gives, and what a step needs, as data and pictures. No TensorFlow."""

import dataclasses

from helpers.base import html
from helpers.base.language import translated
from helpers.display.figures import HATCHES, PALETTE, Figure, figure, subplots

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


@dataclasses.dataclass(frozen=True)
class Rate:
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

    def __str__(self) -> str:
        return f"{self.per_second:,.0f} rows a second ({self.per_core:,.0f} for each busy core)"

    def __repr__(self) -> str:
        rows = [f"  {s.name:<14} {s.wall:>10,.1f} {s.processor:>10,.1f}" for s in self.stages]
        stage, *times = map(translated, ("stage", "wall µs", "core µs"))
        title = f"  {stage:<14} {times[0]:>10} {times[1]:>10}"
        gives = translated(f"This machine ({self.cores} cores) gives {self}")
        return "\n".join([gives, title, *rows])

    def _repr_html_(self) -> str:
        titles = ("stage", "wall µs a row", "processor µs a row", "line")
        rows = [(s.name, f"{s.wall:,.1f}", f"{s.processor:,.1f}", s.where) for s in self.stages]
        summary = f"This machine ({self.cores} cores) gives {self}."
        return html.render("numbers.html", summary=summary, titles=titles, rows=rows, note=HONEST)

    def figure(self) -> Figure:
        """Draw what each stage adds to the time of a row."""
        drawing, axes = subplots(height=2.2)
        left = 0.0
        for at, stage in enumerate(self.stages):
            style = {"color": PALETTE[5], "edgecolor": "black", "hatch": HATCHES[at % len(HATCHES)]}
            axes.barh([""], [stage.cost], left=left, label=stage.name, **style)
            left += stage.cost
        axes.set(xlabel="time of a row (microseconds)")
        axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        slowest = "No stage stands out."
        if self.slowest:
            slowest = f"The slowest stage is {self.slowest.said}."
        stages = ", ".join(stage.name for stage in self.stages)
        return figure(drawing, alt=f"The stages of the pipeline: {stages}. {slowest} {HONEST}")


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
