import collections
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.base.settings import ENVIRONMENT, ROOT
from helpers.text import buckets
from helpers.text.buckets import (
    Batches,
    bucketed,
    choose_edges,
    measure_edges,
    optimal_edges,
    pack,
    packed,
)
from helpers.xla import compare as xla

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=60)


# -- Slow, obvious versions ------------------------------------------------------------------------


def padded_tokens(lengths, edges):
    return sum(min(edge for edge in edges if edge >= length) for length in lengths)


def rounded(lengths, multiple):
    return sorted({-(-length // multiple) * multiple for length in lengths})


def least_padded_tokens(lengths, count, multiple):
    *below, last = rounded(lengths, multiple)
    choices = itertools.combinations(below, count - 1)
    return min(padded_tokens(lengths, [*chosen, last]) for chosen in choices)


def fullest_rows(lengths, row_length):
    """One row after another: the longest, and of all the others those that fill best.

    Of equally good ones those with the fewest of the shortest, then of the second shortest, ...
    """
    left, rows = collections.Counter(lengths), []
    while left:
        longest = max(left)
        left[longest] -= 1
        kinds = sorted(+left)
        every = itertools.product(*(range(left[kind] + 1) for kind in kinds))
        sums = (
            (sum(n * kind for n, kind in zip(some, kinds, strict=True)), some) for some in every
        )
        fits = [(total, some) for total, some in sums if total <= row_length - longest]
        most = max(total for total, _ in fits)
        chosen = min(some for total, some in fits if total == most)
        row = collections.Counter(dict(zip(kinds, chosen, strict=True)))
        left -= row
        rows.append(sorted([longest, *row.elements()]))
    return rows


# -- Edges -----------------------------------------------------------------------------------------


@given(LENGTHS, st.integers(1, 6), st.integers(1, 9))
@settings(max_examples=300, deadline=None)
def test_optimal_edges_equal_brute_force(lengths, wanted, multiple):
    count = min(wanted, len(rounded(lengths, multiple)))
    found = optimal_edges(lengths, count, multiple)
    assert len(found.edges) == count
    assert found.edges == tuple(sorted(set(found.edges)))
    assert all(edge % multiple == 0 for edge in found.edges)
    assert found.padded_tokens == padded_tokens(lengths, found.edges)
    assert found.padded_tokens == least_padded_tokens(lengths, count, multiple)


def test_optimal_edges_of_many_lengths_equal_the_full_table_of_the_dynamic_program():
    lengths = np.random.default_rng(0).lognormal(6, 1, 20_000).astype(int).clip(1, 3000)
    edges, counts = np.unique(lengths, return_counts=True)
    assert len(edges) > 1500
    below = np.append(0, np.cumsum(counts))
    later = np.arange(len(edges) + 1)[:, None] < np.arange(1, len(edges) + 1)
    pay = np.where(later, edges * (below[1:] - below[:, None]), 2**60)
    best = np.append(0, pay[0])
    for count in range(1, 7):
        assert optimal_edges(lengths, count, 1).padded_tokens == best[-1]
        best = np.append(2**60, (best[:, None] + pay).min(axis=0))


def test_optimal_edges_by_hand():
    found = optimal_edges([3, 3, 4, 9, 20], max_buckets=2, multiple=4)
    assert found.edges == (4, 20)  # 3 * 4 + 2 * 20 = 52; (12, 20) would take 68
    assert found.sequences == (3, 2)
    assert found.tokens == (10, 29)
    assert found.padded_tokens == 52
    assert found.efficiency == 39 / 52
    assert repr(found) == "2 buckets 4, 20: 39 tokens in 52 places, 75.0% real"
    assert repr(optimal_edges([5], 1)) == "1 bucket 8: 5 tokens in 8 places, 62.5% real"
    assert "<td>12</td>" in found._repr_html_()


def test_a_million_lengths_cost_what_their_histogram_costs():
    lengths = np.arange(1_000_000) % 997 + 1
    few = np.arange(1, 998)
    weights = np.bincount(lengths)[1:]
    found = optimal_edges(lengths, 5, 1)
    assert found.padded_tokens == sum(
        int(weight) * padded_tokens([length], found.edges)
        for length, weight in zip(few.tolist(), weights, strict=True)
    )
    assert found.padded_tokens <= measure_edges(lengths, [200, 400, 600, 800, 997]).padded_tokens


@given(LENGTHS, st.sets(st.integers(1, 60), min_size=1, max_size=5))
def test_measured_edges_equal_one_by_one(lengths, edges):
    edges = sorted(edges | {60})
    found = measure_edges(lengths, edges)
    assert found.padded_tokens == padded_tokens(lengths, edges)
    assert sum(found.tokens) == sum(lengths)
    assert sum(found.sequences) == len(lengths)
    assert found.edges == tuple(edges)


@given(LENGTHS, st.floats(0.1, 1e4), st.floats(1e-3, 10), st.floats(0.1, 100), st.integers(1, 9))
@settings(deadline=None)
def test_the_chosen_number_of_buckets_is_the_best_of_all(lengths, compiling, token, epochs, m):
    choice = choose_edges(lengths, compiling, token, epochs, m)
    every = [
        count * compiling + optimal_edges(lengths, count, m).padded_tokens * token * epochs
        for count in range(1, len(rounded(lengths, m)) + 1)
    ]
    assert choice.best.seconds == pytest.approx(min(every))
    assert choice.best.padded_tokens == choice.edges.padded_tokens
    assert [cost.seconds for cost in choice.costs] == pytest.approx(every[: len(choice.costs)])
    assert len(choice.costs) >= min(2 * choice.best.buckets, len(every))


def test_a_short_run_takes_fewer_buckets_and_says_why():
    lengths = [8] * 70 + [16] * 20 + [64] * 10
    short = choose_edges(lengths, compile_seconds=3, seconds_per_token=0.001, epochs=1)
    assert repr(short) == (
        "Best: 2 buckets: 6.0 s compiling + 2.1 s of steps = 8.1 s\n"
        "      1 bucket: 3.0 s compiling + 6.4 s of steps = 9.4 s\n"
        "      3 buckets: 9.0 s compiling + 1.5 s of steps = 10.5 s"
    )
    long = choose_edges(lengths, compile_seconds=3, seconds_per_token=0.001, epochs=10)
    assert long.edges.edges == (8, 16, 64)
    assert "(best)" in long._repr_html_()


# -- Bucketed batches ------------------------------------------------------------------------------


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
    except buckets.NothingLeft:
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
    data = sequences([5] * 7 + [20] * 9)
    account = {
        how: bucketed(data, [8, 24], global_batch_size=4, remainder=how)
        for how in ("drop", "pad", "keep")
    }
    assert [(b.batches, b.dropped, b.empty) for b in account.values()] == [
        (3, 4, 0),
        (5, 0, 4),
        (5, 0, 0),
    ]
    assert account["keep"].shapes == ((4, 8), (3, 8), (4, 24), (1, 24))
    assert account["drop"].shapes == account["pad"].shapes == ((4, 8), (4, 24))
    assert repr(account["drop"]) == (
        "16 rows in 3 batches of 2 shapes, 79.0% real tokens; 4 rows dropped in each epoch"
    )
    assert repr(account["pad"]).endswith("61.1% real tokens; 4 empty rows added")
    assert account["pad"].efficiency == (7 * 5 + 9 * 20) / (8 * 8 + 12 * 24)
    assert "rows dropped" in account["drop"]._repr_html_()
    for batches in account.values():
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
        assert epochs[0] != epochs[1]
        assert sorted(itertools.chain(*epochs[0])) == sorted(itertools.chain(*epochs[1]))
        assert [first_tokens(again), first_tokens(again)] == epochs
    for first, other in zip(every_kind(seed=3), every_kind(seed=4), strict=True):
        assert first_tokens(first) != first_tokens(other)


def test_batches_hold_other_sequences_in_each_epoch():
    batches = next(every_kind(seed=0))
    epochs = [{frozenset(firsts) for firsts in first_tokens(batches)} for _ in range(2)]
    assert len(epochs[0] & epochs[1]) < len(epochs[0]) / 2


def test_buckets_come_mixed_even_from_sorted_sequences(monkeypatch):
    monkeypatch.setattr(buckets, "SHUFFLED_SEQUENCES", 1)
    batches = bucketed(sequences(sorted(LENGTHS_100)), [8, 16, 24, 40], global_batch_size=2)
    widths = [batch["input_ids"].shape[1] for batch in batches.dataset.as_numpy_iterator()]
    assert 1 + np.count_nonzero(np.diff(widths)) > 2 * len(set(widths))


def test_without_a_seed_the_order_is_kept():
    kept = first_tokens(
        bucketed(
            sequences([3, 9, 3, 9, 3]), [4, 12], global_batch_size=2, remainder="keep", seed=None
        )
    )
    assert kept == [[1, 3], [2, 4], [5]]
    batches = packed(sequences([9, 8, 7]), 10, global_batch_size=3, seed=None)
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
    with xla.count_compilations() as compiled:
        for batch in batches.dataset:
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
    batches = bucketed(
        data,
        [4, 8],
        global_batch_size=1,
        pad_values={"kind": 9, "attention_mask": 5},
        seed=None,
    )
    first, _, last = batches.dataset.as_numpy_iterator()
    assert first["input_ids"].tolist() == [[1, 1, 0, 0]]
    assert first["attention_mask"].tolist() == [[1, 1, 5, 5]]
    assert first["labels"].tolist() == [[10, 10, -100, -100]]
    assert first["labels"].dtype == np.int64
    assert first["kind"].tolist() == [[7, 7, 9, 9]]
    assert first["class"].tolist() == [1]
    assert first["loss_weights"].tolist() == [[1, 1, 0, 0]]
    assert last["input_ids"].shape == (1, 8)


def test_a_mask_of_the_dataset_is_kept():
    data = sequences([3, 4]).map(
        lambda ids: {
            "input_ids": ids,
            "attention_mask": tf.cast(tf.range(tf.size(ids)) > 0, "int32"),
        }
    )
    (batch,) = bucketed(data, [4], global_batch_size=2, seed=None).dataset.as_numpy_iterator()
    assert batch["attention_mask"].tolist() == [[0, 1, 1, 0], [0, 1, 1, 1]]


def test_truncation_is_asked_for_and_counted():
    batches = bucketed(
        sequences([3, 9, 30]), [4, 10], global_batch_size=1, truncate=True, remainder="keep"
    )
    assert batches.truncated == 1
    assert repr(batches).endswith("; 1 sequences truncated")
    assert set(contents(batches)) == {(1, 3), (2, 9), (3, 10)}
    rows = packed(sequences([3, 9, 30]), 10, global_batch_size=1, truncate=True)
    assert rows.truncated == 1
    assert (
        sum(int((batch["attention_mask"] > 0).sum()) for batch in rows.dataset.as_numpy_iterator())
        == 22
    )


def test_no_python_runs_while_batches_are_read():
    for batches in every_kind(seed=0):
        graph = tf.raw_ops.DatasetToGraphV2(input_dataset=batches.dataset._variant_tensor)
        assert b"BatchDataset" in graph.numpy()
        assert b"PyFunc" not in graph.numpy()


SHARED_BY_REPLICAS = """
import numpy as np
import tensorflow as tf
from helpers.text.buckets import bucketed, packed

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
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
    done = subprocess.run(
        [sys.executable, "-c", SHARED_BY_REPLICAS],
        env=os.environ | ENVIRONMENT | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "shared\n", done.stderr
    assert "auto_shard" not in done.stderr


# -- Packing ---------------------------------------------------------------------------------------


@given(LENGTHS, st.integers(60, 90))
@settings(deadline=None)
def test_every_sequence_is_in_one_row_and_rows_hold_them(lengths, row_length):
    packing = pack(lengths, row_length)
    assert sorted(itertools.chain(*packing.rows)) == list(range(len(lengths)))
    fill = [sum(lengths[i] for i in row) for row in packing.rows]
    assert max(fill) <= row_length
    assert packing.tokens == sum(lengths)
    assert packing.efficiency == sum(lengths) / (len(fill) * row_length)


@given(
    st.dictionaries(st.integers(1, 30), st.integers(1, 6), min_size=1, max_size=5),
    st.integers(30, 70),
)
@settings(max_examples=200, deadline=None)
def test_rows_are_as_full_as_those_filled_one_by_one(counts, row_length):
    lengths = list(collections.Counter(counts).elements())
    found = [sorted(lengths[i] for i in row) for row in pack(lengths, row_length).rows]
    assert sorted(found) == sorted(fullest_rows(lengths, row_length))


def test_rows_come_in_the_order_of_their_longest_sequences():
    packing = pack([2, 7, 3, 9, 1, 8, 7], 10)
    assert packing.rows == [[1, 2], [3, 4], [5, 0], [6]]
    assert repr(packing) == (
        "7 sequences in 4 rows of 10: 92.50% real tokens, up to 2 sequences in a row"
    )


def test_a_stream_can_be_packed_window_by_window(monkeypatch):
    monkeypatch.setattr(buckets, "WINDOW", 100)
    lengths = np.random.default_rng(0).integers(1, 60, 250)
    whole = pack(lengths, 64).rows
    parts = [
        [[i + start for i in row] for row in pack(lengths[start : start + 100], 64).rows]
        for start in (0, 100, 200)
    ]
    assert whole == [row for part in parts for row in part]


def shipped_lengths(language):
    data = ROOT / "notebooks" / "data"
    tokenizer = tokenizers.Tokenizer.from_file(str(data / "tokenizer.json"))
    lines = (data / f"{language}.txt").read_text("utf-8").splitlines()
    return np.array([len(encoding.ids) for encoding in tokenizer.encode_batch_fast(lines)])


@pytest.mark.parametrize("row_length", [128, 512])
@pytest.mark.parametrize("language", ["ko", "en"])
def test_the_shipped_text_is_packed_into_the_fewest_rows_possible(language, row_length):
    lengths = shipped_lengths(language)
    packing = pack(lengths, row_length, truncate=True)
    assert len(packing.rows) == -(-packing.tokens // row_length)


@pytest.mark.parametrize(("row_length", "least"), [(128, 0.994), (512, 0.995)])
@pytest.mark.parametrize("language", ["ko", "en"])
def test_rows_of_much_natural_text_are_nearly_full(language, row_length, least):
    drawn = np.random.default_rng(1).choice(shipped_lengths(language), 150_000)
    assert pack(drawn, row_length, truncate=True).efficiency >= least


@pytest.mark.parametrize(("mean", "spread"), [(2.6, 0.6), (3.0, 1.5), (4.5, 1.2)])
@pytest.mark.parametrize("row_length", [128, 512, 2048])
def test_rows_of_heavy_tails_are_nearly_full(mean, spread, row_length):
    drawn = np.random.default_rng(1).lognormal(mean, spread, 100_000).astype(int)
    assert pack(drawn.clip(2, row_length), row_length).efficiency >= 0.995


@given(LENGTHS, st.integers(60, 90))
@settings(max_examples=50, deadline=None)
def test_rows_are_laid_out_as_by_hand(lengths, row_length):
    packing = pack(lengths, row_length)
    texts = [[100 * i + k for k in range(length)] for i, length in enumerate(lengths)]
    shape = (len(packing.rows), row_length)
    ids, segments, positions = np.full(shape, -1), np.zeros(shape), np.zeros(shape)
    for r, row in enumerate(packing.rows):
        at = 0
        for number, i in enumerate(row, 1):
            for position, value in enumerate(texts[i]):
                ids[r, at], segments[r, at], positions[r, at] = value, number, position
                at += 1
    assert np.array_equal(packing.lay_out(np.concatenate(texts), -1), ids)
    assert np.array_equal(packing.segment_ids(), segments)
    assert np.array_equal(packing.position_ids(), positions)


def test_truncated_rows_hold_the_beginnings():
    packing = pack([3, 12, 4], 8, truncate=True)
    assert packing.rows == [[1], [2, 0]]
    assert packing.truncated == 1
    assert packing.tokens == 15
    assert repr(packing).endswith("; 1 sequences truncated")
    rows = packing.lay_out(np.arange(19), -1)
    assert rows.tolist() == [[*range(3, 11)], [15, 16, 17, 18, 0, 1, 2, -1]]


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=60),
    st.sampled_from(["drop", "pad", "keep"]),
)
@settings(max_examples=25, deadline=None)
def test_packed_batches_hold_each_sequence_whole(lengths, remainder):
    try:
        batches = packed(sequences(lengths), 20, global_batch_size=3, remainder=remainder)
    except buckets.NothingLeft:
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


# -- Bad input -------------------------------------------------------------------------------------

FEW = [3, 9, 9, 20]


def of(**features):
    return tf.data.Dataset.from_tensors(
        {name: tf.constant(value) for name, value in features.items()}
    )


def few(**options):
    return bucketed(sequences(FEW), [8, 24], **options)


def few_packed(**options):
    return packed(sequences(FEW), **({"row_length": 24, "global_batch_size": 1} | options))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: optimal_edges([], 2), "NoSequences", "no sequences"),
        (lambda: optimal_edges([3, 0, 4], 1), "BadLength", "Sequence 1 has length 0"),
        (lambda: optimal_edges([3, 4, -1], 1), "BadLength", "Sequence 2 has length -1"),
        (lambda: optimal_edges([3.5, 4.0], 1), "BadLength", "Lengths are float64 of shape (2,)"),
        (lambda: optimal_edges([[3], [4]], 1), "BadLength", "shape (2, 1)"),
        (lambda: optimal_edges(FEW, 0), "NotPositive", "max_buckets is 0"),
        (lambda: optimal_edges(FEW, 1, 0), "NotPositive", "multiple is 0"),
        (lambda: optimal_edges(FEW, 4), "TooManyBuckets", "Ask for at most 3"),
        (lambda: measure_edges([], [8]), "NoSequences", "no sequences"),
        (lambda: measure_edges(FEW, [24, 8]), "BadEdges", "[24, 8] are not in rising order"),
        (lambda: measure_edges(FEW, [8, 8, 24]), "BadEdges", "rising order"),
        (lambda: measure_edges(FEW, [0, 24]), "BadEdges", "positive whole"),
        (lambda: measure_edges(FEW, [8.5, 24]), "BadEdges", "positive whole"),
        (lambda: measure_edges(FEW, []), "BadEdges", "smallest first"),
        (lambda: measure_edges(FEW, [8, 16]), "TooLong", "1 of 4 sequences are longer than 16"),
        (lambda: choose_edges(FEW, 0, 1), "NotPositive", "compile_seconds is 0"),
        (lambda: choose_edges(FEW, 1, -1), "NotPositive", "seconds_per_token is -1"),
        (lambda: choose_edges(FEW, 1, float("nan")), "NotPositive", "seconds_per_token is nan"),
        (lambda: choose_edges(FEW, 1, 1, epochs=0), "NotPositive", "epochs is 0"),
        (lambda: choose_edges([], 1, 1), "NoSequences", "no sequences"),
        (lambda: pack([], 8), "NoSequences", "no sequences"),
        (lambda: pack([3, 0], 8), "BadLength", "Sequence 1 has length 0"),
        (lambda: pack([3, 9, 12], 8), "TooLong", "2 of 3 sequences are longer than 8 tokens; the"),
        (lambda: pack([3], 0), "NotPositive", "row_length is 0"),
        (lambda: pack(FEW, 24).lay_out([1, 2]), "OtherSequences", "41 tokens were packed"),
        (lambda: few(), "NoBatchSize", "one of the two"),
        (lambda: few(batch_tokens=48, global_batch_size=2), "NoBatchSize", "one of the two"),
        (lambda: few(batch_tokens=0), "NotPositive", "batch_tokens is 0"),
        (lambda: few(batch_tokens=48, replicas=0), "NotPositive", "replicas is 0"),
        (lambda: few(batch_tokens=47, replicas=2), "BatchTooSmall", "at least 48"),
        (lambda: few(global_batch_size=4, replicas=8), "BatchTooSmall", "multiple of 8"),
        (lambda: few(global_batch_size=12, replicas=8), "BatchNotDivisible", "Make it 8 or 16"),
        (lambda: few(global_batch_size=1, remainder="no"), "UnknownRemainder", "'no'"),
        (lambda: few(global_batch_size=4), "NothingLeft", "4 rows fill not a single batch"),
        (lambda: few(global_batch_size=1, pad_values={"label": 1}), "UnknownFeature", "'label'"),
        (
            lambda: bucketed(sequences(FEW), [24, 8], global_batch_size=1),
            "BadEdges",
            "[24, 8] are not in rising order",
        ),
        (
            lambda: bucketed(sequences(FEW), [8, 16], global_batch_size=1),
            "TooLong",
            "Make the last edge at least 20, or cut with truncate=True",
        ),
        (
            lambda: bucketed(sequences(FEW).take(0), [24], global_batch_size=1),
            "NoSequences",
            "no sequences",
        ),
        (
            lambda: bucketed(sequences([3, 0, 2]), [24], global_batch_size=1),
            "BadLength",
            "Sequence 1 has length 0",
        ),
        (
            lambda: bucketed(sequences(FEW).repeat(), [24], global_batch_size=1),
            "Endless",
            "repeats for ever",
        ),
        (
            lambda: bucketed(sequences(FEW).ragged_batch(2), [24], global_batch_size=1),
            "WrongElement",
            "'input_ids' is RaggedTensorSpec",
        ),
        (
            lambda: bucketed(of(input_ids=[[1, 2]]), [24], global_batch_size=1),
            "WrongElement",
            "'input_ids' is TensorSpec(shape=(1, 2)",
        ),
        (
            lambda: bucketed(of(input_ids=["a"]), [24], global_batch_size=1),
            "WrongElement",
            "dtype=tf.string",
        ),
        (
            lambda: bucketed(of(kind=1), [24], global_batch_size=1),
            "WrongElement",
            "'kind', none with one per token",
        ),
        (
            lambda: bucketed(
                of(input_ids=[1, 2], kind=1), [24], global_batch_size=1, remainder="pad"
            ),
            "WrongElement",
            "'kind' is one number per sequence",
        ),
        (
            lambda: bucketed(of(input_ids=[1, 2], labels=[1]), [24], global_batch_size=1),
            "UnequalFeatures",
            "Sequence 0 has 2 of 'input_ids' but 1 of 'labels'",
        ),
        (lambda: few_packed(row_length=0), "NotPositive", "row_length is 0"),
        (lambda: few_packed(global_batch_size=4, replicas=8), "BatchTooSmall", "8 replicas"),
        (lambda: few_packed(global_batch_size=9, replicas=2), "BatchNotDivisible", "8 or 10"),
        (lambda: few_packed(global_batch_size=9), "NothingLeft", "2 rows fill"),
        (lambda: few_packed(remainder="no"), "UnknownRemainder", "'no'"),
        (lambda: few_packed(row_length=10), "TooLong", "1 of 4 sequences are longer than 10"),
        (lambda: few_packed(pad_values={"position_ids": 1}), "UnknownFeature", "position_ids"),
        (lambda: packed(sequences([]), 8, global_batch_size=1), "NoSequences", "no sequences"),
        (lambda: packed(sequences([1, 0]), 8, global_batch_size=1), "BadLength", "Sequence 1"),
        (
            lambda: packed(sequences(FEW).repeat(), 24, global_batch_size=1),
            "Endless",
            "repeats for ever",
        ),
        (
            lambda: packed(of(input_ids=[1], kind=1), 24, global_batch_size=1),
            "WrongElement",
            "'input_ids', 'kind'",
        ),
        (
            lambda: packed(of(input_ids=[1, 0], attention_mask=[1, 0]), 8, global_batch_size=1),
            "AlreadyPadded",
            "Tokenize without padding",
        ),
        (lambda: packed(of(ids=[1]), 24, global_batch_size=1), "WrongElement", "features 'ids'"),
        (
            lambda: packed(of(input_ids=[1, 2], labels=[1]), 24, global_batch_size=1),
            "UnequalFeatures",
            "but 1 of 'labels'",
        ),
    ],
)
def test_bad_input_has_one_clear_message(call, error, words):
    with pytest.raises(getattr(buckets, error)) as raised:
        call()
    assert words in str(raised.value)
    assert type(raised.value).__name__ == error
    assert "\n  Why: " in str(raised.value)
    assert "\n  Fix: " in str(raised.value)


def test_importing_the_module_imports_no_tensorflow():
    code = "import sys, helpers.text.buckets; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
