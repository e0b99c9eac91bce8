"""A trained BERT as a folder that transformers reads, in TensorFlow and in today's PyTorch.

The weights are written twice: `model.safetensors` with PyTorch's names and orientation, which
transformers 4 and 5 read, and `tf_model.h5` for `TFBertForMaskedLM`, which transformers 5 has no
more. Beside them tokenizer and model card: without the tokens' numbers the weights mean nothing.
"""

import copy
import dataclasses
import json
import os
import pathlib
import shutil
import tempfile

import numpy as np
import safetensors.numpy
import tensorflow as tf
from transformers import BertTokenizerFast
from transformers.modeling_tf_pytorch_utils import (
    TransposeType,
    convert_tf_weight_name_to_pt_weight_name,
)

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.bert import evaluation, pretraining
from helpers.bert import model as bert
from helpers.text import records

WEIGHTS = "model.safetensors"
TF_WEIGHTS = "tf_model.h5"
CARD = "README.md"

SHIPPED = (
    "Paragraphs of LibreOffice 7.4.7's help in Korean and English, nine of ten (the course's "
    "`notebooks/data`). Licence of the text: Mozilla Public License 2.0."
)
UNNAMED = "Records that the course's `prepare` wrote. Name the text and its licence here."


class FolderInUse(CourseError):
    """The folder to write has something in it."""


class NotLocal(CourseError):
    """The folder to write is in a bucket."""


class NothingTrained(CourseError):
    """The folder has no run with a whole checkpoint."""


class OtherData(CourseError):
    """The records are not those that the run was trained on."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a model card says of a run.

    Attributes:
        settings: Of the run.
        manifest: Of its records.
        step: Steps done.
        loss: Mean training loss of the last steps, in nats per masked token.
        unigram: Loss of guessing by the tokens' frequencies alone, on the training text.
        text: What the text is, and under which licence, in Markdown.
        results: On text held out of the training; None where there was none.
    """

    settings: pretraining.Settings
    manifest: records.Manifest
    step: int
    loss: float
    unigram: float
    text: str
    results: evaluation.Evaluation | None


def card(facts: Facts) -> str:
    """Write a model card.

    Args:
        facts: Of the run.

    Returns:
        Markdown with the metadata that the Hugging Face Hub reads.
    """
    settings, size = facts.settings, facts.settings.size
    rows = {
        "layers, width, heads": f"{size.layers}, {size.hidden}, {size.heads}",
        "vocabulary": f"{facts.manifest.settings.vocabulary:,} tokens",
        "longest sequence": f"{facts.manifest.settings.sequence_length} tokens",
        "steps": f"{facts.step:,} of {settings.steps:,} planned",
        "rows per step": f"{settings.global_batch_size}, in {settings.accumulate} parts",
        "learning rate": f"{settings.learning_rate:g} after {settings.warm_up:,} steps, then "
        "linearly to 0",
        "weight decay, clipping": f"{settings.weight_decay:g}, {settings.clip_norm:g}",
        "dropout": f"{settings.dropout:g}",
        "precision": settings.precision,
        "seed": f"{settings.seed}",
        "training loss": f"{facts.loss:.2f} (counting words alone: {facts.unigram:.2f})",
    }
    objective = "alone (no next sentence prediction)"
    if settings.next_sentence:
        objective = "and next sentence prediction"
        rows["training loss"] += ", with that of next sentence prediction (a coin: 0.69)"
    results = "No text was held out: nothing is known of how well it guesses unseen text."
    if facts.results is not None:
        results = (
            "Masked tokens of held-out text, masks fixed, in nats per token; 95 % intervals over "
            f"documents.\n\n{facts.results.markdown()}"
        )
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: fill-mask",
        "---",
        "",
        f"# BERT, {size.layers} layers of {size.hidden}",
        "",
        f"Pretrained from random weights by masked language modelling {objective}, with the "
        "course's `python -m helpers pretrain`.",
        "",
        "## Data",
        "",
        facts.text,
        "",
        f"{facts.manifest.settings.documents:,} documents, {facts.manifest.tokens:,} tokens in "
        f"{facts.manifest.rows:,} packed rows.",
        "",
        "## Training",
        "",
        "| setting | value |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in rows.items()),
        "",
        "## Results",
        "",
        results,
        "",
        "## Use",
        "",
        "`BertForMaskedLM.from_pretrained(folder)` in PyTorch, transformers 4 and 5; "
        "`TFBertForMaskedLM.from_pretrained(folder, use_safetensors=False)` in transformers 4.",
        "",
        "## Limits",
        "",
        "It knows the words of its text and little else. It was not examined for what it gets "
        "wrong about people, and not fine-tuned for any task. Sequences longer than the above "
        "have positions it never saw.",
    ]
    return "\n".join(lines) + "\n"


def write(
    model: bert.TFPackedBertForMaskedLM,
    tokenizer: str,
    folder: str | os.PathLike[str],
    model_card: str,
) -> pathlib.Path:
    """Write a model, its tokenizer and its card; after a crash the folder is whole or absent.

    Args:
        model: From `bert.pretraining_model`.
        tokenizer: Content of its ``tokenizer.json``.
        folder: To make; must be absent or empty.
        model_card: Markdown.

    Returns:
        The folder.

    Raises:
        FolderInUse: There is something in the folder.
        NotLocal: The folder is in a bucket.
        files.CantWrite: The disk is full, or the place is not writable.
    """
    if "://" in os.fspath(folder):
        raise NotLocal(
            f"{os.fspath(folder)[:60]!r} is no folder of this machine.",
            "A folder can be whole or absent on a disk; a bucket has no folders.",
            "Export to a folder here, then copy it: gcloud storage cp -r FOLDER gs://….",
        )
    folder = pathlib.Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderInUse(
            f"{folder.name} exists and is not empty.",
            "What is in it would be lost, or mixed with the model's files.",
            "Name another folder, or remove this one first.",
        )
    writing = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        writing = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        _write_tokenizer(tokenizer, model.config.max_position_embeddings, writing)
        # The name of the ordinary class: packed rows are a matter of its input, not of its weights.
        config = copy.deepcopy(model.config)
        both = isinstance(model, bert.TFPackedBertForPreTraining)
        config.architectures = ["BertForPreTraining" if both else "BertForMaskedLM"]
        files.write(writing / "config.json", config.to_json_string())
        weights = safetensors.numpy.save(pytorch_weights(model), metadata={"format": "pt"})
        files.write(writing / WEIGHTS, weights)
        model.save_weights(writing / TF_WEIGHTS, save_format="h5")
        files.write(writing / CARD, model_card)
        _make_readable(writing)
        writing.rename(folder)
    except OSError as error:
        raise files.CantWrite(
            f"{folder.name} could not be written.",
            f"{error.strerror or error}",
            "Make room, or name a place that you may write to, and export again.",
        ) from error
    finally:
        if writing is not None and writing.exists():
            shutil.rmtree(writing)
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


def _make_readable(folder: pathlib.Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~mask)
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def pytorch_weights(model: tf.keras.Model) -> dict[str, np.ndarray]:
    """Name and turn a model's weights as PyTorch's `BertForMaskedLM` has them.

    PyTorch's linear layers hold the transpose of TensorFlow's. The head's output weights are the
    token embeddings; transformers ties them again when it loads, so they are written once.

    Args:
        model: From `bert.pretraining_model`.

    Returns:
        Arrays by name.
    """
    found = {}
    for weight in model.weights:
        name, transpose = convert_tf_weight_name_to_pt_weight_name(
            weight.name, tf_weight_shape=weight.shape
        )
        value = weight.numpy()
        turned = value.T if transpose is TransposeType.SIMPLE else value
        found[name] = np.ascontiguousarray(turned)
    return found


@dataclasses.dataclass(frozen=True)
class Trained:
    """A run, read from its folder.

    Attributes:
        model: With the weights of the newest checkpoint.
        settings: Of the run.
        data: That it was trained on.
        step: Steps done.
        loss: Mean of the last steps.
        unigram: Loss of counting words.
    """

    model: tf.keras.Model
    settings: pretraining.Settings
    data: pretraining.Data
    step: int
    loss: float
    unigram: float


def load(run: str | os.PathLike[str], data: str | os.PathLike[str]) -> Trained:
    """Read a run as `pretraining.run` left it, finished or not; nothing is changed in its folder.

    Args:
        run: The run's folder, here or ``gs://``.
        data: The records it was trained on.

    Returns:
        The run.

    Raises:
        NothingTrained: There is no run, or no whole checkpoint.
        OtherData: These are other records.
        records.CourseError: As `pretraining.read`.
    """
    run = os.fspath(run).rstrip("/")
    try:
        with tf.io.gfile.GFile(f"{run}/{pretraining.SETTINGS}", "r") as file:
            written = json.loads(file.read())
        fields = dict(written["settings"])
        size = bert.Configuration(**fields.pop("size"))
        settings = pretraining.Settings(size, **fields)
        fingerprint = written["data"]
        names = tf.io.gfile.listdir(f"{run}/{pretraining.CHECKPOINTS}")
        with tf.io.gfile.GFile(f"{run}/{pretraining.LOG}", "r") as file:
            losses = [json.loads(line)["loss"] for line in file.read().splitlines()]
    except (tf.errors.OpError, ValueError, KeyError, TypeError) as error:
        raise NothingTrained(
            f"{run.rpartition('/')[2]} holds no run that can be read.",
            str(error).strip().splitlines()[0][:200],
            "Name the output folder of `python -m helpers pretrain`.",
        ) from error
    source = pretraining.read(data)
    if source.fingerprint != fingerprint:
        raise OtherData(
            "These records are not those that the run was trained on.",
            "The model card would describe other data, and the tokens may be numbered otherwise.",
            "Give the records of the run with --data.",
        )
    scores, unigram = pretraining.unigram(pretraining.count_tokens(source))
    model, _ = pretraining.make(settings, source, scores)
    names = sorted((name.rstrip("/") for name in names if name.startswith("step-")), reverse=True)
    for name in names:
        checkpoint = tf.train.Checkpoint(model=model)
        try:
            status = checkpoint.read(f"{run}/{pretraining.CHECKPOINTS}/{name}/state")
            status.assert_existing_objects_matched().expect_partial()
        except (tf.errors.OpError, AssertionError, IndexError, RuntimeError, ValueError):
            continue  # damaged: the one before it was kept for that
        step = int(name.removeprefix("step-"))
        recent = losses[:step][-pretraining.RECENT :]
        return Trained(model, settings, source, step, float(np.mean(recent)), unigram)
    raise NothingTrained(
        f"{run.rpartition('/')[2]} has no whole checkpoint.",
        f"{len(names)} of {len(names)} can't be read.",
        "Train first: python -m helpers pretrain.",
    )


def export(
    run: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
) -> Facts:
    """Write a run's model, tokenizer and card, and evaluate it for the card.

    Args:
        run: The run's folder.
        folder: To make.
        data: The records it was trained on; None for the shipped text, which `pretrain` wrote into
            the run's folder. Held-out text is read from its folder ``held-out``.

    Returns:
        What the card says.

    Raises:
        As `load` and `write`.
    """
    at = os.fspath(data).rstrip("/") if data else f"{os.fspath(run).rstrip('/')}/data"
    trained = load(run, at)
    results = None
    if data is None:
        results = evaluation.evaluate_shipped(trained.model, trained.data)
    elif tf.io.gfile.exists(f"{at}/{evaluation.HELD_OUT}"):
        results = evaluation.evaluate_records(
            trained.model, trained.data, f"{at}/{evaluation.HELD_OUT}"
        )
    facts = Facts(
        trained.settings,
        trained.data.manifest,
        trained.step,
        trained.loss,
        trained.unigram,
        UNNAMED if data else SHIPPED,
        results,
    )
    with tf.io.gfile.GFile(f"{at}/{records.TOKENIZER}", "r") as file:
        write(trained.model, file.read(), folder, card(facts))
    return facts
