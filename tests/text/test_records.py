"""Records against TensorFlow's own reader and Hugging Face's own ids; kills, parts, damages."""

import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conventions import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import runtime
from helpers.base import files
from helpers.base.errors import CourseError
from helpers.text import corpus, prepare, records
from helpers.text.records import encoder, format, reading

runtime.setup()

import tensorflow as tf  # noqa: E402
import tokenizers  # noqa: E402

TOKENIZER = corpus.kept_tokenizer()


@pytest.fixture(scope="module")
def hugging_face():
    return corpus.load_tokenizer()


@pytest.fixture(scope="module")
def texts():
    lines = [corpus.read(pathlib.Path(path)) for path in corpus.shipped().values()]
    return [text for pair in zip(*lines, strict=True) for text in pair][:600]


@pytest.fixture(scope="module")
def written(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    return records.write(texts, folder, TOKENIZER, sequence_length=64, shards=5)


def contents(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in pathlib.Path(folder).iterdir()
    }


def plain(manifest):
    """Read with tf.data and tf.io.parse_example alone, checksums on, as anyone can."""
    paths = [f"{manifest.path}/{shard.name}" for shard in manifest.shards]
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in manifest.features}
    raw = tf.io.parse_example(list(tf.data.TFRecordDataset(paths)), spec)
    return {
        name: tf.io.decode_raw(raw[name], tf.as_dtype(kind)).numpy()
        for name, kind in manifest.features.items()
    }


# What is written


def test_importing_records_and_prepare_imports_no_tensorflow():
    code = (
        "import sys, helpers.text.prepare, helpers.text.records;"
        "sys.exit('tensorflow' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


@pytest.mark.parametrize("length", [16, 64, 300])
def test_sequences_are_hugging_faces(texts, hugging_face, tmp_path, length):
    options = {"truncation": True, "max_length": length, "return_overflowing_tokens": True}
    wanted = hugging_face(texts, **options)["input_ids"]
    manifest = records.write(texts, tmp_path, hugging_face, sequence_length=length, shards=3)
    rows = plain(manifest)
    found = [
        ids[segments == number].tolist()
        for ids, segments in zip(rows["input_ids"], rows["attention_mask"], strict=True)
        for number in range(1, segments.max() + 1)
    ]
    assert sorted(found) == sorted(wanted)
    assert manifest.sequences == len(wanted)
    assert manifest.tokens == sum(map(len, wanted)) == (rows["attention_mask"] > 0).sum()
    assert manifest.rows == len(rows["input_ids"])
    assert rows["input_ids"][rows["attention_mask"] == 0].max(initial=0) == 0
    assert (manifest.complete and "of 300" in repr(manifest)) or length != 300


def test_positions_count_from_0_in_each_sequence(written):
    rows = plain(written)
    for segments, positions in zip(rows["attention_mask"], rows["position_ids"], strict=True):
        for number in range(1, segments.max() + 1):
            found = positions[segments == number]
            assert found.tolist() == list(range(len(found)))
        assert not positions[segments == 0].any()


def test_a_record_is_the_example_that_tensorflow_would_write(written):
    rows = plain(written)
    record = next(iter(tf.data.TFRecordDataset(f"{written.path}/{written.shards[0].name}")))
    wanted = tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(
                    bytes_list=tf.train.BytesList(value=[rows[name][0].astype(kind).tobytes()])
                )
                for name, kind in written.features.items()
            }
        )
    )
    assert tf.train.Example.FromString(record.numpy()) == wanted
    assert written.record_bytes == len(record.numpy()) + 16


def test_a_large_vocabulary_needs_four_bytes(tmp_path):
    vocabulary = {token: at for at, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])}
    vocabulary |= {f"w{number}": number for number in range(4, 70_000)}
    tokenizer = tokenizers.BertWordPieceTokenizer(vocabulary)
    manifest = records.write(["w69999 w5", "w66000"], tmp_path, tokenizer, shards=1)
    assert manifest.features["input_ids"] == "int32"
    ids = {tuple(row[row > 0].tolist()) for row in plain(manifest)["input_ids"]}
    assert ids == {(2, 69999, 5, 3, 2, 66000, 3)}
    batch = next(iter(records.dataset(tmp_path, global_batch_size=1, seed=0)))
    np.testing.assert_array_equal(batch["input_ids"], plain(manifest)["input_ids"])


# The same ids, word by word


CHARACTERS = st.one_of(
    st.sampled_from(" \t\n\x0b\x1c\x1f\x85\xa0\u2028\u3000\u200b\xad\ufeff\x00\x07\ufffd"),
    st.sampled_from("가각힣ㄱㅏ\u1100\u1161漢字éÉßİΣςabcXYZ019.,-_[]()#'\"…“”½²①"),
    st.characters(blacklist_categories=["Cs"]),
)
PIECES = st.one_of(
    st.text(CHARACTERS, max_size=20),
    st.sampled_from(
        ["[MASK]", "[SEP]", "[CLS]", "[UNK]", "[SEP", "SEP]", "a[SEP]b", " ", "a" * 120]
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=8).map("".join), min_size=1, max_size=6))
def test_words_give_the_ids_of_the_text(some):
    for options in (
        {},
        {"lowercase": True, "strip_accents": True},
        {"handle_chinese_chars": False},
    ):
        encode = ENCODERS[json.dumps(options)]
        assert encode.caches
        whole = encode.backend.encode_batch(some, add_special_tokens=False)
        for _ in range(2):
            found = [np.frombuffer(ids, encode.type).tolist() for ids in encode(some)]
            assert found == [encoding.ids for encoding in whole]


def encoder_of(**options):
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        **({"lowercase": False, "strip_accents": False} | options)
    )
    return records.Encoder(tokenizer)


ENCODERS = {
    json.dumps(options): encoder_of(**options)
    for options in (
        {},
        {"lowercase": True, "strip_accents": True},
        {"handle_chinese_chars": False},
    )
}


def changed(change):
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
    change(tokenizer)
    return tokenizer


@pytest.mark.parametrize(
    "change",
    [
        lambda t: setattr(t, "normalizer", tokenizers.normalizers.NFKC()),
        lambda t: setattr(t, "pre_tokenizer", tokenizers.pre_tokenizers.Metaspace()),
        lambda t: t.add_tokens(["two words"]),
        lambda t: t.add_tokens([tokenizers.AddedToken("ab", single_word=True)]),
        lambda t: t.add_tokens(["x[SEP]"]),
        lambda t: t.add_tokens(["x["]),
    ],
)
def test_where_words_could_differ_whole_texts_are_encoded(change):
    tokenizer = changed(change)
    encode = records.Encoder(tokenizer)
    assert not encode.caches
    some = ["two words, ab abc x[ x[SEP] y", "가나 다"]
    found = [np.frombuffer(ids, encode.type).tolist() for ids in encode(some)]
    assert found == [tokenizer.encode(text, add_special_tokens=False).ids for text in some]


def test_the_memory_for_words_is_bounded(monkeypatch):
    monkeypatch.setattr(encoder, "CACHED_WORDS", 10)
    encode = encoder_of()
    for start in range(0, 200, 8):
        some = [f"단어{number} {'a' * 70}{number}" for number in range(start, start + 8)]
        assert encode(some) == encoder_of()(some)
        assert len(encode._ids) <= 18
        assert max(map(len, encode._ids)) <= encoder.CACHED_LENGTH


def test_a_tokenizer_that_pads_and_truncates_is_used_without(tmp_path, texts, written):
    tokenizer = corpus.load_tokenizer()
    tokenizer(texts[:2], padding="max_length", truncation=True, max_length=8)
    again = records.write(texts, tmp_path, tokenizer, sequence_length=64, shards=5)
    assert contents(tmp_path) == contents(written.path)
    assert again.settings.tokenizer_sha256 == records.fingerprint(TOKENIZER)
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 8


# Parts, workers, kills: always the same bytes


def test_the_order_is_a_permutation_and_depends_on_the_seed():
    one, two = format.shuffled(1000, 0), format.shuffled(1000, 1)
    assert sorted(one) == sorted(two) == list(range(1000))
    assert np.mean(one == two) < 0.01 and np.mean(one == np.arange(1000)) < 0.01
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.15
    # Known by hand: it must never change, or resumed runs would mix two orders.
    assert format.shuffled(8, 0).tolist() == [2, 4, 6, 5, 1, 7, 0, 3]


@pytest.mark.parametrize("parts", [2, 5])
def test_parts_in_any_order_give_the_same_bytes(texts, written, tmp_path, parts):
    for number in random.Random(parts).sample(range(1, parts + 1), parts):
        assert not (tmp_path / records.MANIFEST).exists()
        manifest = records.write(
            texts, tmp_path, TOKENIZER, sequence_length=64, shards=5, part=(number, parts)
        )
    assert contents(tmp_path) == contents(written.path)
    assert manifest.complete and dataclass_equal(manifest, written)


def dataclass_equal(one, two):
    return (one.settings, one.shards) == (two.settings, two.shards)


def test_processes_side_by_side_give_the_same_bytes(texts, written, tmp_path):
    counts = []
    records.write(
        texts, tmp_path, TOKENIZER, sequence_length=64, shards=5, workers=2, done=counts.append
    )
    assert contents(tmp_path) == contents(written.path)
    assert sum(counts) == len(texts)


def test_an_error_in_another_process_is_the_same_error(tmp_path):
    with pytest.raises(CourseError, match="Document 3 has no token") as caught:
        records.write(["a", "b", "c", " \x07"], tmp_path, TOKENIZER, shards=2, workers=2)
    assert "corpus.documents" in caught.value.fix


def test_finished_shards_are_kept(texts, written, tmp_path):
    shutil.copytree(written.path, tmp_path, dirs_exist_ok=True)
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    (tmp_path / written.shards[2].name).unlink()
    (tmp_path / written.shards[3].name.replace(".tfrecord", ".json")).unlink()
    (tmp_path / f".{written.shards[2].name}.left").write_bytes(b"of a killed run")
    records.write(texts, tmp_path, TOKENIZER, sequence_length=64, shards=5)
    assert contents(tmp_path) == contents(written.path)
    kept = {n for n, t in times.items() if (tmp_path / n).stat().st_mtime_ns == t}
    assert {shard.name for shard in written.shards} - kept == {
        written.shards[2].name,
        written.shards[3].name,
    }


# A process that writes the shipped text, and kills itself at the n-th of its system calls that
# open, write, sync or rename a file: kills fall where they hurt, however fast the machine is.
CHILD = """
import os, pathlib, signal, sys
from helpers.text import prepare
left = int(sys.argv[2])
def counted(call):
    def counting(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return counting
os.fsync = counted(os.fsync)
pathlib.Path.replace = counted(pathlib.Path.replace)
pathlib.Path.chmod = counted(pathlib.Path.chmod)
pathlib.Path.read_bytes = counted(pathlib.Path.read_bytes)
for line in prepare.prepare(sys.argv[1], texts=None, tokenizer=None, sequence_length=64, shards=6,
                            part="1/1", workers=1, seed=0):
    pass
"""


def child(output, calls):
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(output), str(calls)], cwd=ROOT, stderr=subprocess.PIPE
    )


def check_kept(folder, before):
    """Finished shards of the killed run are untouched."""
    for name, (digest, time_) in before.items():
        path = folder / name
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
        assert path.stat().st_mtime_ns == time_


def finished(folder):
    return {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.glob("shard-*.tfrecord")
        if path.with_suffix(".json").exists()
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    start = time.perf_counter()
    run = child(folder, -1)
    assert run.wait() == 0, run.stderr.read()
    return folder, time.perf_counter() - start


def tree(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("number", range(20))
def test_killed_at_a_random_moment_and_run_again_gives_the_same_bytes(
    undisturbed, tmp_path, number
):
    wanted, seconds = undisturbed
    draw = random.Random(number)
    if number % 2:  # by the clock
        run = child(tmp_path, -1)
        time.sleep(draw.uniform(0.3, 1.0) * seconds)
        run.kill()
    else:  # by the call
        run = child(tmp_path, draw.randint(2, 60))
    run.communicate()
    before = finished(tmp_path)
    for path in tmp_path.glob("shard-*.tfrecord"):  # whole or absent, described or not
        assert path.read_bytes() == (wanted / path.name).read_bytes()
    again = child(tmp_path, -1)
    assert again.wait() == 0, again.stderr.read()
    again.stderr.close()
    check_kept(tmp_path, before)
    assert tree(tmp_path) == tree(wanted)


def test_workers_end_with_the_process_that_was_killed(tmp_path, texts):
    script = (
        "import sys, pathlib\n"
        "from helpers.text import corpus, records\n"
        "if __name__ == '__main__':\n"
        "    texts = pathlib.Path(sys.argv[2]).read_text('utf-8').split('\\n')\n"
        "    tokenizer = corpus.kept_tokenizer()\n"
        "    records.write(texts * 300, sys.argv[1], tokenizer, shards=6, workers=2)\n"
    )
    (tmp_path / "run.py").write_text(script)
    (tmp_path / "texts").write_text("\n".join(texts))
    run = subprocess.Popen(
        [sys.executable, tmp_path / "run.py", tmp_path / "out", tmp_path / "texts"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children")
    workers = []
    while len(workers) < 3:  # two workers and Python's resource tracker
        assert run.poll() is None
        workers = children.read_text().split()
        time.sleep(0.02)
    run.kill()
    run.wait()
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.05)


def alive(pid):
    try:
        return "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0]
    except FileNotFoundError:
        return False


# Errors: one each, and nothing lost


def refused(error, words, *arguments, **options):
    with pytest.raises(error, match=words) as caught:
        records.write(*arguments, **options)
    assert caught.value.fix
    return caught.value


def test_numbers_that_cant_be_are_refused(tmp_path):
    refused(CourseError, "no documents", [], tmp_path, TOKENIZER)
    some = ["하나", "둘", "셋"]
    refused(CourseError, "is 2", some, tmp_path, TOKENIZER, shards=1, sequence_length=2)
    for shards in (0, 4):
        refused(
            CourseError,
            f"{shards} shards for 3",
            some,
            tmp_path,
            TOKENIZER,
            shards=shards,
        )
    for part in ((0, 2), (3, 2), (1, 4)):
        refused(CourseError, "Part", some, tmp_path, TOKENIZER, shards=3, part=part)
    assert not list(tmp_path.iterdir())


def test_documents_that_cant_be_are_refused(tmp_path, monkeypatch):
    refused(CourseError, "Document 1 has", ["a", ""], tmp_path, TOKENIZER, shards=1)
    huge = "a " * 25_000_000  # a line of 50 MB
    error = refused(CourseError, "Document 0 has 50,000,000", [huge], tmp_path, TOKENIZER, shards=1)
    assert "line ends" in error.why


def test_tokenizers_that_cant_be_are_refused(tmp_path):
    some = ["하나"]
    missing = tmp_path / "none.json"
    refused(CourseError, "none.json is not there", some, tmp_path, missing, shards=1)
    broken = tmp_path / "broken.json"
    broken.write_bytes(TOKENIZER.read_bytes()[:5000])
    refused(CourseError, "broken.json can't be read", some, tmp_path, broken, shards=1)
    refused(CourseError, "int is no tokenizer", some, tmp_path, 3, shards=1)
    bare = changed(lambda t: setattr(t, "post_processor", None))
    bare = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    refused(CourseError, "0 special tokens", some, tmp_path, bare, shards=1)


def test_records_of_another_run_are_refused_and_kept(texts, written, tmp_path):
    shutil.copytree(written.path, tmp_path, dirs_exist_ok=True)
    same = {"sequence_length": 64, "shards": 5}
    other = changed(lambda t: t.add_tokens(["새로운"]))
    error = refused(records.OtherTokenizer, "another tokenizer", texts, tmp_path, other, **same)
    assert written.settings.tokenizer_sha256[:12] in error.why
    error = refused(
        records.OtherSettings, "other settings", texts, tmp_path, TOKENIZER, **same | {"seed": 3}
    )
    assert error.why == "seed is 0 there, 3 here."
    error = refused(records.OtherSettings, "settings", texts[:-1], tmp_path, TOKENIZER, **same)
    assert error.why == "documents is 600 there, 599 here."
    swapped = [texts[1], texts[0], *texts[2:]]
    refused(CourseError, "of other documents", swapped, tmp_path, TOKENIZER, **same)
    assert contents(tmp_path) == contents(written.path)


def test_a_part_of_other_settings_is_refused_before_there_is_a_manifest(texts, tmp_path):
    records.write(texts, tmp_path, TOKENIZER, sequence_length=64, shards=4, part=(1, 2))
    refused(
        records.OtherSettings, "64 there, 32 here", texts, tmp_path, TOKENIZER,
        sequence_length=32, shards=4, part=(2, 2),
    )  # fmt: skip


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_shard_is_told_by_every_reader(texts, written, tmp_path, damage):
    shutil.copytree(written.path, tmp_path, dirs_exist_ok=True)
    path = tmp_path / written.shards[1].name
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        data = data[:-100]
    else:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)
    words = {"truncated": r"bytes; .* were written", "flipped": "checksum"}[damage]
    with pytest.raises(records.ShardDamaged, match=words) as caught:
        records.verify(tmp_path)
    assert path.name in caught.value.what
    refused(records.ShardDamaged, words, texts, tmp_path, TOKENIZER, sequence_length=64, shards=5)
    if damage == "truncated":
        with pytest.raises(records.ShardDamaged, match=words):
            records.dataset(tmp_path, global_batch_size=4, seed=0)
    else:
        with pytest.raises(tf.errors.DataLossError, match="corrupted record"):
            for _ in records.dataset(tmp_path, global_batch_size=4, seed=0).take(60):
                pass
    path.unlink()  # as the message says
    records.write(texts, tmp_path, TOKENIZER, sequence_length=64, shards=5)
    assert contents(tmp_path) == contents(written.path)


def test_what_is_missing_is_told(written, tmp_path):
    with pytest.raises(CourseError, match="no finished records"):
        records.manifest(tmp_path)
    shutil.copytree(written.path, tmp_path, dirs_exist_ok=True)
    (tmp_path / written.shards[0].name).unlink()
    for read in (records.verify, lambda p: records.dataset(p, global_batch_size=4, seed=0)):
        with pytest.raises(CourseError, match=written.shards[0].name):
            read(tmp_path)


@pytest.mark.parametrize(
    "change", [lambda m: m[:-50], lambda m: m.replace(b'"format": 1', b'"format": 9')]
)
def test_a_damaged_manifest_is_told(written, tmp_path, change):
    shutil.copytree(written.path, tmp_path, dirs_exist_ok=True)
    path = tmp_path / records.MANIFEST
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CourseError, match="can't be understood"):
        records.manifest(tmp_path)


FULL = """
import resource, signal, sys, pathlib
from helpers.text import corpus, records
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))  # room for the tokenizer
texts = corpus.read(corpus.DATA / "ko.txt")
try:
    records.write(texts, sys.argv[1], corpus.kept_tokenizer(), shards=2)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_write_that_fails_is_told_and_leaves_nothing_half(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert run.stdout.startswith("CantWrite shard-00000-of-00002.tfrecord could not be written")
    assert "File too large" in run.stdout
    assert [path.name for path in tmp_path.iterdir()] == [records.TOKENIZER]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_is_told_and_the_run_goes_on_with_more_room(tmp_path, texts, written):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        refused(
            files.CantWrite, "disk is full", texts, disk, TOKENIZER, sequence_length=64, shards=5
        )
        kept = finished(disk)
        assert kept
        subprocess.run(["mount", "-o", "remount,size=2m", str(disk)], check=True)
        records.write(texts, disk, TOKENIZER, sequence_length=64, shards=5)
        check_kept(disk, kept)
        assert contents(disk) == contents(written.path)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_every_full_disk_is_told_alike(tmp_path, texts, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    error = refused(files.CantWrite, "disk is full", texts, tmp_path, TOKENIZER, shards=2)
    assert "nothing already written is lost" in error.fix
    assert not list(tmp_path.iterdir())


# Reading


def batches(path, count, **options):
    options = {"global_batch_size": 8, "seed": 0} | options
    return [
        {name: values.numpy() for name, values in batch.items()}
        for batch in records.dataset(path, **options).take(count)
    ]


def rows_of(some):
    return [
        tuple(np.concatenate([batch[name][at] for name in sorted(batch)]).tolist())
        for batch in some
        for at in range(len(batch["input_ids"]))
    ]


def test_an_epoch_has_every_row_once_in_another_order_each_time(written):
    steps = written.rows // 8
    everything = rows_of([plain(written)])
    found = rows_of(batches(written.path, 2 * steps))
    first, second = found[: steps * 8], found[steps * 8 :]
    assert len(set(first)) == len(set(second)) == steps * 8
    assert set(first) <= set(everything) and set(second) <= set(everything)
    assert first != second and first != everything[: steps * 8]
    assert rows_of(batches(written.path, steps, seed=1)) != first


def test_batches_are_static_and_int32(written):
    spec = records.dataset(written.path, global_batch_size=8, seed=0).element_spec
    assert spec == {
        name: tf.TensorSpec([8, 64], tf.int32)
        for name in ("input_ids", "attention_mask", "position_ids")
    }


@pytest.mark.parametrize("small", [False, True])
def test_a_later_start_gives_the_undisturbed_runs_batches(written, monkeypatch, small):
    if small:  # many blocks and pools, the last ones partial
        monkeypatch.setattr(reading, "BLOCK_BYTES", 3 * written.record_bytes)
        monkeypatch.setattr(reading, "POOL_BLOCKS", 4)
    steps = written.rows // 8
    whole = batches(written.path, 3 * steps)
    assert len(set(rows_of(whole[:steps]))) == steps * 8
    for start in (1, 2, steps - 1, steps, steps + 1, 2 * steps + 5, 3 * steps - 1):
        some = batches(written.path, min(2, 3 * steps - start), start_step=start)
        assert rows_of(some) == rows_of(whole[start : start + 2])


def test_the_order_doesnt_depend_on_tensorflows_own_seed(written):
    tf.random.set_seed(1)
    one = rows_of(batches(written.path, 3))
    tf.random.set_seed(2)
    assert rows_of(batches(written.path, 3)) == one


def test_machines_share_each_global_batch(written):
    whole = batches(written.path, 4, start_step=3)
    shares = [
        batches(
            written.path,
            4,
            start_step=3,
            input_context=tf.distribute.InputContext(
                num_input_pipelines=4, input_pipeline_id=machine, num_replicas_in_sync=8
            ),
        )
        for machine in range(4)
    ]
    for step, batch in enumerate(whole):
        joined = [rows_of([share[step]]) for share in shares]
        assert [row for rows in joined for row in rows] == rows_of([batch])
    with pytest.raises(CourseError, match="8 for 3 machines"):
        records.dataset(
            written.path,
            global_batch_size=8,
            seed=0,
            input_context=tf.distribute.InputContext(num_input_pipelines=3),
        )


def test_too_large_a_batch_is_refused(written):
    with pytest.raises(CourseError, match="fewer than one batch of 9,999"):
        records.dataset(written.path, global_batch_size=9_999, seed=0)


# Pairs: the paper's next sentence prediction


def pairs_of(manifest):
    """Take the rows apart by [CLS] and [SEP] alone: (A, B, whether B is a random next)."""
    tokenizer = tokenizers.Tokenizer.from_file(f"{manifest.path}/{records.TOKENIZER}")
    cls, sep = map(tokenizer.token_to_id, ("[CLS]", "[SEP]"))
    rows, found = plain(manifest), []
    for ids, segments, types, random_next in zip(
        *(rows[n] for n in ("input_ids", "attention_mask", "token_type_ids", "random_next")),
        strict=True,
    ):
        assert not types[segments == 0].any() and not random_next[segments == 0].any()
        for number in range(1, segments.max() + 1):
            here = segments == number
            sequence = ids[here].tolist()
            middle = sequence.index(sep)
            assert sequence[0] == cls and sequence[-1] == sep and sequence.count(sep) == 2
            first, second = sequence[1:middle], sequence[middle + 1 : -1]
            assert first and second and max(len(first), len(second)) <= (len(ids) - 3) // 2
            assert types[here].tolist() == [0] * (middle + 1) + [1] * (len(second) + 1)
            assert not random_next[here][1:].any()
            found.append((tuple(first), tuple(second), bool(random_next[here][0])))
    return found


@pytest.fixture(scope="module")
def paired(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("paired")
    return records.write(texts, folder, TOKENIZER, sequence_length=64, shards=2, pairs=True)


def follows(first, second, documents):
    """Look through all documents for A with B behind it."""
    both = first + second
    return any(
        document[at : at + len(both)] == both
        for document in documents
        for at in range(len(document) - len(both) + 1)
    )


def test_b_follows_a_in_one_half_of_the_pairs_and_in_no_document_in_the_other(
    texts, hugging_face, paired
):
    documents = [tuple(ids[1:-1]) for ids in hugging_face(texts)["input_ids"]]
    found = pairs_of(paired)
    random_nexts = sum(random_next for *_, random_next in found)
    assert abs(random_nexts / len(found) - 0.5) < 0.01
    starts = {token for token in range(3000) if not hugging_face.decode(token).startswith("##")}
    cut_inside = 0
    for first, second, random_next in found:
        assert follows(first, second, documents) is not random_next
        cut_inside += second[0] not in starts
    assert cut_inside < 0.02 * len(found)
    # The lengths don't tell: the distributions of the difference are as near as chance has them.
    more = [
        np.sort([len(a) - len(b) for a, b, random_next in found if random_next is which])
        for which in (False, True)
    ]
    at = np.unique(np.concatenate(more))
    below = [np.searchsorted(some, at, side="right") / len(some) for some in more]
    assert np.abs(below[0] - below[1]).max() < 1.36 * (2 / min(map(len, more))) ** 0.5
    # Nothing is lost and nothing is seen twice; a document of one token can't be cut.
    kept = [document for document in documents if len(document) > 1]
    assert sorted(t for a, b, _ in found for t in a + b) == sorted(t for d in kept for t in d)
    assert paired.sequences == len(found)
    assert paired.tokens == sum(map(len, kept)) + 3 * len(found)


def test_a_random_next_is_of_another_document_of_any_kind(paired, texts, hugging_face):
    """The halves of each document's pairs, counted by hand: partners spread over all documents."""
    documents = [tuple(ids[1:-1]) for ids in hugging_face(texts)["input_ids"]]
    korean = {document for at, document in enumerate(documents) if at % 2 == 0}
    by_half = {}
    for document in documents:
        for at in range(1, len(document)):
            by_half.setdefault(document[at:], document in korean)
    across = [
        any(a == d[: len(a)] for d in korean) != by_half[b]
        for a, b, random_next in pairs_of(paired)
        if random_next and b in by_half
    ]
    # Documents alternate between two languages: a blind draw crosses over every second time.
    assert len(across) > 200 and abs(np.mean(across) - 0.5) < 4 * 0.5 / len(across) ** 0.5


def test_halves_that_follow_each_other_anywhere_are_no_random_pair(tmp_path):
    texts = ["하나 둘", "하나 둘", "하나 둘", "하나 셋"] * 3
    manifest = records.write(texts, tmp_path, TOKENIZER, sequence_length=16, shards=1, pairs=True)
    assert not any(random_next for *_, random_next in pairs_of(manifest))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("가나다 ab", min_size=1, max_size=60), min_size=4, max_size=12),
    st.integers(7, 40),
    st.integers(0, 5),
)
def test_pairs_of_any_text_hold_their_promises(tmp_path_factory, some, length, seed):
    folder = tmp_path_factory.mktemp("some")
    some = [f"{number} 가 {text}" for number, text in enumerate(some)]
    options = {"sequence_length": length, "shards": 1, "seed": seed, "pairs": True}
    encode = records.Encoder(TOKENIZER)
    documents = [tuple(np.frombuffer(ids, encode.type).tolist()) for ids in encode(some)]
    try:
        found = pairs_of(records.write(some, folder, TOKENIZER, **options))
    except CourseError:
        assert max(map(len, documents)) > length - 3  # one document has several pairs
        return
    for first, second, random_next in found:
        assert random_next or follows(first, second, documents)
        both = first + second
        assert not random_next or not any(d[: len(both)] == both for d in documents)
    assert sorted(t for a, b, _ in found for t in a + b) == sorted(t for d in documents for t in d)


def test_pairs_have_the_same_bytes_in_parts_and_another_order_with_another_seed(
    texts, paired, tmp_path
):
    for number in (2, 1):
        records.write(
            texts, tmp_path / "parts", TOKENIZER, sequence_length=64, shards=2, part=(number, 2),
            pairs=True,
        )  # fmt: skip
    assert contents(tmp_path / "parts") == contents(paired.path)
    other = records.write(
        texts, tmp_path / "other", TOKENIZER, sequence_length=64, shards=2, seed=1, pairs=True
    )
    assert sorted(pairs_of(other)) != sorted(pairs_of(paired))


def test_pairs_are_read_with_the_rows(paired):
    (batch,) = batches(paired.path, 1)
    assert set(batch) == set(paired.features)
    assert batch["random_next"].max() == batch["token_type_ids"].max() == 1
    assert set(rows_of(batches(paired.path, 2))) <= set(rows_of([plain(paired)]))


def test_pairs_that_cant_be_made_are_refused(tmp_path, texts, written):
    some = ["하나 둘 셋 넷", "다섯 여섯 일곱", "여덟 아홉 열"]
    error = refused(
        CourseError,
        "too few documents",
        some,
        tmp_path,
        TOKENIZER,
        shards=3,
        pairs=True,
    )
    assert "fewer shards" in error.fix
    book = ["하나 둘 셋 넷 다섯 " * 200, *some]
    error = refused(CourseError, "too few", book, tmp_path, TOKENIZER, shards=1, pairs=True)
    assert "of one document" in error.why
    refused(
        CourseError, "is 6", some, tmp_path, TOKENIZER, shards=1, sequence_length=6,
        pairs=True,
    )  # fmt: skip
    shutil.copytree(written.path, tmp_path, dirs_exist_ok=True)
    error = refused(
        records.OtherSettings, "other settings", texts, tmp_path, TOKENIZER, sequence_length=64,
        shards=5, pairs=True,
    )  # fmt: skip
    assert error.why == "pairs is False there, True here."


# A bucket


def test_a_bucket_holds_the_same_bytes_and_is_read(texts, written):
    from helpers.rehearsal import storage

    with storage.embedded_gcs() as bucket:
        path = f"{bucket.url}/records"
        for part in ((2, 2), (1, 2)):
            manifest = records.write(
                texts, path, TOKENIZER, sequence_length=64, shards=5, part=part
            )
        assert dataclass_equal(manifest, written)
        assert records.verify(path).rows == written.rows
        assert rows_of(batches(path, 3, start_step=4)) == rows_of(
            batches(written.path, 3, start_step=4)
        )
        refused(records.OtherSettings, "other settings", texts, path, TOKENIZER, shards=5)
        refused(
            files.CantWrite,
            "could not be written to the bucket",
            texts,
            "gs://course-no-such-bucket/records",
            TOKENIZER,
            shards=1,
        )


# The command's work


def test_prepare_holds_out_one_document_in_ten(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"문서 {number}번\u200b입니다.\n\n" for number in range(40)), "utf-8")
    said = list(
        prepare.prepare(
            str(tmp_path / "out"),
            texts=[text],
            tokenizer=None,
            sequence_length=32,
            shards=3,
            part="1/1",
            workers=1,
            seed=0,
        )
    )
    assert "40 texts: 0 not in NFC, 0 control and 40 invisible characters" in said[0]
    assert "36 documents" in said[1]
    held_out = records.manifest(tmp_path / "out" / prepare.HELD_OUT)
    assert held_out.settings.documents == 4
    tokenizer = corpus.load_tokenizer()
    shown = tokenizer.decode(plain(held_out)["input_ids"][0], skip_special_tokens=True)
    assert "문서 9번입니다" in shown.replace(" 번", "번")


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_says_what_is_kept_and_how_to_go_on(tmp_path, texts, workers):
    text, output = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("\n".join(texts * 100), "utf-8")
    words = ["-i", text, "-o", output, "--shards", 60, "--workers", workers]
    run = subprocess.Popen(
        [sys.executable, "-m", "helpers", "prepare", *map(str, words)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not finished(output):
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all processes
    told = run.communicate(timeout=60)[1]
    assert run.returncode == 130, told
    assert "Finished shards are kept: run the same command again to go on." in told
    assert "Traceback" not in told and "KeyboardInterrupt" not in told
    kept = finished(output)
    assert 0 < len(kept) < 60 and {path.name for path in output.glob("*.tfrecord")} == set(kept)


@pytest.mark.parametrize("part", ["3-8", "3", "a/b", "1/2/3", ""])
def test_a_part_that_is_no_part_is_refused(part):
    with pytest.raises(CourseError, match="can't be understood"):
        prepare.part_of(part)


def test_the_command_line_writes_and_refuses(tmp_path):
    def command(*words):
        return subprocess.run(
            [sys.executable, "-m", "helpers", "prepare", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )

    done = command("-o", str(tmp_path / "out"), "--shards", "2", "--sequence-length", "64")
    assert done.returncode == 0, done.stderr
    assert "2,636 documents" in done.stdout and "2 shards" in done.stdout
    assert records.verify(tmp_path / "out").settings.sequence_length == 64
    failed = command("-o", str(tmp_path / "out"), "--shards", "2")
    assert failed.returncode == 2
    assert "sequence_length is 64 there, 128 here" in failed.stderr
    assert "Traceback" not in failed.stderr
