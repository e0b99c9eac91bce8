"""A trained BERT as a folder that transformers reads, in TensorFlow and in today's PyTorch.

The weights are written twice: `model.safetensors` with PyTorch's names and orientation, which
transformers 4 and 5 read, and `tf_model.h5` for `TFBertForMaskedLM`, which transformers 5 no longer
has. With them come tokenizer and model card: without the tokens' numbers the weights mean nothing.
"""

import dataclasses
import json
import os
import pathlib
import shutil

import jinja2
import numpy as np
import safetensors.numpy
import tensorflow as tf
from transformers import BertTokenizerFast, TFPreTrainedModel
from transformers.modeling_tf_pytorch_utils import (
    TransposeType,
    convert_tf_weight_name_to_pt_weight_name,
)

from course.catalog import TEMPLATES
from course.outputs import new_folder
from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.folders import Folder, short
from helpers.base.temporary import leftovers, reserved_folder
from helpers.bert import evaluation
from helpers.bert.data import Data, read
from helpers.bert.pretraining import make, restore
from helpers.bert.settings import Description, read_log
from helpers.text import records

RECENT = 100  # losses that the card gives the mean of


def export(
    run: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
) -> pathlib.Path:
    """Write a run's model, tokenizer and card into a new folder, and give its path.

    The card has the results on the records in ``held-out`` of the run's records, if there are.

    Args:
        run: Output folder of `pretraining.run`, finished or not.
        folder: On this machine; after a crash it is whole or absent.
        data: The records that the run was trained on; None: where the run says that they are.

    Raises `CourseError`: There is no whole run, these are other records, or the folder can't be
    made.
    """
    # It is only checked here: `write` makes it when everything else has succeeded.
    folder = new_folder(folder)
    model, source, description, step = load(run, data)
    loss = None
    log = read_log(Folder(run), step)
    if log:
        loss = np.mean([json.loads(line)["loss"] for line in log[-RECENT:]])
    data_folder = Folder(source.manifest.path)
    results = None
    if data_folder.exists(records.HELD_OUT):
        held_out = data_folder.at(records.HELD_OUT)
        results = evaluation.evaluate_records(model, source, held_out).round(2)
    template = (TEMPLATES / "model_card.md").read_text("utf-8")
    card = jinja2.Template(template, trim_blocks=True).render(
        settings=dataclasses.asdict(description.settings),
        manifest=source.manifest,
        step=step,
        loss=loss,
        results=results,
    )
    tokenizer = data_folder.read(records.TOKENIZER).decode()
    write(model, tokenizer, folder, card)
    return folder


def load(
    run: str | os.PathLike[str], data: str | os.PathLike[str] | None = None
) -> tuple[tf.keras.Model, Data, Description, int]:
    """Read a run: the model of the newest whole checkpoint, data, settings, and its step.

    Args:
        run: Output folder of `pretraining.run`.
        data: The records that the run was trained on; None: where the run says that they are.

    Raises `CourseError`: There is no whole checkpoint, or these are other records.
    """
    folder = Folder(run)
    description = Description.of_trained(folder)
    if data is None:
        data = description.records
        if not Folder(data).exists(records.MANIFEST):
            raise CourseError(
                f"The run's records are not in {short(data)}.",
                "The run was trained on records in that folder: they were moved or deleted since.",
                "Give the folder that they are in now with --data.",
            )
    source = read(data)
    if source.manifest.fingerprint != description.data:
        raise CourseError(
            "These records are not those that the run was trained on.",
            "The model card would describe other data, and tokens may be numbered otherwise.",
            "Give the records of the run with --data.",
        )
    model, _ = make(description.settings, source)
    step = restore(tf.train.Checkpoint(model=model), folder)
    return model, source, description, step


def write(model: TFPreTrainedModel, tokenizer: str, folder: pathlib.Path, card: str) -> None:
    """Write a model, its tokenizer (``tokenizer.json``) and its card (Markdown), whole or not.

    Raises `CourseError`: The folder can't be written.
    """
    try:
        for leftover in leftovers(folder):
            shutil.rmtree(leftover, ignore_errors=True)
        with reserved_folder(folder) as writing:
            _write_tokenizer(tokenizer, model.config.max_position_embeddings, writing)
            # The ordinary class: packed rows are a matter of the input, not of the weights.
            config = model.config.to_diff_dict() | {"architectures": ["BertForMaskedLM"]}
            files.write(writing / "config.json", json.dumps(config, indent=2, sort_keys=True))
            weights = safetensors.numpy.save(pytorch_weights(model), metadata={"format": "pt"})
            files.write(writing / "model.safetensors", weights)
            # As many bytes first: on a full disk HDF5 would crash.
            room = [weight.numpy().tobytes() for weight in model.weights]
            room.append(bytes(2**20))
            files.write(writing / "tf_model.h5", room)
            model.save_weights(writing / "tf_model.h5", save_format="h5")
            files.write(writing / "README.md", card)
            os.sync()  # all of it is on the disk before it has its name
            writing.rename(folder)
    except OSError as error:
        raise files.cant_write(folder, error) from error


def _write_tokenizer(content: str, longest: int, folder: pathlib.Path) -> None:
    file = folder / "tokenizer.json"
    files.write(file, content)
    normalizer = json.loads(content).get("normalizer") or {}
    BertTokenizerFast(
        tokenizer_file=str(file),
        do_lower_case=normalizer.get("lowercase", False),
        strip_accents=normalizer.get("strip_accents", False),
        model_max_length=longest,
    ).save_pretrained(folder)


def pytorch_weights(model: tf.keras.Model) -> dict[str, np.ndarray]:
    """Name and transpose a model's weights as PyTorch's `BertForMaskedLM` has them.

    PyTorch's linear layers hold the transpose of TensorFlow's. The head's output weights are the
    token embeddings; transformers ties them again when it loads, so they are written once.
    """
    # `model.weights` lists the embeddings, which the head shares, once.
    weights = {}
    for weight in model.weights:
        name, transpose = convert_tf_weight_name_to_pt_weight_name(
            weight.name, tf_weight_shape=weight.shape
        )
        value = weight.numpy()
        if transpose is TransposeType.SIMPLE:
            value = value.T
        weights[name] = np.ascontiguousarray(value)
    return weights
