"""Reading: every row once in each epoch, from any step, on any number of machines."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from plain import batches, contents, copied, plain, refused, rows_of, write

from helpers.base.errors import CourseError
from helpers.text import records
from helpers.text.records import format, reading

pytestmark = pytest.mark.slow


def test_an_epoch_has_every_row_once_in_another_order_each_time(written):
    steps = written.rows // 8
    everything = rows_of([plain(written)])
    found = rows_of(batches(written.path, 2 * steps))
    first, second = found[: steps * 8], found[steps * 8 :]
    assert len(set(first)) == len(set(second)) == steps * 8
    assert set(first) <= set(everything) and set(second) <= set(everything)
    assert first != second and first != everything[: steps * 8]
    assert rows_of(batches(written.path, steps, seed=1)) != first
    tf.random.set_seed(2)  # TensorFlow's own seed changes nothing
    assert rows_of(batches(written.path, steps)) == first


def test_batches_are_static_and_int32(written):
    spec = records.dataset(written.path, global_batch_size=8, seed=0).element_spec
    assert spec == {
        name: tf.TensorSpec([8, 64], tf.int32)
        for name in ("input_ids", "attention_mask", "position_ids")
    }


@pytest.mark.parametrize("small", [False, True])
def test_a_later_start_gives_the_undisturbed_runs_batches(written, monkeypatch, small):
    if small:  # many blocks and pools, the last ones partial
        monkeypatch.setattr(reading, "BLOCK_BYTES", 3 * written.record_bytes)
        monkeypatch.setattr(reading, "POOL_BLOCKS", 4)
    steps = written.rows // 8
    whole = batches(written.path, 3 * steps)
    assert len(set(rows_of(whole[:steps]))) == steps * 8
    for start in (1, steps, 2 * steps + 5, 3 * steps - 1):
        some = batches(written.path, min(2, 3 * steps - start), start_step=start)
        assert rows_of(some) == rows_of(whole[start : start + 2])


def test_machines_without_enough_shards_share_each_global_batch(written):
    whole = batches(written.path, 4, start_step=3)
    contexts = (tf.distribute.InputContext(8, machine, 8) for machine in range(8))
    shares = [batches(written.path, 4, start_step=3, input_context=one) for one in contexts]
    for step, batch in enumerate(whole):
        joined = [rows_of([share[step]]) for share in shares]
        assert [row for rows in joined for row in rows] == rows_of([batch])


def test_four_machines_read_200_shards_each_its_own(written, tmp_path):
    """Each machine sees a folder with links to the shards that are its own, and no others."""
    settings = dataclasses.replace(written.settings, sequence_length=3, shards=200)
    layout, folder = format.Layout.of(settings), tmp_path / "all"
    folder.mkdir()
    shards, numbers = [], np.arange(600).reshape(200, 3)
    for name, some in zip(format.shard_names(200), numbers, strict=True):
        ids = np.repeat(some[:, None], 3, axis=1)
        data = layout.records({feature: ids for feature in settings.features})
        (folder / name).write_bytes(data)
        shards.append(format.Shard(name, 3, 3, 3, 9, len(data), "0", "0"))
    described = format.to_json(settings, shards=list(map(vars, shards)))
    seen = []
    for machine, own in enumerate(reading._owned(shards, 4)):
        mine = tmp_path / str(machine)
        mine.mkdir()
        (mine / records.MANIFEST).write_bytes(described)
        for shard in own:
            (mine / shard.name).symlink_to(folder / shard.name)
        context = tf.distribute.InputContext(4, machine, 4)
        options = {"global_batch_size": 12, "input_context": context}
        epoch = batches(mine, 50, **options)
        if machine == 2:
            assert rows_of(batches(mine, 2, start_step=45, **options)) == rows_of(epoch[45:47])
        seen.append(np.concatenate([batch["input_ids"][:, 0] for batch in epoch]))
        assert not np.array_equal(seen[-1], np.sort(seen[-1]))
    assert sorted(np.concatenate(seen).tolist()) == list(range(600))


def test_batches_that_cant_be_are_refused(written):
    with pytest.raises(CourseError, match="A batch of 8 for 3 machines"):
        batches(written.path, 1, input_context=tf.distribute.InputContext(3))
    with pytest.raises(CourseError, match="fewer than one batch of 9,999"):
        batches(written.path, 1, global_batch_size=9_999)


def test_the_first_rows_are_those_of_the_files(written):
    everything = plain(written)
    for count in (7, written.rows + 1):
        rows = records.first_rows(written, count)
        assert set(rows) == set(everything)
        for name, numbers in rows.items():
            assert numbers.dtype == np.int32
            np.testing.assert_array_equal(numbers, everything[name][:count])


def flip_a_bit(data):
    data[len(data) // 2] ^= 1
    return data


WRONG_SIZE = (records.ShardDamaged, r"bytes; .* were written")


@pytest.mark.parametrize(
    ("damage", "words", "read_error", "read_words"),
    [
        (lambda data: data[:-100], WRONG_SIZE[1], *WRONG_SIZE),
        (flip_a_bit, "checksum", tf.errors.DataLossError, "corrupted record"),
    ],
)
def test_a_damaged_shard_is_told_by_every_reader(
    texts, written, tmp_path, damage, words, read_error, read_words
):
    path = copied(written, tmp_path) / written.shards[1].name
    path.write_bytes(damage(bytearray(path.read_bytes())))
    with pytest.raises(records.ShardDamaged, match=words) as caught:
        records.verify(tmp_path)
    assert path.name in caught.value.what
    refused(words, texts, tmp_path, error=records.ShardDamaged)
    with pytest.raises(read_error, match=read_words):
        batches(tmp_path, 60, global_batch_size=4)
    path.unlink()  # as the message says
    write(texts, tmp_path)
    assert contents(tmp_path) == contents(written.path)


def test_what_is_missing_is_told(written, tmp_path):
    with pytest.raises(CourseError, match="no finished records"):
        records.manifest(tmp_path)
    (copied(written, tmp_path) / written.shards[0].name).unlink()
    for read in (records.verify, lambda path: batches(path, 1)):
        with pytest.raises(CourseError, match=written.shards[0].name):
            read(tmp_path)
