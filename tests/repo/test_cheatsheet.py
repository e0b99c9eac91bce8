"""Each line of the cheat sheet was run on the replicas of a CPU, or is a command that exists."""

import re
import subprocess
import sys

import pytest
from conventions import NOTEBOOKS, ROOT

TEXT = (ROOT / "notebooks/CHEATSHEET.md").read_text("utf-8")
PYTHON = "".join(re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))

# What a reader has at hand: texts of 20 to 120 tokens, where each token says which one follows.
BEFORE = """
import os
import sys
import numpy as np
import tensorflow as tf
tpu, folder, files = None, sys.argv[1] + "/run", sys.argv[1] + "/texts.tfrecord"
with tf.io.TFRecordWriter(files) as writer:
    for at in range(400):
        ids = tf.train.Int64List(value=[1 + (at + i) % 9 for i in range(20 + 25 * (at % 5))])
        features = tf.train.Features(feature={"ids": tf.train.Feature(int64_list=ids)})
        writer.write(tf.train.Example(features=features).SerializeToString())
x, mask, fn = np.float32([-1, 0, 4]), np.float32([1, 1, 0]), lambda x: 2 * x
def make_model():
    return tf.keras.Sequential([tf.keras.layers.Embedding(10, 10)])
def make_loss():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)
"""
# The gradient is finite; a step's loss is the mean over all labels; what was saved comes back.
AFTER = """
assert [*root.numpy()] == [0, 0, 2] and mean == -0.5 and [*fast.numpy()] == [-2, 0, 8]
with tf.GradientTape() as tape:
    tape.watch(x := tf.constant(x))
    exec(next(line for line in open(__file__) if line.startswith("root =")))
assert [*tape.gradient(root, x).numpy()] == [0, 0, 0.25]
assert strategy.num_replicas_in_sync == 2 and saved
assert {tuple(ids.shape) for ids, _ in dataset} == {(16, 32), (16, 64), (16, 128)}
ids, labels = next(iter(dataset))
labels = tf.where(tf.range(16)[:, None] < 8, labels[:, :1], labels)
labels = tf.where((tf.range(16) < 8)[:, None] & (tf.range(labels.shape[1]) > 0), -100, labels)
each = tf.nn.log_softmax(model(ids)).numpy()
at = np.argwhere(labels >= 0)
expected = -np.mean([each[(i, j, labels[i, j])] for i, j in at])
one = tf.data.Dataset.from_tensors((ids, labels)).unbatch().batch(16)
(batch,) = strategy.experimental_distribute_dataset(one)
np.testing.assert_allclose(train_step(batch), expected, rtol=1e-4)
model.layers[0].embeddings.assign(tf.zeros([10, 10]))
checkpoint.restore(saved)
assert np.any(model.layers[0].embeddings != 0)
"""


@pytest.mark.long
def test_its_python_trains_on_two_replicas(tmp_path):
    (tmp_path / "sheet.py").write_text(BEFORE + PYTHON + AFTER)
    command = [sys.executable, str(tmp_path / "sheet.py"), str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_it_names_every_notebook():
    assert {*re.findall(r"\]\((\d\d_\w+\.ipynb)\)", TEXT)} == {path.name for path in NOTEBOOKS}
