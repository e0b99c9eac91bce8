"""Reading: every row once in each epoch, from any step, on any number of machines."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
from record_files import batches, contents, copied, plain, refused, rows_of, write
from tensorflow.python.distribute import input_lib

from helpers.base.errors import CourseError
from helpers.text import records

pytestmark = pytest.mark.slow


def test_an_epoch_has_every_row_once_in_another_order_each_time(written):
    steps = written.rows // 8
    rows = rows_of([plain(written)])
    two_epochs = rows_of(batches(written.path, 2 * steps))
    epochs = [two_epochs[: steps * 8], two_epochs[steps * 8 :]]
    for epoch in epochs:
        assert len(set(epoch)) == steps * 8
        assert set(epoch) <= set(rows)
    assert epochs[0] != epochs[1]
    assert epochs[0] != rows[: steps * 8]
    assert rows_of(batches(written.path, steps, seed=1)) != epochs[0]
    tf.random.set_seed(2)  # TensorFlow's own seed changes nothing
    assert rows_of(batches(written.path, steps)) == epochs[0]


def test_batches_are_static_and_int32(written):
    spec = records.dataset(written.path, global_batch_size=8, seed=0).element_spec
    names = ("input_ids", "attention_mask", "position_ids")
    assert spec == dict.fromkeys(names, tf.TensorSpec([8, 64], tf.int32))


@pytest.mark.long
def test_a_later_start_gives_the_undisturbed_runs_batches(written):
    steps = written.rows // 8
    undisturbed = batches(written.path, 3 * steps)
    assert len(set(rows_of(undisturbed[:steps]))) == steps * 8
    for start in (1, steps // 2, steps, 2 * steps + 5, 3 * steps - 1):
        count = min(2, 3 * steps - start)
        resumed = batches(written.path, count, start_step=start)
        assert rows_of(resumed) == rows_of(undisturbed[start : start + 2])


def divided_between_two_hosts(dataset, count):
    """Some steps' batches as TensorFlow divides them between two hosts with a replica each."""
    device = "/device:CPU:0"
    hosts = input_lib.InputWorkers([(device, [device])] * 2)
    # What experimental_distribute_dataset makes on a pod; here both hosts are this machine.
    distributed = input_lib.DistributedDataset(
        hosts, tf.distribute.OneDeviceStrategy(device), dataset=dataset, num_replicas_in_sync=2
    )
    return itertools.islice(distributed, count)


def test_two_hosts_get_the_halves_of_each_batch(written):
    steps = written.rows // 8
    for start in (0, steps // 2):
        count = steps + 1  # into the next epoch
        undivided = batches(written.path, count, start_step=start)
        dataset = records.dataset(written.path, global_batch_size=8, seed=0, start_step=start)
        divided = list(divided_between_two_hosts(dataset, count))
        for batch, parts in zip(undivided, divided, strict=True):
            for name, rows in batch.items():
                first, second = parts[name].values
                np.testing.assert_array_equal(first, rows[:4])
                np.testing.assert_array_equal(second, rows[4:])


def test_batches_that_cant_be_are_refused(written):
    for words, options in (
        ("fewer than one batch of 9,999", {"global_batch_size": 9_999}),
        ("0 rows from step 0", {"global_batch_size": 0}),
        ("8 rows from step -1", {"start_step": -1}),
    ):
        with pytest.raises((CourseError, ValueError), match=words):
            batches(written.path, 1, **options)


def test_the_first_rows_are_drawn_from_all(written):
    rows = rows_of([plain(written)])
    for count in (7, written.rows + 1):
        sample = rows_of([records.first_rows(written, count)])
        assert len(set(sample)) == min(count, written.rows)
        assert set(sample) <= set(rows)
    assert sample != rows


def flip_a_bit(data):
    data[len(data) // 2] ^= 1
    return data


@pytest.mark.parametrize(
    ("damage", "words"),
    [(lambda data: data[:-100], r"bytes; .* were written"), (flip_a_bit, "checksum")],
)
def test_a_damaged_shard_is_told_by_every_reader(texts, written, tmp_path, damage, words):
    path = copied(written, tmp_path) / written.shards[1].name
    path.write_bytes(damage(bytearray(path.read_bytes())))
    with pytest.raises(records.ShardDamaged, match=words) as caught:
        records.verify(tmp_path)
    assert path.name in caught.value.what
    refused(words, texts, tmp_path, error=records.ShardDamaged)
    with pytest.raises(records.ShardDamaged, match=words), records.reading(tmp_path):
        batches(tmp_path, 60, global_batch_size=4)
    path.unlink()  # as the message says
    write(texts, tmp_path)
    assert contents(tmp_path) == contents(written.path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table["shards"][1].update(rows=99), "99 rows of shard-00001"),
        (lambda table: table["shards"][1].update(name="../mine.tfrecord"), "shards are not those"),
        (lambda table: table["shards"][0].update(documents=None), "documents is None"),
        (lambda table: table["settings"].update(vocabulary=70_000), "rows of shard-00000"),
        (lambda table: table["settings"].update(vocabulary=60_000), "manifest.json was changed"),
        (lambda table: table["settings"].update(tokenizer_sha256="0"), "json was replaced"),
    ],
)
def test_a_manifest_that_was_changed_by_hand_is_told(written, tmp_path, change, words):
    path = copied(written, tmp_path) / records.MANIFEST
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table))
    with pytest.raises(CourseError, match=words):
        records.tokenizer_of(records.manifest(tmp_path))


def test_verifying_compares_the_tokenizer_as_well(written, tmp_path):
    tokenizer = copied(written, tmp_path) / "tokenizer.json"
    original = tokenizer.read_bytes()
    for damage in (flip_a_bit(bytearray(original)), original[:-1]):
        tokenizer.write_bytes(damage)
        with pytest.raises(CourseError, match="does not have the tokenizer"):
            records.verify(tmp_path)
    tokenizer.write_bytes(original)
    assert records.verify(tmp_path).shards == written.shards


def test_what_is_missing_is_told(written, tmp_path):
    with pytest.raises(CourseError, match="no finished records"):
        records.manifest(tmp_path)
    (copied(written, tmp_path) / written.shards[0].name).unlink()
    for read in (records.verify, lambda path: batches(path, 1)):
        with pytest.raises(records.ShardDamaged, match=written.shards[0].name):
            read(tmp_path)
