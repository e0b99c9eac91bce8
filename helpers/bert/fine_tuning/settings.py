"""What a fine-tuning run is, checked before TensorFlow starts."""

import dataclasses
import os

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.bert.fine_tuning.exported import Exported
from helpers.bert.fine_tuning.labelled import Labelled
from helpers.bert.settings import Description, check_range, check_same_run


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the numbers of a run depend on, beside the model and the data."""

    epochs: int = 10  # times that each text is trained on
    global_batch_size: int = 32  # rows per step, over all replicas
    learning_rate: float = 1e-3  # the highest
    seed: int = 0  # of the classifier, the order and dropout


def check(
    settings: Settings, model: Exported, data: Labelled, output: str | os.PathLike[str]
) -> Description:
    """Refuse what can't be run; describe the run, its steps not yet counted. Nothing is written.

    Raises:
        CourseError: A number is out of its range; or the output folder is in a bucket, can't be
            written, or holds another run.
    """
    check_range(vars(settings))
    folder = Folder(output)
    if folder.remote:
        raise CourseError(
            f"{folder.path[:60]} is in a bucket.",
            "The finished model is written as a folder of this machine, whole or not at all.",
            "Name a folder here; copy it afterwards: gcloud storage cp -r FOLDER gs://….",
        )
    folder.check()
    numbers = dataclasses.asdict(settings) | {"model": model.fingerprint, "steps": 0}
    described = Description(numbers, data.fingerprint)
    check_same_run(folder, described, unknown=["steps"])
    return described
