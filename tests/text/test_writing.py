"""Writing: the examples that TensorFlow would write, the same bytes from any runner."""

import functools
import hashlib
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from record_files import (
    batches,
    changed,
    contents,
    copied,
    finished,
    plain,
    prepared,
    refused,
    rows_of,
    write,
)

from course import runners
from helpers.base import files
from helpers.base.errors import CourseError
from helpers.text import corpus, records
from helpers.text.records import writing
from helpers.tpu import storage

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("length", [16, 64, 300])
def test_sequences_are_hugging_faces(texts, hugging_face, tmp_path, length):
    options = {"truncation": True, "max_length": length, "return_overflowing_tokens": True}
    expected = hugging_face(texts, **options)["input_ids"]
    manifest = write(texts, tmp_path, hugging_face, sequence_length=length, shards=3)
    rows = plain(manifest)
    sequences = []
    for row, segments in enumerate(rows["attention_mask"]):
        ids = rows["input_ids"][row]
        positions = rows["position_ids"][row]
        is_padding = segments == 0
        assert not positions[is_padding].any()
        assert not ids[is_padding].any()
        for number in range(1, segments.max() + 1):
            in_segment = segments == number
            sequences.append(ids[in_segment].tolist())
            assert positions[in_segment].tolist() == list(range(in_segment.sum()))
    assert sorted(sequences) == sorted(expected)
    assert manifest.tokens == sum(map(len, expected)) == (rows["attention_mask"] > 0).sum()
    assert manifest.rows == len(rows["input_ids"])
    assert manifest.documents == len(texts)


def test_a_record_is_the_example_that_tensorflow_would_write(written):
    rows = plain(written)
    record = next(iter(tf.data.TFRecordDataset(f"{written.path}/{written.shards[0].name}")))
    expected = tf.train.Example()
    for name, kind in written.features.items():
        numbers = rows[name][0].astype(kind)
        expected.features.feature[name].bytes_list.value.append(numbers.tobytes())
    assert tf.train.Example.FromString(record.numpy()) == expected


def test_a_large_vocabulary_needs_four_bytes(tmp_path):
    vocabulary = {token: number for number, token in enumerate(corpus.SPECIAL)}
    vocabulary |= {f"w{number}": number for number in range(5, 70_000)}
    tokenizer = tokenizers.BertWordPieceTokenizer(vocabulary)
    manifest = write(["w69999 w6", "w66000"], tmp_path, tokenizer, shards=1)
    assert manifest.features["input_ids"] == "int32"
    (row,) = plain(manifest)["input_ids"]
    assert row[row > 0].tolist() == [2, 69999, 6, 3, 2, 66000, 3]
    (batch,) = batches(tmp_path, 1, global_batch_size=1)
    np.testing.assert_array_equal(batch["input_ids"], plain(manifest)["input_ids"])


# They must never change while FORMAT doesn't, or a run that goes on would mix two orders.
KNOWN = "410997da20f7e0b4"


def write_backwards(tasks):
    return records.one_by_one(tasks[::-1])


def test_the_bytes_are_the_same_in_any_order_of_the_files_and_from_any_processes(texts, tmp_path):
    parts = {"a": texts[:250], "b": texts[250:300], "c": texts[300:350], "d": texts[350:]}
    for name, part in parts.items():
        (tmp_path / name).write_text("\n".join(part), "utf-8")
    paths = [tmp_path / name for name in parts]
    expected = prepared(tmp_path / "one", files=paths, shards=4)
    held_out = records.manifest(tmp_path / "one" / records.HELD_OUT)
    assert (expected.documents, held_out.documents) == (len(texts) - 60, 60)
    by_processes = functools.partial(runners.by_processes, workers=2)
    prepared(tmp_path / "order", files=paths[::-1], shards=4)
    prepared(tmp_path / "processes", files=paths, shards=4, run=by_processes)
    prepared(tmp_path / "backwards", files=paths, shards=4, run=write_backwards)
    for name in ("order", "processes", "backwards"):
        assert contents(tmp_path / name) == contents(tmp_path / "one")
    checksums = "".join(shard.crc32c for shard in expected.shards)
    assert hashlib.sha256(checksums.encode()).hexdigest()[:16] == KNOWN


def test_a_text_that_is_exchanged_before_it_is_read_is_refused(tmp_path):
    path = tmp_path / "text"
    path.write_text("old\nrows\n" * 9)

    def exchange_and_write(tasks):
        path.write_text("new\n" * 9)
        return runners.by_processes(tasks, workers=2)

    with pytest.raises(CourseError, match="was changed meanwhile"):
        prepared(tmp_path / "out", files=[path], shards=4, run=exchange_and_write)
    assert not list((tmp_path / "out").rglob("*.tfrecord"))


def test_a_shard_of_several_windows_holds_every_document(texts, tmp_path, monkeypatch):
    single = write(texts, tmp_path / "single", shards=1)
    monkeypatch.setattr(writing, "WINDOW", 5_000)
    monkeypatch.setattr(writing, "CHUNK", 50)
    several = write(texts, tmp_path / "several", shards=1)
    assert (several.documents, several.tokens) == (single.documents, single.tokens)
    assert 0 < several.rows - single.rows < 0.05 * single.rows
    assert records.verify(tmp_path / "several") == several


def test_finished_shards_are_kept(texts, written, tmp_path):
    original = finished(copied(written, tmp_path))
    (tmp_path / records.TOKENIZER).unlink()
    deleted = tmp_path / written.shards[2].name
    deleted.unlink()
    undescribed = tmp_path / written.shards[3].name
    undescribed.with_suffix(".json").unlink()
    (tmp_path / f".{deleted.name}.0123456789abcdef").write_bytes(b"of a killed run")
    write(texts, tmp_path)
    assert contents(tmp_path) == contents(written.path)
    written_again = dict(original.items() - finished(tmp_path).items())
    assert list(written_again) == [deleted.name]
    refused("is gone", texts, tmp_path / "a", done=lambda *_: shutil.rmtree(tmp_path / "a"))


def test_documents_are_cleaned_and_empty_ones_left_out(tmp_path):
    expected = write(["하나", "둘"], tmp_path / "clean", shards=1)
    assert expected.documents == 2
    assert "2 documents in 1 rows of 64" in repr(expected)
    cleaned = write(["하\u200b나", " \x07", "", "둘 \n"], tmp_path / "unclean", shards=1)
    assert cleaned.shards[0].crc32c == expected.shards[0].crc32c
    refused("There are no documents", ["", " "], tmp_path / "none")
    refused("doesn't know this text", ["\u2603 \u2604 \u2605 \u2606"], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_too_few_documents_leave_empty_shards_and_none_held_out(tmp_path):
    (tmp_path / "text").write_text("하나\n둘\n")
    manifest = prepared(tmp_path / "out", files=[tmp_path / "text"], shards=9)
    assert len(manifest.shards) == 9
    assert manifest.documents == 2
    assert records.verify(tmp_path / "out") == manifest
    assert len(rows_of(batches(tmp_path / "out", 2, global_batch_size=1))) == 2
    assert not (tmp_path / "out" / records.HELD_OUT).exists()


def test_files_of_somebody_else_stay(tmp_path):
    (tmp_path / "text").write_text("하나\n둘\n")
    held_out = tmp_path / "out" / records.HELD_OUT / "mine"
    tokenizer = tmp_path / "other" / records.TOKENIZER
    shard = tmp_path / "third" / "shard-00000-of-00001.tfrecord"
    for path in (held_out, tokenizer, shard):
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    prepared(tmp_path / "out", files=[tmp_path / "text"])
    assert list(held_out.parent.iterdir()) == [held_out]
    refused("tokenizer.json from another run", ["하나"], tmp_path / "other")
    refused("tfrecord from another run", ["하나"], tmp_path / "third", shards=1)
    for path in (held_out, tokenizer, shard):
        assert path.read_text() == "mine"


def test_an_empty_folder_of_the_user_stays_when_there_are_no_documents(tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    (folder / records.HELD_OUT).mkdir(parents=True)
    monkeypatch.chdir(folder)
    for output in (folder, "."):
        refused("There are no documents", ["", " "], output, held_out=True)
        assert list(folder.rglob("*")) == [folder / records.HELD_OUT]


def make_pipe(path):
    os.mkfifo(path)


def link_to_zeros(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("replace", [make_pipe, link_to_zeros])
def test_a_shard_that_is_no_file_is_told_at_once(texts, written, tmp_path, replace):
    shard = copied(written, tmp_path) / written.shards[1].name
    shard.unlink()
    replace(shard)
    with pytest.raises(records.ShardDamaged, match="It has 0 bytes"):
        records.verify(tmp_path)
    with pytest.raises(records.ShardDamaged, match="It has 0 bytes"):
        batches(tmp_path, 1)
    refused("a pipe or a device", texts, tmp_path)


def test_documents_are_tokenized_some_characters_at_a_time_with_the_same_rows(
    texts, tmp_path, monkeypatch
):
    expected = write(texts, tmp_path / "one", shards=1)
    monkeypatch.setattr(writing, "BATCH_CHARACTERS", 2_000)
    batched = write(texts, tmp_path / "batches", shards=1)
    assert batched.shards == expected.shards
    monkeypatch.setattr(writing, "CHUNK_CHARACTERS", 2_000)
    monkeypatch.setattr(writing, "WINDOW", 5_000)
    several = write(texts, tmp_path / "windows", shards=1)
    assert (several.documents, several.tokens) == (expected.documents, expected.tokens)
    assert several.rows > expected.rows


def test_records_of_another_run_are_refused_and_kept(texts, written, tmp_path):
    copied(written, tmp_path)
    larger_tokenizer = changed(lambda tokenizer: tokenizer.add_tokens(["새로운"]))
    error = refused("another tokenizer", texts, tmp_path, larger_tokenizer)
    assert written.settings.tokenizer_sha256 in error.why
    (tmp_path / records.MANIFEST).unlink()  # as of a run that was killed
    changes = {"seed": (0, 3), "sequence_length": (64, 32), "shards": (5, 4)}
    for name, (original, value) in changes.items():
        error = refused("other settings", texts, tmp_path, **{name: value})
        assert error.why == f"{name} is {original} in the folder, {value} in this run."
    refused("documents is", [texts[1], texts[0], *texts[2:]], tmp_path)
    refused("documents is", texts[:-1], tmp_path)
    assert finished(tmp_path).keys() == {shard.name for shard in written.shards}
    assert write(texts, tmp_path) == records.verify(tmp_path)
    assert contents(tmp_path) == contents(written.path)


def test_a_bucket_holds_the_same_bytes_and_is_read(texts, written):
    with storage.embedded_gcs() as bucket:
        path = f"{bucket.url}/records"
        manifest = write(texts, path)
        assert (manifest.settings, manifest.shards) == (written.settings, written.shards)
        local_batches = batches(written.path, 3, start_step=4)
        bucket_batches = batches(path, 3, start_step=4)
        assert rows_of(bucket_batches) == rows_of(local_batches)
        refused("other settings", texts, path, shards=4)
        assert write(texts, path) == records.verify(path) == manifest
        nowhere = "gs://course-no-such-bucket/records"
        refused("bucket", texts, nowhere, error=files.CantWrite)
