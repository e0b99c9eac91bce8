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
    folder = pathlib.Path(folder)
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def finished(folder):
    """Digest and time of each shard that is described, so finished."""
    return {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.glob("shard-*.tfrecord")
        if path.with_suffix(".json").exists()
    }


def copied(manifest, folder):
    """A copy of written records, in a folder that is there."""
    return pathlib.Path(shutil.copytree(manifest.path, folder, dirs_exist_ok=True))


def plain(manifest):
    """Read with tf.data and tf.io.parse_example alone, checksums on, as anyone can."""
    paths = [f"{manifest.path}/{shard.name}" for shard in manifest.shards]
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in manifest.features}
    raw = tf.io.parse_example(list(tf.data.TFRecordDataset(paths)), spec)
    return {
        name: tf.io.decode_raw(raw[name], tf.as_dtype(kind)).numpy()
        for name, kind in manifest.features.items()
    }


def changed(change):
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
    change(tokenizer)
    return tokenizer


def batches(path, count, **options):
    options = {"global_batch_size": 8, "seed": 0} | options
    return list(records.dataset(path, **options).take(count).as_numpy_iterator())


def rows_of(some):
    return [
        tuple(np.concatenate([batch[name][at] for name in sorted(batch)]).tolist())
        for batch in some
        for at in range(len(batch["input_ids"]))
    ]


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
