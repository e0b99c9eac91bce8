"""Each line of the cheat sheet was run, or is a command that exists."""

import re

import numpy as np
import pytest
import tensorflow as tf
from conventions import NOTEBOOKS, ROOT

from helpers.text import corpus

pytestmark = pytest.mark.slow

TEXT = (ROOT / "notebooks/CHEATSHEET.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Run all Python of the sheet, in order, on what a reader has at hand."""
    folder = tmp_path_factory.mktemp("sheet")
    with tf.io.TFRecordWriter(str(folder / "numbers.tfrecord")) as writer:
        for number in range(200):
            writer.write(np.float32(number).tobytes())

    def parse(records):
        x = tf.reshape(tf.io.decode_raw(records, tf.float32), [-1, 1])
        return x / 100, x / 50

    found = {
        "tf": tf,
        "x": tf.constant([-1.0, 0.0, 4.0]),
        "labels": tf.constant([0, 1, -100]),
        "logits": tf.constant([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0]]),
        "fn": lambda x: x * 2,
        "tokenizer": corpus.load_tokenizer(),
        "texts": ["a short text", "a longer text " * 30],
        "lengths": [9, 2, 30, 62, 17, 8, 500],
        "files": [str(folder / "numbers.tfrecord")],
        "parse": parse,
        "folder": str(folder / "run"),
        "make_model": lambda: tf.keras.Sequential([tf.keras.layers.Dense(1)]),
        "make_loss": tf.keras.losses.MeanSquaredError,
    }
    for kind, block in BLOCKS:
        if kind == "python":
            exec(compile(block, "<cheat sheet>", "exec"), found)
    assert {kind for kind, _ in BLOCKS} == {"python", "sh"}
    return found


def test_the_rules_for_values(names):
    np.testing.assert_allclose(names["root"], [0, 0, 2])
    line = next(line for _, block in BLOCKS for line in block.splitlines() if "root =" in line)
    scope = {"tf": tf, "x": tf.Variable([-1.0, 0.0, 4.0])}
    with tf.GradientTape() as tape:
        exec(line, scope)
    np.testing.assert_allclose(tape.gradient(scope["root"], scope["x"]), [0, 0, 0.25])
    expected = np.mean([np.log1p(np.exp(-2.0)), np.log1p(np.exp(-1.0))])
    assert float(names["loss"]) == pytest.approx(expected, rel=1e-6)


def test_what_is_compiled_compared_fed_and_saved(names):
    np.testing.assert_allclose(names["fast"], [-2, 0, 8])
    assert names["report"].agree
    assert names["seen"].count == 1
    assert np.shape(names["ids"])[1] % 64 == 0
    assert len(names["edges"]) == 4 and names["edges"][-1] >= 500
    assert len(names["rows"]) < len(names["lengths"])
    assert names["dataset"].element_spec[0].shape[1:] == [1]
    assert names["strategy"].num_replicas_in_sync == 1
    again = names["make_model"]()
    again.build([None, 1])
    tf.train.Checkpoint(model=again).restore(names["saved"]).expect_partial()
    np.testing.assert_array_equal(again.get_weights()[0], names["model"].get_weights()[0])


def test_it_names_every_notebook():
    assert {*re.findall(r"\]\((\d\d_\w+\.ipynb)\)", TEXT)} == {path.name for path in NOTEBOOKS}
