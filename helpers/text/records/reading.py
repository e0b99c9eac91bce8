"""Reading a folder of records: what it holds, whether it is whole, its rows in any order."""

import dataclasses
import heapq
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from helpers.base.errors import CourseError
from helpers.base.folders import Folder, short
from helpers.text.records.encoder import check_tokenizer
from helpers.text.records.format import (
    MANIFEST,
    TOKENIZER,
    Layout,
    Manifest,
    Shard,
    from_json,
    some,
)

if TYPE_CHECKING:
    import tensorflow as tf
    import tokenizers

# Read at once, from one offset of one shard; and the blocks whose rows are mixed with each other.
BLOCK_BYTES = 256 * 1024
POOL_BLOCKS = 64


def manifest(path: str | os.PathLike[str]) -> Manifest:
    """Say what a folder of records, here or ``gs://bucket/folder``, holds.

    Raises:
        CourseError: There are no records, not all shards are written, or the manifest was changed
            by hand or is of another version.
    """
    path = os.fspath(path)
    data = Folder(path).read(MANIFEST)
    if data is None:
        raise CourseError(
            f"{short(path)} holds no finished records.",
            f"There is no {MANIFEST}: the folder is another one, or not all shards are written.",
            "Check the path, or run the command that writes them again: it goes on where it "
            "stopped.",
        )
    return Manifest(path, *from_json(MANIFEST, data))


def tokenizer_of(table: Manifest) -> "tokenizers.Tokenizer":
    """Read the tokenizer that records were made with, which lies beside them.

    Raises:
        OtherTokenizer: Another one lies there.
        CourseError: There is none, or it can't be read.
    """
    data = Folder(table.path).read(TOKENIZER)
    if data is None:
        raise CourseError(
            f"{short(table.path)} has no {TOKENIZER}.",
            "It lies beside the records when they are written; it was deleted or not copied.",
            "Copy it again, or run the command that writes the records.",
        )
    return check_tokenizer(data, table.settings, table.path)


def verify(path: str | os.PathLike[str]) -> Manifest:
    """Read every shard and compare its bytes with the manifest.

    Raises:
        ShardDamaged: A shard has other bytes.
        CourseError: As `manifest`, or a shard isn't there.
    """
    table = manifest(path)
    _check_there(table)
    folder = Folder(table.path)
    for shard in table.shards:
        shard.check(folder.pieces(shard.name))
    return table


def _check_there(table: Manifest) -> dict[str, int]:
    """Find each shard, with one question to the folder; give the sizes of what is there."""
    sizes = Folder(table.path).sizes()
    for shard in table.shards:
        if shard.name not in sizes:
            raise CourseError(
                f"{shard.name} isn't there.",
                "The manifest names it; it was deleted, or not copied with the others.",
                "Copy it again, or run the command that writes the records: only this shard is "
                "written.",
            )
    return sizes


def _numbers(records: "tf.Tensor", layout: Layout) -> "dict[str, tf.Tensor]":
    """Cut the numbers out of records, string [rows]; each feature int32 [rows, sequence_length].

    All examples have the same layout, so this gives what tf.io.parse_example does, and is faster.
    """
    import tensorflow as tf

    rows = records.shape[0]
    raw = tf.reshape(tf.io.decode_raw(records, tf.uint8), [rows, len(layout.template)])
    features = {}
    for name, kind in layout.types.items():
        start = layout.starts[name]
        numbers = raw[:, start : start + layout.length * kind.itemsize]
        if kind.itemsize > 1:
            numbers = tf.reshape(numbers, [rows, layout.length, kind.itemsize])
            numbers = tf.bitcast(numbers, tf.as_dtype(kind.newbyteorder("=")))
        features[name] = tf.cast(numbers, tf.int32)
    return features


def first_rows(table: Manifest, count: int) -> dict[str, np.ndarray]:
    """Read at most ``count`` rows in the order of the files, where documents were shuffled already.

    Gives the features of `dataset`, int32 [rows, sequence_length].
    """
    import tensorflow as tf

    files = tf.data.TFRecordDataset([Folder(table.path).at(shard.name) for shard in table.shards])
    records = next(iter(files.take(count).batch(count)))
    layout = Layout.of(table.settings)
    return {name: numbers.numpy() for name, numbers in _numbers(records, layout).items()}


def steps_per_epoch(table: Manifest, global_batch_size: int) -> int:
    """Give the number of whole batches; without one, raise a `CourseError`."""
    if table.rows < global_batch_size:
        raise CourseError(
            f"{some(table.rows, 'row')}: fewer than one batch of {global_batch_size:,}.",
            "An epoch would have no step, for ever.",
            "Take a smaller batch, or more text.",
        )
    return table.rows // global_batch_size


def dataset(
    path: str | os.PathLike[str],
    *,
    global_batch_size: int,
    seed: int,
    start_step: int = 0,
    input_context: "tf.distribute.InputContext | None" = None,
) -> "tf.data.Dataset":
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
        input_context: From ``strategy.distribute_datasets_from_function``: each machine then reads
            shards of its own, or, where they are too few for that, all of them and gives its own
            rows of each global batch. So the order depends on the number of machines, too.

    Returns:
        Batches ``input_ids``, ``attention_mask`` (1, 2, ... for the sequences of a row, 0 on
        padding) and ``position_ids``, with pairs also ``token_type_ids`` and ``random_next``, each
        int32 [rows, sequence_length], for ever.

    Raises:
        ShardDamaged: A shard has another size.
        CourseError: As `manifest`, a shard isn't there, there is not even one batch, or the
            machines can't share a batch equally.
    """
    import tensorflow as tf

    share = _share(manifest(path), global_batch_size, input_context)
    table, batch, steps = share.table, share.batch, share.steps
    sizes, folder = _check_there(table), Folder(table.path)
    for shard in table.shards:
        if sizes[shard.name] != shard.bytes:
            shard.check(folder.pieces(shard.name))
    blocks, layout = _Blocks.of(table), Layout.of(table.settings)
    # AutoGraph has nothing to convert in these functions, and takes half a second to see it.
    as_it_is = tf.autograph.experimental.do_not_convert

    @as_it_is
    def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        done = tf.cast(tf.where(epoch == start_step // steps, start_step % steps, 0), tf.int32)
        rows = _shuffled(blocks, seed, epoch, done * batch)
        return rows.rebatch(batch, drop_remainder=True).take(steps - tf.cast(done, tf.int64))

    @as_it_is
    def parse(records: tf.Tensor) -> dict[str, tf.Tensor]:
        return _numbers(tf.reshape(records, [batch])[share.rows], layout)

    epochs = tf.data.Dataset.range(start_step // steps, np.iinfo(np.int32).max)
    return (
        epochs.flat_map(read_epoch)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
    )


@dataclasses.dataclass(frozen=True)
class _Share:
    """What a machine reads, and what it gives of that."""

    table: Manifest  # with its own shards, or all
    batch: int  # rows that are read for a step
    rows: slice  # those of them that are this machine's
    steps: int  # per epoch


def _share(
    table: Manifest, global_batch_size: int, context: "tf.distribute.InputContext | None"
) -> _Share:
    """Find a machine's share of the rows."""
    machines = context.num_input_pipelines if context else 1
    machine = context.input_pipeline_id if context else 0
    if global_batch_size % machines:
        raise CourseError(
            f"A batch of {global_batch_size} for {machines} machines.",
            "Each must get as many rows as the others.",
            f"Take a multiple of {machines}.",
        )
    steps, each = steps_per_epoch(table, global_batch_size), global_batch_size // machines
    owned = _owned(table.shards, machines)
    fewest = min(sum(shard.rows for shard in some) for some in owned)
    if fewest < each:  # too few shards for so many machines: each reads all and drops the rest
        mine = slice(machine * each, (machine + 1) * each)
        return _Share(table, global_batch_size, mine, steps)
    own = dataclasses.replace(table, shards=tuple(sorted(owned[machine], key=lambda s: s.name)))
    return _Share(own, each, slice(None), fewest // each)


def _owned(shards: Sequence[Shard], machines: int) -> list[list[Shard]]:
    """Divide shards among machines: the largest first, each to the one with the fewest rows."""
    owned, fewest = [[] for _ in range(machines)], [(0, machine) for machine in range(machines)]
    for shard in sorted(shards, key=lambda shard: (-shard.rows, shard.name)):
        rows, machine = fewest[0]
        owned[machine].append(shard)
        heapq.heapreplace(fewest, (rows + shard.rows, machine))
    return owned


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

    def read(self, block: "tf.Tensor") -> "tf.data.Dataset":
        """Read the records of one block, as one element."""
        import tensorflow as tf

        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=tf.gather(self.paths, [tf.gather(self.shards, block)]),
            compression_type="",
            buffer_size=self.bytes,
            byte_offsets=tf.gather(tf.constant(self.offsets, tf.int64), [block]),
        )
        # Only the last block of a shard can have fewer rows, and there the file ends.
        records = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
        return records.batch(self.largest).take(1)


def _shuffled(
    blocks: _Blocks, seed: int, epoch: "tf.Tensor", first: "tf.Tensor"
) -> "tf.data.Dataset":
    """Read the rows of one epoch from its row ``first`` on, some at a time, in its own order."""
    import tensorflow as tf

    from helpers.text import masking

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


def _permutation(count: "int | tf.Tensor", seed: "tf.Tensor") -> "tf.Tensor":
    """Shuffle 0 to count - 1 as a pure function of the seed, int32 [count]."""
    import tensorflow as tf

    keys = tf.random.stateless_uniform(
        [count], seed, tf.int32.min, tf.int32.max, tf.int32, alg="philox"
    )
    return tf.argsort(keys, stable=True)
