"""What a run is: the model's size and the numbers, and how its folder describes it.

All of it is checked before TensorFlow starts.
"""

import dataclasses
import json
import math
import os
import pathlib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from helpers.base.errors import CourseError, unreadable
from helpers.base.folders import Folder, is_remote, short
from helpers.text import records

FORMAT = 1
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
    """What the numbers of a run depend on, beside the data."""

    size: Configuration
    steps: int  # of the whole run: the learning rate is 0 after them
    global_batch_size: int = 32  # rows per step, over all replicas
    learning_rate: float = 1e-3  # the highest, at the end of the warm-up
    warm_up: int = 100  # number of steps until then
    weight_decay: float = 0.01
    clip_norm: float = 1.0  # largest norm of the gradient
    dropout: float = 0.1  # share of values dropped
    accumulate: int = 1  # parts of a replica's rows, computed one after the other
    precision: str = "float32"  # or "mixed_bfloat16"
    seed: int = 0  # of weights, order, masks and dropout
    next_sentence: bool = False  # whether the paper's second head is trained; the data holds pairs


LIMITS = tomllib.loads((pathlib.Path(__file__).parent / "limits.toml").read_text("utf-8"))


def check(
    settings: Settings,
    steps_per_execution: int = 1,
    save_every: int = 1,
    patience: int = 0,
    replicas: int = 1,
) -> None:
    """Refuse numbers of `pretraining.run` that mean nothing, or don't fit each other.

    Raises:
        CourseError: A number is out of its range or none (``nan``); or the batch, the steps or the
            steps from one checkpoint to the next can't be divided as they must be.
    """
    numbers = vars(settings) | {
        "steps_per_execution": steps_per_execution,
        "save_every": save_every,
        "patience": patience,
    }
    check_range(numbers)
    parts = f"{replicas} replicas get equally many rows each, in {settings.accumulate} parts."
    calls = f"{steps_per_execution} steps are done in one call, never a part."
    for name, factor, why in (
        ("steps", steps_per_execution, calls),
        ("save_every", steps_per_execution, calls),
        ("global_batch_size", replicas * settings.accumulate, parts),
    ):
        if numbers[name] % factor:
            what = f"{name} is {numbers[name]:,}."
            raise CourseError(what, why, f"Take a multiple of {factor:,}.")


def check_range(numbers: Mapping[str, Any]) -> None:
    """Refuse a number that is out of its range in ``limits.toml`` or none (``nan``), by its name.

    Raises:
        CourseError: There is one.
    """
    for name, limit in LIMITS.items():
        number, least = numbers.get(name), limit.get("least", -math.inf)
        if number is None:
            continue
        if not (least <= number < limit["below"] and number > limit.get("above", -math.inf)):
            take = f"Take {limit['take']} ({limit['option']} in a terminal)."
            raise CourseError(f"{name} is {number:,}.", limit["why"], take)


def check_records(settings: Settings, manifest: records.Manifest) -> None:
    """Refuse records that a run of these settings can't be trained on.

    Raises:
        CourseError: They hold no pairs and next sentence prediction is asked for; or there are
            fewer rows than one batch has.
    """
    if settings.next_sentence:
        raise CourseError(
            "Next sentence prediction is asked for, and the records hold no pairs.",
            "Each of their sequences is one piece of text: there is no second to judge.",
            "Train without next sentence prediction.",
        )
    records.steps_per_epoch(manifest, settings.global_batch_size)


@dataclasses.dataclass(frozen=True)
class Description:
    """What ``settings.json`` says of a run."""

    settings: dict[str, Any]  # of `settings.Settings`
    data: dict[str, Any]  # fingerprint of the records
    records_at: str | None = None  # where they are; None: a run of an earlier version
    finished: tuple[int, ...] = ()  # steps at which it was finished before more were asked for

    @classmethod
    def of(cls, settings: Settings, manifest: records.Manifest, folder: Folder) -> Self:
        """Describe a run; records inside its folder are named from there, as it may be moved."""
        inside = Folder(manifest.path).absolute.removeprefix(f"{folder.absolute}/")
        return cls(dataclasses.asdict(settings), manifest.fingerprint, inside)

    @classmethod
    def read(cls, folder: Folder) -> Self | None:
        """Read a run's description, None where there is none.

        Raises:
            CourseError: There is one that can't be read.
        """
        if (text := folder.read(SETTINGS)) is None:
            return None
        why = f"Its {SETTINGS} was changed by hand, or is another program's."
        fix = "Name the folder of a run, or to begin one, a folder without such a file."
        with unreadable(f"{short(folder.path)} holds no run that can be read.", fix, why):
            run = json.loads(text)
            if run.pop("format") != FORMAT:
                raise ValueError
            found = cls(**run | {"finished": tuple(run.get("finished", ()))})
            found.settings["steps"], found.data["rows"]
            return found

    @classmethod
    def of_trained(cls, folder: Folder) -> Self:
        """Read the description of a run that has saved something.

        Raises:
            CourseError: There is no run, one that can't be read, or no checkpoint.
        """
        there = cls.read(folder)
        if there is None:
            run, inside, _ = folder.absolute.partition(f"/{CHECKPOINTS}")
            raise CourseError(
                f"{short(folder.path)} holds no run.",
                f"There is no {SETTINGS}: it is another folder, or nothing was trained in it.",
                f"Name {short(run)}, the folder above {CHECKPOINTS}."
                if inside
                else "Name the output folder of `tpu-course pretrain`.",
            )
        if not saved_steps(folder):
            raise CourseError(
                f"{short(folder.path)} has no checkpoint.",
                "The run ended before it saved one.",
                "Train first: the same `tpu-course pretrain` again.",
            )
        return there

    def write(self, folder: Folder) -> None:
        """Write it into the run's folder."""
        content = {"format": FORMAT} | dataclasses.asdict(self)
        folder.write(SETTINGS, json.dumps(content, indent=2) + "\n")

    def records_in(self, folder: Folder) -> str:
        """Give the path or address of the run's records."""
        path = self.records_at or "data"
        return path if is_remote(path) or os.path.isabs(path) else folder.at(path)  # noqa: PTH117

    def find_records(self, folder: Folder, data: str | None) -> records.Manifest:
        """Find the run's records, in the folder ``data`` or, without it, where they were.

        Raises:
            CourseError: They aren't there, or are not those that the run was trained on.
        """
        try:
            manifest = records.manifest(self.records_in(folder) if data is None else data)
        except CourseError as error:
            if data is not None:
                raise
            raise CourseError(
                f"The records of the run aren't where they were: {self.records_in(folder)}.",
                error.why,
                "Give their folder with --data.",
            ) from error
        if manifest.fingerprint != self.data:
            raise CourseError(
                "These records are not those that the run was trained on.",
                "The model card would describe other data, and tokens may be numbered otherwise.",
                "Give the records of the run with --data.",
            )
        return manifest

    def differences(self, there: "Description", unknown: Iterable[str]) -> dict[str, str]:
        """Say how the run in the folder differs, by the setting's name."""
        mine, other = self.settings | self.data, there.settings | there.data
        return {
            name: f"{name} {_short(other.get(name))} there, {_short(mine.get(name))} now"
            for name in mine | other
            if other.get(name) != mine.get(name) and name not in unknown
        }


def saved_steps(folder: Folder) -> list[int]:
    """Give the steps of all checkpoints, whole or damaged, newest first."""
    names = folder.list(CHECKPOINTS)
    found = [name.removeprefix("step-") for name in names if name.startswith("step-")]
    return sorted((int(number) for number in found if number.isdecimal()), reverse=True)


def check_same_run(
    folder: Folder, wanted: Description, unknown: Iterable[str] = ()
) -> Description | None:
    """Compare a run with what its folder holds (None: nothing that is to go on); change nothing.

    A start that failed before its first checkpoint left nothing that another could spoil, so any
    run may begin there. A finished run goes on when more steps are asked for. ``unknown`` settings
    are not known yet, and not compared.

    Raises:
        CourseError: The folder holds another run, or parts of one that can't be known.
    """
    there = Description.read(folder)
    saved = saved_steps(folder)
    if there is None:
        for name in (CHECKPOINTS, LOG):
            if folder.exists(name):
                raise CourseError(
                    f"The output folder has {name} and no {SETTINGS}.",
                    "What they belong to can't be known.",
                    f"Bring {SETTINGS} back, or take another output folder.",
                )
    if there is None or not saved:
        return None
    different = wanted.differences(there, unknown)
    steps = there.settings["steps"]
    if different.keys() == {"steps"} and steps < wanted.settings["steps"]:
        if saved[0] == steps:
            return there
        raise CourseError(
            f"The output folder's run is planned for {steps:,} steps and has done {saved[0]:,}.",
            "How fast it learns at each step depends on their number, so it can't change midway.",
            f"Finish it with --steps {steps}, then ask for more; or take another output folder.",
        )
    if different:
        raise CourseError(
            f"The output folder holds another run: {'; '.join(different.values())}.",
            "Going on with other settings would give a run that nothing describes.",
            "Give the settings it was started with to go on, or take another output folder.",
        )
    return there


def begin(folder: Folder, wanted: Description, say: Callable[[str], None]) -> Description:
    """Write down what the folder's run is now, and give it.

    Raises:
        CourseError: As `check_same_run`.
    """
    there = check_same_run(folder, wanted)
    if there is None:
        if folder.exists(SETTINGS):  # of a start that failed: its curves would stay beside ours
            folder.delete("tensorboard")
    else:
        finished, steps = there.finished, there.settings["steps"]
        if steps < wanted.settings["steps"]:
            finished += (steps,)
            say(
                f"The run of {steps:,} steps is finished and goes on to "
                f"{wanted.settings['steps']:,}, with the learning rate of a run so long."
            )
        wanted = dataclasses.replace(wanted, finished=finished)
    if wanted != there:
        wanted.write(folder)
    return wanted


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    return value[:8] if isinstance(value, str) and len(value) == 64 else str(value)
