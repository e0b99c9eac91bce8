"""Families of errors, as the installed versions raise them: each explained by its symptom."""

import json

import datasets
import flax.linen as linen
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import orbax.checkpoint
import pytest
import tensorflow as tf
import tf_keras
import transformers
from jax.experimental import pallas
from jax.sharding import NamedSharding, PartitionSpec

from helpers.display.explain import explain

ROWS = np.ones([8, 4], "float32")
LABELS = np.ones([8, 2], "float32")


def compiled_model(library, loss="mse", units=2):
    model = library.Sequential([library.Input([4]), library.layers.Dense(units)])
    model.compile("adam", loss)
    return model


def mesh_of_one(axis_type=jax.sharding.AxisType.Auto):
    return jax.make_mesh((1,), ("x",), axis_types=(axis_type,))


# --- Shapes and types ---


def product_in_jax(_):
    return jnp.ones([2, 3]) @ jnp.ones([2, 3])


def sum_in_jax(_):
    return jnp.ones([2, 3]) + jnp.ones([2, 4])


def product_in_tensorflow(_):
    tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))


def reshape_in_tensorflow(_):
    tf.reshape(tf.ones(4), [3])


def vmap_of_unequal_lengths(_):
    jax.vmap(jnp.add)(jnp.ones(3), jnp.ones(4))


def whole_number_and_float(_):
    return tf.constant(1) + tf.constant(1.0)


def float32_and_bfloat16(_):
    jax.lax.add(jnp.ones(3, jnp.float32), jnp.ones(3, jnp.bfloat16))


def id_that_is_too_large(_):
    tf_keras.layers.Embedding(3, 2)(np.array([[7]]))


def array_of_petabytes(_):
    np.ones(2**50)


# --- Labels, inputs, models of Keras ---


def one_number_for_three_classes(_):
    compiled_model(keras, "categorical_crossentropy", 3).fit(ROWS, np.ones([8, 1]), verbose=0)


def rows_where_numbers_belong(_):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    compiled_model(keras, loss, 3).fit(ROWS, np.ones([8, 3]), verbose=0)


def labels_of_another_width_in_keras_2(_):
    compiled_model(tf_keras, "categorical_crossentropy", 3).fit(ROWS, LABELS, verbose=0)


def seven_labels_for_eight_rows(_):
    compiled_model(keras).fit(ROWS, LABELS[:7], verbose=0)


def labels_left_out(_):
    compiled_model(keras).fit(ROWS, verbose=0)


def fit_without_compile(_):
    keras.Sequential([keras.layers.Dense(2)]).fit(ROWS, LABELS)


def summary_before_a_build(_):
    tf_keras.Sequential([tf_keras.layers.Dense(2)]).summary()


def output_of_another_input(_):
    keras.Model(keras.Input([4]), keras.layers.Dense(2)(keras.Input([4])))


def graph_of_another_input(_):
    tf_keras.Model(tf_keras.Input([4]), tf_keras.layers.Dense(2)(tf_keras.Input([4])))


def window_larger_than_the_image(_):
    keras.layers.Conv2D(3, 5)(keras.Input([3, 3, 1]))


def model_that_is_not_there(folder):
    keras.models.load_model(str(folder / "none.keras"))


def saved_model_that_is_not_there(folder):
    tf.saved_model.load(str(folder / "none"))


def web_page_named_h5(folder):
    path = folder / "model.h5"
    path.write_bytes(b"<html>")
    keras.models.load_model(str(path))


def optimizer_of_another_model(_):
    optimizer = keras.optimizers.Adam()
    optimizer.build([keras.Variable(1.0)])
    optimizer.apply_gradients([(tf.constant(1.0), keras.Variable(1.0))])


def unknown_policy(_):
    keras.mixed_precision.set_global_policy("mixed_nothing")


def lambda_of_unknown_shape(_):
    layer = keras.layers.Lambda(lambda x: tf.py_function(tf.identity, [x], tf.float32))
    layer(keras.Input([3]))


def saved_model_by_save(folder):
    compiled_model(keras).save(str(folder / "model"), save_format="tf")


# --- TensorFlow's functions and files ---


def tensor_in_a_list(_):
    kept = []

    @tf.function
    def keep(x):
        kept.append(x * 2)
        return x

    keep(tf.constant(1.0))
    return kept[0] + 1


def tensor_that_doubles(_):
    @tf.function
    def grow():
        x = tf.ones([1])
        step = tf.constant(0)
        while step < 3:
            x = tf.concat([x, x], 0)
            step += 1
        return x

    grow()


def numpy_in_a_function(_):
    tf.function(np.sum)(tf.ones(3))


def web_page_among_images(_):
    tf.io.decode_image(b"<html>")


def record_that_is_no_example(_):
    tf.io.parse_single_example(b"abc", {"a": tf.io.FixedLenFeature([], tf.int64)})


def function_of_one_argument_for_pairs(_):
    numbers = tf.data.Dataset.range(3)
    tf.data.Dataset.zip((numbers, numbers)).map(lambda x: x)


def variable_outside_of_the_module(folder):
    variable = tf.Variable(1.0)

    class Reader(tf.Module):
        @tf.function(input_signature=[])
        def read(self):
            return variable

    tf.saved_model.save(Reader(), str(folder / "saved"))


def scheme_of_the_hub(_):
    tf.io.gfile.exists("hf://owner/model")
    tf.io.read_file("hf://owner/model")


# --- JAX ---


def gradient_of_a_whole_number(_):
    jax.grad(lambda x: x * 1.0)(3)


def gradient_of_three_numbers(_):
    jax.grad(lambda x: x)(jnp.ones(3))


def assignment_in_place(_):
    array = jnp.ones(3)
    array[0] = 1


def list_as_an_index(_):
    return jnp.ones(3)[[0, 1]]


def number_as_a_key(_):
    jax.random.normal(3, (2,))


def sum_over_an_unbound_axis(_):
    jax.lax.psum(jnp.ones(3), "batch")


def gradients_of_more_parameters(_):
    optimizer = optax.adam(1e-3)
    state = optimizer.init({"a": jnp.ones(3)})
    optimizer.update({"a": jnp.ones(3), "b": jnp.ones(2)}, state)


def shardings_for_fewer_arguments(_):
    sharding = NamedSharding(mesh_of_one(), PartitionSpec())
    jax.jit(lambda a, b: a, in_shardings=(sharding,))(jnp.ones(8), jnp.ones(8))


def axis_named_twice(_):
    NamedSharding(mesh_of_one(), PartitionSpec("x", "x"))


def entry_longer_than_the_array(_):
    mesh = mesh_of_one()
    split = jax.shard_map(lambda a: a, mesh=mesh, in_specs=PartitionSpec(None), out_specs=None)
    split(1.0)


def contraction_of_cut_axes(_):
    with jax.set_mesh(mesh_of_one(jax.sharding.AxisType.Explicit)):
        array = jax.device_put(jnp.ones([8, 8]), PartitionSpec(None, "x"))
        jax.jit(lambda a: a @ a.T)(array)


def gpu_that_is_not_there(_):
    jax.devices("gpu")


def logarithm_of_a_negative_number(_):
    with jax.debug_nans(True):
        jnp.log(-1.0)


def eigenvalues_on_a_tpu(_):
    values = jax.jit(jnp.linalg.eigvals)
    values.trace(jnp.ones([2, 2])).lower(lowering_platforms=("tpu",))


def kernel_on_a_cpu(_):
    def copy(source, target):
        target[...] = source[...]

    shape = jax.ShapeDtypeStruct((8,), jnp.float32)
    pallas.pallas_call(copy, out_shape=shape)(jnp.ones(8))


def result_that_is_no_pair(_):
    jax.lax.scan(lambda carry, x: carry, 0, jnp.ones(3))


def slice_of_a_traced_length(_):
    jax.jit(lambda x, n: x[:n])(jnp.ones(3), 2)


def nothing_as_an_array(_):
    jnp.asarray(None)


# --- Flax ---


def layer_without_parameters(_):
    linen.Dense(3).apply({}, jnp.ones([1, 4]))


def statistics_that_may_not_change(_):
    layer = linen.BatchNorm(use_running_average=False)
    variables = layer.init(jax.random.key(0), ROWS)
    layer.apply(variables, ROWS)


def call_of_a_linen_layer(_):
    linen.Dense(3)(jnp.ones([1, 4]))


def dropout_without_a_key(_):
    linen.Dropout(0.5, deterministic=False).apply({}, ROWS)


def optimizer_without_wrt(_):
    nnx.Optimizer(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), optax.adam(1e-3))


def variable_changed_under_jit(_):
    layer = nnx.Linear(2, 3, rngs=nnx.Rngs(0))

    def scale(x):
        layer.kernel[...] = layer.kernel[...] * x
        return x

    jax.jit(scale)(2.0)


# --- Checkpoints and the Hub's libraries ---


def checkpoint_twice_in_one_folder(folder):
    checkpointer = orbax.checkpoint.StandardCheckpointer()
    for _ in range(2):
        checkpointer.save(folder / "checkpoint", {"a": jnp.ones(2)})
        checkpointer.wait_until_finished()


def checkpoint_that_is_not_there(folder):
    orbax.checkpoint.StandardCheckpointer().restore(folder / "none")


def folder_without_a_checkpoint(folder):
    orbax.checkpoint.StandardCheckpointer().restore(folder)


def model_of_an_unknown_architecture(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "nothing_yet"}))
    transformers.AutoConfig.from_pretrained(str(folder))


def folder_without_weights(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    transformers.TFBertModel.from_pretrained(str(folder))


def misspelt_split(folder):
    path = folder / "rows.jsonl"
    path.write_text('{"a": 1}\n')
    datasets.load_dataset("json", data_files=str(path), split="trian", cache_dir=str(folder))


SHAPES = "Arrays of shapes that don't fit"
TYPES = "Numbers of different types in one operation"
OTHER_LABELS = "Labels of another shape than the model's output"
NOT_BUILT = "A model that isn't compiled or built yet"
DISCONNECTED = "Inputs and outputs that the layers don't connect"
NO_MODEL = "No model at this path"
NO_GRADIENT = "A gradient of something that has none"
NO_KEY = "A random key that is missing or is none"
TREES = "Trees of another structure"
SHARDINGS = "Shardings that don't agree"
FLAX_VARIABLES = "Variables that Flax was not given, or may not change"
CHECKPOINT = "A checkpoint that is there already, or not finished"
FAILING = {
    product_in_jax: SHAPES,
    sum_in_jax: SHAPES,
    product_in_tensorflow: SHAPES,
    reshape_in_tensorflow: SHAPES,
    vmap_of_unequal_lengths: SHAPES,
    whole_number_and_float: TYPES,
    float32_and_bfloat16: TYPES,
    id_that_is_too_large: "An index outside of its table",
    array_of_petabytes: "The machine's memory (RAM) is used up",
    one_number_for_three_classes: OTHER_LABELS,
    rows_where_numbers_belong: OTHER_LABELS,
    labels_of_another_width_in_keras_2: OTHER_LABELS,
    seven_labels_for_eight_rows: "Arrays with other numbers of examples",
    labels_left_out: "A None where numbers must be",
    fit_without_compile: NOT_BUILT,
    summary_before_a_build: NOT_BUILT,
    output_of_another_input: DISCONNECTED,
    graph_of_another_input: DISCONNECTED,
    window_larger_than_the_image: "An image too small for the layers",
    model_that_is_not_there: NO_MODEL,
    saved_model_that_is_not_there: NO_MODEL,
    web_page_named_h5: "A model file that is damaged or of another kind",
    optimizer_of_another_model: "An optimizer made for other variables",
    unknown_policy: "A name that Keras doesn't know",
    lambda_of_unknown_shape: "A custom layer that is not written as Keras asks",
    saved_model_by_save: "A file that this Keras doesn't read or write",
    tensor_in_a_list: "A tensor used outside its function",
    tensor_that_doubles: "A loop or branch in tf.function that changes a variable's shape",
    numpy_in_a_function: ".numpy() inside a tf.function",
    web_page_among_images: "An image that can't be read",
    record_that_is_no_example: "A TFRecord with other features",
    function_of_one_argument_for_pairs: "A dataset's function with other arguments",
    variable_outside_of_the_module: "Objects that a saved model doesn't keep",
    scheme_of_the_hub: "A file system that TensorFlow doesn't know",
    gradient_of_a_whole_number: NO_GRADIENT,
    gradient_of_three_numbers: NO_GRADIENT,
    assignment_in_place: "JAX arrays are not changed in place",
    list_as_an_index: "An index that JAX doesn't take",
    number_as_a_key: NO_KEY,
    sum_over_an_unbound_axis: "An axis name that nothing binds",
    gradients_of_more_parameters: TREES,
    shardings_for_fewer_arguments: TREES,
    axis_named_twice: SHARDINGS,
    entry_longer_than_the_array: SHARDINGS,
    contraction_of_cut_axes: SHARDINGS,
    gpu_that_is_not_there: "No device of this kind in JAX",
    logarithm_of_a_negative_number: "A number that debug_nans stopped at",
    eigenvalues_on_a_tpu: "An operation that JAX lacks on this device",
    kernel_on_a_cpu: "A Pallas kernel on a CPU",
    result_that_is_no_pair: "A loop or branch whose types differ",
    slice_of_a_traced_length: "A value that JAX lacks while it traces",
    nothing_as_an_array: "A value that is no array",
    layer_without_parameters: FLAX_VARIABLES,
    statistics_that_may_not_change: FLAX_VARIABLES,
    call_of_a_linen_layer: "A Flax module outside of init and apply",
    dropout_without_a_key: NO_KEY,
    optimizer_without_wrt: "Flax NNX's optimizer of before 0.11",
    variable_changed_under_jit: "A Flax NNX object under JAX's own jit",
    checkpoint_twice_in_one_folder: CHECKPOINT,
    checkpoint_that_is_not_there: CHECKPOINT,
    folder_without_a_checkpoint: CHECKPOINT,
    model_of_an_unknown_architecture: "A model or name that this transformers doesn't have",
    folder_without_weights: "No weights of this format in the folder",
    misspelt_split: "A configuration, split or column that the dataset doesn't have",
}


@pytest.mark.parametrize("fail", FAILING, ids=lambda fail: fail.__name__)
def test_what_the_locked_versions_raise_is_explained(fail, tmp_path):
    with pytest.raises(Exception) as caught:
        fail(tmp_path)
    assert explain(caught.value).matches[0].symptom.name == FAILING[fail]
