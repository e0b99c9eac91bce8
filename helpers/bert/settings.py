"""What a run is: the model's size and the numbers, kept in ``settings.json``. No TensorFlow."""

import dataclasses
import json
from typing import Any, Self

from helpers.base.errors import CourseError, unreadable
from helpers.base.folders import Folder, short

SETTINGS = "settings.json"
LOG = "log.jsonl"
CHECKPOINTS = "checkpoints"


@dataclasses.dataclass(frozen=True)
class Configuration:
    """The size of a BERT."""

    layers: int  # encoder layers
    hidden: int  # width; the layer inside each encoder layer is four times as wide
    heads: int  # attention heads, each ``hidden / heads`` wide


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


@dataclasses.dataclass(frozen=True)
class Description:
    """What ``settings.json`` says of a run; equal for the same run, wherever its records are."""

    settings: Settings
    data: dict[str, Any]  # fingerprint of the records
    records: str = dataclasses.field(compare=False)  # path or address

    @classmethod
    def read(cls, folder: Folder) -> Self | None:
        """Read a run's description; None where there is none.

        Raises:
            CourseError: It can't be read, or is no run's.
        """
        if (text := folder.read(SETTINGS)) is None:
            return None
        what = f"{short(folder.path)} holds no run that can be read."
        fix = f"Name the folder of a run; or to begin one, a folder without a {SETTINGS}."
        with unreadable(what, fix, f"Its {SETTINGS} was changed, or is another program's."):
            run = json.loads(text)
            size = Configuration(**run["settings"].pop("size"))
            return cls(**run | {"settings": Settings(size, **run["settings"])})

    @classmethod
    def of_trained(cls, folder: Folder) -> Self:
        """Read the description of a run that has saved something.

        Raises:
            CourseError: There is no such run, or as `read`.
        """
        there = cls.read(folder)
        if there is None or not saved_steps(folder):
            raise CourseError(
                f"{short(folder.path)} holds no run that has saved something.",
                f"There is no {SETTINGS}, or no checkpoint.",
                f"Name the output folder of `tpu-course pretrain`, with {CHECKPOINTS} in it.",
            )
        return there

    def begin(self, folder: Folder) -> None:
        """Write down what the folder's run is, if it is a new one or the same.

        A run that saved nothing can be begun anew with other settings.

        Raises:
            CourseError: The folder holds another run, or as `read`.
        """
        there = self.read(folder)
        if there not in (None, self) and saved_steps(folder):
            now, before = (dataclasses.asdict(run.settings) | run.data for run in (self, there))
            other = [
                f"{k} {before.get(k)} there, {now[k]} now" for k in now if before.get(k) != now[k]
            ]
            raise CourseError(
                f"The output folder holds another run: {'; '.join(other)}.",
                "A run goes on as it began.",
                "Give the settings it was started with to go on, or take another output folder.",
            )
        folder.write(SETTINGS, json.dumps(dataclasses.asdict(self), indent=2) + "\n")


def saved_steps(folder: Folder) -> list[int]:
    """Give the steps of all checkpoints, whole or damaged, newest first."""
    # The index is written last: without it, a checkpoint is none.
    names = [name for name in folder.list(CHECKPOINTS) if name.endswith(".index")]
    return sorted((int(name[len("step-") : -len(".index")]) for name in names), reverse=True)
