"""Batches against their own account: no sequence is lost, doubled or torn."""

import collections
import itertools
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from terminal import call

from helpers.base.errors import CourseError
from helpers.text.buckets import Batches, TooLong, bucketed, pack, packed
from helpers.xla import compilations

pytestmark = pytest.mark.slow


def sequences(lengths):
    """Sequence i holds the number i + 1 as often as it is long."""
    return tf.data.Dataset.from_tensor_slices(
        tf.RaggedTensor.from_row_lengths(
            np.repeat(np.arange(1, len(lengths) + 1, dtype=np.int32), lengths), lengths
        )
    )


def contents(batches: Batches):
    """Check each batch against its mask and the account; count the sequences in it."""
    seen, shapes, empty, number = collections.Counter(), set(), 0, 0
    for batch in batches.dataset.as_numpy_iterator():
        number += 1
        ids, mask = batch["input_ids"], batch["attention_mask"]
        shapes.add(ids.shape)
        assert mask.shape == ids.shape
        assert np.array_equal(mask, ids > 0)  # no token is 0 here
        for row in ids:
            values = set(row[row > 0].tolist())
            assert len(values) <= 1
            assert np.all(np.diff((row > 0).astype(int)) <= 0)  # tokens first, then padding
            empty += not values
            seen.update((value, int((row > 0).sum())) for value in values)
    assert number == batches.batches == len(batches.dataset)
    assert shapes == set(batches.shapes)
    assert empty == batches.empty
    return seen


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=90),
    st.sampled_from(["drop", "pad", "keep"]),
    st.sampled_from([{"batch_tokens": 96}, {"global_batch_size": 4}]),
    st.sampled_from([0, None]),
)
@settings(max_examples=20, deadline=None)
def test_no_sequence_is_lost_or_doubled(lengths, remainder, size, seed):
    make = dict(size, replicas=2, remainder=remainder, seed=seed)
    try:
        batches = bucketed(sequences(lengths), [8, 24, 40], **make)
    except CourseError as error:
        assert "fill not a single batch" in error.what
        sizes = (12, 4, 2) if "batch_tokens" in size else (4, 4, 4)
        held = np.bincount(np.searchsorted([8, 24, 40], lengths), minlength=3)
        assert remainder == "drop"
        assert np.all(held < sizes)
        return
    seen = contents(batches)
    assert max(seen.values()) == 1
    assert seen.keys() <= {(i + 1, length) for i, length in enumerate(lengths)}
    assert len(lengths) - len(seen) == batches.dropped
    assert batches.dropped == 0 or remainder == "drop"
    if remainder != "keep":
        assert all(rows % 2 == 0 for rows, _ in batches.shapes)


LENGTHS_100 = (np.arange(100) * 7 % 40 + 1).tolist()


def test_batches_hold_about_the_same_number_of_tokens():
    batches = bucketed(
        sequences(LENGTHS_100), [8, 16, 40], batch_tokens=130, replicas=3, remainder="pad"
    )
    assert batches.shapes == ((15, 8), (6, 16), (3, 40))
    assert len(contents(batches)) == 100


def test_the_account_of_each_remainder():
    drop, pad, keep = account = [
        bucketed(sequences([5] * 7 + [20] * 9), [8, 24], global_batch_size=4, remainder=how)
        for how in ("drop", "pad", "keep")
    ]
    found = [(batches.batches, batches.dropped, batches.empty) for batches in account]
    assert found == [(3, 4, 0), (5, 0, 4), (5, 0, 0)]
    assert keep.shapes == ((4, 8), (3, 8), (4, 24), (1, 24))
    assert drop.shapes == pad.shapes == ((4, 8), (4, 24))
    assert repr(drop) == (
        "16 rows in 3 batches of 2 shapes, 79.0% real tokens; 4 rows dropped in each epoch"
    )
    assert repr(pad).endswith("61.1% real tokens; 4 empty rows added")
    assert pad.efficiency == (7 * 5 + 9 * 20) / (8 * 8 + 12 * 24)
    assert "rows dropped" in drop._repr_html_()
    for batches in account:
        contents(batches)


def first_tokens(batches):
    return [batch["input_ids"][:, 0].tolist() for batch in batches.dataset.as_numpy_iterator()]


def every_kind(seed):
    data = sequences(LENGTHS_100)
    yield bucketed(data, [8, 16, 40], global_batch_size=4, remainder="pad", seed=seed)
    yield packed(data, 40, global_batch_size=4, remainder="pad", seed=seed)


def test_order_is_new_in_each_epoch_and_the_same_in_each_run():
    for first, again in zip(every_kind(seed=3), every_kind(seed=3), strict=True):
        epochs = [first_tokens(first), first_tokens(first)]
        together = [{frozenset(firsts) for firsts in epoch} for epoch in epochs]
        assert len(together[0] & together[1]) < len(together[0]) / 2
        assert sorted(itertools.chain(*epochs[0])) == sorted(itertools.chain(*epochs[1]))
        assert [first_tokens(again), first_tokens(again)] == epochs
    for first, other in zip(every_kind(seed=3), every_kind(seed=4), strict=True):
        assert first_tokens(first) != first_tokens(other)


def test_buckets_come_mixed_even_from_sorted_sequences(monkeypatch):
    monkeypatch.setattr("helpers.text.buckets.batches.SHUFFLED_SEQUENCES", 1)
    batches = bucketed(sequences(sorted(LENGTHS_100)), [8, 16, 24, 40], global_batch_size=2)
    widths = [batch["input_ids"].shape[1] for batch in batches.dataset.as_numpy_iterator()]
    assert 1 + np.count_nonzero(np.diff(widths)) > 2 * len(set(widths))


def test_without_a_seed_the_order_is_kept():
    options = {"remainder": "keep", "seed": None}
    batches = bucketed(sequences([3, 9, 3, 9, 3]), [4, 12], global_batch_size=2, **options)
    assert first_tokens(batches) == [[1, 3], [2, 4], [5]]
    batches = packed(sequences([9, 8, 7]), 10, global_batch_size=3, **options)
    assert first_tokens(batches) == [[1, 2, 3]]


def test_shapes_are_static_where_they_can_be():
    data = sequences(LENGTHS_100)

    def shape(**size):
        return bucketed(data, **size).dataset.element_spec["input_ids"].shape.as_list()

    assert shape(edges=[16, 40], global_batch_size=4) == [4, None]
    assert shape(edges=[16, 40], batch_tokens=80) == [None, None]
    assert shape(edges=[40], batch_tokens=80) == [2, 40]
    assert shape(edges=[40], batch_tokens=80, remainder="pad") == [2, 40]
    assert shape(edges=[40], batch_tokens=80, remainder="keep") == [None, 40]
    rows = packed(data, 40, global_batch_size=4).dataset.element_spec
    assert {spec.shape.as_list() == [4, 40] for spec in rows.values()} == {True}


def test_xla_compiles_once_per_shape():
    total = tf.function(lambda ids: tf.reduce_sum(ids * ids), jit_compile=True)
    batches = bucketed(sequences(LENGTHS_100), [8, 16, 40], global_batch_size=4, remainder="pad")
    with compilations.count_compilations() as compiled:
        for batch in batches.dataset.repeat(2):  # the second epoch compiles nothing
            total(batch["input_ids"])
    assert compiled.count == len(batches.shapes) == 3


def test_features_stay_together_and_get_their_own_padding():
    data = sequences([2, 3, 5]).map(
        lambda ids: {
            "input_ids": ids,
            "labels": tf.cast(ids, tf.int64) * 10,
            "kind": tf.ones_like(ids) * 7,
            "class": ids[0],
            "loss_weights": tf.ones_like(ids, tf.float32),
        }
    )
    padding = {"kind": 9, "attention_mask": 5}
    batches = bucketed(data, [4, 8], global_batch_size=1, pad_values=padding, seed=None)
    first, _, last = batches.dataset.as_numpy_iterator()
    assert {name: values.tolist() for name, values in first.items()} == {
        "input_ids": [[1, 1, 0, 0]],
        "attention_mask": [[1, 1, 5, 5]],
        "labels": [[10, 10, -100, -100]],
        "kind": [[7, 7, 9, 9]],
        "class": [1],
        "loss_weights": [[1, 1, 0, 0]],
    }
    assert first["labels"].dtype == np.int64
    assert last["input_ids"].shape == (1, 8)
    masked = sequences([3]).map(
        lambda x: {"input_ids": x, "attention_mask": tf.cast(tf.range(tf.size(x)) > 0, "int32")}
    )
    (batch,) = bucketed(masked, [4], global_batch_size=1).dataset.as_numpy_iterator()
    assert batch["attention_mask"].tolist() == [[0, 1, 1, 0]]  # the dataset's own


@pytest.mark.parametrize("edges", [[16], [16, 24]])
def test_sequences_of_one_length_that_is_known_are_padded_to_their_edge(edges):
    data = tf.data.Dataset.from_tensor_slices(np.arange(1, 28, dtype=np.int32).reshape(3, 9))
    assert data.element_spec.shape == [9]
    batches = bucketed(data, edges, global_batch_size=3, seed=None)
    (batch,) = batches.dataset.as_numpy_iterator()
    assert {name: values.shape for name, values in batch.items()} == {
        "input_ids": (3, 16),
        "attention_mask": (3, 16),
    }
    assert batch["input_ids"][0].tolist() == [*range(1, 10), *[0] * 7]
    assert batch["attention_mask"].sum() == 27


def test_truncation_is_asked_for_and_counted():
    batches = bucketed(
        sequences([3, 9, 30]), [4, 10], global_batch_size=1, truncate=True, remainder="keep"
    )
    assert batches.truncated == 1
    assert repr(batches).endswith("; 1 sequences truncated")
    assert set(contents(batches)) == {(1, 3), (2, 9), (3, 10)}
    rows = packed(sequences([3, 9, 30]), 10, global_batch_size=1, truncate=True)
    assert rows.truncated == 1
    masks = [batch["attention_mask"] > 0 for batch in rows.dataset.as_numpy_iterator()]
    assert np.sum(masks) == 22


def test_no_python_runs_while_batches_are_read():
    for batches in every_kind(seed=0):
        graph = tf.raw_ops.DatasetToGraphV2(input_dataset=batches.dataset._variant_tensor)
        assert b"BatchDataset" in graph.numpy()
        assert b"PyFunc" not in graph.numpy()


SHARED_BY_REPLICAS = """
import numpy as np
import tensorflow as tf
from helpers.tpu.replicas import replicas
from helpers.text.buckets import bucketed, packed

strategy = replicas(2)
lengths = np.arange(200) * 7 % 40 + 1
ids = np.repeat(np.arange(1, 201, dtype=np.int32), lengths)
data = tf.data.Dataset.from_tensor_slices(tf.RaggedTensor.from_row_lengths(ids, lengths))
for batches in (
    bucketed(data, [8, 16, 40], batch_tokens=160, replicas=2, remainder="pad"),
    packed(data, 40, global_batch_size=6, replicas=2, remainder="pad"),
):
    shapes, tokens = set(), []
    for batch in strategy.experimental_distribute_dataset(batches.dataset):
        for part in strategy.experimental_local_results(batch["input_ids"]):
            shapes.add(tuple(part.shape))
            tokens.append(part.numpy().ravel())
    tokens = np.concatenate(tokens)
    assert sorted(shapes) == sorted((rows // 2, edge) for rows, edge in batches.shapes), shapes
    assert np.array_equal(np.sort(tokens[tokens > 0]), ids)
print("shared")
"""


def test_replicas_share_every_batch_equally():
    done = call(sys.executable, "-c", SHARED_BY_REPLICAS)
    assert done.stdout == "shared\n", done.stderr
    assert "auto_shard" not in done.stderr


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=60),
    st.sampled_from(["drop", "pad", "keep"]),
)
@settings(max_examples=25, deadline=None)
def test_packed_batches_hold_each_sequence_whole(lengths, remainder):
    try:
        batches = packed(sequences(lengths), 20, global_batch_size=3, remainder=remainder)
    except CourseError as error:
        assert "fill not a single batch" in error.what
        assert remainder == "drop"
        assert len(pack(lengths, 20).rows) < 3
        return
    seen, rows, empty = [], 0, 0
    for batch in batches.dataset.as_numpy_iterator():
        assert batch["input_ids"].shape in batches.shapes
        for r, segments in enumerate(batch["attention_mask"]):
            rows += 1
            empty += not segments.any()
            for number in range(1, segments.max() + 1):
                (at,) = np.nonzero(segments == number)
                assert np.array_equal(at, at[0] + np.arange(len(at)))
                assert np.array_equal(batch["position_ids"][r, at], np.arange(len(at)))
                seen.append((batch["input_ids"][r, at[0]], len(at)))
            tokens = segments > 0
            assert np.array_equal(batch["input_ids"][r] > 0, tokens)
            assert np.all(batch["labels"][r][~tokens] == -100)
            assert np.array_equal(batch["labels"][r][tokens], batch["input_ids"][r][tokens])
    assert len(set(seen)) == len(seen)
    assert set(seen) <= {(i + 1, length) for i, length in enumerate(lengths)}
    assert rows == len(pack(lengths, 20).rows) - batches.dropped + batches.empty
    assert empty == batches.empty
    if remainder != "drop":
        assert len(seen) == len(lengths)


def test_packed_keeps_labels_and_other_features():
    data = sequences([2, 3]).map(
        lambda ids: {
            "input_ids": ids,
            "labels": ids * 10,
            "kind": tf.cast(ids, tf.float32) / 2,
            "attention_mask": tf.ones_like(ids),
        }
    )
    batches = packed(data, 6, global_batch_size=1, pad_values={"kind": -1, "input_ids": 3})
    (batch,) = batches.dataset.as_numpy_iterator()
    assert {name: value.tolist() for name, value in batch.items()} == {
        "input_ids": [[2, 2, 2, 1, 1, 3]],
        "labels": [[20, 20, 20, 10, 10, -100]],
        "kind": [[1, 1, 1, 0.5, 0.5, -1]],
        "attention_mask": [[1, 1, 1, 2, 2, 0]],
        "position_ids": [[0, 1, 2, 0, 1, 0]],
    }


FEW = [3, 9, 9, 20]
ONE = {"global_batch_size": 1}


def of(**features):
    return tf.data.Dataset.from_tensors(
        {name: tf.constant(value) for name, value in features.items()}
    )


def few(data=None, edges=(8, 24), **options):
    return bucketed(sequences(FEW) if data is None else data, edges, **options)


def few_packed(data=None, row_length=24, **options):
    return packed(sequences(FEW) if data is None else data, row_length, **(ONE | options))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: few(), "one of the two"),
        (lambda: few(batch_tokens=48, global_batch_size=2), "one of the two"),
        (lambda: few(batch_tokens=48, replicas=0), "replicas is 0"),
        (lambda: few(batch_tokens=47, replicas=2), "at least 48"),
        (lambda: few(global_batch_size=4, replicas=8), "Make it 8"),
        (lambda: few(global_batch_size=12, replicas=8), "Make it 8 or 16"),
        (lambda: few(global_batch_size=4), "4 rows fill not a single batch"),
        (lambda: few(remainder="no", **ONE), "remainder is 'no'"),
        (lambda: few(pad_values={"label": 1}, **ONE), "names 'label', which the dataset does not"),
        (lambda: few(sequences([]), **ONE), "There are no sequences"),
        (lambda: few(sequences([3, 0, 2]), **ONE), "Sequence 1 has length 0"),
        (lambda: few(sequences(FEW).repeat(), **ONE), "repeats for ever"),
        (lambda: few(sequences(FEW).ragged_batch(2), **ONE), "'input_ids' is RaggedTensorSpec"),
        (lambda: few(of(input_ids=[[1, 2]]), **ONE), r"'input_ids' is TensorSpec\(shape=\(1, 2\)"),
        (lambda: few(of(input_ids=["a"]), **ONE), r"dtype=tf\.string"),
        (lambda: few(of(kind=1), **ONE), "'kind', none with one per token"),
        (lambda: few(of(ids=[1], kind=1), remainder="pad", **ONE), "'kind' is one number per seq"),
        (lambda: few(of(ids=[1, 2], labels=[1]), **ONE), "Sequence 0 has 2 of 'ids' but 1 of 'lab"),
        (lambda: few_packed(global_batch_size=9), "2 rows fill"),
        (lambda: few_packed(pad_values={"position_ids": 1}), "names 'position_ids'"),
        (lambda: few_packed(of(input_ids=[1], kind=1)), "'input_ids', 'kind'"),
        (lambda: few_packed(of(ids=[1])), "features 'ids'"),
        (lambda: few_packed(of(input_ids=[1, 2], labels=[1])), "but 1 of 'labels'"),
        (lambda: few_packed(of(input_ids=[1], attention_mask=[0])), "Tokenize without padding"),
        (lambda: few(edges=[8, 16], **ONE), "(?s)1 of 4 seq.*last edge at least 20, or cut"),
        (lambda: few_packed(row_length=10), "(?s)1 of 4 seq.*rows at least 20 long, or cut"),
    ],
)
def test_what_cant_be_batched_is_refused(call, words):
    with pytest.raises(CourseError, match=words) as caught:
        call()
    assert isinstance(caught.value, TooLong) == ("1 of 4" in words)
