"""Batches of few shapes: sequences of like length padded together, or packed rows."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from helpers.base.errors import CourseError
from helpers.text.buckets.edges import Edges, check_edges, html_table, measure_edges
from helpers.text.buckets.packing import pack
from helpers.text.buckets.sequences import (
    check_features,
    check_fits,
    check_positive,
    collect,
    count_tokens,
    features_of,
    padding_values,
)

if TYPE_CHECKING:
    import tensorflow as tf

# `bucketed` streams, so it shuffles within these many sequences, then within these many batches.
SHUFFLED_SEQUENCES = 16_384
SHUFFLED_BATCHES = 256

Remainder = Literal["drop", "pad", "keep"]


@dataclasses.dataclass(frozen=True)
class Bucket:
    """What one epoch takes from one bucket."""

    edge: int  # positions per row
    batch_size: int  # rows per full batch, over all replicas
    rows: int  # that the data fill: sequences, or packed rows
    tokens: int  # real ones in these rows
    remainder: Remainder  # what became of the last rows that fill no batch

    @property
    def batches(self) -> int:
        """Batches per epoch."""
        full, rest = divmod(self.rows, self.batch_size)
        return full + (rest > 0 and self.remainder != "drop")

    @property
    def dropped(self) -> int:
        """Rows per epoch that no batch holds."""
        return self.rows % self.batch_size if self.remainder == "drop" else 0

    @property
    def empty(self) -> int:
        """Rows per epoch that are padding alone."""
        return -self.rows % self.batch_size if self.remainder == "pad" else 0

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Different shapes (rows, positions) among its batches."""
        full, rest = divmod(self.rows, self.batch_size)
        sizes = [self.batch_size] * (full > 0 or self.empty > 0)
        sizes += [rest] * (rest > 0 and self.remainder == "keep")
        return tuple((size, self.edge) for size in sizes)


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """Batches of few shapes, and the account of what is in them."""

    dataset: "tf.data.Dataset"  # the batches; its length is the number of batches in an epoch
    buckets: tuple[Bucket, ...]  # the account, one entry per edge
    truncated: int  # sequences cut to fit, 0 unless asked for

    @property
    def batches(self) -> int:
        """Batches per epoch."""
        return sum(bucket.batches for bucket in self.buckets)

    @property
    def dropped(self) -> int:
        """Rows per epoch that no batch holds; with a seed they are others in each epoch."""
        return sum(bucket.dropped for bucket in self.buckets)

    @property
    def empty(self) -> int:
        """Rows per epoch that are padding alone."""
        return sum(bucket.empty for bucket in self.buckets)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Every shape (rows, positions) that the compiler will see."""
        return tuple(shape for bucket in self.buckets for shape in bucket.shapes)

    @property
    def efficiency(self) -> float:
        """Share of positions that hold a real token, 0 to 1, before anything is dropped."""
        positions = sum((bucket.rows + bucket.empty) * bucket.edge for bucket in self.buckets)
        return sum(bucket.tokens for bucket in self.buckets) / positions

    def __repr__(self) -> str:
        rows = sum(bucket.rows for bucket in self.buckets)
        notes = {
            "rows dropped in each epoch": self.dropped,
            "empty rows added": self.empty,
            "sequences truncated": self.truncated,
        }
        return (
            f"{rows:,} rows in {self.batches:,} batches of {len(self.shapes)} "
            f"shape{'s' * (len(self.shapes) != 1)}, {self.efficiency:.1%} real tokens"
            + "".join(f"; {number:,} {what}" for what, number in notes.items() if number)
        )

    def _repr_html_(self) -> str:
        rows = [
            {
                "positions per row": bucket.edge,
                "rows per batch": bucket.batch_size,
                "rows": bucket.rows,
                "batches": bucket.batches,
                "rows dropped": bucket.dropped,
                "empty rows": bucket.empty,
                "real": f"{bucket.tokens / max(bucket.rows * bucket.edge, 1):.1%}",
            }
            for bucket in self.buckets
        ]
        return f"<p>{self!r}</p>" + html_table(rows)


def _batch_sizes(
    edges: Sequence[int],
    remainder: str,
    replicas: int,
    size: int | None,
    batch_tokens: int | None = None,
) -> list[int]:
    """Give the rows per batch of each bucket, or refuse what the replicas can't share."""
    check_positive(batch_tokens=batch_tokens, global_batch_size=size, replicas=replicas)
    if remainder not in ("drop", "pad", "keep"):
        raise CourseError(
            f"remainder is {remainder!r}.",
            "The last rows that fill no batch can be dropped, completed with padding, or kept.",
            'Write "drop", "pad" or "keep".',
        )
    if (batch_tokens is None) == (size is None):
        raise CourseError(
            "The size of a batch is not clear.",
            "It is either the same number of rows or about the same number of tokens everywhere.",
            "Give global_batch_size or batch_tokens, one of the two.",
        )
    if size is not None and size % replicas:
        most = size // replicas * replicas
        raise CourseError(
            f"A global batch of {size} rows can't be shared equally by {replicas} replicas.",
            "Every replica runs the same compiled program, so on the same shape.",
            f"Make it {f'{most} or ' if most else ''}{most + replicas}.",
        )
    if size is not None:
        return [size] * len(edges)
    sizes = [batch_tokens // edge // replicas * replicas for edge in edges]
    if not sizes[-1]:
        raise CourseError(
            f"A batch of {batch_tokens:,} tokens has less than one row of {edges[-1]} "
            f"for each of {replicas} replicas.",
            "Each replica takes an equal share of every batch, at least one row.",
            f"Make batch_tokens at least {edges[-1] * replicas:,}.",
        )
    return sizes


def _check_something_left(buckets: Sequence[Bucket]) -> None:
    if not any(bucket.batches for bucket in buckets):
        raise CourseError(
            f"{sum(bucket.rows for bucket in buckets)} rows fill not a single batch.",
            "Every batch would be a partial one, and partial ones are dropped.",
            'Make the batches smaller, or complete them with remainder="pad".',
        )


def bucketed(
    dataset: "tf.data.Dataset",
    edges: Edges | Sequence[int],
    *,
    batch_tokens: int | None = None,
    global_batch_size: int | None = None,
    replicas: int = 1,
    remainder: Remainder = "drop",
    truncate: bool = False,
    pad_values: Mapping[str, int] | None = None,
    seed: int | None = 0,
) -> Batches:
    """Batch sequences of like length together and pad each batch to its bucket's edge.

    The work is done by ``tf.data.Dataset.bucket_by_sequence_length``, so without Python. The
    sequences are counted first, in one pass over ``dataset``.

    Args:
        dataset: One sequence per element: its token ids, 1-D, or a dict of 1-D tensors of one
            length; scalars beside them are batched as they are. Must give the same sequences each
            time it is read.
        edges: Padded lengths, rising.
        batch_tokens: Maximum positions per batch, so that short rows make larger batches; or
        global_batch_size: rows per batch, over all replicas.
        replicas: ``strategy.num_replicas_in_sync``; every batch size is a multiple of it.
        remainder: What becomes of each bucket's last rows that fill no batch. ``drop`` leaves them
            out of this epoch; ``pad`` completes the batch with rows of padding alone, so nothing
            is lost and no shape is new (scalars need a value in ``pad_values``); ``keep`` passes
            the small batch on: one more shape.
        truncate: Cut sequences longer than the last edge instead of refusing them.
        pad_values: Padding by feature name; -100 for ``labels`` and 0 for others if not given.
        seed: Shuffles sequences and then batches, within a buffer each, anew in each epoch and
            the same in each run (with the same ``tf.random.set_seed``). None keeps the order.

    Returns:
        Batches of shape [batch size, edge]: the dataset's features (``input_ids`` if it has no
        names), and ``attention_mask``, int32, 1 on tokens, 0 on padding, if it has none. Each
        batch has one of `Batches.shapes`; ``element_spec`` has None where they differ.

    Raises:
        TooLong: A sequence is longer than the last edge, and ``truncate`` is off.
        CourseError: An argument, or an element of the dataset, can't be used; or every batch would
            be a partial one and dropped.
    """
    import tensorflow as tf

    tops = check_edges(edges.edges if isinstance(edges, Edges) else edges)
    sizes = _batch_sizes(tops, remainder, replicas, global_batch_size, batch_tokens)
    ranks = check_features(dataset)
    padding = padding_values(ranks.keys() | {"attention_mask"}, pad_values)
    per_token = [name for name, rank in ranks.items() if rank]
    unsaid = [name for name in ranks if not ranks[name] and name not in (pad_values or {})]
    if remainder == "pad" and unsaid:
        raise CourseError(
            f"{unsaid[0]!r} is one number per sequence, and a row of padding has none.",
            "Any number put there would count as if it were data.",
            'Choose remainder="drop" or remainder="keep"; or name its padding in pad_values, as '
            "0 for a weight that the loss is multiplied by.",
        )

    lengths = count_tokens(dataset, per_token)
    truncated = int(np.count_nonzero(lengths > tops[-1]))
    if not truncate:
        fix = f"Make the last edge at least {lengths.max()}, or cut with truncate=True."
        check_fits(lengths, tops[-1], fix)
    measured = measure_edges(np.minimum(lengths, tops[-1]), tops)
    accounts = zip(tops, sizes, measured.sequences, measured.tokens, strict=True)
    buckets = tuple(Bucket(*account, remainder) for account in accounts)
    _check_something_left(buckets)

    def prepare(element: object) -> dict:
        features = dict(features_of(element))
        for name in per_token if truncated else ():
            features[name] = features[name][: tops[-1]]
        features.setdefault("attention_mask", tf.ones_like(features[per_token[0]], tf.int32))
        return features

    batched = _by_length(dataset.map(prepare), per_token[0], buckets, padding, seed)
    # Several workers share the batches, not the files: the account above is for all files.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batched = batched.with_options(options).prefetch(tf.data.AUTOTUNE)
    return Batches(batched, buckets, truncated)


def _by_length(
    dataset: "tf.data.Dataset",
    measured: str,
    buckets: Sequence[Bucket],
    padding: Mapping[str, int],
    seed: int | None,
) -> "tf.data.Dataset":
    """Shuffle sequences, batch them by the length of the feature ``measured``, shuffle batches."""
    import tensorflow as tf

    tops, sizes = [bucket.edge for bucket in buckets], [bucket.batch_size for bucket in buckets]
    remainder = buckets[0].remainder
    pad = {k: tf.cast(padding[k], spec.dtype) for k, spec in dataset.element_spec.items()}

    def complete(batch: dict) -> dict:
        rows, width = tf.unstack(tf.shape(batch["attention_mask"]))
        missing = tf.gather(sizes, tf.searchsorted(tops, [width])[0]) - rows
        empty = [[0, missing], [0, 0]]
        return {
            k: tf.pad(v, empty[: v.shape.rank], constant_values=pad[k]) for k, v in batch.items()
        }

    def with_shape(batch: dict) -> dict:
        rows = sizes[0] if len(set(sizes)) == 1 and remainder != "keep" else None
        shape = [rows, tops[0] if len(tops) == 1 else None]
        return {k: tf.ensure_shape(v, shape[: v.shape.rank]) for k, v in batch.items()}

    if seed is not None:
        dataset = dataset.shuffle(SHUFFLED_SEQUENCES, seed)
    dataset = dataset.bucket_by_sequence_length(
        lambda features: tf.size(features[measured]),
        bucket_boundaries=[edge + 1 for edge in tops],
        bucket_batch_sizes=[*sizes, 1],  # the last would be for longer sequences: there are none
        # Said here, or a feature of one constant length would not be padded to the edge.
        padded_shapes={k: [None] * spec.shape.rank for k, spec in dataset.element_spec.items()},
        pad_to_bucket_boundary=True,
        padding_values=pad,
        drop_remainder=remainder == "drop",
    )
    if remainder == "pad":
        dataset = dataset.map(complete)
    dataset = dataset.map(with_shape)
    if seed is not None:
        dataset = dataset.shuffle(SHUFFLED_BATCHES, seed)
    total = sum(bucket.batches for bucket in buckets)
    return dataset.apply(tf.data.experimental.assert_cardinality(total))


def packed(
    dataset: "tf.data.Dataset",
    row_length: int,
    *,
    global_batch_size: int,
    replicas: int = 1,
    remainder: Remainder = "drop",
    truncate: bool = False,
    pad_values: Mapping[str, int] | None = None,
    seed: int | None = 0,
) -> Batches:
    """Pack sequences into rows and batch the rows: one shape, almost no padding.

    Packing belongs to data preparation: it happens here, once, in NumPy, and the rows are held in
    memory. Epochs then run without Python. For data larger than memory, pack shard by shard with
    `pack` and write the rows of `Packing.lay_out` to files.

    Args:
        dataset: One sequence per element: its token ids, 1-D, or a dict of 1-D tensors of one
            length with ``input_ids`` among them.
        row_length: Positions per row.
        global_batch_size: Rows per batch, over all replicas.
        replicas: ``strategy.num_replicas_in_sync``; must divide ``global_batch_size``.
        remainder: As for `bucketed`.
        truncate: As for `bucketed`, for sequences longer than a row.
        pad_values: As for `bucketed`.
        seed: Shuffles all rows, anew in each epoch and the same in each run (with the same
            ``tf.random.set_seed``). None keeps the order of `pack`. A row always holds the same
            sequences.

    Returns:
        Batches of shape [global_batch_size, row_length]: ``input_ids``; ``attention_mask``, int32,
        the number 1, 2, ... of the sequence in its row, 0 on padding; ``position_ids``, int32,
        from 0 in each sequence; ``labels``, the dataset's own or ``input_ids`` with padding left
        out; and the dataset's other features. An ``attention_mask`` or ``position_ids`` of the
        dataset is replaced. The model must let a token attend to its own number only.

    Raises:
        TooLong: A sequence is longer than a row, and ``truncate`` is off.
        CourseError: An argument, or an element of the dataset, can't be used (a sequence may be
            padded already); or every batch would be a partial one and dropped.
    """
    import tensorflow as tf

    check_positive(row_length=row_length)
    _batch_sizes([row_length], remainder, replicas, global_batch_size)
    ranks = check_features(dataset)
    if "input_ids" not in ranks or not all(ranks.values()):
        raise CourseError(
            f"A sequence has the features {', '.join(map(repr, ranks))}.",
            "A row holds several sequences, so each feature must have one number per token.",
            "Keep input_ids and 1-D features; bucketed() takes one number per sequence.",
        )
    made = {"attention_mask", "position_ids"}
    padding = padding_values((ranks.keys() | {"labels"}) - made, pad_values)
    flat, lengths = collect(dataset, list(ranks))
    if not np.all(flat.get("attention_mask", 1)):
        raise CourseError(
            "The dataset's attention_mask has zeros.",
            "Its sequences were padded before, and padding would be packed as if it were text.",
            "Tokenize without padding; rows are filled up here.",
        )
    packing = pack(lengths, row_length, truncate)
    rows = len(packing.splits) - 1
    bucket = Bucket(row_length, global_batch_size, rows, packing.tokens, remainder)
    _check_something_left([bucket])

    features = {"labels": flat["input_ids"]} | {k: v for k, v in flat.items() if k not in made}
    features = {name: packing.lay_out(v, padding[name]) for name, v in features.items()}
    features |= {"attention_mask": packing.segment_ids(), "position_ids": packing.position_ids()}
    for name, array in features.items():
        empty = ((0, bucket.empty), (0, 0))
        features[name] = tf.constant(np.pad(array, empty, constant_values=padding.get(name, 0)))

    # Rows are taken by number: numbers are cheap to shuffle, so the shuffle can be a full one.
    dataset = tf.data.Dataset.range(rows + bucket.empty)
    if seed is not None:
        dataset = dataset.shuffle(rows + bucket.empty, seed)
    dataset = dataset.batch(global_batch_size, drop_remainder=remainder != "keep")
    dataset = dataset.map(lambda row: {k: tf.gather(v, row) for k, v in features.items()})
    return Batches(dataset.prefetch(tf.data.AUTOTUNE), (bucket,), packing.truncated)
