"""What a run is: the model's size and the numbers, kept in ``settings.json``. No TensorFlow."""

import dataclasses
import json
import re
from typing import Any, Self

from helpers.base.errors import CourseError, unreadable
from helpers.base.folders import Folder, short

SETTINGS = "settings.json"
LOG = "log.jsonl"
CHECKPOINTS = "checkpoints"
MOST = 512, 2**15, 512  # layers, width and heads of a model that is built


@dataclasses.dataclass(frozen=True)
class Configuration:
    """The size of a BERT."""

    layers: int  # encoder layers
    hidden: int  # width; the layer inside each encoder layer is four times as wide
    heads: int  # attention heads, each ``hidden / heads`` wide

    def __post_init__(self) -> None:
        sizes = self.layers, self.hidden, self.heads
        # GPT-3 has 96 layers of 12,288: what is far beyond it would be built for hours.
        if not all(type(x) is int and 0 < x <= most for x, most in zip(sizes, MOST, strict=True)):
            raise ValueError(f"layers, hidden, heads: {sizes}, not whole numbers up to {MOST}")
        if self.hidden % self.heads:
            raise ValueError(f"{self.hidden} can't be divided by {self.heads} heads")


# The miniatures of google-research/bert (README, "Smaller BERT models", March 2020) and BERT-base
# of the paper: every head is 64 wide.
CONFIGURATIONS = {
    "tiny": Configuration(2, 128, 2),
    "mini": Configuration(4, 256, 4),
    "small": Configuration(4, 512, 8),
    "base": Configuration(12, 768, 12),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the numbers of a run depend on, beside the data."""

    size: Configuration
    steps: int  # of the whole run: the learning rate is 0 after them
    global_batch_size: int = 32  # rows per step, over all replicas
    learning_rate: float = 1e-3  # the highest, at the end of the warm-up
    warm_up: int = 100  # number of steps until then
    weight_decay: float = 0.01
    clip_norm: float = 1.0  # largest norm of the gradient
    dropout: float = 0.1  # share of values dropped
    precision: str = "float32"  # or "mixed_bfloat16"
    seed: int = 0  # of weights, order, masks and dropout, below 2**32

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            kinds = (int, float) if field.type is float else field.type
            if not isinstance(value := getattr(self, field.name), kinds):
                raise TypeError(f"{field.name} is {value!r}")


@dataclasses.dataclass(frozen=True)
class Description:
    """What ``settings.json`` says of a run; equal for the same run, wherever its records are."""

    settings: Settings
    data: dict[str, Any]  # fingerprint of the records
    records: str = dataclasses.field(compare=False)  # path or address

    @classmethod
    def read(cls, folder: Folder) -> Self | None:
        """Read a run's description; None where there is none.

        Raises `CourseError`: It can't be read, or is no run's.
        """
        if (text := folder.read(SETTINGS)) is None:
            return None
        what = f"{short(folder.path)} holds no run that can be read."
        fix = f"Name the folder of a run; or to begin one, a folder without a {SETTINGS}."
        with unreadable(what, fix, f"Its {SETTINGS} was changed, or is another program's."):
            run = json.loads(text)
            size = Configuration(**run["settings"].pop("size"))
            found = cls(**run | {"settings": Settings(size, **run["settings"])})
            if not (isinstance(found.records, str) and isinstance(found.data, dict)):
                raise TypeError("records or data")
            return found

    @classmethod
    def of_trained(cls, folder: Folder) -> Self:
        """Read the description of a run that has saved something.

        Raises `CourseError`: There is no such run, or as `read`.
        """
        there = cls.read(folder)
        if there is None or not saved_steps(folder):
            raise CourseError(
                f"{short(folder.path)} holds no run that has saved something.",
                f"There is no {SETTINGS}, or no checkpoint.",
                f"Name the output folder of `tpu-course pretrain`, with {CHECKPOINTS} in it.",
            )
        # Before a model is built for which there may be no room: the weights of its layers.
        size, saved = there.settings.size, sum(Folder(folder.at(CHECKPOINTS)).sizes().values())
        if saved < (least := 4 * 12 * size.layers * size.hidden**2):
            raise CourseError(
                f"The checkpoints of {short(folder.path)} are not of the model in its {SETTINGS}.",
                f"They have {saved:,} bytes; {size.layers:,} layers of {size.hidden:,} take "
                f"{least:,} or more.",
                f"Bring {SETTINGS} and {CHECKPOINTS} back as they were written.",
            )
        return there

    def check(self, folder: Folder) -> None:
        """Check that the folder's run is a new one, has saved nothing, or is the same.

        Raises `CourseError`: The folder holds another run or files of its names, or as `read`.
        """
        if found := re.search(r"[*?[\\]", folder.at(CHECKPOINTS)):
            raise CourseError(
                f"A run can't lie in {short(folder.path)}.",
                f"TensorFlow takes the {found[0]} in its path for a pattern and deletes what fits.",
                "Name a folder whose path has no *, ?, [ or \\.",
            )
        there = self.read(folder)
        if others := [x for x in (LOG, CHECKPOINTS) if there is None and folder.exists(x)]:
            raise CourseError(
                f"{short(folder.path)} has a {others[0]} and no {SETTINGS}.",
                "It is of no run that can go on, and a new one would write over it.",
                f"Name another output folder, or bring {SETTINGS} back.",
            )
        if there not in (None, self) and (saved_steps(folder) or folder.exists(LOG)):
            now, before = (dataclasses.asdict(run.settings) | run.data for run in (self, there))
            other = [
                f"{k} {before.get(k)} there, {now[k]} now" for k in now if before.get(k) != now[k]
            ]
            raise CourseError(
                f"The output folder holds another run: {'; '.join(other)}.",
                "A run goes on as it began.",
                "Give the settings it was started with to go on, or take another output folder.",
            )

    def begin(self, folder: Folder) -> None:
        """Write down what the folder's run is; errors as of `check`."""
        self.check(folder)
        folder.write(SETTINGS, json.dumps(dataclasses.asdict(self), indent=2) + "\n")


def saved_steps(folder: Folder) -> list[int]:
    """Give the steps of all checkpoints, whole or damaged, newest first."""
    # The index is written last: without it, a checkpoint is none. Other files are somebody's own.
    found = (re.fullmatch(r"step-(\d{1,18})\.index", name) for name in folder.list(CHECKPOINTS))
    return sorted((int(name[1]) for name in found if name), reverse=True)


def read_log(folder: Folder, steps: int) -> list[str]:
    """Read the lines of a run's first steps; none where the log was deleted.

    Raises `CourseError`: A line was changed, or one is missing or there twice.
    """
    what = f"The {LOG} of {short(folder.path)} can't be read."
    fix = "Bring it back from a copy; without one delete it: a new one begins with the next step."
    with unreadable(what, fix):
        lines = (folder.read(LOG) or b"").decode().splitlines(keepends=True)
        rows = [json.loads(line) for line in lines]
        kept = [line for line, row in zip(lines, rows, strict=True) if row["step"] <= steps]
        if not all(isinstance(row["loss"], float) for row in rows):
            raise ValueError("a line has no loss")
        found, last = [row["step"] for row in rows], steps - len(kept) + len(rows)
        if steps and kept and found != list(range(steps - len(kept) + 1, last + 1)):
            raise ValueError(f"its lines are not of step after step, through {steps:,}")
        return kept
