"""Text as packed rows of token ids in TFRecord files: written without TensorFlow, read with it.

A document becomes sequences ``[CLS] … [SEP]``, sequences are packed into rows of one length
(`buckets.pack`), rows become records of a plain format: anyone can read them with
``tf.data.TFRecordDataset`` and ``tf.io.parse_example`` (`Manifest.features` says how).

Which shard a document goes to, and where in it, depends on its file's name and its place there. So
files can be read and shards written in any order, by one process or by many machines, and have the
same bytes. A shard is whole or absent.
"""

from helpers.text.records.encoder import Encoder, fingerprint
from helpers.text.records.format import (
    MANIFEST,
    TOKENIZER,
    Manifest,
    OtherSettings,
    OtherTokenizer,
    ShardDamaged,
)
from helpers.text.records.plan import Plan
from helpers.text.records.reading import (
    dataset,
    first_rows,
    manifest,
    steps_per_epoch,
    tokenizer_of,
    verify,
)
from helpers.text.records.writing import made_of, plan_of, write, write_all
