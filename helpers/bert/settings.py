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
LARGEST = (512, 2**15, 512)  # layers, width and heads of a model that is built


@dataclasses.dataclass(frozen=True)
class Configuration:
    """The size of a BERT."""

    layers: int  # encoder layers
    hidden: int  # width; the layer inside each encoder layer is four times as wide
    heads: int  # attention heads, each ``hidden / heads`` wide

    def __post_init__(self) -> None:
        sizes = (self.layers, self.hidden, self.heads)
        # GPT-3 has 96 layers of 12,288: what is far beyond it would be built for hours.
        for size, largest in zip(sizes, LARGEST, strict=True):
            if type(size) is not int or not 0 < size <= largest:
                raise ValueError(
                    f"layers, hidden, heads: {sizes}, not whole numbers up to {LARGEST}"
                )
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
    """What the numbers of a run depend on, apart from the data."""

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
            value = getattr(self, field.name)
            if field.type is float and type(value) is int:  # 1 for 1.0
                continue
            if not isinstance(value, field.type):
                raise TypeError(f"{field.name} is {value!r}")


@dataclasses.dataclass(frozen=True)
class Description:
    """What ``settings.json`` says of a run; equal for the same run, wherever its records are."""

    settings: Settings
    data: dict[str, Any]  # fingerprint of the records
    records: str = dataclasses.field(compare=False)  # path or address
    # Which programs computed it, in order (`program.current_program`), each with its first step as
    # ``from_step``; one but where the user went on with another.
    programs: list[dict[str, Any]] = dataclasses.field(default_factory=list, compare=False)

    @classmethod
    def read(cls, folder: Folder) -> Self | None:
        """Read a run's description; None where there is none.

        Raises `CourseError`: It can't be read, or is no run's.
        """
        text = folder.read(SETTINGS)
        if text is None:
            return None
        what = f"{short(folder.path)} holds no run that can be read."
        fix = f"Name the folder of a run; or to begin one, a folder without a {SETTINGS}."
        with unreadable(what, fix, f"Its {SETTINGS} was changed, or is another program's."):
            # The file has a dictionary for each dataclass.
            run = json.loads(text)
            size = Configuration(**run["settings"].pop("size"))
            run["settings"] = Settings(size, **run["settings"])
            description = cls(**run)
            if not (isinstance(description.records, str) and isinstance(description.data, dict)):
                raise TypeError("records or data")
            for program in description.programs:
                if type(program["from_step"]) is not int:
                    raise TypeError("programs")
            return description

    @classmethod
    def of_trained(cls, folder: Folder) -> Self:
        """Read the description of a run that has saved something.

        Raises `CourseError`: There is no such run, or as `read`.
        """
        description = cls.read(folder)
        if description is None or not saved_steps(folder):
            raise CourseError(
                f"{short(folder.path)} holds no run that has saved something.",
                f"There is no {SETTINGS}, or no checkpoint.",
                f"Name the output folder of `tpu-course pretrain`, with {CHECKPOINTS} in it.",
            )
        # Before a model is built for which there may be no room: the weights of its layers.
        size = description.settings.size
        expected_bytes = 4 * 12 * size.layers * size.hidden**2
        saved_bytes = sum(Folder(folder.at(CHECKPOINTS)).sizes().values())
        if saved_bytes < expected_bytes:
            raise CourseError(
                f"The checkpoints of {short(folder.path)} are not of the model in its {SETTINGS}.",
                f"They have {saved_bytes:,} bytes; {size.layers:,} layers of {size.hidden:,} take "
                f"{expected_bytes:,} or more.",
                f"Bring {SETTINGS} and {CHECKPOINTS} back as they were written.",
            )
        return description

    def check(self, folder: Folder) -> None:
        """Check that the folder's run is a new one, has saved nothing, or is the same.

        Raises `CourseError`: The folder holds another run or files of its names, or as `read`.
        """
        pattern = re.search(r"[*?[\\]", folder.at(CHECKPOINTS))
        if pattern:
            raise CourseError(
                f"A run can't be kept in {short(folder.path)}.",
                f"TensorFlow takes the {pattern[0]} in its path for a pattern and deletes what "
                "fits.",
                "Name a folder whose path has no *, ?, [ or \\.",
            )
        earlier = self.read(folder)
        if earlier is None:
            for name in (LOG, CHECKPOINTS):
                if folder.exists(name):
                    raise CourseError(
                        f"{short(folder.path)} has a {name} and no {SETTINGS}.",
                        "It belongs to no run that can continue, and a new run would overwrite it.",
                        f"Name another output folder, or bring {SETTINGS} back.",
                    )
        elif earlier != self and (saved_steps(folder) or folder.exists(LOG)):
            raise CourseError(
                f"The output folder holds another run: {self._differences(earlier)}.",
                "A run must continue as it began.",
                "Give the settings it was started with to go on, or take another output folder.",
            )

    def _differences(self, earlier: Self) -> str:
        return _differences(
            dataclasses.asdict(earlier.settings) | earlier.data,
            dataclasses.asdict(self.settings) | self.data,
        )

    def after(self, step: int, program: dict[str, str], *, may_change: bool = False) -> Self:
        """Give the description of the run when ``program`` goes on with it after a step.

        Raises `CourseError`: Another program computed the run so far, and ``may_change`` is False.
        """
        # Of programs that began later, the steps are computed again.
        programs = [entry for entry in self.programs if entry["from_step"] <= step]
        if programs:
            earlier = dict(programs[-1])
            del earlier["from_step"]
            if earlier == program:
                return dataclasses.replace(self, programs=programs)
            if not may_change:
                raise CourseError(
                    f"Another program computed this run: {_differences(earlier, program)}.",
                    "From here on its numbers would not be those of the run that was begun.",
                    "Bring back the sources of the course and the versions it was begun with; or "
                    "go on with --changed-program (in Python changed_program=True): "
                    f"{SETTINGS} then says from which step on it is another program.",
                )
        # Runs of before 2026-12 don't say who computed them: nothing can be compared.
        programs.append({"from_step": step + 1} | program)
        return dataclasses.replace(self, programs=programs)

    def begin(self, folder: Folder) -> None:
        """Write down what the folder's run is; errors as of `check`."""
        self.check(folder)
        folder.write(SETTINGS, json.dumps(dataclasses.asdict(self), indent=2) + "\n")


def _differences(there: dict[str, Any], now: dict[str, Any]) -> str:
    differences = []
    for name, value in now.items():
        if there.get(name) != value:
            differences.append(f"{name} {there.get(name)} there, {value} now")
    return "; ".join(differences)


def saved_steps(folder: Folder) -> list[int]:
    """Give the steps of all checkpoints, whole or damaged, newest first."""
    # The index is written last: without it, a checkpoint is none. Other files are the user's own.
    steps = []
    for name in Folder(folder.at(CHECKPOINTS)).sizes():
        match = re.fullmatch(r"step-(\d{1,18})\.index", name)
        if match:
            steps.append(int(match[1]))
    return sorted(steps, reverse=True)


def read_log(folder: Folder, steps: int) -> list[str]:
    """Read the lines of a run's first steps; none where the log was deleted.

    Raises `CourseError`: A line was changed, or one is missing or there twice.
    """
    what = f"The {LOG} of {short(folder.path)} can't be read."
    fix = "Bring it back from a copy; without one delete it: a new one begins with the next step."
    with unreadable(what, fix):
        lines = (folder.read(LOG) or b"").decode().splitlines(keepends=True)
        rows = [json.loads(line) for line in lines]
        if not all(isinstance(row["loss"], float) for row in rows):
            raise ValueError("a line has no loss")
        numbers = [row["step"] for row in rows]
        lines_of_steps = []
        for line, number in zip(lines, numbers, strict=True):
            if number <= steps:
                lines_of_steps.append(line)
        # The log may begin late, where it was deleted; from there on it has every step.
        if steps and lines_of_steps:
            begin = steps - len(lines_of_steps) + 1
            if numbers != list(range(begin, begin + len(numbers))):
                raise ValueError(f"its lines are not of step after step, through {steps:,}")
        return lines_of_steps
