"""Writing: the examples that TensorFlow would write, the same bytes from any runner."""

import functools
import hashlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from plain import (
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
    wanted = hugging_face(texts, **options)["input_ids"]
    manifest = write(texts, tmp_path, hugging_face, sequence_length=length, shards=3)
    rows = plain(manifest)
    found = []
    names = ("input_ids", "attention_mask", "position_ids")
    for ids, segments, positions in zip(*map(rows.get, names), strict=True):
        assert not positions[segments == 0].any() and not ids[segments == 0].any()
        for number in range(1, segments.max() + 1):
            found.append(ids[segments == number].tolist())
            assert positions[segments == number].tolist() == list(range(len(found[-1])))
    assert sorted(found) == sorted(wanted)
    assert manifest.tokens == sum(map(len, wanted)) == (rows["attention_mask"] > 0).sum()
    assert manifest.rows == len(rows["input_ids"]) and manifest.documents == len(texts)


def test_a_record_is_the_example_that_tensorflow_would_write(written):
    rows = plain(written)
    record = next(iter(tf.data.TFRecordDataset(f"{written.path}/{written.shards[0].name}")))
    wanted = tf.train.Example()
    for name, kind in written.features.items():
        numbers = rows[name][0].astype(kind)
        wanted.features.feature[name].bytes_list.value.append(numbers.tobytes())
    assert tf.train.Example.FromString(record.numpy()) == wanted


def test_a_large_vocabulary_needs_four_bytes(tmp_path):
    tokens = [*corpus.SPECIAL, *(f"w{number}" for number in range(5, 70_000))]
    tokenizer = tokenizers.BertWordPieceTokenizer({token: at for at, token in enumerate(tokens)})
    manifest = write(["w69999 w6", "w66000"], tmp_path, tokenizer, shards=1)
    assert manifest.features["input_ids"] == "int32"
    ids = {tuple(row[row > 0].tolist()) for row in plain(manifest)["input_ids"]}
    assert ids == {(2, 69999, 6, 3, 2, 66000, 3)}
    (batch,) = batches(tmp_path, 1, global_batch_size=1)
    np.testing.assert_array_equal(batch["input_ids"], plain(manifest)["input_ids"])


# They must never change while FORMAT doesn't, or a run that goes on would mix two orders.
KNOWN = "410997da20f7e0b4"


def test_the_bytes_are_the_same_in_any_order_of_the_files_and_from_any_processes(texts, tmp_path):
    for name, start, end in (("a", 0, 250), ("b", 250, 300), ("c", 300, 350), ("d", 350, None)):
        (tmp_path / name).write_text("\n".join(texts[start:end]), "utf-8")
    names = [tmp_path / name for name in "abcd"]
    wanted = prepared(tmp_path / "one", files=names, shards=4)
    apart = records.manifest(tmp_path / "one" / records.HELD_OUT)
    assert (wanted.documents, apart.documents) == (len(texts) - 60, 60)
    prepared(tmp_path / "order", files=names[::-1], shards=4)
    processes = functools.partial(runners.by_processes, workers=2)
    prepared(tmp_path / "processes", files=names, shards=4, run=processes)
    backwards = lambda tasks: records.one_by_one(tasks[::-1])  # noqa: E731
    prepared(tmp_path / "backwards", files=names, shards=4, run=backwards)
    for name in ("order", "processes", "backwards"):
        assert contents(tmp_path / name) == contents(tmp_path / "one")
    total = hashlib.sha256("".join(shard.crc32c for shard in wanted.shards).encode())
    assert total.hexdigest()[:16] == KNOWN


def test_a_text_that_is_exchanged_before_it_is_read_is_refused(tmp_path):
    (path := tmp_path / "text").write_text("old\nrows\n" * 9)
    workers = functools.partial(runners.by_processes, workers=2)
    exchanged = lambda tasks: path.write_text("new\n" * 9) and workers(tasks)  # noqa: E731
    with pytest.raises(CourseError, match="was changed meanwhile"):
        prepared(tmp_path / "out", files=[path], shards=4, run=exchanged)
    assert not [*(tmp_path / "out").rglob("*.tfrecord")]


def test_a_shard_of_several_windows_holds_every_document(texts, tmp_path, monkeypatch):
    whole = write(texts, tmp_path / "whole", shards=1)
    monkeypatch.setattr(writing, "WINDOW", 5_000)
    monkeypatch.setattr(writing, "CHUNK", 50)
    some = write(texts, tmp_path / "some", shards=1)
    assert (some.documents, some.tokens) == (whole.documents, whole.tokens)
    assert 0 < some.rows - whole.rows < 0.05 * whole.rows
    assert records.verify(tmp_path / "some") == some


def test_finished_shards_are_kept(texts, written, tmp_path):
    before = finished(copied(written, tmp_path))
    (tmp_path / records.TOKENIZER).unlink()
    lost = [shard.name for shard in written.shards[2:4]]
    (tmp_path / lost[0]).unlink()
    (tmp_path / lost[1].replace(".tfrecord", ".json")).unlink()
    (tmp_path / f".{lost[0]}.0123456789abcdef").write_bytes(b"of a killed run")
    write(texts, tmp_path)
    assert contents(tmp_path) == contents(written.path)
    assert sorted(name for name, _ in before.items() - finished(tmp_path).items()) == lost[:1]
    refused("is gone", texts, tmp_path / "a", done=lambda *_: shutil.rmtree(tmp_path / "a"))


def test_documents_are_cleaned_and_empty_ones_left_out(tmp_path):
    clean = write(["하나", "둘"], tmp_path / "clean", shards=1)
    assert clean.documents == 2 and "2 documents in 1 rows of 64" in repr(clean)
    given = write(["하\u200b나", " \x07", "", "둘 \n"], tmp_path / "given", shards=1)
    assert [shard.crc32c for shard in given.shards] == [shard.crc32c for shard in clean.shards]
    refused("There are no documents", ["", " "], tmp_path / "none")
    refused("doesn't know this text", ["\u2603 \u2604 \u2605 \u2606"], tmp_path / "none")
    refused("more than 10,000,000 characters", ["a" * 10_000_001], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_too_few_documents_leave_empty_shards_and_none_held_out(tmp_path):
    (tmp_path / "text").write_text("하나\n둘\n")
    manifest = prepared(tmp_path / "out", files=[tmp_path / "text"], shards=9)
    assert len(manifest.shards) == 9 and manifest.documents == 2
    assert records.verify(tmp_path / "out") == manifest
    assert len(rows_of(batches(tmp_path / "out", 2, global_batch_size=1))) == 2
    assert not (tmp_path / "out" / records.HELD_OUT).exists()


def test_files_of_somebody_else_stay(tmp_path):
    (tmp_path / "text").write_text("하나\n둘\n")
    mine = [tmp_path / f"out/{records.HELD_OUT}/mine", tmp_path / "other" / records.TOKENIZER]
    for path in mine:
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    prepared(tmp_path / "out", files=[tmp_path / "text"])
    assert [*mine[0].parent.iterdir()] == mine[:1]
    refused("tokenizer.json of somebody else", ["하나"], tmp_path / "other")
    mine.append(tmp_path / "third/shard-00000-of-00001.tfrecord")
    mine[-1].parent.mkdir()
    mine[-1].write_text("mine")
    refused("tfrecord of somebody else", ["하나"], tmp_path / "third", shards=1)
    assert [path.read_text() for path in mine] == ["mine"] * 3


def test_records_of_another_run_are_refused_and_kept(texts, written, tmp_path):
    copied(written, tmp_path)
    other = changed(lambda t: t.add_tokens(["새로운"]))
    error = refused("another tokenizer", texts, tmp_path, other)
    assert written.settings.tokenizer_sha256 in error.why
    (tmp_path / records.MANIFEST).unlink()  # as of a run that was killed
    for name, was, now in (("seed", 0, 3), ("sequence_length", 64, 32), ("shards", 5, 4)):
        error = refused("other settings", texts, tmp_path, **{name: now})
        assert error.why == f"{name} is {was} there, {now} here."
    for some in ([texts[1], texts[0], *texts[2:]], texts[:-1]):
        refused("documents is", some, tmp_path)
    assert finished(tmp_path).keys() == {shard.name for shard in written.shards}
    assert write(texts, tmp_path) == records.verify(tmp_path)
    assert contents(tmp_path) == contents(written.path)


def test_a_bucket_holds_the_same_bytes_and_is_read(texts, written):
    with storage.embedded_gcs() as bucket:
        path = f"{bucket.url}/records"
        manifest = write(texts, path)
        assert (manifest.settings, manifest.shards) == (written.settings, written.shards)
        here, there = (batches(at, 3, start_step=4) for at in (written.path, path))
        assert rows_of(there) == rows_of(here)
        refused("other settings", texts, path, shards=4)
        assert write(texts, path) == records.verify(path) == manifest
        nowhere = "gs://course-no-such-bucket/records"
        refused("bucket", texts, nowhere, error=files.CantWrite)
