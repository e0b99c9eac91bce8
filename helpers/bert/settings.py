"""What a run is: the model's size and the numbers, kept in ``settings.json``. No TensorFlow."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, Self

from helpers.base.errors import CourseError, unreadable
from helpers.base.folders import Folder, is_remote, short
from helpers.text.records import Manifest

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


def configuration(name: str) -> Configuration:
    """Look up a size: ``tiny``, ``mini``, ``small`` or ``base``; others raise a `CourseError`."""
    if name not in CONFIGURATIONS:
        raise CourseError(
            f"There is no configuration {name!r}.",
            f"The sizes are {', '.join(CONFIGURATIONS)}.",
            "Take one of them; tiny is the one for a CPU.",
        )
    return CONFIGURATIONS[name]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the numbers of a run depend on, beside the data.

    Raises:
        CourseError: A number is out of its range, or none (``nan``).
    """

    size: Configuration
    steps: int  # of the whole run: the learning rate is 0 after them
    global_batch_size: int = 32  # rows per step, over all replicas
    learning_rate: float = 1e-3  # the highest, at the end of the warm-up
    warm_up: int = 100  # number of steps until then
    weight_decay: float = 0.01
    clip_norm: float = 1.0  # largest norm of the gradient
    dropout: float = 0.1  # share of values dropped
    precision: str = "float32"  # or "mixed_bfloat16"
    seed: int = 0  # of weights, order, masks and dropout

    def __post_init__(self) -> None:
        count = "a whole number from 1 on"
        for name, fits, range_ in (
            ("steps", self.steps >= 1, count),
            ("global_batch_size", self.global_batch_size >= 1, count),
            ("learning_rate", 0 < self.learning_rate < math.inf, "a number above 0, such as 1e-4"),
            ("warm_up", self.warm_up >= 0, "a whole number from 0 on"),
            ("dropout", 0 <= self.dropout < 1, "a share from 0 on and below 1"),
            ("seed", 0 <= self.seed < 2**32, "a whole number from 0 to 4,294,967,295"),
        ):
            if not fits:
                number = getattr(self, name)
                raise CourseError(f"{name} is {number:,}.", f"It is {range_}.", "Change it.")


@dataclasses.dataclass(frozen=True)
class Description:
    """What ``settings.json`` says of a run; equal for the same run, wherever its records are."""

    settings: Settings
    data: dict[str, Any]  # fingerprint of the records
    records: str = dataclasses.field(compare=False)  # where they are; relative if inside the run
    # Steps at which it was finished before more were asked for.
    finished: tuple[int, ...] = dataclasses.field(default=(), compare=False)

    @classmethod
    def of(cls, settings: Settings, manifest: Manifest, folder: Folder) -> Self:
        """Describe a run; records inside its folder are named from there, as it may be moved."""
        inside = Folder(manifest.path).absolute.removeprefix(f"{folder.absolute}/")
        return cls(settings, manifest.fingerprint, inside)

    @classmethod
    def read(cls, folder: Folder) -> Self | None:
        """Read a run's description, None where there is none.

        Raises:
            CourseError: There is one that can't be read, or it is missing beside checkpoints.
        """
        if (text := folder.read(SETTINGS)) is None:
            if folder.exists(CHECKPOINTS) or folder.exists(LOG):
                raise CourseError(
                    f"{short(folder.path)} has {CHECKPOINTS} or {LOG} and no {SETTINGS}.",
                    "What they belong to can't be known.",
                    f"Bring {SETTINGS} back, or name another folder.",
                )
            return None
        why = f"Its {SETTINGS} was changed by hand, or is another program's."
        fix = "Name the folder of a run, or to begin one, a folder without such a file."
        with unreadable(f"{short(folder.path)} holds no run that can be read.", fix, why):
            run = json.loads(text)
            size = Configuration(**run["settings"].pop("size"))
            finished = tuple(run.pop("finished"))
            return cls(
                **run | {"settings": Settings(size, **run["settings"]), "finished": finished}
            )

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

    def write(self, folder: Folder) -> None:
        """Write it into the run's folder."""
        folder.write(SETTINGS, json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    def records_in(self, folder: Folder) -> str:
        """Give the path or address of the run's records."""
        whole = is_remote(self.records) or pathlib.Path(self.records).is_absolute()
        return self.records if whole else folder.at(self.records)

    def differences(self, other: "Description") -> Iterator[str]:
        """Say in which numbers another run differs."""
        mine, others = (dataclasses.asdict(run.settings) | run.data for run in (self, other))
        for name in mine:
            if mine[name] != others.get(name):
                yield f"{name} {mine[name]} there, {others.get(name)} now"


def saved_steps(folder: Folder) -> list[int]:
    """Give the steps of all checkpoints, whole or damaged, newest first."""
    # The index is written last: without it, a checkpoint is none.
    names = [name for name in folder.list(CHECKPOINTS) if name.endswith(".index")]
    return sorted((int(name[len("step-") : -len(".index")]) for name in names), reverse=True)


def begin(folder: Folder, wanted: Description, say: Callable[[str], None]) -> None:
    """Write down what the folder's run is, if it is a new one or the same.

    A run that saved nothing can be begun anew. A finished run goes on when more steps are asked
    for.

    Raises:
        CourseError: The folder holds another run, or as `Description.read`.
    """
    there, saved = Description.read(folder), saved_steps(folder)
    if there is not None and saved:
        done, steps = there.settings.steps, wanted.settings.steps
        finished = there.finished
        if saved[0] == done < steps:
            finished += (done,)
            say(f"The run of {done:,} steps is finished and goes on to {steps:,}.")
            planned = dataclasses.replace(there.settings, steps=steps)
            there = dataclasses.replace(there, settings=planned)
        if there != wanted:
            raise CourseError(
                f"The output folder holds another run: {'; '.join(there.differences(wanted))}.",
                f"It goes on as it began; more steps can be asked for when all {done:,} are done.",
                "Give the settings it was started with to go on, or take another output folder.",
            )
        wanted = dataclasses.replace(wanted, finished=finished)
    wanted.write(folder)
