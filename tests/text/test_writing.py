"""Writing: the examples that TensorFlow would write, the same bytes in any parts."""

import collections
import json
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from plain import (
    TOKENIZER,
    batches,
    changed,
    contents,
    copied,
    finished,
    plain,
    refused,
    rows_of,
    write,
)

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.text import cleaning, prepare, records, sources
from helpers.text.records import encoder, format
from helpers.text.records.plan import Listed
from helpers.text.records.writing import shards, sorting
from helpers.tpu import storage

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("length", [16, 64, 300])
def test_sequences_are_hugging_faces(texts, hugging_face, tmp_path, length):
    options = {"truncation": True, "max_length": length, "return_overflowing_tokens": True}
    wanted = hugging_face(texts, **options)["input_ids"]
    manifest = records.write(texts, tmp_path, hugging_face, sequence_length=length, shards=3)
    rows = plain(manifest)
    found = []
    names = ("input_ids", "attention_mask", "position_ids")
    for ids, segments, positions in zip(*map(rows.get, names), strict=True):
        assert not positions[segments == 0].any()
        for number in range(1, segments.max() + 1):
            found.append(ids[segments == number].tolist())
            assert positions[segments == number].tolist() == list(range(len(found[-1])))
    assert sorted(found) == sorted(wanted)
    assert manifest.sequences == len(wanted)
    assert manifest.tokens == sum(map(len, wanted)) == (rows["attention_mask"] > 0).sum()
    assert manifest.rows == len(rows["input_ids"])
    assert rows["input_ids"][rows["attention_mask"] == 0].max(initial=0) == 0
    assert (manifest.complete and "of 300" in repr(manifest)) or length != 300


def test_a_record_is_the_example_that_tensorflow_would_write(written):
    rows = plain(written)
    record = next(iter(tf.data.TFRecordDataset(f"{written.path}/{written.shards[0].name}")))
    wanted = tf.train.Example()
    for name, kind in written.features.items():
        numbers = rows[name][0].astype(kind)
        wanted.features.feature[name].bytes_list.value.append(numbers.tobytes())
    assert tf.train.Example.FromString(record.numpy()) == wanted
    assert written.record_bytes == len(record.numpy()) + 16


def test_a_large_vocabulary_needs_four_bytes(tmp_path):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(4, 70_000))]
    tokenizer = tokenizers.BertWordPieceTokenizer({token: at for at, token in enumerate(tokens)})
    manifest = records.write(["w69999 w5", "w66000"], tmp_path, tokenizer, shards=1)
    assert manifest.features["input_ids"] == "int32"
    ids = {tuple(row[row > 0].tolist()) for row in plain(manifest)["input_ids"]}
    assert ids == {(2, 69999, 5, 3, 2, 66000, 3)}
    batch = next(iter(records.dataset(tmp_path, global_batch_size=1, seed=0)))
    np.testing.assert_array_equal(batch["input_ids"], plain(manifest)["input_ids"])


def test_the_order_is_a_permutation_and_depends_on_the_seed():
    one, two = format.shuffled(1000, 0), format.shuffled(1000, 1)
    assert sorted(one) == sorted(two) == list(range(1000))
    assert np.mean(one == two) < 0.01 and np.mean(one == np.arange(1000)) < 0.01
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.15
    # Known by hand: it must never change, or resumed runs would mix two orders.
    assert format.shuffled(8, 0).tolist() == [2, 4, 6, 5, 1, 7, 0, 3]


def files_of(texts, tmp_path, order=1):
    """Four files, as sources to write, in any order."""
    tmp_path.mkdir()
    for name, start, end in (("a", 0, 250), ("b", 250, 300), ("c", 300, 350), ("d", 350, None)):
        (tmp_path / name).write_text("\n".join(texts[start:end]), "utf-8")
    found = sources.find([str(tmp_path / name) for name in "abcd"])
    return [cleaning.Cleaned(source) for source in found][::order]


def write_files(texts, tmp_path, order=1, workers=1, **options):
    options = {"sequence_length": 64, "shards": 5, "seed": 0} | options
    plan = prepare.plan_of(str(tmp_path / "out"), TOKENIZER, **options)
    counts, found = collections.Counter(), files_of(texts, tmp_path, order)
    made, _ = records.write_all(
        found,
        plan,
        workers,
        lambda what, number: counts.update({what: number}),
    )
    size = sum(cleaned.source.size for cleaned in found)
    assert counts == {"read": size, "found": len(texts), "written": len(texts)}
    return made


@pytest.mark.parametrize("pairs", [False, True])
def test_the_bytes_are_the_same_in_any_order_of_the_files_and_with_any_number_of_processes(
    texts, tmp_path, monkeypatch, pairs
):
    options = {"pairs": pairs, "shards": 4}
    wanted = write_files(texts, tmp_path / "one", **options)
    assert [made.complete for made in wanted] == [True, True]
    assert wanted[1].documents == len(texts) // 10
    write_files(texts, tmp_path / "order", -1, **options)
    for workers in (2, 4):
        write_files(texts, tmp_path / str(workers), workers=workers, **options)
    monkeypatch.setattr(sorting, "RUN_BYTES", 5_000)  # many runs on the disk
    monkeypatch.setattr(sorting, "BLOCK", 100)
    write_files(texts, tmp_path / "runs", **options)
    for name in ("order", "2", "4", "runs"):
        assert contents(tmp_path / name / "out") == contents(tmp_path / "one" / "out")
    other = write_files(texts[:250] + texts[:249:-1], tmp_path / "other", **options)
    assert other[0].shards != wanted[0].shards


def test_a_shard_of_several_windows_holds_every_document(texts, tmp_path, monkeypatch):
    whole = write(texts, tmp_path / "whole", shards=1)
    monkeypatch.setattr(shards, "WINDOW", 5_000)
    some = write(texts, tmp_path / "some", shards=1)
    assert (some.sequences, some.tokens) == (whole.sequences, whole.tokens)
    assert 0 < some.rows - whole.rows < 0.03 * whole.rows
    assert records.verify(tmp_path / "some") == some


class Drawn:
    """Texts that are nowhere in memory."""

    def __init__(self, count):
        self._count = count

    def __iter__(self):
        return (f"문서 {at} 는 {at * 7919 % 10007} 의 {at * 31} " * 5 for at in range(self._count))


def test_memory_does_not_grow_with_the_text(tmp_path, monkeypatch):
    bounds = ((sorting, "RUN_BYTES", 200_000), (shards, "WINDOW", 50_000), (shards, "CHUNK", 100))
    for module, name, value in (*bounds, (encoder, "CACHED_WORDS", 1_000)):
        monkeypatch.setattr(module, name, value)
    peaks = []
    for count in (500, 2_000, 12_000):  # the first brings the imports
        tracemalloc.start()
        records.write(Drawn(count), tmp_path / str(count), TOKENIZER, shards=2)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.5 * peaks[1] < 6e6


def test_an_error_in_another_process_is_the_same_error(tmp_path):
    with pytest.raises(CourseError, match=r"document ' .x07' has no token") as caught:
        records.write(["a", "b", "c", " \x07"], tmp_path, TOKENIZER, shards=2, workers=2)
    assert "corpus.documents" in caught.value.fix


def test_finished_shards_are_kept(texts, written, tmp_path):
    before = finished(copied(written, tmp_path))
    lost = [shard.name for shard in written.shards[2:4]]
    (tmp_path / lost[0]).unlink()
    (tmp_path / lost[1].replace(".tfrecord", ".json")).unlink()
    (tmp_path / f".{lost[0]}.left").write_bytes(b"of a killed run")
    write(texts, tmp_path)
    assert contents(tmp_path) == contents(written.path)
    assert sorted(name for name, _ in before.items() - finished(tmp_path).items()) == lost


@pytest.mark.parametrize(
    ("texts", "options", "words"),
    [
        ([], {}, "There are no documents"),
        (["a", ""], {"shards": 1}, "document '' has no token"),
        (["a " * 25_000_000], {"shards": 1}, r"Document 0 has 50,000,000(.|\n)*line ends are"),
    ],
)
def test_what_cant_be_written_is_refused(tmp_path, texts, options, words):
    refused(words, texts, tmp_path, **options)
    assert {path.name for path in tmp_path.iterdir()} <= {records.TOKENIZER}


def test_records_of_another_run_are_refused_and_kept(texts, written, tmp_path):
    copied(written, tmp_path)
    other = changed(lambda t: t.add_tokens(["새로운"]))
    error = refused("another tokenizer", texts, tmp_path, other, error=records.OtherTokenizer)
    assert written.settings.tokenizer_sha256[:12] in error.why
    for some, options, why in (
        (texts, {"seed": 3}, "seed is 0 there, 3 here."),
        (texts, {"pairs": True}, "pairs is False there, True here."),
    ):
        error = refused("other settings", some, tmp_path, error=records.OtherSettings, **options)
        assert error.why == why
    for some in ([texts[1], texts[0], *texts[2:]], texts[:-1]):
        refused("made of other documents", some, tmp_path)
    assert contents(tmp_path) == contents(written.path)


def test_a_shard_of_other_settings_is_refused_before_there_is_a_manifest(texts, tmp_path):
    write(texts, tmp_path)
    (tmp_path / records.MANIFEST).unlink()
    for options, words in (
        ({"sequence_length": 32}, "sequence_length is 64 there, 32 here"),
        ({"shards": 4}, "shards is 5 there, 4 here"),
    ):
        refused(words, texts, tmp_path, error=records.OtherSettings, **options)


def as_format_1(folder):
    """Change the descriptions to what was written before the documents' places counted."""
    for path in folder.glob("*.json"):
        content = json.loads(path.read_text())
        if "settings" in content:
            content["format"], content["settings"]["documents"] = 1, 600
            for shard in content.get("shards") or [content["shard"]]:
                del shard["text"]
                shard["text_crc32c"] = "0a1b2c3d"
            path.write_text(json.dumps(content))


def test_records_of_format_1_are_read_and_kept_and_not_mixed_with_others(texts, written, tmp_path):
    as_format_1(copied(written, tmp_path))
    before = contents(tmp_path)
    old = records.verify(tmp_path)
    assert old.settings == written.settings and old.fingerprint == written.fingerprint
    assert rows_of(batches(tmp_path, 2)) == rows_of(batches(written.path, 2))
    assert write(texts, tmp_path).shards == old.shards
    assert contents(tmp_path) == before
    (tmp_path / written.shards[2].name).unlink()
    refused("of an earlier version", texts, tmp_path)


def test_fewer_documents_than_shards_leave_empty_shards(tmp_path):
    manifest = write(["하나", "둘"], tmp_path, shards=9)
    assert manifest.complete and manifest.rows <= 2 and manifest.documents == 2
    assert records.verify(tmp_path) == manifest
    assert len(plain(manifest)["input_ids"]) == manifest.rows


def test_another_tokenizer_beside_the_records_is_refused(texts, written, tmp_path):
    beside = copied(written, tmp_path) / records.TOKENIZER
    other = changed(lambda t: t.add_tokens(["새로운"])).to_str()
    for content, error, words in (
        (other, records.OtherTokenizer, "another tokenizer"),
        ("{}", CourseError, "can't be read"),
    ):
        beside.write_text(content)
        refused(words, texts, tmp_path, error=error)
        with pytest.raises(error, match=words):
            records.tokenizer_of(records.manifest(tmp_path))
        assert beside.read_text() == content
    beside.write_text(TOKENIZER.read_text())  # the same one, not as `write` writes it
    assert write(texts, tmp_path).complete
    beside.unlink()
    with pytest.raises(CourseError, match=r"has no tokenizer\.json"):
        records.tokenizer_of(records.manifest(tmp_path))


def test_records_know_the_documents_they_were_made_of(texts, written):
    for some in (texts, texts[:-1], [*texts[:-1], texts[0]]):
        assert records.made_of(written, [Listed(some)], held_out=False) is (some is texts)


def test_one_is_told_as_one(tmp_path):
    told = repr(write(["하나"], tmp_path, shards=1))
    assert told == "1 document in 1 row of 64, 4.7% tokens; 1 shard, 0.0 MB"


def test_a_bucket_holds_the_same_bytes_and_is_read(texts, written):
    with storage.embedded_gcs() as bucket:
        path = f"{bucket.url}/records"
        manifest = write(texts, path)
        assert (manifest.settings, manifest.shards) == (written.settings, written.shards)
        assert records.verify(path).rows == written.rows
        here, there = (batches(at, 3, start_step=4) for at in (written.path, path))
        assert rows_of(there) == rows_of(here)
        refused("other settings", texts, path, shards=4, error=records.OtherSettings)
        nowhere = "gs://course-no-such-bucket/records"
        refused("could not be written to the bucket", texts, nowhere, error=files.CantWrite)
