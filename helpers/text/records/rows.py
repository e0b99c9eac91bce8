"""Rows of records as batches: in an order that is a pure function of (seed, epoch, step)."""

import contextlib
import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from helpers.base.folders import Folder
from helpers.text import masking
from helpers.text.records.format import Manifest, manifest, steps_per_epoch, verify


def dataset(
    path: str | os.PathLike[str],
    *,
    global_batch_size: int,
    seed: int,
    start_step: int = 0,
) -> tf.data.Dataset:
    """Read rows for ever, in an order that is a pure function of (seed, epoch, step).

    Each epoch takes the shards in an order of its own, and so the rows of each shard. A run that
    starts at a later step reads from there. Two shards or three are in memory at a time. Where a
    strategy distributes the batches to several hosts, each host reads all rows and gets its own.

    Args:
        path: Folder here or ``gs://bucket/folder``.
        global_batch_size: Rows per step over all replicas; those left over at the end of an epoch
            are others in each.
        seed: Of the run.
        start_step: Steps already done since the beginning of the run, over all epochs.

    Returns:
        Batches ``input_ids``, ``attention_mask`` (1, 2, ... for the sequences of a row, 0 on
        padding) and ``position_ids``, each int32 [rows, sequence_length], for ever.

    Raises:
        CourseError: A shard has another size, there is not even one batch, or as `manifest`.
        ValueError: A number is below 1 or 0.
    """
    if global_batch_size < 1 or start_step < 0:
        raise ValueError(f"batches of {global_batch_size} rows from step {start_step} on")
    table = manifest(path)
    steps = steps_per_epoch(table, global_batch_size)
    folder = Folder(table.path)
    sizes = folder.sizes()
    # Before the first step, and not when an epoch comes to the shard that is missing.
    for shard in table.shards:
        shard.check_size(sizes.get(shard.name, 0))
    paths = [folder.at(shard.name) for shard in table.shards]
    rows_in_shard = tf.constant([shard.rows for shard in table.shards])

    def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        # Only the epoch that the run starts in has steps that are already done.
        is_started = epoch == start_step // steps
        steps_done = tf.where(is_started, start_step % steps, 0)
        rows_done = steps_done * global_batch_size
        order = _permutation(len(paths), seed, epoch, 0)
        # Where in the epoch each shard begins, and the first that has rows left to read.
        starts = tf.cumsum(tf.gather(rows_in_shard, order), exclusive=True)
        first_unread = tf.searchsorted(starts, [rows_done], side="right")[0] - 1

        def read_shard(place: tf.Tensor) -> tf.data.Dataset:
            number = order[place]
            row_order = _permutation(rows_in_shard[number], seed, epoch, number + 1)
            unread = row_order[tf.maximum(rows_done - starts[place], 0) :]
            records = tf.data.TFRecordDataset(tf.gather(paths, number), buffer_size=2**23)
            # All rows at once, so that they can be taken in any order.
            whole_shard = records.batch(max(1, table.rows))
            return whole_shard.map(lambda rows: tf.gather(rows, unread))

        places = tf.data.Dataset.range(tf.cast(first_unread, tf.int64), len(paths))
        shards = places.flat_map(read_shard).prefetch(1)
        batches = shards.rebatch(global_batch_size, drop_remainder=True)
        return batches.take(steps - tf.cast(steps_done, tf.int64))

    def parse(records: tf.Tensor) -> dict[str, tf.Tensor]:
        spec = dict.fromkeys(table.features, tf.io.FixedLenFeature([], tf.string))
        examples = tf.io.parse_example(records, spec)
        shape = [global_batch_size, table.settings.sequence_length]
        batch = {}
        for name, kind in table.features.items():
            numbers = tf.io.decode_raw(examples[name], tf.as_dtype(kind))
            batch[name] = tf.cast(tf.reshape(numbers, shape), tf.int32)
        return batch

    # Parsed a batch at a time: a call for each row would take most of the time.
    epochs = tf.data.Dataset.range(start_step // steps, np.iinfo(np.int32).max)
    # Several hosts divide each batch. TensorFlow's default divides what the files are opened from,
    # here the epochs, so that each host would read other epochs.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return (
        epochs.flat_map(read_epoch)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )


def _permutation(count: int | tf.Tensor, seed: int, epoch: tf.Tensor, number: int) -> tf.Tensor:
    """Shuffle 0 to count - 1 as a pure function of the other three, int32 [count]."""
    # Folded in, so that these are other numbers than those of the masks of the same step.
    mask_seed = masking.draw(seed, epoch, number)
    order_seed = tf.random.experimental.stateless_fold_in(mask_seed, 1, alg="philox")
    keys = tf.random.stateless_uniform(
        [count], order_seed, tf.int32.min, tf.int32.max, tf.int32, alg="philox"
    )
    return tf.argsort(keys, stable=True)


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Where TensorFlow can't read a shard that was there, name it: raise `ShardDamaged`."""
    try:
        yield
    except tf.errors.ResourceExhaustedError:  # memory
        raise
    except tf.errors.OpError:
        # TensorFlow says that a read failed; the manifest knows which shard is wrong.
        verify(path)
        raise


def first_rows(table: Manifest, count: int) -> dict[str, np.ndarray]:
    """Read at most ``count`` rows, drawn as `dataset` draws the first batch of seed 0.

    Gives its features, int32 [rows, sequence_length].
    """
    with reading(table.path):
        batches = dataset(table.path, global_batch_size=min(count, table.rows), seed=0)
        return next(batches.as_numpy_iterator())
