# ruff: noqa: ANN001, ANN201, ANN202, D103
"""The operations and idioms of the table: each a small function with the shapes it is given.

`ops` compiles them. A case is one idea, so that the verdict has one cause; what a case returns is
what must come out, so nothing is optimised away. Sizes given as tensors are named ``n``.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
import tf_keras


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        name: Its name, unique.
        fn: A function of tensors; or, where ``made`` is set, one that makes it (and its
            variables) when the case is compiled.
        specs: Shapes and types of the arguments.
        made: Whether ``fn`` makes the function.
    """

    name: str
    fn: Callable
    specs: tuple[tf.TensorSpec, ...]
    made: bool = False

    @property
    def function(self) -> Callable:
        """The function of tensors, with fresh variables where it has any."""
        fn = self.fn() if self.made else self.fn
        # AutoGraph has nothing to rewrite in an expression, and reads this whole file to find it.
        return tf.autograph.experimental.do_not_convert(fn) if fn.__name__ == "<lambda>" else fn


def _spec(*shape: int, dtype: tf.DType = tf.float32) -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype)


F8, M8, I8, B8 = _spec(8), _spec(8, 8), _spec(8, dtype=tf.int32), _spec(8, dtype=tf.bool)
F24, T3 = _spec(2, 4), _spec(2, 8, 3)
N, F0 = _spec(dtype=tf.int32), _spec()
IMAGE, LOGITS = _spec(1, 8, 8, 3), _spec(4, 10)
L8, D8, DM = (
    _spec(8, dtype=tf.int64),
    _spec(8, dtype=tf.float64),
    _spec(4, 4, dtype=tf.float64),
)


def _typed(dtype: tf.DType, *shape: int) -> tf.TensorSpec:
    return _spec(*(shape or (8, 8)), dtype=dtype)


def gradient(fn: Callable) -> Callable:
    """Give the gradient of the sum of a function's result with respect to its first argument."""

    @functools.wraps(fn)
    def differentiated(x: tf.Tensor, *rest: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(fn(x, *rest))
        return tf.convert_to_tensor(tape.gradient(loss, x))

    return differentiated


# --- functions that need statements ---------------------------------------------------------------


def if_on_a_tensor(x):
    if tf.reduce_sum(x) > 10:
        x = x / 2.0
    return x


@tf.autograph.experimental.do_not_convert
def if_without_autograph(x):
    if tf.reduce_sum(x) > 10:
        x = x / 2.0
    return x


def while_on_a_tensor(x):
    while tf.reduce_sum(x) > 1.0:
        x = x / 2.0
    return x


def for_over_range_n(x, n):
    for i in tf.range(n):
        x = x + tf.cast(i, tf.float32)
    return x


def for_over_static_range(x):
    for i in tf.range(4):
        x = x + tf.cast(i, tf.float32)
    return x


def for_over_rows(x):
    total = tf.zeros([8])
    for row in x:
        total += row
    return total


def break_in_a_loop(x):
    for i in tf.range(8):
        if x[i] > 0.5:
            break
        x = x * 0.9
    return x


def assert_statement(x):
    assert tf.reduce_sum(x) > 0.0
    return x


def python_print(x):
    print(x)  # noqa: T201 - the case
    return x + 1.0


def list_append_in_a_loop(x):
    found = []
    for i in range(4):
        found.append(x * i)
    return tf.stack(found)


def array_of_fixed_size(x):
    array = tf.TensorArray(tf.float32, size=4)
    for i in tf.range(4):
        array = array.write(i, x[i])
    return array.stack()


def array_that_grows(x):
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in range(4):
        array = array.write(i, x[i])
    return array.stack()


def array_that_grows_n_times(x, n):
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in tf.range(n):
        array = array.write(i, x[i])
    return array.stack()


def array_of_size_n(x, n):
    array = tf.TensorArray(tf.float32, size=n)
    array = array.write(0, x[0])
    return array.stack()


def _halve(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda y: tf.reduce_sum(y) > 1.0, lambda y: (y / 2.0,), (x,))[0]


def _halve_at_most_8_times(x: tf.Tensor) -> tf.Tensor:
    condition, body = (lambda y: tf.reduce_sum(y) > 1.0), (lambda y: (y / 2.0,))
    return tf.while_loop(condition, body, (x,), maximum_iterations=8)[0]


def edit_distance(a, b):
    row = tf.range(9)
    for i in tf.range(8):
        new = tf.TensorArray(tf.int32, size=9)
        last = i + 1
        new = new.write(0, last)
        for j in tf.range(8):
            cost = tf.cast(a[i] != b[j], tf.int32)
            last = tf.minimum(tf.minimum(last + 1, row[j + 1] + 1), row[j] + cost)
            new = new.write(j + 1, last)
        row = new.stack()
    return row[8]


def masked_mean_loss(logits, labels):
    keep = labels >= 0
    labels, logits = tf.boolean_mask(labels, keep), tf.boolean_mask(logits, keep)
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )


def masked_mean_loss_static(logits, labels):
    keep = tf.cast(labels >= 0, tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.maximum(labels, 0), logits=logits
    )
    return tf.reduce_sum(losses * keep) / tf.reduce_sum(keep)


def ragged_from_tensor(x):
    return tf.reduce_sum(tf.RaggedTensor.from_tensor(x), axis=1)


def ragged_from_row_ids(x, ids):
    return tf.RaggedTensor.from_value_rowids(x, ids, nrows=4, validate=False).row_lengths()


def ragged_from_row_splits(x):
    splits = tf.constant([0, 2, 2, 8])
    return tf.reduce_sum(tf.RaggedTensor.from_row_splits(x, splits), axis=1)


def ragged_to_tensor(x):
    return tf.RaggedTensor.from_row_splits(x, [0, 2, 2, 8]).to_tensor()


def ragged_gather(x, i):
    return tf.gather(tf.RaggedTensor.from_row_splits(x, [0, 2, 2, 8]), i % 3).flat_values


def sparse_times_dense(x, y):
    return tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(x), y)


def sparse_to_dense(x):
    return tf.sparse.to_dense(tf.sparse.SparseTensor([[0, 0], [1, 2]], x[:2], [8, 8]))


def summary_without_writer(x):
    tf.summary.scalar("mean", tf.reduce_mean(x), step=0)
    return x


# --- functions with state -------------------------------------------------------------------------


def random_generator():
    generator = tf.random.Generator.from_seed(1)
    return lambda x: x + generator.normal([8])


def lookup_table():
    keys, values = tf.range(4), tf.range(4)
    initializer = tf.lookup.KeyValueTensorInitializer(keys, values)
    table = tf.lookup.StaticHashTable(initializer, -1)
    return lambda x: table.lookup(x)


def new_variable_at_each_call():
    return lambda x: tf.Variable(x) + 1.0


def variable_assign():
    variable = tf.Variable(tf.zeros([8]))
    return lambda x: variable.assign_add(x)


def variable_scatter():
    variable = tf.Variable(tf.zeros([8, 8]))
    return lambda x, i: variable.scatter_nd_add(i[:, None], x)


def variable_of_another_shape():
    variable = tf.Variable(tf.zeros([4]), shape=tf.TensorShape([None]))
    return lambda x: variable.assign(x) + 0.0


def _keras(*layers: Callable, shape: tuple[int, ...], training: bool = True) -> Callable:
    def make() -> Callable:
        model = tf_keras.Sequential([layer() for layer in layers])
        model.build(shape)

        def loss_and_gradients(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x, training=training) ** 2)
            return [loss, *tape.gradient(loss, model.trainable_variables)]

        return loss_and_gradients

    return make


def _keras_metric(metric: Callable) -> Callable:
    def make() -> Callable:
        kept = metric()

        def update(labels, predictions):
            kept.update_state(labels, predictions)
            return kept.result()

        return update

    return make


def train_step():
    model = tf_keras.Sequential([tf_keras.layers.Dense(16, "relu"), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.Adam(), "mse", metrics=["mae"])
    model.build((8, 8))
    return lambda x, y: model.train_step((x, y))


def train_step_of_embeddings():
    model = tf_keras.Sequential([tf_keras.layers.Embedding(50, 8), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.AdamW(), "mse")
    model.build((4, 7))
    return lambda x, y: model.train_step((x, y))


layers = tf_keras.layers


def _groups() -> dict[str, list[Case]]:
    """Set the cases out, by subject."""
    return {
        "Control flow": [
            Case("if_on_a_tensor", if_on_a_tensor, (F8,)),
            Case("if_without_autograph", if_without_autograph, (F8,)),
            Case("while_on_a_tensor", while_on_a_tensor, (F8,)),
            Case("for_over_range_n", for_over_range_n, (F8, N)),
            Case("for_over_static_range", for_over_static_range, (F8,)),
            Case("for_over_rows", for_over_rows, (M8,)),
            Case("break_in_a_loop", break_in_a_loop, (F8,)),
            Case("cond", lambda x: tf.cond(x[0] > 0, lambda: x, lambda: -x), (F8,)),
            Case(
                "cond_of_other_shapes",
                lambda x: tf.cond(x[0] > 0, lambda: x[:2], lambda: x[:4]),
                (F8,),
            ),
            Case("case", lambda x: tf.case([(x[0] > 0, lambda: x)], lambda: -x), (F8,)),
            Case(
                "switch_case",
                lambda x, n: tf.switch_case(n, [lambda: x, lambda: -x, lambda: x * 2.0]),
                (F8, N),
            ),
            Case("where_3_arguments", lambda x: tf.where(x > 0, x, tf.zeros_like(x)), (F8,)),
            Case("while_loop", _halve, (F8,)),
            Case("while_loop_maximum", _halve_at_most_8_times, (F8,)),
            Case("map_fn", lambda x: tf.map_fn(lambda row: row * 2.0, x), (M8,)),
            Case("scan", lambda x: tf.scan(lambda a, b: a + b, x), (M8,)),
            Case("foldl", lambda x: tf.foldl(lambda a, b: a + b, x), (M8,)),
            Case("vectorized_map", lambda x: tf.vectorized_map(tf.reduce_sum, x), (M8,)),
            Case("edit_distance", edit_distance, (I8, I8)),
            Case("list_append_in_a_loop", list_append_in_a_loop, (F8,)),
            Case("array_of_fixed_size", array_of_fixed_size, (F8,)),
            Case("array_that_grows", array_that_grows, (F8,)),
            Case("array_that_grows_n_times", array_that_grows_n_times, (F8, N)),
            Case("array_of_size_n", array_of_size_n, (F8, N)),
        ],
        "A size given as a tensor": [
            Case("range_n", lambda n: tf.range(n), (N,)),
            Case("range_n_reduced", lambda n: tf.reduce_sum(tf.range(n)), (N,)),
            Case("zeros_n", lambda n: tf.zeros([n]), (N,)),
            Case("fill_n", lambda x, n: tf.fill([n], x), (F0, N)),
            Case("reshape_n", lambda x, n: tf.reshape(x, [n, -1]), (M8, N)),
            Case("reshape_static", lambda x: tf.reshape(x, [4, 16]), (M8,)),
            Case("reshape_by_shape", lambda x: tf.reshape(x, [tf.shape(x)[0], 2, 4]), (M8,)),
            Case("repeat_n", lambda x, n: tf.repeat(x, n), (F8, N)),
            Case("repeat_static", lambda x: tf.repeat(x, 3), (F8,)),
            Case("repeat_by_row", lambda x, i: tf.repeat(x, i), (F8, I8)),
            Case("tile_n", lambda x, n: tf.tile(x, [n]), (F8, N)),
            Case("broadcast_to_n", lambda x, n: tf.broadcast_to(x, [n, 8]), (F8, N)),
            Case("pad_n", lambda x, n: tf.pad(x, [[0, n]]), (F8, N)),
            Case("one_hot_n", lambda i, n: tf.one_hot(i, n), (I8, N)),
            Case("sequence_mask_n", lambda i, n: tf.sequence_mask(i, n), (I8, N)),
            Case("sequence_mask_static", lambda i: tf.sequence_mask(i, 8), (I8,)),
            Case("sequence_mask_of_longest", lambda i: tf.sequence_mask(i), (I8,)),
            Case("eye_n", lambda n: tf.eye(n), (N,)),
            Case("linspace_n", lambda x, n: tf.linspace(0.0, x, n), (F0, N)),
            Case("split_n", lambda x, n: tf.split(x, [n, 8 - n]), (F8, N)),
            Case("split_static", lambda x: tf.split(x, [2, 6]), (F8,)),
            Case("top_k_n", lambda x, n: tf.math.top_k(x, n).values, (F8, N)),
            Case("top_k_static", lambda x: tf.math.top_k(x, 3), (F8,)),
            Case("slice_up_to_n", lambda x, n: x[:n], (F8, N)),
            Case("slice_up_to_n_twice", lambda x, n: x[:n, :n], (M8, N)),
            Case("slice_up_to_n_reduced", lambda x, n: tf.reduce_sum(x[:n]), (F8, N)),
            Case("slice_from_n", lambda x, n: tf.slice(x, [n], [4]), (F8, N)),
            Case("slice_of_size_n", lambda x, n: tf.slice(x, [0], [n]), (F8, N)),
            Case("index_n", lambda x, n: x[n], (F8, N)),
            Case("random_n", lambda n: tf.random.normal([n]), (N,)),
            Case("segments_n", lambda x, i, n: tf.math.unsorted_segment_sum(x, i, n), (F8, I8, N)),
            Case("scatter_nd_n", lambda x, i, n: tf.scatter_nd(i[:, None], x, [n]), (F8, I8, N)),
            Case("reduce_over_axis_n", lambda x, n: tf.reduce_sum(x, n), (M8, N)),
            Case("roll_by_n", lambda x, n: tf.roll(x, n, 0), (F8, N)),
            Case("bincount", lambda i: tf.math.bincount(i), (I8,)),
            Case("bincount_length", lambda i: tf.math.bincount(i, minlength=8, maxlength=8), (I8,)),
            Case("size_of_shape", lambda x: tf.cast(tf.size(x), tf.float32) * x, (F8,)),
        ],
        "As many as there are": [
            Case("unique", lambda x: tf.unique(x), (F8,)),
            Case("unique_reduced", lambda x: tf.reduce_sum(tf.unique(x)[0]), (F8,)),
            Case("unique_with_counts", lambda x: tf.unique_with_counts(x), (F8,)),
            Case("boolean_mask", lambda x: tf.boolean_mask(x, x > 0), (F8,)),
            Case("index_by_a_mask", lambda x: x[x > 0], (F8,)),
            Case("mask_reduced", lambda x: tf.reduce_mean(x[x > 0]), (F8,)),
            Case("where_1_argument", lambda x: tf.where(x > 0), (F8,)),
            Case("raw_where", lambda x: tf.raw_ops.Where(condition=x), (B8,)),
            Case("dynamic_partition", lambda x, i: tf.dynamic_partition(x, i % 2, 2), (F8, I8)),
            Case(
                "dynamic_stitch",
                lambda x, i: tf.dynamic_stitch([tf.range(8), i], [x, x]),
                (F8, I8),
            ),
            Case("set_difference", lambda x, y: tf.sets.difference(x, y).values, (_2D, _2D)),
            Case("setdiff1d", lambda x, y: tf.raw_ops.ListDiff(x=x, y=y).out, (I8, I8)),
            Case(
                "non_max_suppression",
                lambda b, s: tf.image.non_max_suppression(b, s, 4),
                (_spec(8, 4), F8),
            ),
            Case(
                "non_max_suppression_padded",
                lambda b, s: tf.image.non_max_suppression_padded(b, s, 4, pad_to_max_output_size=1),
                (_spec(8, 4), F8),
            ),
            Case("masked_mean_loss", masked_mean_loss, (LOGITS, _typed(tf.int32, 4))),
            Case(
                "masked_mean_loss_grad", gradient(masked_mean_loss), (LOGITS, _typed(tf.int32, 4))
            ),
            Case("masked_mean_loss_static", masked_mean_loss_static, (LOGITS, _typed(tf.int32, 4))),
            Case(
                "masked_mean_loss_static_grad",
                gradient(masked_mean_loss_static),
                (LOGITS, _typed(tf.int32, 4)),
            ),
        ],
        "After a mask: operations on a bounded size": [
            Case("mask_size", lambda x: tf.size(x[x > 0]), (F8,)),
            Case("mask_shape_as_range", lambda x: tf.range(tf.shape(x[x > 0])[0]), (F8,)),
            Case("mask_matmul", lambda x, y: x[x[:, 0] > 0] @ y, (M8, M8)),
            Case(
                "mask_contracted",
                lambda x, y: tf.matmul(x[x[:, 0] > 0], y[x[:, 0] > 0], transpose_a=True),
                (M8, M8),
            ),
            Case("mask_softmax", lambda x: tf.reduce_sum(tf.nn.softmax(x[x > 0]) ** 2), (F8,)),
            Case("mask_sort", lambda x: tf.reduce_sum(tf.sort(x[x > 0])), (F8,)),
            Case("mask_argmax", lambda x: tf.argmax(x[x > 0]), (F8,)),
            Case("mask_top_k", lambda x: tf.math.top_k(x[x > 0], 1).values, (F8,)),
            Case("mask_concat", lambda x: tf.concat([x[x > 0], x], 0), (F8,)),
            Case("mask_reshape", lambda x: tf.reshape(x[x[:, 0] > 0], [-1]), (M8,)),
            Case("mask_reshape_columns", lambda x: tf.reshape(x[x > 0], [-1, 1]), (F8,)),
            Case("mask_cumsum", lambda x: tf.cumsum(x[x > 0]), (F8,)),
            Case("mask_cumsum_reduced", lambda x: tf.reduce_sum(tf.cumsum(x[x > 0])), (F8,)),
            Case("mask_pad", lambda x: tf.pad(x[x > 0], [[0, 2]]), (F8,)),
            Case("mask_gather", lambda x: tf.gather(x[x > 0], 0), (F8,)),
            Case("mask_tile", lambda x: tf.tile(x[x > 0], [2]), (F8,)),
            Case("mask_reverse", lambda x: tf.reverse(x[x > 0], [0]), (F8,)),
            Case("mask_one_hot", lambda i: tf.one_hot(i[i > 0], 4), (I8,)),
            Case("mask_unique", lambda i: tf.unique(i[i > 1])[0], (I8,)),
            Case(
                "mask_scatter",
                lambda x: tf.scatter_nd(tf.where(x > 0), x[x > 0], [8]),
                (F8,),
            ),
            Case("mask_moments", lambda x: tf.nn.moments(x[x[:, 0] > 0], [0]), (M8,)),
            Case("mask_conv1d", lambda x: tf.nn.conv1d(x[x[:, 0, 0] > 0], _K1, 1, "SAME"), (T3,)),
            Case("mask_map_fn", lambda x: tf.map_fn(lambda v: v * 2.0, x[x > 0]), (F8,)),
            Case("mask_transpose", lambda x: tf.transpose(x[x[:, 0] > 0]), (M8,)),
            Case("mask_add_full", lambda x, y: x[x > 0] + y, (F8, F0)),
            Case("mask_median", lambda x: tf.sort(x[x > 0])[tf.size(x[x > 0]) // 2], (F8,)),
        ],
        "Strings, Python, files": [
            Case("as_string", lambda x: tf.strings.as_string(x), (F8,)),
            Case("string_argument", lambda x: tf.strings.length(x), (_typed(tf.string, 8),)),
            Case("string_constant", lambda x: (x, tf.strings.length("four"))[0], (F8,)),
            Case(
                "string_split", lambda x: tf.strings.split(x).flat_values, (_typed(tf.string, 8),)
            ),
            Case(
                "hash_bucket", lambda x: tf.strings.to_hash_bucket_fast(x, 9), (_typed(tf.string),)
            ),
            Case("tf_print", lambda x: (tf.print(x), x + 1.0)[1], (F8,)),
            Case("python_print", python_print, (F8,)),
            Case("py_function", lambda x: tf.py_function(lambda v: v, [x], tf.float32), (F8,)),
            Case("numpy_function", lambda x: tf.numpy_function(np.sin, [x], tf.float32), (F8,)),
            Case("serialize_tensor", lambda x: tf.io.serialize_tensor(x), (F8,)),
            Case("decode_raw", lambda x: tf.io.decode_raw(x, tf.uint8), (_typed(tf.string, 8),)),
            Case("timestamp", lambda x: tf.cast(tf.timestamp(), tf.float32) + x, (F8,)),
            Case("summary_without_writer", summary_without_writer, (F8,)),
            Case("lookup_table", lookup_table, (I8,), made=True),
        ],
        "Checks": [
            Case("assert_less", lambda x: (tf.debugging.assert_less(x, 9.0), x + 1.0)[1], (F8,)),
            Case("assert_statement", assert_statement, (F8,)),
            Case("check_numerics", lambda x: tf.debugging.check_numerics(x, "x"), (F8,)),
            Case("ensure_shape", lambda x: tf.ensure_shape(x, [8]), (F8,)),
            Case("ensure_wrong_shape", lambda x: tf.ensure_shape(x, [9]), (F8,)),
            Case("assert_shapes", lambda x: (tf.debugging.assert_shapes([(x, (8,))]), x)[1], (F8,)),
            Case("gather_out_of_range", lambda x: tf.gather(x, [0, 99]), (F8,)),
            Case("is_finite", lambda x: tf.reduce_all(tf.math.is_finite(x)), (F8,)),
        ],
        "Ragged and sparse": [
            Case("ragged_from_tensor", ragged_from_tensor, (M8,)),
            Case("ragged_from_row_ids", ragged_from_row_ids, (F8, L8)),
            Case("ragged_from_row_splits", ragged_from_row_splits, (F8,)),
            Case("ragged_to_tensor", ragged_to_tensor, (F8,)),
            Case("ragged_gather", ragged_gather, (F8, I8)),
            Case("sparse_from_dense", lambda x: tf.sparse.from_dense(x).values, (M8,)),
            Case("sparse_to_dense", sparse_to_dense, (F8,)),
            Case("sparse_dense_matmul", sparse_times_dense, (M8, M8)),
            Case("segment_sum", lambda x, i: tf.math.segment_sum(x, i), (F8, I8)),
            Case(
                "unsorted_segment_sum",
                lambda x, i: tf.math.unsorted_segment_sum(x, i, 4),
                (F8, I8),
            ),
            Case(
                "unsorted_segment_max", lambda x, i: tf.math.unsorted_segment_max(x, i, 4), (F8, I8)
            ),
            Case("embedding_lookup", lambda x, i: tf.nn.embedding_lookup(x, i), (M8, I8)),
            Case("embedding_gradient", gradient(lambda x, i: tf.gather(x, i)), (M8, I8)),
        ],
        "Linear algebra": [
            Case("matmul", lambda x, y: x @ y, (M8, M8)),
            Case("einsum", lambda x, y: tf.einsum("ij,kj->ik", x, y), (M8, M8)),
            Case("tensordot", lambda x, y: tf.tensordot(x, y, 1), (M8, M8)),
            Case("svd", lambda x: tf.linalg.svd(x), (M8,)),
            Case("eigh", lambda x: tf.linalg.eigh(x), (M8,)),
            Case("eig", lambda x: tf.linalg.eig(x), (M8,)),
            Case("qr", lambda x: tf.linalg.qr(x), (M8,)),
            Case("lu", lambda x: tf.linalg.lu(x), (M8,)),
            Case("cholesky", lambda x: tf.linalg.cholesky(x), (M8,)),
            Case("inv", lambda x: tf.linalg.inv(x), (M8,)),
            Case("det", lambda x: tf.linalg.det(x), (M8,)),
            Case("slogdet", lambda x: tf.linalg.slogdet(x), (M8,)),
            Case("logdet_cholesky", lambda x: tf.linalg.logdet(x), (M8,)),
            Case("solve", lambda x, y: tf.linalg.solve(x, y), (M8, M8)),
            Case("triangular_solve", lambda x, y: tf.linalg.triangular_solve(x, y), (M8, M8)),
            Case("lstsq", lambda x, y: tf.linalg.lstsq(x, y), (M8, M8)),
            Case("expm", lambda x: tf.linalg.expm(x), (M8,)),
            Case("pinv", lambda x: tf.linalg.pinv(x), (M8,)),
            Case("band_part", lambda x: tf.linalg.band_part(x, -1, 0), (M8,)),
            Case("eigh_f64", lambda x: tf.linalg.eigh(x), (DM,)),
            Case("qr_f64", lambda x: tf.linalg.qr(x), (DM,)),
            Case("svd_f64", lambda x: tf.linalg.svd(x), (DM,)),
            Case("cholesky_f64", lambda x: tf.linalg.cholesky(x), (DM,)),
        ],
        "Signals": [
            Case("fft", lambda x: tf.signal.fft(x), (_typed(tf.complex64, 8),)),
            Case("fft_complex128", lambda x: tf.signal.fft(x), (_typed(tf.complex128, 8),)),
            Case("rfft", lambda x: tf.signal.rfft(x), (F8,)),
            Case("irfft", lambda x: tf.signal.irfft(x), (_typed(tf.complex64, 5),)),
            Case("rfft3d", lambda x: tf.signal.rfft3d(x), (_spec(4, 4, 4),)),
            Case("stft", lambda x: tf.signal.stft(x, 8, 4), (_spec(32),)),
            Case("dct", lambda x: tf.signal.dct(x), (F8,)),
            Case("frame", lambda x: tf.signal.frame(x, 4, 2), (F8,)),
        ],
        "Random numbers": [
            Case("random_normal", lambda x: x + tf.random.normal([8]), (F8,)),
            Case("random_uniform", lambda x: x + tf.random.uniform([8]), (F8,)),
            Case("random_uniform_int", lambda i: i + tf.random.uniform([8], 0, 9, tf.int32), (I8,)),
            Case("truncated_normal", lambda x: x + tf.random.truncated_normal([8]), (F8,)),
            Case("random_shuffle", lambda x: tf.random.shuffle(x), (F8,)),
            Case("random_categorical", lambda x: tf.random.categorical(x, 3), (M8,)),
            Case("random_gamma", lambda x: x + tf.random.gamma([8], 1.0), (F8,)),
            Case("random_poisson", lambda x: x + tf.random.poisson([8], 1.0), (F8,)),
            Case("stateless_normal", lambda x: x + tf.random.stateless_normal([8], [1, 2]), (F8,)),
            Case(
                "stateless_gamma",
                lambda x: x + tf.random.stateless_gamma([8], [1, 2], 1.0),
                (F8,),
            ),
            Case("stateless_shuffle", _stateless_shuffle, (F8,)),
            Case("random_generator", random_generator, (F8,), made=True),
            Case("dropout", lambda x: tf.nn.dropout(x, 0.1), (F8,)),
            Case("stateless_dropout", _stateless_dropout, (F8,)),
        ],
        "Types": [
            Case("float64_matmul", lambda x, y: x @ y, (DM, DM)),
            Case("float64_tanh", lambda x: tf.tanh(x), (D8,)),
            Case("float64_lgamma", lambda x: tf.math.lgamma(x), (D8,)),
            Case("float64_sort", lambda x: tf.sort(x), (D8,)),
            Case(
                "float64_conv",
                lambda x: tf.nn.conv2d(x, tf.ones([3, 3, 3, 2], tf.float64), 1, "SAME"),
                (_typed(tf.float64, 1, 8, 8, 3),),
            ),
            Case("float16_matmul", lambda x, y: x @ y, (_typed(tf.float16),) * 2),
            Case("bfloat16_matmul", lambda x, y: x @ y, (_typed(tf.bfloat16),) * 2),
            Case("complex64_matmul", lambda x, y: x @ y, (_typed(tf.complex64),) * 2),
            Case("complex128_matmul", lambda x, y: x @ y, (_typed(tf.complex128),) * 2),
            Case("int64_add", lambda x, y: x + y, (L8, L8)),
            Case("int64_gather", lambda x, i: tf.gather(x, i), (F8, L8)),
            Case("int64_sort", lambda x: tf.sort(x), (L8,)),
            Case("int64_matmul", lambda x, y: x @ y, (_typed(tf.int64),) * 2),
            Case("int32_matmul", lambda x, y: x @ y, (_typed(tf.int32),) * 2),
            Case(
                "int8_matmul",
                lambda x, y: tf.matmul(x, y, output_type=tf.int32),
                (_typed(tf.int8),) * 2,
            ),
            Case("int8_add", lambda x, y: x + y, (_typed(tf.int8),) * 2),
            Case("int16_add", lambda x, y: x + y, (_typed(tf.int16),) * 2),
            Case("uint8_add", lambda x, y: x + y, (_typed(tf.uint8),) * 2),
            Case("uint32_divide", lambda x, y: x // y, (_typed(tf.uint32),) * 2),
            Case("uint64_multiply", lambda x, y: x * y, (_typed(tf.uint64),) * 2),
            Case("int32_divide", lambda x, y: x // y, (I8, I8)),
            Case("bool_reduce", lambda x: (tf.reduce_all(x), tf.reduce_any(x)), (B8,)),
            Case("cast_float_to_int", lambda x: tf.cast(x, tf.int32), (F8,)),
            Case("bitcast_32", lambda x: tf.bitcast(x, tf.int32), (F8,)),
            Case("bitcast_64", lambda x: tf.bitcast(x, tf.int64), (D8,)),
            Case("quantize", lambda x: tf.quantization.fake_quant_with_min_max_args(x), (F8,)),
        ],
        "Sorting and searching": [
            Case("sort", lambda x: tf.sort(x), (F8,)),
            Case("argsort", lambda x: tf.argsort(x), (F8,)),
            Case("argsort_stable", lambda x: tf.argsort(x, stable=True), (F8,)),
            Case("argmax", lambda x: tf.argmax(x), (F8,)),
            Case("searchsorted", lambda x, y: tf.searchsorted(x, y), (F8, F8)),
            Case("histogram", lambda x: tf.histogram_fixed_width(x, [0.0, 1.0], 4), (F8,)),
            Case("invert_permutation", lambda i: tf.math.invert_permutation(i), (I8,)),
            Case("in_top_k", lambda i, x: tf.math.in_top_k(i, x, 2), (_typed(tf.int32, 4), LOGITS)),
            Case("confusion_matrix", lambda a, b: tf.math.confusion_matrix(a, b, 8), (I8, I8)),
            Case("cumsum", lambda x: tf.cumsum(x), (F8,)),
            Case("cumprod", lambda x: tf.math.cumprod(x), (F8,)),
            Case("cumulative_logsumexp", lambda x: tf.math.cumulative_logsumexp(x), (F8,)),
            Case("gather_nd", lambda x, i: tf.gather_nd(x, i[:, None]), (M8, I8)),
            Case(
                "gather_batch_dims", lambda x, i: tf.gather(x, i[:, None], batch_dims=1), (M8, I8)
            ),
            Case(
                "tensor_scatter_update",
                lambda x, i: tf.tensor_scatter_nd_update(x, i[:, None], x),
                (F8, I8),
            ),
            Case("strided_slice", lambda x: x[::2, 1:-1], (M8,)),
            Case("reverse_sequence", lambda x, i: tf.reverse_sequence(x, i, 1), (M8, I8)),
        ],
        "Special functions": [
            Case("betainc", lambda x: tf.math.betainc(x, x, x), (F8,)),
            Case("igamma", lambda x: tf.math.igamma(x, x), (F8,)),
            Case("erfinv", lambda x: tf.math.erfinv(x), (F8,)),
            Case("ndtri", lambda x: tf.math.ndtri(x), (F8,)),
            Case("bessel_j0", lambda x: tf.math.special.bessel_j0(x), (F8,)),
            Case("bessel_i0e", lambda x: tf.math.bessel_i0e(x), (F8,)),
            Case("zeta", lambda x: tf.math.zeta(x + 2.0, x), (F8,)),
            Case("polygamma", lambda x: tf.math.polygamma(x, x), (F8,)),
            Case("round", lambda x: tf.round(x), (F8,)),
        ],
        "Images and convolutions": [
            Case("conv2d", lambda x: tf.nn.conv2d(x, _K2, 1, "SAME"), (IMAGE,)),
            Case("conv2d_channels_first", _channels_first, (_spec(1, 3, 8, 8),)),
            Case("conv3d", _conv3d, (_spec(1, 4, 4, 4, 2),)),
            Case("conv2d_transpose", _transposed, (IMAGE,)),
            Case("depthwise_conv", _depthwise, (IMAGE,)),
            Case("max_pool", lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"), (IMAGE,)),
            Case(
                "max_pool_argmax",
                lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, "SAME"),
                (IMAGE,),
            ),
            Case("resize_bilinear", lambda x: tf.image.resize(x, [4, 4]), (IMAGE,)),
            Case("resize_nearest", lambda x: tf.image.resize(x, [4, 4], "nearest"), (IMAGE,)),
            Case("resize_bicubic", lambda x: tf.image.resize(x, [4, 4], "bicubic"), (IMAGE,)),
            Case("crop_and_resize", _crop, (IMAGE,)),
            Case("random_flip", lambda x: tf.image.random_flip_left_right(x), (IMAGE,)),
            Case("random_crop", lambda x: tf.image.random_crop(x, [1, 4, 4, 3]), (IMAGE,)),
            Case("adjust_hue", lambda x: tf.image.adjust_hue(x, 0.1), (IMAGE,)),
            Case("rotate_90", lambda x: tf.image.rot90(x), (IMAGE,)),
            Case("extract_patches", _patches, (IMAGE,)),
            Case("ssim", lambda x, y: tf.image.ssim(x, y, 1.0, 3), (IMAGE, IMAGE)),
            Case("decode_jpeg", lambda x: tf.io.decode_jpeg(x), (_spec(dtype=tf.string),)),
        ],
        "Losses": [
            Case("softmax_cross_entropy", _sparse_loss, (_typed(tf.int32, 4), LOGITS)),
            Case(
                "sigmoid_cross_entropy",
                lambda x, y: tf.nn.sigmoid_cross_entropy_with_logits(x, y),
                (LOGITS, LOGITS),
            ),
            Case("ctc_loss", _ctc_loss, (_typed(tf.int32, 2, 3), _spec(2, 8, 5))),
            Case(
                "ctc_greedy_decoder",
                lambda x, i: tf.nn.ctc_greedy_decoder(x, i)[0][0].values,
                (_spec(8, 2, 5), _typed(tf.int32, 2)),
            ),
            Case(
                "sampled_softmax", _sampled, (_spec(20, 8), F8, _spec(4, 8), _typed(tf.int64, 4, 1))
            ),
        ],
        "Gradients": [
            Case("gradient_of_cond", gradient(if_on_a_tensor), (F8,)),
            Case("gradient_of_while", gradient(_halve), (F8,)),
            Case("gradient_of_while_maximum", gradient(_halve_at_most_8_times), (F8,)),
            Case("gradient_of_sort", gradient(lambda x: tf.sort(x) * x), (F8,)),
            Case("gradient_of_svd", gradient(lambda x: tf.linalg.svd(x)[0]), (M8,)),
            Case("gradient_of_eigh", gradient(lambda x: tf.linalg.eigh(x)[0]), (M8,)),
            Case("gradient_of_top_k", gradient(lambda x: tf.math.top_k(x, 3).values), (F8,)),
            Case("gradient_of_mask", gradient(lambda x: x[x > 0] ** 2), (F8,)),
            Case("gradient_of_map_fn", gradient(lambda x: tf.map_fn(tf.sin, x)), (F8,)),
            Case("gradient_of_resize", gradient(lambda x: tf.image.resize(x, [4, 4])), (IMAGE,)),
            Case("gradient_of_unique", gradient(lambda x: tf.unique(x)[0]), (F8,)),
            Case("recompute_grad", gradient(tf.recompute_grad(tf.sin)), (F8,)),
            Case("stop_gradient", gradient(lambda x: tf.stop_gradient(x) * x), (F8,)),
            Case("clip_by_global_norm", lambda x: tf.clip_by_global_norm([x], 1.0)[0][0], (F8,)),
        ],
        "Variables": [
            Case("variable_assign", variable_assign, (F8,), made=True),
            Case("variable_scatter", variable_scatter, (M8, I8), made=True),
            Case("variable_of_another_shape", variable_of_another_shape, (F8,), made=True),
            Case("new_variable_at_each_call", new_variable_at_each_call, (F8,), made=True),
        ],
        "Keras": [
            Case("dense", _keras(lambda: layers.Dense(4), shape=(8, 8)), (M8,), made=True),
            Case("lstm", _keras(lambda: layers.LSTM(4), shape=(2, 8, 3)), (T3,), made=True),
            Case("gru", _keras(lambda: layers.GRU(4), shape=(2, 8, 3)), (T3,), made=True),
            Case(
                "bidirectional",
                _keras(lambda: layers.Bidirectional(layers.LSTM(4)), shape=(2, 8, 3)),
                (T3,),
                made=True,
            ),
            Case(
                "batch_normalization",
                _keras(layers.BatchNormalization, shape=(8, 8)),
                (M8,),
                made=True,
            ),
            Case(
                "layer_normalization",
                _keras(layers.LayerNormalization, shape=(8, 8)),
                (M8,),
                made=True,
            ),
            Case(
                "conv_layer",
                _keras(lambda: layers.Conv2D(4, 3), shape=(1, 8, 8, 3)),
                (IMAGE,),
                made=True,
            ),
            Case(
                "dropout_layer",
                _keras(lambda: layers.Dense(4), lambda: layers.Dropout(0.1), shape=(8, 8)),
                (M8,),
                made=True,
            ),
            Case("accuracy", _keras_metric(_accuracy), (_typed(tf.int32, 4), LOGITS), made=True),
            Case("auc", _keras_metric(tf_keras.metrics.AUC), (F8, F8), made=True),
            Case("train_step", train_step, (M8, _spec(8, 1)), made=True),
            Case(
                "train_step_of_embeddings",
                train_step_of_embeddings,
                (_typed(tf.int32, 4, 7), _spec(4, 7, 1)),
                made=True,
            ),
        ],
    }


_2D = _typed(tf.int32, 2, 4)
_K1, _K2 = np.ones([3, 3, 2], "float32"), np.ones([3, 3, 3, 2], "float32")


def _stateless_shuffle(x):
    return tf.random.experimental.stateless_shuffle(x, [1, 2])


def _stateless_dropout(x):
    return tf.nn.experimental.stateless_dropout(x, 0.1, [1, 2])


def _channels_first(x):
    return tf.nn.conv2d(x, _K2, 1, "SAME", data_format="NCHW")


def _conv3d(x):
    return tf.nn.conv3d(x, tf.ones([2, 2, 2, 2, 2]), [1, 1, 1, 1, 1], "SAME")


def _transposed(x):
    return tf.nn.conv2d_transpose(x, tf.ones([3, 3, 2, 3]), [1, 16, 16, 2], 2)


def _depthwise(x):
    return tf.nn.depthwise_conv2d(x, tf.ones([3, 3, 3, 2]), [1, 1, 1, 1], "SAME")


def _crop(x):
    return tf.image.crop_and_resize(x, [[0.0, 0.0, 1.0, 1.0]], [0], [4, 4])


def _patches(x):
    return tf.image.extract_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID")


def _sparse_loss(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def _ctc_loss(labels, logits):
    return tf.nn.ctc_loss(labels, logits, [3, 3], [8, 8], logits_time_major=False)


def _sampled(weights, biases, inputs, labels):
    return tf.nn.sampled_softmax_loss(weights, biases[:1], labels, inputs, 4, 20)


def _accuracy():
    return tf_keras.metrics.SparseCategoricalAccuracy()


def cases() -> dict[str, tuple[Case, ...]]:
    """List the cases by subject.

    Returns:
        Cases by the heading they stand under, in the table's order.
    """
    return {heading: tuple(found) for heading, found in _groups().items()}


def every() -> Iterator[Case]:
    """Go through all cases, in the table's order."""
    return itertools.chain.from_iterable(cases().values())
