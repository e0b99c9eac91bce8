"""What the installed TensorFlow raises is explained by the symptom that was written for it."""

import pytest
import tensorflow as tf

from helpers.display.explain import explain

Resolver = tf.distribute.cluster_resolver.TPUClusterResolver


@tf.function(jit_compile=True)
def string_under_xla(x):
    return tf.strings.length(tf.strings.as_string(x))


def damaged_checkpoint(folder):
    saved = tf.train.Checkpoint(v=tf.Variable(tf.zeros([1000])))
    prefix = saved.write(str(folder / "ckpt"))
    data = folder / "ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes().replace(b"\0", b"\1", 1))
    saved.read(prefix)


FAILING = {
    "The resolver doesn't know which TPU": lambda _: Resolver(),
    "TensorFlow has no TPU inside": lambda _: tf.tpu.experimental.initialize_tpu_system(
        Resolver(tpu="local")
    ),
    "An operation that XLA doesn't have": lambda _: string_under_xla(tf.constant([1])),
    "A label out of range": lambda _: tf.nn.sparse_softmax_cross_entropy_with_logits(
        [-100], [[1.0, 2.0]]
    ),
    "No checkpoint there": lambda folder: tf.train.Checkpoint().read(str(folder / "ckpt-1")),
    "A damaged checkpoint": damaged_checkpoint,
}


@pytest.mark.parametrize("name", FAILING)
def test_what_tensorflow_raises_today_is_explained(name, monkeypatch, tmp_path):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(Exception) as caught:
        FAILING[name](tmp_path)
    assert explain(caught.value).matches[0].symptom.name == name
