"""A folder that holds a BERT: what must be in it, looked at before TensorFlow starts."""

import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

from helpers.base.errors import CourseError, unreadable
from helpers.base.folders import address, is_remote, short
from helpers.bert.settings import CHECKPOINTS, SETTINGS

MODEL = "model"  # where a finished run of `tuning` has its classifier
WEIGHTS = ("tf_model.h5", "model.safetensors")
TOKENIZERS = ("tokenizer.json", "vocab.txt")


@dataclasses.dataclass(frozen=True)
class Exported:
    """A folder that `TFBertForSequenceClassification.from_pretrained` reads."""

    path: pathlib.Path
    config: dict[str, Any]

    @property
    def longest(self) -> int:
        """Tokens of the longest text, a multiple of 8: a bucket's edge is one."""
        return self.config["max_position_embeddings"] // 8 * 8

    @property
    def has_pooler(self) -> bool:
        """Whether the weights have a pooler: pretraining trains it with next sentence alone."""
        if (path := self.path / WEIGHTS[0]).exists():
            import h5py

            with h5py.File(path) as file:
                return bool(file.visit(lambda name: "pooler" in name or None))
        import safetensors

        with safetensors.safe_open(self.path / WEIGHTS[1], "numpy") as file:
            return any("pooler" in name for name in file.keys())  # noqa: SIM118 (no dict)

    @property
    def fingerprint(self) -> str:
        """What tells this model from others: SHA-256 of configuration, tokenizer and weights."""
        files = [self.path / name for name in ("config.json", *WEIGHTS, *TOKENIZERS)]
        sums = []
        for path in filter(pathlib.Path.exists, files):
            with path.open("rb") as file:
                sums.append(hashlib.file_digest(file, "sha256").hexdigest())
        return hashlib.sha256("".join(sums).encode()).hexdigest()


def find(folder: str | os.PathLike[str]) -> Exported:
    """Look whether a folder holds a BERT with its tokenizer.

    Raises:
        CourseError: It is not there or in a bucket, a file is missing, or it is another model.
    """
    path = address(folder)
    if is_remote(path):
        raise CourseError(
            f"{path[:60]} is in a bucket.",
            "transformers reads a model from a folder of this machine.",
            "Copy it here first: gcloud storage cp -r gs://… FOLDER.",
        )
    path = pathlib.Path(path)
    if not path.is_dir():
        raise CourseError(
            f"There is no model {short(path)}.",
            "There is no such folder." if not path.exists() else "It is a file.",
            "Name a folder that `tpu-course export` wrote, or one with a BERT of transformers.",
        )
    config = _config(path)
    for names, what in ((WEIGHTS, "weights"), (TOKENIZERS, "tokenizer")):
        if not any((path / name).exists() for name in names):
            raise CourseError(
                f"The model {short(path)} has no {what}.",
                f"There is neither {' nor '.join(names)} in the folder.",
                "Copy all files of the model's folder, or export it again.",
            )
    return Exported(path, config)


def _config(path: pathlib.Path) -> dict[str, Any]:
    if not (path / "config.json").exists():
        run = (path / SETTINGS).exists() or (path / CHECKPOINTS).exists()
        raise CourseError(
            f"{short(path)} holds no model.",
            "It is the folder of a run." if run else "There is no config.json.",
            f"Write its model into a folder first: tpu-course export {short(path)} FOLDER."
            if run
            else "Name a folder that `tpu-course export` wrote.",
        )
    what = f"The model {short(path)} has a config.json that can't be read."
    with unreadable(what, "Copy it again, or export the model again."):
        config = json.loads((path / "config.json").read_text("utf-8"))
        kind = config.get("model_type")
    if kind != "bert":
        raise CourseError(
            f"The model {short(path)} is no BERT.",
            f"Its config.json says {kind!r}.",
            "Name a BERT: its model_type is 'bert'.",
        )
    return config


def find_classifier(folder: str | os.PathLike[str]) -> Exported:
    """Look whether a folder holds a BERT that tells labels: of a finished run, or its model.

    Raises:
        CourseError: As `find`, or it has no labels.
    """
    path = pathlib.Path(address(folder))
    if (path / MODEL).is_dir():
        path = path / MODEL
    elif (path / SETTINGS).exists():
        raise CourseError(
            f"The run {short(path)} has no model yet.",
            "A run writes it when all its steps are done.",
            "Finish it with the same `tpu-course finetune`; a run of `pretrain` tells no labels.",
        )
    found = find(path)
    architectures = found.config.get("architectures") or []
    if "BertForSequenceClassification" not in architectures:
        raise CourseError(
            f"The model {short(path)} tells no labels.",
            f"Its config.json says {', '.join(architectures) or 'nothing of what it is for'}.",
            "Fine-tune it first: tpu-course finetune --model FOLDER --data FILE --output DIR.",
        )
    return found
