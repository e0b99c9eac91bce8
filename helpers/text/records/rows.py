"""Rows of records as batches: in an order that is a pure function of (seed, epoch, step)."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Self

import numpy as np
import tensorflow as tf

from helpers.base.folders import Folder
from helpers.text import masking
from helpers.text.records.format import Manifest
from helpers.text.records.reading import check_sizes, manifest, steps_per_epoch

# Read at once, from one offset of one shard; and the blocks whose rows are mixed with each other.
BLOCK_BYTES = 256 * 1024
POOL_BLOCKS = 64


def _numbers(records: tf.Tensor, types: Mapping[str, str], length: int) -> dict[str, tf.Tensor]:
    """Parse records, string [rows]; each feature int32 [rows, length]."""
    spec = dict.fromkeys(types, tf.io.FixedLenFeature([], tf.string))
    raw = tf.io.parse_example(records, spec)
    numbers = {name: tf.io.decode_raw(raw[name], tf.as_dtype(types[name])) for name in types}
    shape = [records.shape[0] or -1, length]
    return {name: tf.cast(tf.reshape(some, shape), tf.int32) for name, some in numbers.items()}


def dataset(
    path: str | os.PathLike[str],
    *,
    global_batch_size: int,
    seed: int,
    start_step: int = 0,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Read rows for ever, in an order that is a pure function of (seed, epoch, step).

    Blocks of neighbouring rows are shuffled over all shards, then rows within a pool of
    ``POOL_BLOCKS`` blocks, anew in each epoch. A run that starts at a later step computes where it
    is and reads from there: what lies before is neither read nor parsed, up to a part of a pool.

    Args:
        path: Folder here or ``gs://bucket/folder``.
        global_batch_size: Rows per step over all replicas and machines. An epoch has
            ``rows // global_batch_size`` steps; the rows left over are others in each epoch.
        seed: Of the run.
        start_step: Steps already done since the beginning of the run, over all epochs.
        input_context: From ``strategy.distribute_datasets_from_function``: each machine then gives
            its own rows of each global batch, so that all together give the same on any number of
            them. Each reads the bytes of all, and parses its own.

    Returns:
        Batches ``input_ids``, ``attention_mask`` (1, 2, ... for the sequences of a row, 0 on
        padding) and ``position_ids``, each int32 [rows, sequence_length], for ever.

    Raises:
        ShardDamaged: A shard has another size.
        CourseError: As `manifest`, a shard isn't there, or there is not even one batch.
        ValueError: The machines can't share a batch equally.
    """
    table, mine = manifest(path), slice(None)
    if input_context:
        machine, machines = input_context.input_pipeline_id, input_context.num_input_pipelines
        if global_batch_size % machines:
            raise ValueError(f"a batch of {global_batch_size} for {machines} machines")
        each = global_batch_size // machines
        mine = slice(machine * each, (machine + 1) * each)
    steps = steps_per_epoch(table, global_batch_size)
    check_sizes(table)
    blocks = _Blocks.of(table)
    # AutoGraph has nothing to convert in these functions, and takes half a second to see it.
    as_it_is = tf.autograph.experimental.do_not_convert

    @as_it_is
    def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        done = tf.cast(tf.where(epoch == start_step // steps, start_step % steps, 0), tf.int32)
        rows = _shuffled(blocks, seed, epoch, done * global_batch_size)
        return rows.rebatch(global_batch_size, drop_remainder=True).take(
            steps - tf.cast(done, tf.int64)
        )

    @as_it_is
    def parse(records: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = tf.reshape(records, [global_batch_size])[mine]
        return _numbers(rows, table.features, table.settings.sequence_length)

    epochs = tf.data.Dataset.range(start_step // steps, np.iinfo(np.int32).max)
    return (
        epochs.flat_map(read_epoch)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def first_rows(table: Manifest, count: int) -> dict[str, np.ndarray]:
    """Read at most ``count`` rows, drawn as `dataset` draws the first batch of seed 0.

    Gives its features, int32 [rows, sequence_length].
    """
    batches = dataset(table.path, global_batch_size=min(count, table.rows), seed=0)
    return {name: numbers.numpy() for name, numbers in next(iter(batches)).items()}


@dataclasses.dataclass(frozen=True)
class _Blocks:
    """Neighbouring rows that are read at once."""

    paths: list[str]  # of the shards
    shards: list[int]  # number of each block's shard
    offsets: list[int]  # where each block begins in its file, in bytes
    rows: list[int]
    largest: int  # rows of a full block
    bytes: int  # of a full block

    @classmethod
    def of(cls, table: Manifest) -> Self:
        size = table.record_bytes
        largest = max(1, BLOCK_BYTES // size)
        found = [
            (number, first * size, min(largest, shard.rows - first))
            for number, shard in enumerate(table.shards)
            for first in range(0, shard.rows, largest)
        ]
        folder = Folder(table.path)
        paths = [folder.at(shard.name) for shard in table.shards]
        return cls(paths, *map(list, zip(*found, strict=True)), largest, largest * size)

    def read(self, block: tf.Tensor) -> tf.data.Dataset:
        """Read the records of one block, as one element."""
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=tf.gather(self.paths, [tf.gather(self.shards, block)]),
            compression_type="",
            buffer_size=self.bytes,
            byte_offsets=tf.gather(tf.constant(self.offsets, tf.int64), [block]),
        )
        # Only the last block of a shard can have fewer rows, and there the file ends.
        records = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
        return records.batch(self.largest).take(1)


def _shuffled(blocks: _Blocks, seed: int, epoch: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
    """Read the rows of one epoch from its row ``first`` on, some at a time, in its own order."""

    def draw(number: int | tf.Tensor) -> tf.Tensor:
        # Apart from the seeds that masks are drawn with at the same step of the run.
        at = masking.draw(seed, epoch, number)
        return tf.random.experimental.stateless_fold_in(at, 1, alg="philox")

    pools = -(-len(blocks.rows) // POOL_BLOCKS)
    last_blocks = np.minimum(np.arange(1, pools + 1) * POOL_BLOCKS, len(blocks.rows)) - 1
    order = _permutation(len(blocks.rows), draw(0))
    ends = tf.gather(tf.cumsum(tf.gather(blocks.rows, order)), last_blocks)
    first_pool = tf.searchsorted(ends, [first], side="right")[0]
    skipped = first - tf.where(first_pool > 0, ends[first_pool - 1], 0)
    as_it_is = tf.autograph.experimental.do_not_convert

    @as_it_is
    def read_pool(pool: tf.Tensor) -> tf.data.Dataset:
        start = tf.cast(pool, tf.int32) * POOL_BLOCKS
        mine = tf.data.Dataset.from_tensor_slices(order[start : start + POOL_BLOCKS])
        records = mine.interleave(
            as_it_is(blocks.read),
            cycle_length=4,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        ).rebatch(blocks.largest * POOL_BLOCKS)
        drop = tf.where(pool == tf.cast(first_pool, tf.int64), skipped, 0)

        @as_it_is
        def shuffle(some: tf.Tensor) -> tf.Tensor:
            return tf.gather(some, _permutation(tf.size(some), draw(pool + 1))[drop:])

        return records.map(shuffle)

    return tf.data.Dataset.range(tf.cast(first_pool, tf.int64), pools).flat_map(read_pool)


def _permutation(count: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Shuffle 0 to count - 1 as a pure function of the seed, int32 [count]."""
    keys = tf.random.stateless_uniform(
        [count], seed, tf.int32.min, tf.int32.max, tf.int32, alg="philox"
    )
    return tf.argsort(keys, stable=True)
