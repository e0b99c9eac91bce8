"""Records as anyone can read them, and what the tests of records share."""

import hashlib
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from course import documents
from helpers.base.errors import CourseError
from helpers.text import corpus, records

TOKENIZER = corpus.kept_tokenizer()


def contents(folder):
    """Digest of every file, by its path in the folder."""
    digests = {}
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            digests[str(path.relative_to(folder))] = sha256(path)
    return digests


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def finished(folder):
    """Digest and time of each shard that is described, so finished."""
    shards = {}
    for path in folder.glob("shard-*.tfrecord"):
        if path.with_suffix(".json").exists():
            shards[path.name] = (sha256(path), path.stat().st_mtime_ns)
    return shards


def copied(manifest, folder):
    """A copy of written records, in a folder that is there."""
    return pathlib.Path(shutil.copytree(manifest.path, folder, dirs_exist_ok=True))


def plain(manifest):
    """Read with tf.data and tf.io.parse_example alone, checksums on, as anyone can."""
    paths = [f"{manifest.path}/{shard.name}" for shard in manifest.shards]
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in manifest.features}
    examples = tf.io.parse_example(list(tf.data.TFRecordDataset(paths)), spec)
    rows = {}
    for name, kind in manifest.features.items():
        rows[name] = tf.io.decode_raw(examples[name], tf.as_dtype(kind)).numpy()
    return rows


def changed(change):
    """The shipped tokenizer after a change, a function of it."""
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
    change(tokenizer)
    return tokenizer


def batches(path, count, **options):
    options = {"global_batch_size": 8, "seed": 0} | options
    return list(records.dataset(path, **options).take(count).as_numpy_iterator())


def rows_of(batches):
    """Each row of some batches as one tuple of numbers, to be compared."""
    rows = []
    for batch in batches:
        features = [batch[name] for name in sorted(batch)]
        rows += map(tuple, np.concatenate(features, axis=1).tolist())
    return rows


def write(texts, folder, tokenizer=TOKENIZER, **options):
    """Write as the fixture `written` is written, if no option says otherwise."""
    return records.write(texts, folder, tokenizer, **{"sequence_length": 64, "shards": 5} | options)


def prepared(output, *, files=None, shards=6, **options):
    """Write files, or the shipped text, as the command `prepare` does."""
    source = documents.find(list(map(str, files or corpus.shipped().values())))
    return write(source, output, shards=shards, held_out=True, **options)


def refused(words, *arguments, error=CourseError, **options):
    """Give the error with which `write` must end."""
    with pytest.raises(error, match=words) as caught:
        write(*arguments, **options)
    return caught.value
