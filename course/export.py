"""A trained BERT as a folder that transformers reads, in TensorFlow and in today's PyTorch.

The weights are written twice: `model.safetensors` with PyTorch's names and orientation, which
transformers 4 and 5 read, and `tf_model.h5` for `TFBertForMaskedLM`, which transformers 5 no longer
has. Beside them tokenizer and model card: without the tokens' numbers the weights mean nothing.
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

from course.outputs import TEMPLATES, new_folder
from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.folders import Folder
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
    folder = new_folder(folder)
    model, source, described, step = load(run, data)
    losses = [json.loads(line)["loss"] for line in read_log(Folder(run), step)]
    beside = Folder(source.manifest.path)
    results = None
    if beside.exists(records.HELD_OUT):
        results = evaluation.evaluate_records(model, source, beside.at(records.HELD_OUT))
    template = jinja2.Template((TEMPLATES / "model_card.md").read_text("utf-8"), trim_blocks=True)
    card = template.render(
        settings=dataclasses.asdict(described.settings),
        manifest=source.manifest,
        step=step,
        loss=np.mean(losses[-RECENT:]) if losses else None,
        results=None if results is None else results.round(2),
    )
    write(model, beside.read(records.TOKENIZER).decode(), folder, card)
    return folder


def load(
    run: str | os.PathLike[str], data: str | os.PathLike[str] | None = None
) -> tuple[tf.keras.Model, Data, Description, int]:
    """Read a run: the model of the newest whole checkpoint, data, settings, and its step.

    Arguments and errors are as for `export`.
    """
    folder = Folder(run)
    described = Description.of_trained(folder)
    source = read(described.records if data is None else data)
    if source.manifest.fingerprint != described.data:
        raise CourseError(
            "These records are not those that the run was trained on.",
            "The model card would describe other data, and tokens may be numbered otherwise.",
            "Give the records of the run with --data.",
        )
    model, _ = make(described.settings, source)
    return model, source, described, restore(tf.train.Checkpoint(model=model), folder)


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
            room = (w.numpy().tobytes() for layer in model.layers for w in layer.weights)
            files.write(writing / "tf_model.h5", [*room, bytes(2**20)])
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
    found = {}
    for weight in model.weights:
        shape, value = weight.shape, weight.numpy()
        name, turn = convert_tf_weight_name_to_pt_weight_name(weight.name, tf_weight_shape=shape)
        found[name] = np.ascontiguousarray(value.T if turn is TransposeType.SIMPLE else value)
    return found
