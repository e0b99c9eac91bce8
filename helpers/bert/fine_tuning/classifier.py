"""`TFBertForSequenceClassification` from an exported BERT, ready for ``compile`` and ``fit``.

Two things are not Keras': dropout is a function of seed and step, so that a resumed run drops the
same values; and what is drawn anew (the classifier, a pooler that was never trained) depends on the
seed alone.
"""

import os
import pathlib
import re
from collections.abc import Callable, Sequence

import numpy as np
import safetensors.numpy
import tensorflow as tf
from transformers import BertConfig, BertTokenizerFast, TFBertForSequenceClassification
from transformers.modeling_tf_pytorch_utils import load_pytorch_state_dict_in_tf2_model

from helpers.base.errors import CourseError
from helpers.bert.fine_tuning import batches, exported
from helpers.bert.model import cut_normal, is_bias_or_norm
from helpers.bert.step import WarmUpLinearDecay, adamw

ROWS = 32  # of a batch to predict
LAYERS, REPLICAS = 2**10, 2**14  # more than there are: no two draws share a seed


class Dropout(tf.keras.layers.Layer):
    """Dropout as a function of (seed, step, replica, layer); Keras draws from state of its own.

    Args:
        rate: Share of values that become 0.
        number: Number of the layer in its model.
        at: Gives seed and step (with the replica) as int64 [2]; a function, because Keras would
            save a variable with the layer.
    """

    def __init__(self, rate: float, number: int, at: Callable[[], tf.Tensor]) -> None:
        super().__init__()
        self._rate, self._number, self._at = rate, number, at

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Drop values of a batch, in training alone."""
        if not training:
            return inputs
        seed = self._at() * [LAYERS, 1] + [self._number, 0]
        return tf.nn.experimental.stateless_dropout(inputs, self._rate, seed)


class Start:
    """A classifier's weights before training, to begin with again.

    Attributes:
        model: The classifier; `compiled` gives it an optimizer.
        fresh: What of it was not in the pretrained weights: ``classifier``, and perhaps ``pooler``.
    """

    def __init__(self, model: tf.keras.Model, fresh: Sequence[str]) -> None:
        self.model, self.fresh = model, tuple(fresh)
        self._seed = tf.Variable(0, trainable=False, dtype=tf.int64)
        layers = [
            layer
            for layer in (model, *model.submodules)
            if isinstance(getattr(layer, "dropout", None), tf.keras.layers.Dropout)
        ]
        for number, layer in enumerate(layers):
            layer.dropout = Dropout(layer.dropout.rate, number, self.where)
        self._weights = model.get_weights()

    def where(self) -> tf.Tensor:
        """Say where in the run the model is: seed, then step and replica, int64 [2]."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        step = tf.cast(self.model.optimizer.iterations, tf.int64) * REPLICAS
        return tf.stack([self._seed, step + tf.cast(replica, tf.int64)])

    def again(self, seed: int = 0) -> tf.keras.Model:
        """Set the model to its start; what is fresh, and dropout, are drawn with this seed.

        Keras keeps what it traced: a second run of ``fit`` begins at once.
        """
        self.model.set_weights(self._weights)
        self._seed.assign(seed)
        for weight in self.model.trainable_variables:
            if any(f"/{name}/" in weight.name for name in self.fresh):
                _draw(weight, seed, self.model.config.initializer_range)
        if self.model.optimizer is not None:
            for variable in self.model.optimizer.variables:
                if "learning_rate" not in variable.name:
                    variable.assign(tf.zeros_like(variable))
        return self.model


def _draw(weight: tf.Variable, seed: int, deviation: float) -> None:
    if is_bias_or_norm(weight):
        weight.assign(tf.zeros_like(weight) + float("gamma" in weight.name))
    else:
        weight.assign(cut_normal(weight, seed) * deviation)


def load(
    model: str | os.PathLike[str],
    names: Sequence[str],
    *,
    seed: int = 0,
    pretrained: bool = True,
) -> Start:
    """Read a BERT and put a fresh classifier on it; on several replicas in the strategy's scope.

    Args:
        model: Folder as `tpu-course export` writes it, or another that transformers reads.
        names: Of the labels, in order.
        seed: Of what is drawn, and of dropout.
        pretrained: False: the same model with all weights drawn anew, to compare with.

    Raises:
        CourseError: As `exported.find`; or the weights are not those that its configuration says.
    """
    found = exported.find(model)
    config = BertConfig.from_pretrained(
        found.path,
        id2label=dict(enumerate(names)),
        label2id={name: at for at, name in enumerate(names)},
    )
    if pretrained:
        made, told = _read(found.path, config)
        wrong = [str(key) for key, *_ in told["mismatched_keys"] if "classifier" not in str(key)]
        missing = [key for key in told["missing_keys"] if not re.search("classifier|pooler", key)]
        if wrong or missing:
            raise CourseError(
                f"The weights of {found.path.name} don't fit its config.json.",
                f"{(wrong + missing)[0]} is missing or has another shape.",
                "Copy the model's folder again: its files are of different models.",
            )
        # What is missing of a layer, transformers doesn't say.
        fresh = ("classifier",) if found.has_pooler else ("pooler", "classifier")
    else:
        made, fresh = TFBertForSequenceClassification(config), ("bert", "classifier")
        made.build_in_name_scope()
    start = Start(made, fresh)
    start.again(seed)
    return start


def _read(folder: pathlib.Path, config: BertConfig) -> tuple[tf.keras.Model, dict]:
    kind, path = TFBertForSequenceClassification, folder / "model.safetensors"
    options = {"ignore_mismatched_sizes": True, "output_loading_info": True}
    if not (folder / "tf_model.h5").exists():
        with safetensors.safe_open(path, "numpy") as file:
            of_pytorch = (file.metadata() or {}).get("format") != "tf"
        if of_pytorch:
            # By hand: transformers 4.57 fails to (huggingface/transformers#40028).
            made = kind(config)
            made.build_in_name_scope()
            weights = safetensors.numpy.load_file(path)
            options |= {"tf_inputs": False, "allow_missing_keys": True}
            return load_pytorch_state_dict_in_tf2_model(made, weights, **options)
        return kind.from_pretrained(folder, config=config, **options)
    return kind.from_pretrained(folder, config=config, use_safetensors=False, **options)


def restored(model: str | os.PathLike[str]) -> tf.keras.Model:
    """Read a classifier that was fine-tuned, as it is."""
    found = exported.find_classifier(model)
    return _read(found.path, BertConfig.from_pretrained(found.path))[0]


def tokenizer(model: str | os.PathLike[str]) -> BertTokenizerFast:
    """Read a model's tokenizer."""
    return BertTokenizerFast.from_pretrained(exported.find(model).path)


def compiled(start: Start, *, steps: int, learning_rate: float = 3e-4) -> tf.keras.Model:
    """Compile a model for ``fit`` on `batches.training`: AdamW, warm-up, linear decay.

    ``steps`` are those of the whole run; in a tenth of them the learning rate gets to its highest.
    Logs have ``accuracy`` and ``cross_entropy``, nats per text; ``loss`` counts rows of padding,
    too.
    """
    schedule = WarmUpLinearDecay(learning_rate, max(1, round(0.1 * steps)), steps)
    losses = tf.keras.losses.SparseCategoricalCrossentropy
    mean = tf.keras.metrics.SparseCategoricalCrossentropy("cross_entropy", from_logits=True)
    # Of the name alone Keras would make the metric in the first step, and trace that step again.
    right = tf.keras.metrics.SparseCategoricalAccuracy("accuracy")
    start.model.compile(
        adamw(start.model, schedule, clip_norm=1.0),
        losses(from_logits=True),
        weighted_metrics=[right, mean],
    )
    return start.model


def probabilities(
    model: tf.keras.Model, tokenizer: BertTokenizerFast, texts: Sequence[str]
) -> np.ndarray:
    """Say how probable each label is for each text: float32 [texts, labels]."""
    longest = model.config.max_position_embeddings // 8 * 8
    encoded = batches.encode(tokenizer, texts, longest)
    replicas = model.distribute_strategy.num_replicas_in_sync
    made = batches.in_order(
        encoded, global_batch_size=-(-ROWS // replicas) * replicas, replicas=replicas
    ).dataset
    rows = np.concatenate([batch["row"] for batch in made.as_numpy_iterator()])
    features = made.map(lambda batch: {k: v for k, v in batch.items() if k != "row"})
    logits = model.predict(features, verbose=0)["logits"]
    found = np.empty((len(texts), logits.shape[-1]), np.float32)
    found[rows[rows >= 0]] = tf.nn.softmax(logits[rows >= 0])
    return found
