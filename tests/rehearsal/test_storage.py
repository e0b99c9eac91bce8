"""The embedded gs:// behaves like a file system, and each check of a bucket says what is wrong."""

import base64
import contextlib
import hashlib
import http.client
import http.server
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import fsspec.config
import google_crc32c
import numpy as np
import pandas
import psutil
import pytest
import tensorflow as tf
from conventions import NOTEBOOKS, ROOT
from cryptography import x509
from google.api_core import exceptions
from google.cloud import storage as google_storage
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.base.errors import CourseError
from helpers.base.settings import ENVIRONMENT
from helpers.rehearsal import gcs_server as embedded_gcs
from helpers.rehearsal import storage

CONSTANTS = {**ENVIRONMENT, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
gfile = tf.io.gfile


@pytest.fixture(scope="module")
def gs():
    with storage.embedded_gcs() as running:
        yield running


@pytest.fixture
def fs(gs):
    import gcsfs

    return gcsfs.GCSFileSystem()


def name(url):
    return url.removeprefix("gs://")


def child(script, environment=None, **options):
    """Run Python in another process; its environment begins with that of a fresh shell."""
    clean = {k: v for k, v in os.environ.items() if k not in (environment or {})}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**clean, **CONSTANTS, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finished(process, seconds=60):
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err
    return out


def wait_for(condition, seconds=10):
    """Whether a condition came true in time."""
    end = time.monotonic() + seconds
    while not (true := condition()) and time.monotonic() < end:
        time.sleep(0.002)
    return true


def gone(pid):
    """Whether a process that isn't ours ends."""

    def ended():
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return wait_for(ended)


def tunnel(gs, host="storage.googleapis.com"):
    """A connection to the server as TensorFlow makes it: through the proxy, with TLS."""
    connection = http.client.HTTPSConnection(
        "127.0.0.1", gs.port, context=ssl.create_default_context(cafile=gs.authority), timeout=10
    )
    connection.set_tunnel(host)
    return connection


def ask(gs, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", gs.port, timeout=10)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    return answer, answer.read()


# --- TensorFlow's own file system code, against the same calls on a local folder ---------------


def text(root):
    with gfile.GFile(f"{root}/t.txt", "w") as file:
        file.write("hello\n한국어")
    with gfile.GFile(f"{root}/t.txt", "a") as file:
        file.write("!")
    with gfile.GFile(f"{root}/t.txt") as file:
        return file.read(), gfile.stat(f"{root}/t.txt").length


def empty(root):
    with gfile.GFile(f"{root}/empty", "w") as file:
        file.write("")
    return gfile.stat(f"{root}/empty").length, gfile.GFile(f"{root}/empty").read()


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


def records(root, compression=""):
    for shard in range(3):
        path = f"{root}/{compression}-{shard}.tfrecord"
        with tf.io.TFRecordWriter(path, compression or None) as writer:
            for value in range(100):
                writer.write(f"{shard}:{value}".encode() * 50)
    files = tf.data.Dataset.list_files(f"{root}/{compression}-*.tfrecord", shuffle=False)
    rows = files.interleave(
        lambda file: tf.data.TFRecordDataset(file, compression),
        cycle_length=3,
        num_parallel_calls=3,
        deterministic=True,
    )
    return [row.numpy() for row in rows]


def packed_records(root):
    return records(root, "GZIP")


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


def weights(root):
    layer = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(2,))])
    layer.set_weights([np.ones((2, 3)), np.arange(3)])
    layer.save_weights(f"{root}/w/plain")
    layer.save_weights(f"{root}/w/one.h5")
    layer.set_weights([np.zeros((2, 3)), np.zeros(3)])
    layer.load_weights(f"{root}/w/plain")
    return [w.tolist() for w in layer.get_weights()], gfile.exists(f"{root}/w/one.h5")


def saved_model(root):
    module = tf.Module()
    module.v = tf.Variable(3.0)
    module.f = tf.function(lambda x: x * module.v, input_signature=[tf.TensorSpec([])])
    tf.saved_model.save(module, f"{root}/m", signatures=module.f)
    loaded = tf.saved_model.load(f"{root}/m")
    return float(loaded.f(tf.constant(2.0)))


def error(root):
    with pytest.raises(tf.errors.NotFoundError):
        gfile.GFile(f"{root}/none").read()
    with pytest.raises(tf.errors.NotFoundError):
        list(tf.data.TFRecordDataset(f"{root}/none"))
    return gfile.exists(f"{root}/none")


@pytest.mark.parametrize(
    "case",
    [
        text,
        empty,
        big,
        folders,
        records,
        packed_records,
        checkpoints,
        weights,
        saved_model,
        error,
    ],
    ids=lambda case: case.__name__,
)
def test_tensorflow_sees_what_it_sees_on_a_disk(gs, tmp_path, case):
    assert case(gs.bucket()) == case(str(tmp_path))


def test_more_names_than_a_page_are_all_listed(gs):
    url = gs.bucket()
    for number in range(embedded_gcs.PAGE + 5):
        path = f"/upload/storage/v1/b/{name(url)}/o?uploadType=media&name=many/{number:04}"
        assert ask(gs, "POST", path, b"x")[0].status == 200
    wanted = [f"{number:04}" for number in range(embedded_gcs.PAGE + 5)]
    assert sorted(gfile.listdir(f"{url}/many")) == wanted
    assert len(gfile.glob(f"{url}/many/*4")) == 101


class Other:
    """Another process with TensorFlow in it, which does what it is told, a line at a time."""

    SERVE = """
import sys
import tensorflow as tf
for line in sys.stdin:
    try:
        exec(line)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""

    def __init__(self, environment):
        self.process = child(self.SERVE, environment, stdin=subprocess.PIPE)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().rstrip("\n")


@pytest.fixture(scope="module")
def other(gs):
    process = Other(gs.environment)
    yield process
    process.process.kill()
    process.process.communicate()


def test_another_process_sees_the_same_objects_at_once_and_what_is_written_over(gs, other):
    url = gs.bucket()
    for line in ("first", "second, longer"):
        with gfile.GFile(f"{url}/x", "w") as file:
            file.write(line)
        length = f"tf.io.gfile.stat('{url}/x').length"
        other.tell(f"print(tf.io.gfile.GFile('{url}/x').read(), {length}, flush=True)")
        assert other.hear() == f"{line} {len(line)}"


@pytest.mark.parametrize(
    ("fault", "reading", "writing"),
    [
        (None, None, None),
        ("read-only", None, tf.errors.PermissionDeniedError),
        ("forbidden", tf.errors.PermissionDeniedError, tf.errors.PermissionDeniedError),
        ("missing", tf.errors.NotFoundError, tf.errors.NotFoundError),
    ],
)
def test_a_buckets_fault_is_tensorflows_error(gs, fault, reading, writing):
    url = "gs://no-such-bucket" if fault == "missing" else gs.bucket(fault=fault)

    def write():
        with gfile.GFile(f"{url}/x", "w") as file:
            file.write("x")

    for act, expected in ((write, writing), (lambda: gfile.glob(f"{url}/*"), reading)):
        if expected is None:
            act()
        else:
            with pytest.raises(expected, match=r"does not have|does not exist|not found"):
                act()


# --- gcsfs, pandas, datasets, google-cloud-storage -----------------------------------------------


def test_gcsfs_does_what_a_local_disk_does(gs, fs, tmp_path):
    local = fsspec.filesystem("file", auto_mkdir=True)
    seen = []
    for files, root in ((fs, name(gs.bucket())), (local, str(tmp_path))):
        blob = np.random.default_rng(1).bytes(11 << 20)
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
        (tmp_path / "up").write_bytes(b"up")
        files.put(str(tmp_path / "up"), f"{root}/put")
        (tmp_path / "up").unlink()
        files.get(f"{root}/a/x", str(tmp_path / "down"))
        down = (tmp_path / "down").read_bytes()
        (tmp_path / "down").unlink()
        listed = sorted(path.split(root)[1] for path in files.find(root))
        globbed = sorted(path.split(root)[1] for path in files.glob(f"{root}/*/x"))
        contents = [files.cat(f"{root}/{x}") for x in ("a/x", "a/crlf", "empty", "b/y", "put")]
        part, size = files.cat_file(f"{root}/a/x", 1, 3), files.info(f"{root}/big")["size"]
        files.rm(f"{root}/a", recursive=True)
        left = sorted(path.split(root)[1] for path in files.ls(root, detail=False))
        seen.append((tail, down, listed, globbed, contents, part, size, left))
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
    blob.upload_from_string(data, content_type="text/plain", if_generation_match=0)
    blob.reload()
    assert (blob.size, blob.content_type) == (len(data), "text/plain")
    assert blob.md5_hash == base64.b64encode(hashlib.md5(data).digest()).decode()
    assert blob.crc32c == base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
    assert blob.download_as_bytes(checksum="crc32c") == data
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string(b"again", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.delete(if_generation_match=1)
    parts = bucket.blob("parts", chunk_size=256 << 10)
    long = np.random.default_rng(2).bytes(1_000_000)
    parts.upload_from_string(long)
    assert parts.download_as_bytes() == long
    joined = bucket.blob("joined")
    joined.compose([blob, parts])
    assert joined.download_as_bytes() == data + long
    assert bucket.rename_blob(joined, "renamed").download_as_bytes() == data + long
    assert [found.name for found in bucket.list_blobs()] == ["parts", "renamed", "가/x"]
    with pytest.raises(exceptions.Conflict):
        bucket.delete()
    bucket.delete_blobs(list(bucket.list_blobs()))
    bucket.delete()
    assert not bucket.exists()


# --- the server's own rules ----------------------------------------------------------------------

NAMES = st.text("ab/", min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    st.sets(NAMES, max_size=12),
    st.text("ab/", max_size=2),
    st.sampled_from(["", "/", "ab"]),
    st.integers(1, 4),
)
def test_pages_together_are_the_whole_listing(names, prefix, delimiter, size):
    with tempfile.TemporaryDirectory() as folder:
        store = embedded_gcs.Store(pathlib.Path(folder) / "buckets")
        store.make("bucket", "us", None)
        for each in names:
            store.put("bucket", each, b"")
        objects, prefixes, after = [], [], ""
        while after is not None:
            found, beginnings, after = store.listing("bucket", prefix, delimiter, after, size)
            assert len(found) + len(beginnings) <= size
            objects += [each.name for each in found]
            prefixes += beginnings
    matching = sorted(each for each in names if each.startswith(prefix))
    rests = {each: each[len(prefix) :] for each in matching}
    whole = [each for each in matching if not delimiter or delimiter not in rests[each]]
    cut = {prefix + rests[x].split(delimiter)[0] + delimiter for x in set(matching) - set(whole)}
    assert (objects, prefixes) == (whole, sorted(cut))


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=20), st.integers(0, 25), st.integers(0, 25))
def test_a_range_is_a_slice(gs, data, first, more):
    where = f"{name(gs.url)}/o"
    ask(gs, "POST", f"/upload/storage/v1/b/{where}?uploadType=media&name=range", data)
    for asked, expected in (
        (f"bytes={first}-{first + more}", data[first : first + more + 1]),
        (f"bytes={first}-", data[first:]),
        (f"bytes=-{more}", data[max(len(data) - more, 0) :]),
    ):
        answer, body = ask(gs, "GET", f"/{name(gs.url)}/range", headers={"Range": asked})
        assert body == expected
        assert answer.status == (206 if expected else 416)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=30), st.lists(st.integers(0, 30), max_size=4), st.booleans())
def test_however_an_upload_is_cut_the_object_is_the_whole(gs, data, cuts, known):
    where = f"/upload/storage/v1/b/{name(gs.url)}/o"
    start, _ = ask(gs, "POST", f"{where}?uploadType=resumable&name=cut")
    session = start.headers["Location"].partition(str(gs.port))[2]
    before = gfile.exists(f"{gs.url}/cut") and gfile.stat(f"{gs.url}/cut").mtime_nsec
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    answer = None
    for low, high in itertools.pairwise(edges):
        if answer is not None:
            assert answer.status == 308
            assert ask(gs, "PUT", session, headers={"Content-Range": "bytes */*"})[0].status == 308
            now = gfile.exists(f"{gs.url}/cut") and gfile.stat(f"{gs.url}/cut").mtime_nsec
            assert now == before, "a part was taken for the whole"
        total = len(data) if known or high == len(data) else "*"
        span = {"Content-Range": f"bytes {low}-{high - 1}/{total}"}
        answer, _ = ask(gs, "PUT", session, data[low:high], span)
    if answer is None:  # nothing to send: TensorFlow then sends an empty body without a range
        answer, _ = ask(gs, "PUT", session)
    assert answer.status == 200
    assert ask(gs, "GET", f"/{name(gs.url)}/cut")[1] == data
    # A client that missed the last answer asks how far it is, and is told that it is done.
    poll = {"Content-Range": f"bytes */{len(data)}"}
    assert ask(gs, "PUT", session, headers=poll)[0].status == 200


@pytest.mark.parametrize(
    ("span", "status"), [("bytes 3-5/9", 400), ("bytes 0-9/10", 400), ("lines 1", 400)]
)
def test_a_part_that_does_not_fit_is_refused(gs, span, status):
    where = f"/upload/storage/v1/b/{name(gs.url)}/o"
    start, _ = ask(gs, "POST", f"{where}?uploadType=resumable&name=never")
    session = start.headers["Location"].partition(str(gs.port))[2]
    assert ask(gs, "PUT", session, b"abc", {"Content-Range": span})[0].status == status
    assert ask(gs, "DELETE", session)[0].status == 499
    assert ask(gs, "PUT", session, b"abc")[0].status == 404
    assert not gfile.exists(f"{gs.url}/never")


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 100\r\n\r\n" + b"x" * 50,
        b"Transfer-Encoding: chunked\r\n\r\n32\r\n" + b"x" * 50 + b"\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n64\r\n" + b"x" * 50,
    ],
    ids=["length", "between chunks", "within a chunk"],
)
def test_what_a_dying_client_sent_is_no_object(gs, head):
    lines = len(gs.log.splitlines())
    where = f"/upload/storage/v1/b/{name(gs.url)}/o?uploadType=media&name=half"
    with socket.create_connection(("127.0.0.1", gs.port)) as client:
        client.sendall(f"POST {where} HTTP/1.1\r\nHost: x\r\n".encode() + head)
    assert wait_for(lambda: "ConnectionAbortedError" in "".join(gs.log.splitlines()[lines:]))
    assert not gfile.exists(f"{gs.url}/half")


def test_what_a_dying_server_began_is_no_object(tmp_path):
    store = embedded_gcs.Store(tmp_path)
    store.make("bucket", "us", None)
    kept = store.put("bucket", "kept", b"old")
    leftover = tmp_path / "bucket/.17"
    leftover.write_bytes(b'{"half": ')
    # It died after the new object had its name, and before the old one was gone.
    newer = kept.file.with_name(str(kept.generation + 1))
    line = json.loads(kept.file.read_bytes().splitlines()[0])
    line |= {"generation": kept.generation + 1, "size": 5}
    newer.write_bytes(json.dumps(line).encode() + b"\nnewer")
    again = embedded_gcs.Store(tmp_path)
    assert again.read("bucket", "kept") == b"newer"
    assert sorted(p.name for p in (tmp_path / "bucket").iterdir()) == [newer.name, "bucket.json"]
    assert again.put("bucket", "next", b"").generation > kept.generation + 1


def test_a_reader_keeps_what_it_opened(tmp_path):
    store = embedded_gcs.Store(tmp_path)
    store.make("bucket", "us", None)
    store.put("bucket", "x", b"old")
    _, data = store.open("bucket", "x")
    store.put("bucket", "x", b"newer")
    with data:
        assert data.read() == b"old"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/storage/v1/b/no-such-bucket", None, 404),
        ("PUT", "/bucket/object", b"", 501),
        ("PATCH", "/storage/v1/b/{}/o/x", b"{}", 501),
        ("PATCH", "/storage/v1/b/{}", b"{}", 501),
        ("POST", "/upload/storage/v1/b/{}/o?uploadType=media&name=", b"", 400),
        ("POST", "/upload/storage/v1/b/{}/o?uploadType=media&name=" + "a" * 1025, b"", 400),
        ("POST", "/upload/storage/v1/b/{}/o?uploadType=multipart", b"none", 400),
        ("POST", "/upload/storage/v1/b/{}/o?uploadType=resumable&name=a", b"no json", 400),
        ("DELETE", "/storage/v1/b/{}/o/none", None, 404),
    ],
)
def test_a_request_that_can_not_be_carried_out_is_answered(gs, method, path, body, status):
    answer, data = ask(gs, method, path.format(name(gs.url)), body)
    assert (answer.status, json.loads(data)["error"]["code"]) == (status, status)


# --- nothing leaves the machine ------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "example.com:443",
        "googleapis.com.example.com:443",
        "www.googleapis.com:80",
        "evilgoogleapis.com:443",
    ],
)
def test_other_addresses_are_refused(gs, target):
    assert ask(gs, "CONNECT", target)[0].status == 403


def test_other_services_of_google_are_not_imitated(gs):
    connection = tunnel(gs, "oauth2.googleapis.com")
    connection.request("POST", "/token", b"refresh_token=secret")
    assert connection.getresponse().status == 404


def test_it_listens_on_this_machine_alone_and_calls_nobody(gs):
    server = psutil.Process(gs.process.pid)
    connections = server.net_connections("inet")
    listening = [c.laddr for c in connections if c.status == psutil.CONN_LISTEN]
    assert listening == [("127.0.0.1", gs.port)]
    assert all(c.laddr.port == gs.port for c in connections)


def test_its_authority_can_certify_storage_alone_and_its_key_is_gone(gs):
    folder = gs.authority.parent
    assert folder.stat().st_mode & 0o077 == 0
    authority = x509.load_pem_x509_certificate(gs.authority.read_bytes())
    only = authority.extensions.get_extension_for_class(x509.NameConstraints).value
    assert only.permitted_subtrees == [x509.DNSName("googleapis.com")]
    keys = [f for f in folder.iterdir() if f.is_file() and b"PRIVATE KEY" in f.read_bytes()]
    assert len(keys) == 1
    leaf = x509.load_pem_x509_certificates(keys[0].read_bytes())[0]
    leaf.verify_directly_issued_by(authority)
    basic = leaf.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert basic.ca is False


def test_a_client_without_the_authority_does_not_believe_it(gs):
    connection = http.client.HTTPSConnection("127.0.0.1", gs.port, timeout=10)
    connection.set_tunnel("storage.googleapis.com")
    with pytest.raises(ssl.SSLCertVerificationError):
        connection.request("GET", "/")


# --- the process ---------------------------------------------------------------------------------


def test_the_environment_is_as_before_whatever_happened(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://mine:1")
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    before, conf = dict(os.environ), json.dumps(fsspec.config.conf)
    with pytest.raises(ZeroDivisionError), storage.embedded_gcs() as outer:
        assert os.environ["https_proxy"].endswith(f":{outer.port}")
        with storage.embedded_gcs("course-data") as inner:
            assert inner.url == "gs://course-data"
            assert os.environ["https_proxy"].endswith(f":{inner.port}")
        assert os.environ["https_proxy"].endswith(f":{outer.port}")
        assert all(os.environ[k] == v for k, v in outer.environment.items())
        assert repr(outer) == f"EmbeddedStorage({outer.url}, running)"
        raise ZeroDivisionError
    assert (dict(os.environ), json.dumps(fsspec.config.conf)) == (before, conf)
    for ended in (inner, outer):
        assert gone(ended.process.pid)
        assert not ended.authority.parent.exists()
        assert repr(ended).endswith(", ended)")
    with pytest.raises(storage.StorageEnded, match="restart"):
        outer.bucket()


def test_two_at_once_know_nothing_of_each_other(gs):
    with gfile.GFile(f"{gs.url}/who", "w") as file:
        file.write("outer")
    with storage.embedded_gcs() as inner:
        assert inner.port != gs.port
        assert not gfile.exists(gs.url)
        assert inner.bucket(name(gs.url)) == gs.url
        with gfile.GFile(f"{gs.url}/who", "w") as file:
            file.write("inner, longer")
        assert fsspec.open(f"{gs.url}/who", "rt").open().read() == "inner, longer"
    assert fsspec.open(f"{gs.url}/who", "rt").open().read() == "outer"


@pytest.mark.parametrize("wish", ["UPPER", "a", "with space"])
def test_a_name_that_no_bucket_can_have_is_told(gs, wish):
    with pytest.raises(storage.BucketNotMade, match="Invalid bucket name"):
        gs.bucket(wish)
    with pytest.raises(storage.BucketNotMade, match="another name"):
        gs.bucket(name(gs.url))
    before = dict(os.environ)
    with pytest.raises(storage.BucketNotMade), storage.embedded_gcs(wish):
        pass
    assert dict(os.environ) == before


PARENT = """
import os, sys, time
from helpers import storage
with storage.embedded_gcs() as running:
    if os.fork() == 0:  # holds the server's input open beyond its parent's end, as workers may
        print(running.process.pid, os.getpid(), running.authority.parent, flush=True)
        time.sleep(60)
        os._exit(0)
    time.sleep(60)
"""


def test_it_is_gone_when_its_parent_is_killed():
    parent = child(PARENT)
    server, fork, folder = parent.stdout.readline().split()
    try:
        assert psutil.pid_exists(int(server))
        parent.kill()
        parent.wait()
        assert gone(int(server))
        assert not pathlib.Path(folder).exists()
    finally:
        os.kill(int(fork), signal.SIGKILL)
        parent.communicate()


def test_a_notebooks_interrupt_does_not_end_it():
    script = """
import os, signal, time
from helpers import storage
signal.signal(signal.SIGINT, lambda *_: None)
with storage.embedded_gcs() as running:
    os.killpg(0, signal.SIGINT)
    time.sleep(0.2)
    print(running.bucket("after-interrupt"))
"""
    assert finished(child(script, start_new_session=True)) == "gs://after-interrupt\n"


def test_a_port_that_was_taken_meanwhile_is_told():
    with storage.embedded_gcs() as running:
        running.kill()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", running.port))
            other.listen()
            with pytest.raises(storage.StorageDidNotStart, match="Address already in use"):
                running.restart()
        running.restart()
        assert gfile.exists(running.url)


def test_a_process_that_does_not_get_ready_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(storage, "START_SECONDS", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(storage.StorageDidNotStart), storage.embedded_gcs():
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
    told = finished(child(script, {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "true"}))
    assert "gcsfs is already imported" in told and "Restart the kernel" in told


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
    other.tell(f"exec({WRITER!r}); write('{url}', 6)")
    for written in range(6):
        assert other.hear() == str(written)
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
    other.tell(f"tf.io.write_file('{gs.url}/x', 'x')")
    assert other.hear() == "AbortedError"  # without .environment's settings: after minutes
    gs.restart()
    assert gfile.exists(gs.url)


# --- checks before a run -------------------------------------------------------------------------


@pytest.fixture
def through_google(gs, monkeypatch):
    """The way to a real bucket: https, the account's own login; only the proxy answers."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    return gs


def told(kind, *words, url, **options):
    with pytest.raises(kind) as caught:
        storage.check_bucket(url, **options)
    assert type(caught.value) is kind
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


def test_a_bucket_that_will_do(gs):
    url = gs.bucket(region="europe-west4")
    checked = storage.check_bucket(f"{url}/run/1/", region="europe-west4-a")
    assert checked == storage.CheckedBucket(f"{url}/run/1", "europe-west4", True)
    assert repr(checked) == f"{url}/run/1: readable, writable, in europe-west4"
    wide = storage.check_bucket(gs.bucket(region="US"), region="us-central1", write=False)
    assert repr(wide).endswith(": readable, in us (many regions: every byte read is billed)")
    assert repr(storage.check_bucket(url, write=False)) == f"{url}: readable"
    assert gfile.listdir(url) == []


def test_the_same_check_through_https(through_google):
    url = through_google.bucket()
    assert storage.check_bucket(url, region="us-central1").writable
    assert f"storage.googleapis.com/storage/v1/b/{name(url)}" in through_google.log


GRANT = "gcloud storage buckets add-iam-policy-binding gs://"


def test_each_thing_that_is_wrong_with_a_bucket_has_its_error(gs):
    make = "gcloud storage buckets create gs://no-such-bucket --location="
    told(
        storage.BucketMissing,
        f"{make}us-central2 ",
        url="gs://no-such-bucket",
        region="us-central2-b",
    )
    told(storage.BucketMissing, f"{make}REGION ", url="gs://no-such-bucket")
    for options in ({}, {"region": "us-central1"}, {"write": False}):
        url = gs.bucket(fault="forbidden")
        grant = f"{GRANT}{name(url)} --member=serviceAccount:"
        told(storage.BucketForbidden, "objects.list", grant, "objectAdmin", url=url, **options)
    url = gs.bucket(fault="read-only")
    told(storage.BucketReadOnly, "storage.objects.create", GRANT, "objectAdmin", url=url)
    assert storage.check_bucket(url, write=False, region="us-central1").location == "us-central1"
    url = gs.bucket(fault="objects-only")
    told(storage.RegionHidden, "storage.buckets.get", "legacyBucketReader", url=url, region="us-a1")
    assert storage.check_bucket(url).writable


def test_a_bucket_where_nothing_can_be_deleted_is_told(gs, monkeypatch):
    def refuse(*_, **__):
        raise exceptions.Forbidden("storage.objects.delete")

    monkeypatch.setattr(google_storage.Blob, "delete", refuse)
    told(storage.BucketReadOnly, "deleted in", "storage.objects.delete", url=gs.bucket())


@pytest.mark.parametrize(
    ("location", "region", "fits"),
    [
        ("us-central1", "us-central1", True),
        ("us-central1", "us-central1-b", True),
        ("us-central1", "us-central2-b", False),
        ("US", "us-central1-b", True),
        ("US", "europe-west4-a", False),
        ("EU", "europe-west4-a", True),
        ("EU", "europe-west2-a", False),
        ("ASIA", "asia-east1-c", True),
        ("NAM4", "us-east1-d", True),
        ("NAM4", "us-west4-a", False),
    ],
)
def test_the_bucket_is_where_the_tpu_is_or_the_message_says_how_to_move(gs, location, region, fits):
    url = gs.bucket(region=location)
    if fits:
        checked = storage.check_bucket(url, region=region, write=False)
        assert checked.location == location.lower()
        return
    place = region[: len(region) - 2]
    move = [f"create gs://NEW --location={place} ", f"cp --recursive '{url}/*' gs://NEW"]
    told(storage.WrongRegion, *move, url=url, region=region)


@pytest.mark.parametrize(
    ("url", "kind", "word"),
    [
        ("data/train", storage.WorkerCantRead, "gcloud storage cp --recursive"),
        (pathlib.Path("data/train"), storage.WorkerCantRead, "another machine"),
        ("file:///data/train", storage.WorkerCantRead, "another machine"),
        (pathlib.Path("gs://bucket/x"), storage.WorkerCantRead, "not as a Path"),
        ("gcs://bucket/x", storage.WorkerCantRead, "Write gs://bucket"),
        ("s3://bucket/x", storage.WorkerCantRead, "no s3://"),
        ("ram://x", storage.WorkerCantRead, "no ram://"),
        ("", storage.WorkerCantRead, "not in a bucket"),
        ("gs://", storage.BucketNameInvalid, "small letters"),
        ("gs://Bucket", storage.BucketNameInvalid, "buckets list"),
        ("gs://a b/x", storage.BucketNameInvalid, "3 to 63"),
    ],
)
def test_an_address_that_a_worker_can_not_read_is_told_without_a_request(
    monkeypatch, url, kind, word
):
    monkeypatch.setattr(storage, "_check", None)
    told(kind, word, url=url)


class Sick(http.server.BaseHTTPRequestHandler):
    """Answers 503, or nothing for a while."""

    def do_GET(self):
        self.server.released.wait(self.server.silence)
        self.send_error(503)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def sick(silence):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sick)
    server.silence, server.released = silence, threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()


def test_storage_that_fails_or_is_silent_or_is_not_there_is_told_in_time(monkeypatch):
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for silence, seconds, word in ((0, 5, "status 503"), (30, 0.3, "")):
        with sick(silence) as address:
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
            started = time.monotonic()
            told(storage.StorageUnreachable, word, "curl", url="gs://bucket", seconds=seconds)
            assert time.monotonic() - started < 10  # not the 30 s of silence
            assert storage.reach(seconds).reachable is (silence == 0)
    assert "does not answer" in repr(storage.reach(1))
    told(storage.StorageUnreachable, "ConnectionError", url="gs://bucket")


def test_reach_says_where_and_who(gs, monkeypatch, tmp_path):
    assert repr(storage.reach()) == "the embedded storage answers (account: none found)"
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    (tmp_path / "application_default_credentials.json").touch()
    assert storage.reach().account == "a gcloud login"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "key.json")
    assert storage.reach().account == "a key file"


# --- credentials ---------------------------------------------------------------------------------

SECRET = "ya29.THIS-IS-SECRET"


@pytest.fixture(params=["none", "login", "service account", "no such file", "broken file"])
def account(request, tmp_path, monkeypatch):
    """An account that Google would not accept, in each form in which one is found."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    file = tmp_path / f"{SECRET}.json"
    if request.param == "login":
        about = {"type": "authorized_user", "client_id": "a", "quota_project_id": "p"}
        file.write_text(json.dumps({**about, "client_secret": SECRET, "refresh_token": SECRET}))
    elif request.param == "service account":
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        about = {"type": "service_account", "client_email": "a@b", "private_key_id": SECRET}
        uri = "https://oauth2.googleapis.com/token"
        file.write_text(json.dumps({**about, "private_key": key.decode(), "token_uri": uri}))
    elif request.param == "broken file":
        file.write_text(f'{{"type": "service_account", "private_key": "{SECRET}"')
    if request.param != "none":
        path = file if request.param != "no such file" else tmp_path / "none.json"
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    return request.param, file.read_text() if file.exists() else ""


def test_no_message_and_no_log_holds_a_credential(
    through_google, account, monkeypatch, capfd, caplog
):
    kind, content = account
    monkeypatch.setenv("GOOGLE_AUTH_TOKEN_FOR_TESTING", SECRET)
    gs = through_google
    expected = storage.NoCredentials if kind == "none" else storage.CredentialsRefused
    shown = []
    for url in (gs.bucket(fault="forbidden"), f"https://x/y?X-Goog-Signature={SECRET}"):
        with pytest.raises(CourseError) as caught:
            storage.check_bucket(url)
        shown.append(
            "".join(traceback.format_exception(caught.value)).replace(SECRET + ".json", "")
        )
        if url.startswith("gs://"):
            assert type(caught.value) is expected
            assert "gcloud auth application-default login" in str(caught.value)
    noise = "".join(capfd.readouterr()) + caplog.text
    assert noise == ""  # the message says it all
    shown += [repr(storage.reach()), repr(gs), gs.log]
    words = {SECRET, *(w for w in re.findall(r"[\w+/=]{40,}", content))}
    assert not [word for word in words for text in shown if word in text]


def test_a_token_that_a_client_sends_is_not_logged(gs):
    path = f"/storage/v1/b/{name(gs.url)}/o?access_token={SECRET}&prefix=seen"
    ask(gs, "GET", path, headers={"Authorization": f"Bearer {SECRET}"})
    ask(gs, "POST", f"/token?refresh={SECRET}", b"code=" + SECRET.encode())
    assert "prefix=seen 200" in gs.log
    assert SECRET not in gs.log


@pytest.mark.parametrize("place", ["variable", "home"])
def test_the_users_account_is_hidden_from_the_embedded_storage(monkeypatch, tmp_path, place):
    import google.auth

    login = tmp_path / ".config/gcloud/application_default_credentials.json"
    login.parent.mkdir(parents=True)
    about = {"type": "authorized_user", "client_id": "a", "quota_project_id": "p"}
    login.write_text(json.dumps({**about, "client_secret": SECRET, "refresh_token": SECRET}))
    for variable in ("CLOUDSDK_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path if place == "home" else tmp_path / "other"))
    if place == "variable":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(login))
    assert google.auth.default()[0].refresh_token == SECRET
    with storage.embedded_gcs() as running:
        with pytest.raises(google.auth.exceptions.DefaultCredentialsError):
            google.auth.default()
        assert gfile.exists(running.url)
        assert "oauth2" not in running.log  # where TensorFlow would send it
    assert google.auth.default()[0].refresh_token == SECRET


LOOKS_SECRET = re.compile(
    r"ya29\.[\w-]{10}|AIza[\w-]{35}|\b1//0[\w-]{20}|GOCSPX-[\w-]{10}|GOOG1[A-Z0-9]{20}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|\"private_key\\*\":|X-Goog-Signature=[0-9a-f]{20}"
    r"|\bhf_[A-Za-z0-9]{30}|\bgh[pousr]_[A-Za-z0-9]{30}|\bAKIA[A-Z0-9]{16}"
    r"|\beyJ[\w-]{15,}\.[\w-]{10,}\.|[Bb]earer [\w.~+/-]{20}|\bxox[abp]-[\w-]{10}"
)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_stored_notebook_holds_a_credential(path):
    assert not LOOKS_SECRET.search(path.read_text("utf-8"))


@pytest.mark.parametrize(
    "planted",
    [
        SECRET,
        "-----BEGIN RSA PRIVATE KEY-----",
        json.dumps(json.dumps({"private_key": "x"})),
        "Authorization: Bearer " + "a" * 24,
        "hf_" + "A" * 34,
        "AIza" + "B" * 35,
        "eyJhbGciOiJSUzI1NiIs.eyJpc3MiOiJhYmM.sig",
    ],
)
def test_that_scan_would_find_one(planted):
    notebook = {"cells": [{"outputs": [{"text": [f"token: {planted}\n"]}]}]}
    assert LOOKS_SECRET.search(json.dumps(notebook))
