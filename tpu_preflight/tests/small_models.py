"""Models and data to check, an answer of the compiler, and how to find an item of a report."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tpu_preflight import compiler
from tpu_preflight.chips.hardware import slice_of

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Google's compiler is for Linux only")
KINDS = {"argvalues": [tf.keras, keras], "ids": ["tf_keras", "keras3"]}
VECTOR = (tf.TensorSpec([8]),)


def answer(verdict, **fields):
    """Make a compiler that gives this answer to everything."""

    def compile(program, target, **options):
        chip = slice_of(target, jax=True).chip
        available = int(chip.available_gib * 2**30)
        return compiler.Compiled(program.name, target, verdict, available_bytes=available, **fields)

    return compile


def items_of(report, check, word=""):
    """Choose the items of a check whose name or finding has this word."""
    items = []
    for item in report.items:
        if item.check == check and (word in item.name or word in item.finding):
            items.append(item)
    return items


def states(report, check, word=""):
    return [item.state for item in items_of(report, check, word)]


def the(report, check, word=""):
    """Give the only item of a check with this word."""
    (item,) = items_of(report, check, word)
    return item


def mean(x, *rest):
    return tf.reduce_mean(tf.cast(x, tf.float32))


def classifier(kind, *layers, optimizer="adam", **options):
    model = kind.Sequential(layers)
    loss = kind.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], **options)
    return model


def dense(kind=tf.keras, dropout=0.0, head=None, optimizer="adam", **options):
    head = head or kind.layers.Dense(4)
    layers = kind.layers.Input([8]), kind.layers.Dropout(dropout), head
    return classifier(kind, *layers, optimizer=optimizer, **options)


def batches(size=16, drop_remainder=True, labels=None, number=64):
    x = np.random.default_rng(0).normal(size=[number, 8]).astype("float32")
    y = np.zeros([number], "int32")
    if labels is not None:
        y = np.asarray(labels, "int32")
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(size, drop_remainder)


def ready(kind=tf.keras, **options):
    """Make a factory of a model and data without a fault."""

    def build():
        return dense(kind, **options), batches()

    return build


def conv_net():
    layers = tf.keras.layers
    model = classifier(
        tf.keras,
        layers.Input([16, 16, 3]),
        layers.Conv2D(8, 3, padding="same", activation="relu"),
        layers.BatchNormalization(),
        layers.GlobalAveragePooling2D(),
        layers.Dense(10),
    )
    images = np.random.default_rng(0).normal(size=[32, 16, 16, 3]).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((images, np.arange(32) % 10))
    return model, data.batch(16, True)


def bert(built=True):
    # Nothing else here needs this package: without it, the tests of this model are skipped.
    transformers = pytest.importorskip("transformers", "4.57")
    if not hasattr(transformers, "TFBertForMaskedLM"):
        pytest.skip("this version of transformers has no models of TensorFlow")
    config = transformers.BertConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16,
    )
    model = transformers.TFBertForMaskedLM(config)
    model.compile(tf.keras.optimizers.Adam(1e-4))
    ids = np.random.default_rng(0).integers(5, 300, [16, 16], np.int32)
    if built:
        model(ids[:1])
    batch = {"input_ids": ids, "labels": np.where(ids % 7 == 0, ids, -100)}
    return model, tf.data.Dataset.from_tensors(batch)
