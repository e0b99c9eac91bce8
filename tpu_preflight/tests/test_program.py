"""From a TensorFlow function to XLA's program: what it says of itself, and what refuses."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from programs import F8, ROOT, STEP_SPECS, N, product, small_model, train_step

from tpu_preflight.program import NotCompilable, Parameter, export

pytestmark = pytest.mark.slow


def test_a_function_becomes_a_program_with_its_parameters():
    offset = tf.constant([1.0, 2, 3])
    weights = tf.Variable(tf.ones([8, 3]), name="weights")

    def f(batch, scale):
        y = (batch["x"] @ weights + offset) * scale
        return {"y": y, "n": tf.shape(batch["x"])[0]}

    program = export(f, {"x": tf.TensorSpec([4, 8])}, tf.TensorSpec([]))
    assert program.name == "f"
    arguments = program.parameters[:2]
    assert [argument.shape for argument in arguments] == ["f32[4,8]", "f32[]"]
    assert sum(argument.bytes for argument in arguments) == 4 * 8 * 4 + 4
    assert Parameter("weights", "variable", "f32[8,3]") in program.parameters
    assert sorted(program.results) == ["f32[4,3]", "s32[]"]
    assert program.donated == ()


def test_a_training_step_gives_its_variables_memory_to_their_new_values():
    model = small_model()
    values = [variable.numpy() for variable in model.variables]
    program = export(train_step(model), *STEP_SPECS)
    donated = set(program.donated)
    variables = {i for i, p in enumerate(program.parameters) if p.kind == "variable"}
    assert donated <= variables
    # The learning rate is read only; weights, two moments each, step and metrics are written.
    assert [program.parameters[i].name for i in variables - donated] == ["learning_rate"]
    # Nothing ran: the model is as it was.
    for value, variable in zip(values, model.variables, strict=False):
        np.testing.assert_array_equal(value, variable.numpy())


def test_tensors_and_arrays_stand_for_their_shape_and_type_alone():
    of_specs = export(product, tf.TensorSpec([2, 3]), tf.TensorSpec([3, 4]))
    of_values = export(product, tf.ones([2, 3]), np.ones([3, 4], "float32"))
    assert of_specs.hlo == of_values.hlo
    with pytest.raises(NotCompilable, match="The size that Range makes"):
        export(lambda n: tf.range(n), tf.constant(4))


@pytest.mark.long
def test_the_same_function_gives_the_same_program_in_another_process():
    code = "from programs import *; print(export(train_step(small_model()), *STEP_SPECS).hlo.hex())"
    folders = f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"
    environment = os.environ | {"PYTHONPATH": folders}
    output = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    hlo = export(train_step(small_model()), *STEP_SPECS).hlo
    assert hlo == export(train_step(small_model()), *STEP_SPECS).hlo
    assert hlo == bytes.fromhex(output)
    assert str(ROOT).encode() not in hlo
    assert b"site-packages" not in hlo


def no_kernel(x):
    return tf.unique_with_counts(x)[0]


def inner_range(n):
    return tf.range(n)  # here


def outer_range(n):
    return tf.map_fn(lambda z: z + tf.reduce_sum(inner_range(n)), tf.ones([3], tf.int32))


@tf.autograph.experimental.do_not_convert
def python_bool(x):
    return x if tf.reduce_sum(x) > 0 else -x


def in_a_layer(x):
    return tf_keras.layers.Lambda(lambda y: tf.strings.as_string(y))(x)


def gradient_of_unique(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.unique(x)[0]
    return tape.gradient(y, x)


def grown_in_a_loop(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.while_loop(lambda v: tf.reduce_sum(v) > 1.0, lambda v: (v / 2.0,), (x,))[0]
    return tape.gradient(y, x)


def python_function(x):
    return tf.py_function(abs, [x], tf.float32)


@pytest.mark.parametrize(
    ("fn", "spec", "operation", "line", "what"),
    [
        (no_kernel, F8, "UniqueWithCounts", "tf.unique_with_counts(x)[0]", "XLA has no "),
        (outer_range, N, "Range", "return tf.range(n)  # here", "The size that Range makes"),
        (python_bool, F8, "", "return x if tf.reduce_sum(x) > 0 else -x", "can't trace "),
        (in_a_layer, F8, "AsString", "tf.strings.as_string(y)", "XLA has no AsString"),
        (gradient_of_unique, F8, "Unique", "tape.gradient(y, x)", "Unique"),
        (grown_in_a_loop, F8, "EmptyTensorList", "tape.gradient(y, x)", "XLA refuses "),
        (lambda x: 1 / 0, F8, "", "1 / 0", "can't trace "),
        (python_function, F8, "EagerPyFunc", "tf.py_function", "XLA has no "),
    ],
)
def test_a_refusal_names_the_operation_and_the_learners_line(fn, spec, operation, line, what):
    with pytest.raises(NotCompilable, match=what) as raised:
        export(fn, spec)
    error = raised.value
    assert error.operation == operation
    assert error.source.file == __file__
    assert line in error.source.code
    text = str(error)
    assert operation in text
    assert f"test_program.py, line {error.source.line}" in text
    assert "__inference" not in text
    assert str(ROOT) not in text


def ctc():
    def loss(x):
        labels = tf.sparse.from_dense(tf.ones([2, 3], tf.int32))
        logits = tf.reshape(x, [2, 2, 2])
        return tf.nn.ctc_loss(labels, logits, None, [2, 2], False, blank_index=-1)

    return loss


def summary():
    writer = tf.summary.create_file_writer("ram://events")

    def step(x):
        with writer.as_default(step=1):
            return tf.summary.scalar("loss", x[0])

    return step


def identity():
    return lambda x: x


def table():
    initializer = tf.lookup.KeyValueTensorInitializer(tf.range(4), tf.range(4))
    return tf.lookup.StaticHashTable(initializer, -1, "ages").lookup


def iterator():
    rows = iter(tf.data.Dataset.range(9))
    return lambda x: x + tf.cast(next(rows), tf.float32)


def new_variable():
    return lambda x: tf.Variable(x) + 1


@pytest.mark.parametrize(
    ("make", "spec", "words"),
    [
        (ctc, F8, r"XLA has no CTCLoss(.|\n)*dense labels with their lengths"),
        (summary, F8, r"uses the summary writer at test_program(.|\n)*Take tf.summary out"),
        (identity, tf.TensorSpec([None, 4]), "every dimension must be a number"),
        (identity, tf.TensorSpec([2], tf.string), "an argument of a type that XLA"),
        (table, N, "lookup uses the lookup table"),
        (iterator, F8, r"uses the iterator at test_program.py, line \d+: return lambda x"),
        (new_variable, F8, "can't trace"),
    ],
)
def test_other_refusals_say_what_is_wrong(make, spec, words):
    with pytest.raises(NotCompilable, match=words):
        export(make(), spec)


def test_sizes_that_depend_on_values_are_found_with_their_line():
    def masked(x):
        positive = tf.boolean_mask(x, x > 0)  # the line
        return positive * 2.0, tf.reduce_sum(positive)

    program = export(masked, F8)
    assert program.results == ("f32[<=8]", "f32[]")
    assert {bounded.operation for bounded in program.bounded} == {"Where"}
    for bounded in program.bounded:
        assert bounded.source.code.endswith("# the line")
    assert export(lambda x: tf.where(x > 0, x, 0.0), F8).bounded == ()
