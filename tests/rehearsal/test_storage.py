"""The embedded gs:// behaves like a file system for every client, and always ends."""

import base64
import contextlib
import hashlib
import json
import os
import pathlib
import socket
import tempfile

import fsspec.config
import gcsfs
import google_crc32c
import numpy as np
import pandas
import psutil
import pytest
import tensorflow as tf
from google.api_core import exceptions
from google.cloud import storage as google_storage
from processes import child, printed
from terminal import gone, wait_for

from helpers.base.errors import CourseError
from helpers.rehearsal import storage

pytestmark = pytest.mark.slow

gfile = tf.io.gfile


def name(url):
    return url.removeprefix("gs://")


# TensorFlow's own file system code, against the same calls on a local folder


def text(root):
    for name, words in (("t.txt", "hello\n한국어"), ("empty", "")):
        with gfile.GFile(f"{root}/{name}", "w") as file:
            file.write(words)
    with gfile.GFile(f"{root}/t.txt", "a") as file:
        file.write("!")
    with pytest.raises(tf.errors.NotFoundError):
        gfile.GFile(f"{root}/none").read()
    return [
        (gfile.GFile(f"{root}/{name}").read(), gfile.stat(f"{root}/{name}").length)
        for name in ("t.txt", "empty")
    ]


def big(root):
    data = np.random.default_rng(0).bytes(20 << 20)
    with gfile.GFile(f"{root}/big", "wb") as file:
        file.write(data[: 1 << 20])
        file.flush()
        file.write(data[1 << 20 :])
    with gfile.GFile(f"{root}/big", "rb") as file:
        file.seek(19 << 20)
        tail = file.read(100)
        file.seek(0)
        return file.read() == data, tail == data[19 << 20 :][:100], gfile.stat(file.name).length


def folders(root):
    gfile.makedirs(f"{root}/d/e")
    with gfile.GFile(f"{root}/d/a b%20ü.txt", "w") as file:
        file.write("x")
    gfile.copy(f"{root}/d/a b%20ü.txt", f"{root}/d/e/copy.txt")
    gfile.rename(f"{root}/d/a b%20ü.txt", f"{root}/d/renamed.txt")
    seen = [
        sorted(entry.rstrip("/") for entry in gfile.listdir(f"{root}/d")),
        [p.removeprefix(root) for p in gfile.glob(f"{root}/d/*/*.txt")],
        [gfile.isdir(f"{root}/d/{x}") for x in ("", "e", "renamed.txt", "none")],
        [gfile.exists(f"{root}/d/{x}") for x in ("e", "renamed.txt", "a b%20ü.txt")],
        sorted((p.removeprefix(root).rstrip("/"), f) for p, _, f in gfile.walk(f"{root}/d")),
    ]
    gfile.remove(f"{root}/d/renamed.txt")
    gfile.rmtree(f"{root}/d/e")
    return [*seen, gfile.exists(f"{root}/d/renamed.txt"), gfile.exists(f"{root}/d/e")]


def records(root):
    rows = []
    for compression in ("", "GZIP"):
        for shard in range(3):
            path = f"{root}/{compression}-{shard}.tfrecord"
            with tf.io.TFRecordWriter(path, compression or None) as writer:
                for value in range(100):
                    writer.write(f"{shard}:{value}".encode() * 50)
        files = tf.data.Dataset.list_files(f"{root}/{compression}-*.tfrecord", shuffle=False)
        rows += files.interleave(
            lambda file, compression=compression: tf.data.TFRecordDataset(file, compression),
            cycle_length=3,
            num_parallel_calls=3,
            deterministic=True,
        ).as_numpy_iterator()
    return rows


def checkpoints(root):
    value = tf.Variable(np.arange(512.0 * 512).reshape(512, 512))
    checkpoint = tf.train.Checkpoint(value=value)
    manager = tf.train.CheckpointManager(checkpoint, f"{root}/c", max_to_keep=2)
    for _ in range(4):
        value.assign_add(tf.ones_like(value))
        manager.save()
    value.assign(value * 0)
    checkpoint.restore(tf.train.latest_checkpoint(f"{root}/c")).assert_consumed()
    return value.numpy().sum(), sorted(gfile.listdir(f"{root}/c"))


def models(root):
    model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(2,))])
    model.set_weights([np.ones((2, 3)), np.arange(3)])
    model.save(f"{root}/saved")
    model.save_weights(f"{root}/plain")
    model.save_weights(f"{root}/one.h5")
    model.set_weights([np.zeros((2, 3)), np.zeros(3)])
    model.load_weights(f"{root}/plain")
    saved = tf.keras.models.load_model(f"{root}/saved")
    kept = [w.tolist() for w in (*model.get_weights(), *saved.get_weights())]
    return kept, gfile.exists(f"{root}/one.h5")


@pytest.mark.parametrize(
    "case", [text, big, folders, records, checkpoints, models], ids=lambda case: case.__name__
)
def test_tensorflow_sees_what_it_sees_on_a_disk(gs, tmp_path, case):
    assert case(gs.bucket()) == case(str(tmp_path))


DENIED = pytest.raises(tf.errors.PermissionDeniedError, match="does not have")
MISSING = pytest.raises(tf.errors.NotFoundError, match=r"does not exist|not found")
WORKS = contextlib.nullcontext()


@pytest.mark.parametrize(
    ("fault", "reading", "writing"),
    [
        (None, WORKS, WORKS),
        ("read-only", WORKS, DENIED),
        ("forbidden", DENIED, DENIED),
        ("missing", MISSING, MISSING),
    ],
)
def test_a_buckets_fault_is_tensorflows_error(gs, fault, reading, writing):
    url = "gs://no-such-bucket" if fault == "missing" else gs.bucket(fault=fault)
    with writing, gfile.GFile(f"{url}/x", "w") as file:
        file.write("x")
    with reading:
        gfile.glob(f"{url}/*")


# gcsfs, pandas, datasets, google-cloud-storage


def test_gcsfs_does_what_a_local_disk_does(gs, tmp_path):
    local = fsspec.filesystem("file", auto_mkdir=True)
    blob = np.random.default_rng(1).bytes(11 << 20)
    seen = []
    for files, root in (
        (gcsfs.GCSFileSystem(), name(gs.bucket())),
        (local, str(tmp_path / "root")),
    ):
        files.pipe(f"{root}/a/x", b"hello")
        files.pipe(f"{root}/a/crlf", b"a\r\nb\r\n--==0==\r\n")
        files.pipe(f"{root}/empty", b"")
        with files.open(f"{root}/big", "wb", block_size=5 << 20) as file:
            file.write(blob)
        with files.open(f"{root}/big", "rb") as file:
            file.seek(10 << 20)
            tail = file.read() == blob[10 << 20 :]
        files.cp(f"{root}/a/x", f"{root}/b/x")
        files.mv(f"{root}/b/x", f"{root}/b/y")
        listed = sorted(path.split(root)[1] for path in files.find(root))
        globbed = sorted(path.split(root)[1] for path in files.glob(f"{root}/*/x"))
        contents = [files.cat(f"{root}/{x}") for x in ("a/x", "a/crlf", "empty", "b/y")]
        part, size = files.cat_file(f"{root}/a/x", 1, 3), files.info(f"{root}/big")["size"]
        files.rm(f"{root}/a", recursive=True)
        left = sorted(path.split(root)[1] for path in files.ls(root, detail=False))
        seen.append((tail, listed, globbed, contents, part, size, left))
        with pytest.raises(FileNotFoundError):
            files.cat(f"{root}/none")
    assert seen[0] == seen[1]


def test_pandas_and_datasets_need_no_settings(gs):
    import datasets

    url = gs.bucket()
    frame = pandas.DataFrame({"text": ["하나", "둘"], "n": [1, 2]})
    frame.to_csv(f"{url}/x.csv", index=False)
    pandas.testing.assert_frame_equal(pandas.read_csv(f"{url}/x.csv"), frame)
    datasets.Dataset.from_pandas(frame).save_to_disk(f"{url}/ds")
    assert datasets.load_from_disk(f"{url}/ds")["text"][:] == ["하나", "둘"]


def test_googles_own_library_finds_its_conditions_and_checksums(gs):
    bucket = google_storage.Client().bucket(name(gs.bucket()))
    data = b"\r\n--x\r\n\r" * 3
    blob = bucket.blob("가/x")
    blob.metadata = {"kept": "yes"}
    blob.upload_from_string(data, content_type="text/plain", if_generation_match=0)
    blob.reload()
    assert (blob.size, blob.content_type) == (len(data), "text/plain")
    assert blob.metadata == {"kept": "yes"}
    assert blob.md5_hash == base64.b64encode(hashlib.md5(data).digest()).decode()
    assert blob.crc32c == base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
    assert blob.download_as_bytes(checksum="crc32c") == data
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string(b"again", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.delete(if_generation_match=1)
    assert [found.name for found in bucket.list_blobs()] == ["가/x"]
    blob.delete(if_generation_match=blob.generation)
    assert list(bucket.list_blobs()) == []


# Another process


SERVE = """
import sys
import tensorflow as tf
for line in sys.stdin:
    try:
        exec(line)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


@pytest.fixture(scope="module")
def other(gs):
    """Another process with TensorFlow in it: give it a line to run; what it prints comes back."""
    with child(SERVE, environment=gs.environment) as process:

        def tell(line):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            return hear

        def hear():
            return process.stdout.readline().rstrip("\n")

        yield tell


def test_another_process_sees_the_same_objects_at_once_and_what_is_written_over(gs, other):
    url = gs.bucket()
    for line in ("first", "second, longer"):
        with gfile.GFile(f"{url}/x", "w") as file:
            file.write(line)
        length = f"tf.io.gfile.stat('{url}/x').length"
        hear = other(f"print(tf.io.gfile.GFile('{url}/x').read(), {length}, flush=True)")
        assert hear() == f"{line} {len(line)}"


WRITER = """
def write(url, shards):
    for shard in range(shards):
        with tf.io.TFRecordWriter(f"{url}/{shard:02}") as writer:
            for row in range(200):
                writer.write(f"{shard}:{row};".encode() * 4000)
        print(shard, flush=True)
"""


def shards(url):
    """The rows of each shard that is there."""
    return {
        path.rpartition("/")[2]: [row.numpy()[:9].decode().split(";")[0] for row in rows]
        for path in gfile.glob(f"{url}/*")
        for rows in [tf.data.TFRecordDataset(path)]
    }


def test_no_shard_is_half_written_when_the_server_is_killed_and_the_writer_goes_on(gs, other):
    def whole(shard):
        return [f"{int(shard)}:{row}" for row in range(200)]

    url = gs.bucket()
    hear = other(f"exec({WRITER!r}); write('{url}', 6)")
    for written in range(6):
        assert hear() == str(written)
        if written in (1, 3):
            # The next shard, of several megabytes, has begun to arrive, and is not there yet.
            begun = f"uploadType=resumable name={written + 1:02}"
            assert wait_for(lambda begun=begun: begun in gs.log)
            gs.kill()
            gs.restart()
            there = shards(url)
            assert {f"{number:02}" for number in range(written + 1)} <= set(there)
            assert all(rows == whole(shard) for shard, rows in there.items())
    assert shards(url) == {f"{number:02}": whole(number) for number in range(6)}


def test_a_writer_without_a_server_is_told_in_the_end(gs, other):
    gs.kill()
    hear = other(f"tf.io.write_file('{gs.url}/x', 'x')")
    assert hear() == "AbortedError"  # without .environment's settings: after minutes
    gs.restart()
    assert gfile.exists(gs.url)


# The storage's own process


def test_two_at_once_know_nothing_of_each_other_and_leave_all_as_it_was(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://mine:1")
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    before, conf = dict(os.environ), json.dumps(fsspec.config.conf)
    with pytest.raises(ZeroDivisionError), storage.embedded_gcs("course-data") as outer:
        with gfile.GFile(f"{outer.url}/who", "w") as file:
            file.write("outer")
        with storage.embedded_gcs() as inner:
            assert not gfile.exists(outer.url)
            assert inner.bucket("course-data") == outer.url == "gs://course-data"
            with gfile.GFile(f"{outer.url}/who", "w") as file:
                file.write("inner, longer")
            assert fsspec.open(f"{outer.url}/who", "rt").open().read() == "inner, longer"
        assert fsspec.open(f"{outer.url}/who", "rt").open().read() == "outer"
        assert all(os.environ[k] == v for k, v in outer.environment.items())
        assert repr(outer) == f"EmbeddedStorage({outer.url}, running)"
        raise ZeroDivisionError
    assert (dict(os.environ), json.dumps(fsspec.config.conf)) == (before, conf)
    for ended in (inner, outer):
        assert gone(ended.process.pid)
        assert not ended.certificate.parent.exists()
        assert repr(ended).endswith(", ended)")
    with pytest.raises(CourseError, match=r"does not answer(.|\n)*restart"):
        outer.bucket()


def mine():
    return [p for p in psutil.Process().children() if "gcs_server" in " ".join(p.cmdline())]


def test_a_name_that_a_bucket_can_not_have_is_told(gs):
    for wish in ("UPPER", "a", "with space"):
        with pytest.raises(CourseError, match=r"Invalid bucket name(.|\n)*3 to 63"):
            gs.bucket(wish)
    with pytest.raises(CourseError, match=r"succeeded(.|\n)*another name"):
        gs.bucket(name(gs.url))
    before, servers = dict(os.environ), mine()
    with pytest.raises(CourseError, match="did not make"), storage.embedded_gcs("UPPER"):
        pass
    assert (dict(os.environ), mine()) == (before, servers)


PARENT = """
import os, signal, sys, time
from helpers.rehearsal import storage
signal.signal(signal.SIGINT, lambda *_: None)
with storage.embedded_gcs() as running:
    os.killpg(0, signal.SIGINT)   # as a notebook's interrupt, which is not for the server
    time.sleep(0.2)
    running.bucket("after-interrupt")
    if os.fork() == 0:   # has all pipes of its parent, beyond its end, as workers may
        print(running.process.pid, running.certificate.parent, flush=True)
    time.sleep(60)
"""


def test_it_outlives_an_interrupt_but_not_its_parent():
    with child(PARENT) as parent:
        server, folder = parent.stdout.readline().split()
        assert psutil.pid_exists(int(server))
        parent.kill()
        parent.wait()
        assert gone(int(server))
        assert wait_for(lambda: not pathlib.Path(folder).exists())


def test_a_port_that_was_taken_meanwhile_is_told():
    with storage.embedded_gcs() as running:
        running.kill()
        with socket.socket() as taker:
            taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taker.bind(("127.0.0.1", running.port))
            taker.listen()
            with pytest.raises(CourseError, match="Address already in use"):
                running.restart()
        running.restart()
        assert gfile.exists(running.url)


def test_a_process_that_does_not_get_ready_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(storage, "START_SECONDS", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(CourseError, match="Not ready in 0 s"), storage.embedded_gcs():
        pass
    assert list(tmp_path.iterdir()) == []


def test_gcsfs_that_would_ask_google_is_told():
    script = """
import gcsfs
from helpers.base.settings import ImportedTooEarly
from helpers.rehearsal import storage
try:
    storage.embedded_gcs().__enter__()
except ImportedTooEarly as error:
    print(error)
"""
    told = printed(script, environment={"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "true"})
    assert "gcsfs is already imported" in told and "Restart the kernel" in told


@pytest.mark.parametrize("place", ["variable", "home"])
def test_the_users_account_is_hidden_from_the_embedded_storage(monkeypatch, tmp_path, place):
    import google.auth

    login = tmp_path / ".config/gcloud/application_default_credentials.json"
    login.parent.mkdir(parents=True)
    about = {"type": "authorized_user", "client_id": "a", "quota_project_id": "p"}
    login.write_text(json.dumps({**about, "client_secret": "s", "refresh_token": "mine"}))
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # google-auth would look for an account there, too
    for variable in ("CLOUDSDK_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path if place == "home" else tmp_path / "other"))
    if place == "variable":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(login))
    assert google.auth.default()[0].refresh_token == "mine"
    with storage.embedded_gcs() as running:
        with pytest.raises(google.auth.exceptions.DefaultCredentialsError):
            google.auth.default()
        assert gfile.exists(running.url)
        assert "oauth2" not in running.log  # where TensorFlow would send it
    assert google.auth.default()[0].refresh_token == "mine"
