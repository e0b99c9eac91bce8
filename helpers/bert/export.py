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
import pandas as pd
import safetensors.numpy
import tensorflow as tf
from transformers import BertTokenizerFast, TFPreTrainedModel
from transformers.modeling_tf_pytorch_utils import (
    TransposeType,
    convert_tf_weight_name_to_pt_weight_name,
)

from helpers.base import files, html
from helpers.base.errors import CourseError
from helpers.base.folders import Folder, new_folder
from helpers.bert import evaluation
from helpers.bert.data import Data, count_tokens, read, unigram
from helpers.bert.pretraining import RECENT, make, restore
from helpers.bert.settings import LOG, Description, Settings
from helpers.text import records
from helpers.text.records import HELD_OUT

PREPARED = "data"  # where a run keeps the shipped text, in its own folder
SHIPPED = (
    "Paragraphs of LibreOffice 7.4.7's help in Korean and English, nine of ten (the course's "
    "`notebooks/data`). Licence of the text: Mozilla Public License 2.0."
)
UNNAMED = "Records that the course's `prepare` wrote. Name the text and its licence here."


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a model card says of a run."""

    settings: Settings
    manifest: records.Manifest
    step: int  # steps done
    loss: float  # mean training loss of the last steps, in nats per masked token
    unigram: float  # loss of guessing by the tokens' frequencies alone, on the training text
    text: str  # what the text is, and under which licence, in Markdown
    results: (
        pd.DataFrame | None
    )  # of `evaluation.evaluate`, on text held out of the training, where there was any
    finished: tuple[int, ...] = ()  # steps at which it was finished before more were asked for


def card(facts: Facts) -> str:
    """Write a model card: Markdown with the metadata that the Hugging Face Hub reads."""
    options = {"undefined": jinja2.StrictUndefined, "keep_trailing_newline": True}
    template = jinja2.Template(html.text("model_card.md"), trim_blocks=True, **options)
    results = None if facts.results is None else evaluation.rounded(facts.results)
    return template.render(facts=facts, results=results)


def write(
    model: TFPreTrainedModel,
    tokenizer: str,
    folder: str | os.PathLike[str],
    model_card: str,
) -> pathlib.Path:
    """Write a model, its tokenizer (``tokenizer.json``) and its card (Markdown) into a new folder.

    After a crash the folder is whole or absent.

    Raises:
        CourseError: The folder is not empty, is in a bucket, or can't be written.
    """
    folder = new_folder(folder)
    writing = folder.with_name(f".{folder.name}.writing")
    try:
        shutil.rmtree(writing, ignore_errors=True)  # of a call that was killed
        writing.mkdir(parents=True)
        _write_tokenizer(tokenizer, model.config.max_position_embeddings, writing)
        # The ordinary class: packed rows are a matter of the input, not of the weights.
        config = model.config.to_diff_dict() | {"architectures": ["BertForMaskedLM"]}
        files.write(writing / "config.json", json.dumps(config, indent=2, sort_keys=True) + "\n")
        weights = safetensors.numpy.save(pytorch_weights(model), metadata={"format": "pt"})
        files.write(writing / "model.safetensors", weights)
        model.save_weights(writing / "tf_model.h5", save_format="h5")
        files.write(writing / "README.md", model_card)
        Folder(folder.parent).rename(writing.name, folder.name)
    except OSError as error:
        raise files.cant_write(folder, error) from error
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    return folder


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


def load(
    run: str | os.PathLike[str], data: str | os.PathLike[str] | None = None
) -> tuple[tf.keras.Model, Data, Facts]:
    """Read a run as `pretraining.run` left it, finished or not; nothing is changed in its folder.

    ``data`` are the records it was trained on; None: where the run says that they are. Gives the
    model with the weights of the newest checkpoint, the data, and what is known of it.

    Raises:
        CourseError: There is no run, no whole checkpoint, or these are other records.
    """
    folder = Folder(run)
    described = Description.of_trained(folder)
    source = read(described.records_in(folder) if data is None else data)
    if source.manifest.fingerprint != described.data:
        raise CourseError(
            "These records are not those that the run was trained on.",
            "The model card would describe other data, and tokens may be numbered otherwise.",
            "Give the records of the run with --data.",
        )
    scores, loss = unigram(count_tokens(source))
    model, _ = make(described.settings, source, scores)
    step = restore(tf.train.Checkpoint(model=model), folder)
    rows = (folder.read(LOG) or b"").splitlines()[:step]
    mean = float(np.mean([json.loads(row)["loss"] for row in rows][-RECENT:]))
    text = SHIPPED if described.records == PREPARED else UNNAMED
    kept = described.settings, source.manifest, step, mean, loss, text, None, described.finished
    return model, source, Facts(*kept)


def export(
    run: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
) -> Facts:
    """Write a run's model, tokenizer and card, evaluate it for the card, and give what that says.

    Held-out text is read from the folder ``held-out`` of the records, where there is one.

    Raises:
        CourseError: As `load` and `write`.
    """
    new_folder(folder)
    model, source, facts = load(run, data)
    beside = Folder(source.manifest.path)
    if beside.exists(HELD_OUT):
        results = evaluation.evaluate_records(model, source, beside.at(HELD_OUT))
        facts = dataclasses.replace(facts, results=results)
    write(model, beside.read(records.TOKENIZER).decode(), folder, card(facts))
    return facts
