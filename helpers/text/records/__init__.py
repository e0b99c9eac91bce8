"""Text as packed rows of token ids in TFRecord files: written without TensorFlow, read with it.

A document becomes sequences ``[CLS] … [SEP]``, sequences are packed into rows of one length
(`buckets.pack`), rows become records of a plain format: anyone can read them with
``tf.data.TFRecordDataset`` and ``tf.io.parse_example`` (`Manifest.features` says how).

Shard k is a pure function of (documents, settings, k). So shards can be written in any order, by
one process or by many machines, and have the same bytes. A shard is whole or absent.
"""

from typing import Any

from helpers.text.records.format import (
    HELD_OUT,
    MANIFEST,
    TOKENIZER,
    Manifest,
    ShardDamaged,
    manifest,
    steps_per_epoch,
    tokenizer_of,
    verify,
)
from helpers.text.records.writing import one_by_one, write


def __getattr__(name: str) -> Any:
    """Import what needs TensorFlow when it is asked for: writing needs none, and Beam has none."""
    if name not in ("dataset", "first_rows", "reading"):
        raise AttributeError(name)
    from helpers.text.records import rows

    return getattr(rows, name)
