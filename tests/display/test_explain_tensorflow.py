"""What the installed TensorFlow, Keras and JAX raise is explained by the symptom written for it."""

import flax.nnx as nnx
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from helpers.display.explain import explain


def resolver_without_a_name(_):
    tf.distribute.cluster_resolver.TPUClusterResolver()


def tpu_without_the_build_for_it(_):
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
    tf.tpu.experimental.initialize_tpu_system(resolver)


def string_under_xla(_):
    @tf.function(jit_compile=True)
    def length(x):
        return tf.strings.length(tf.strings.as_string(x))

    length(tf.constant([1]))


def label_out_of_range(_):
    tf.nn.sparse_softmax_cross_entropy_with_logits([-100], [[1.0, 2.0]])


def missing_checkpoint(folder):
    tf.train.Checkpoint().read(str(folder / "ckpt-1"))


def saved_checkpoint(folder, size):
    return tf.train.Checkpoint(v=tf.Variable(tf.zeros([size]))).write(str(folder / "ckpt"))


def damaged_checkpoint(folder):
    prefix = saved_checkpoint(folder, 1000)
    data = folder / "ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes().replace(b"\0", b"\1", 1))
    tf.train.Checkpoint(v=tf.Variable(tf.zeros([1000]))).read(prefix)


def checkpoint_of_another_shape(folder):
    prefix = saved_checkpoint(folder, 2)
    tf.train.Checkpoint(v=tf.Variable(tf.zeros([3]))).read(prefix)


def weights_of_another_model(folder):
    path = str(folder / "model.weights.h5")
    one_layer = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    one_layer.save_weights(path)
    keras.Sequential([keras.Input([5]), keras.layers.Dense(7)]).load_weights(path)


def from_generator(elements, signature):
    return tf.data.Dataset.from_generator(lambda: iter(elements), output_signature=signature)


def unequal_shapes(_):
    signature = tf.TensorSpec([None], tf.float64)
    list(from_generator([np.zeros(2), np.zeros(3)], signature).batch(2))


def another_structure(_):
    signature = (tf.TensorSpec([], tf.int32), {"a": tf.TensorSpec([], tf.int32)})
    list(from_generator([[1, 2]], signature))


def another_shape(_):
    list(from_generator([np.zeros(2)], tf.TensorSpec([3], tf.float64)))


def plain_file_read_as_gzip(folder):
    (folder / "plain.txt").write_text("not compressed\n" * 10)
    list(tf.data.TextLineDataset(str(folder / "plain.txt"), compression_type="GZIP"))


def missing_file(folder):
    list(tf.data.TFRecordDataset(str(folder / "none.tfrecord")))


def pattern_without_files(folder):
    tf.data.Dataset.list_files(str(folder / "*.tfrecord"))


def numpy_in_a_map(_):
    tf.data.Dataset.range(3).map(lambda x: x.numpy())


def empty_arrays(_):
    model = tf_keras.Sequential([tf_keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.fit(np.zeros([0, 2]), np.zeros([0, 2]), verbose=0)


def layer_of_tf_keras_in_keras(_):
    keras.Sequential([tf_keras.layers.Dense(2)])


def layer_of_keras_in_tf_keras(_):
    tf_keras.Sequential([keras.layers.Dense(2)])


def optimizer_of_keras_in_tf_keras(_):
    tf_keras.Sequential([tf_keras.layers.Dense(2)]).compile(keras.optimizers.Adam(), "mse")


def saved_model_in_keras_3(folder):
    model = tf_keras.Sequential([tf_keras.layers.Dense(2)])
    model.build([None, 2])
    model.save(str(folder / "saved"))
    keras.models.load_model(str(folder / "saved"))


def file_of_keras_3_in_tf_keras(folder):
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    model.save(str(folder / "model.keras"))
    tf_keras.models.load_model(str(folder / "model.keras"))


def numpy_on_a_traced_value(_):
    jax.jit(lambda x: np.sin(x))(1.0)


def if_on_a_traced_value(_):
    jax.jit(lambda x: 1 if x > 0 else 2)(1.0)


def shape_from_a_traced_value(_):
    jax.jit(jnp.zeros)(3)


def mask_that_cuts(_):
    jax.jit(lambda x: x[x > 0])(jnp.ones(3))


def leaked_value(_):
    leaked = []
    jax.jit(leaked.append)(1.0)
    leaked[0] + 1


def name_that_jax_removed(_):
    jax.tree_map(abs, [1])


def specification_without_a_mesh(_):
    spec = jax.sharding.PartitionSpec("data")
    jax.jit(lambda x: jax.lax.with_sharding_constraint(x, spec))(jnp.ones(4))


def annotated_variable_without_a_mesh(_):
    init = nnx.with_partitioning(nnx.initializers.zeros, ("data", None))
    nnx.Linear(4, 4, kernel_init=init, rngs=nnx.Rngs(0))


def keyword_that_jax_lacks(_):
    jax.jit(abs, abstracted_axes=None)


def setting_that_jax_lacks(_):
    jax.config.update("jax_no_such_setting", True)


def step_result_of_another_type(_):
    jax.lax.scan(lambda carry, _: (jnp.ones(2), None), 0, None, length=2)


def branches_of_unequal_types(_):
    jax.lax.cond(True, lambda: 1, lambda: 1.0)


def donated_twice(_):
    double = jax.jit(lambda x: 2 * x, donate_argnums=0)
    x = jnp.ones(4)
    double(x)
    x + 1


def function_as_an_argument(_):
    jax.jit(lambda x: x)(abs)


def list_as_a_static_argument(_):
    jax.jit(lambda sizes: sizes[0], static_argnums=0)([2])


def list_of_layers_in_flax(_):
    class Layers(nnx.Module):
        def __init__(self):
            self.layers = [nnx.Linear(2, 2, rngs=nnx.Rngs(0))]

    Layers()


def image_of_another_size(_):
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    model(np.zeros([1, 5]))


def image_of_another_size_in_keras_2(_):
    tf_keras.Sequential([tf_keras.layers.Dense(2, input_shape=[4])])(np.zeros([1, 5]))


def method_of_keras_2s_variables(_):
    keras.Variable(1.0).read_value()


def loader_that_fit_does_not_know(_):
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.fit(object())


KERAS_MIXED = "Keras 2 and Keras 3 in one program"
KERAS_FILE = "A file that this Keras doesn't read or write"
OTHER_MODEL = "A checkpoint of another model"
GENERATOR = "A generator that yields something else"
NO_FILE = "An input file is not there"
TRACED = "A value that JAX lacks while it traces"
NO_MESH = "JAX asks for a mesh"
OTHER_JAX = "JAX and a library of a different version"
OTHER_TYPE = "A loop or branch whose types differ"
OTHER_SHAPE = "An input of another shape than the model's"
FAILING = {
    resolver_without_a_name: "The resolver doesn't know which TPU",
    tpu_without_the_build_for_it: "TensorFlow has no TPU inside",
    string_under_xla: "An operation that XLA doesn't have",
    label_out_of_range: "A label out of range",
    missing_checkpoint: "No checkpoint there",
    damaged_checkpoint: "A damaged checkpoint",
    checkpoint_of_another_shape: OTHER_MODEL,
    weights_of_another_model: OTHER_MODEL,
    unequal_shapes: "Examples of unequal shape in one batch",
    another_structure: GENERATOR,
    another_shape: GENERATOR,
    plain_file_read_as_gzip: "A plain file read as a compressed one",
    missing_file: NO_FILE,
    pattern_without_files: NO_FILE,
    numpy_in_a_map: ".numpy() inside a tf.function",
    empty_arrays: "No data to train on",
    layer_of_tf_keras_in_keras: KERAS_MIXED,
    layer_of_keras_in_tf_keras: KERAS_MIXED,
    optimizer_of_keras_in_tf_keras: KERAS_MIXED,
    saved_model_in_keras_3: KERAS_FILE,
    file_of_keras_3_in_tf_keras: KERAS_FILE,
    numpy_on_a_traced_value: TRACED,
    if_on_a_traced_value: TRACED,
    shape_from_a_traced_value: TRACED,
    mask_that_cuts: TRACED,
    leaked_value: "A traced value kept outside JAX's function",
    name_that_jax_removed: OTHER_JAX,
    specification_without_a_mesh: NO_MESH,
    annotated_variable_without_a_mesh: NO_MESH,
    keyword_that_jax_lacks: OTHER_JAX,
    setting_that_jax_lacks: OTHER_JAX,
    step_result_of_another_type: OTHER_TYPE,
    branches_of_unequal_types: OTHER_TYPE,
    donated_twice: "An array that was donated",
    function_as_an_argument: "A value that is no array",
    list_as_a_static_argument: "A static argument without a hash",
    list_of_layers_in_flax: "Flax's data and static attributes",
    image_of_another_size: OTHER_SHAPE,
    image_of_another_size_in_keras_2: OTHER_SHAPE,
    method_of_keras_2s_variables: "Names of Keras 2 under Keras 3",
    loader_that_fit_does_not_know: "Data that fit doesn't know",
}


@pytest.mark.parametrize("fail", FAILING, ids=lambda fail: fail.__name__)
def test_what_the_locked_versions_raise_is_explained(fail, monkeypatch, tmp_path):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(Exception) as caught:
        fail(tmp_path)
    assert explain(caught.value).matches[0].symptom.name == FAILING[fail]
