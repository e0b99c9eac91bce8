"""The embedded gs:// behaves like a file system for every client, and always ends."""

import http.client
import itertools
import json
import os
import pathlib
import socket
import ssl

import fsspec.config
import gcsfs
import google.auth
import numpy as np
import psutil
import pytest
import tensorflow as tf
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import child, printed
from terminal import gone, wait_for

from helpers.tpu import storage

pytestmark = pytest.mark.slow

gfile = tf.io.gfile


def name(url):
    return url.removeprefix("gs://")


def log(storage):
    return (storage.folder / "log.txt").read_text("utf-8")


def write(path, text):
    with gfile.GFile(path, "w") as file:
        file.write(text)


# TensorFlow's own file system code, against the same calls on a local folder


def text(root):
    write(f"{root}/t.txt", "hello\n한국어")
    write(f"{root}/empty", "")
    with gfile.GFile(f"{root}/t.txt", "a") as file:
        file.write("!")
    with pytest.raises(tf.errors.NotFoundError):
        gfile.GFile(f"{root}/none").read()
    contents = []
    for path in (f"{root}/t.txt", f"{root}/empty"):
        contents.append((gfile.GFile(path).read(), gfile.stat(path).length))
    return contents


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
        is_whole = file.read() == data
    is_part = tail == data[19 << 20 :][:100]
    return is_whole, is_part, gfile.stat(f"{root}/big").length


def folders(root):
    gfile.makedirs(f"{root}/d/e")
    write(f"{root}/d/a b%20ü.txt", "x")
    gfile.copy(f"{root}/d/a b%20ü.txt", f"{root}/d/e/copy.txt")
    gfile.rename(f"{root}/d/a b%20ü.txt", f"{root}/d/renamed.txt")
    entries = sorted(entry.rstrip("/") for entry in gfile.listdir(f"{root}/d"))
    matches = [path.removeprefix(root) for path in gfile.glob(f"{root}/d/*/*.txt")]
    names = ("", "e", "renamed.txt", "none", "a b%20ü.txt")
    are_folders = [gfile.isdir(f"{root}/d/{name}") for name in names]
    exist = [gfile.exists(f"{root}/d/{name}") for name in names]
    gfile.remove(f"{root}/d/renamed.txt")
    gfile.rmtree(f"{root}/d/e")
    exist_afterwards = [gfile.exists(f"{root}/d/{name}") for name in names]
    return entries, matches, are_folders, exist, exist_afterwards


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


@pytest.mark.parametrize("case", [text, big, folders, checkpoints], ids=lambda case: case.__name__)
def test_tensorflow_sees_what_it_sees_on_a_disk(gs, tmp_path, case):
    assert case(f"{gs.url}/{case.__name__}") == case(str(tmp_path))


def gcsfs_answers(files, root):
    """What a file system of fsspec answers to one use of everything."""
    blob = np.random.default_rng(1).bytes(11 << 20)

    def below(paths):
        return sorted(path.split(root)[1] for path in paths)

    files.pipe(f"{root}/a/x", b"hello")
    files.pipe(f"{root}/a/crlf", b"a\r\nb\r\n--==0==\r\n")
    files.pipe(f"{root}/empty", b"")
    with files.open(f"{root}/big", "wb", block_size=5 << 20) as file:
        file.write(blob)
    with files.open(f"{root}/big", "rb") as file:
        file.seek(10 << 20)
        tail = file.read()
    files.cp(f"{root}/a/x", f"{root}/b/x")
    files.mv(f"{root}/b/x", f"{root}/b/y")
    answers = {"tail": tail == blob[10 << 20 :]}
    answers["found"] = below(files.find(root))
    answers["matches"] = below(files.glob(f"{root}/*/x"))
    for path in ("a/x", "a/crlf", "empty", "b/y"):
        answers[path] = files.cat(f"{root}/{path}")
    answers["part"] = files.cat_file(f"{root}/a/x", 1, 3)
    answers["size"] = files.info(f"{root}/big")["size"]
    files.rm(f"{root}/a", recursive=True)
    answers["entries"] = below(files.ls(root, detail=False))
    with pytest.raises(FileNotFoundError):
        files.cat(f"{root}/none")
    return answers


@pytest.mark.long
def test_gcsfs_does_what_a_local_disk_does(gs, tmp_path):
    local = fsspec.filesystem("file", auto_mkdir=True)
    answers = gcsfs_answers(gcsfs.GCSFileSystem(), f"{name(gs.url)}/gcsfs")
    assert answers == gcsfs_answers(local, str(tmp_path / "root"))


OTHER = """
import sys
import gcsfs
import tensorflow as tf
path, other = f"{sys.argv[1]}/x", gcsfs.GCSFileSystem()
for text in ("first", "second, longer"):
    other.pipe(path, text.encode())
    assert tf.io.gfile.GFile(path).read() == text
    assert tf.io.gfile.stat(path).length == len(text)
print("seen")
"""


@pytest.mark.long
def test_a_child_process_sees_at_once_what_another_client_writes_over(gs):
    assert printed(OTHER, gs.url, environment=gs.environment) == "seen\n"


# The server, by its own requests

UPLOAD = "/upload/storage/v1/b/{}/o?uploadType="
SECRET = "ya29.THIS-IS-SECRET"


def ask(gs, method, path, body=None, headers=None, connection=None):
    """Send a request; ``{}`` in the path is the first bucket's name."""
    connection = connection or http.client.HTTPConnection("127.0.0.1", gs.port, timeout=10)
    connection.request(method, path.format(name(gs.url)), body, headers or {})
    answer = connection.getresponse()
    return answer, answer.read()


@settings(max_examples=40)
@given(st.binary(max_size=30), st.lists(st.integers(0, 30), max_size=4), st.booleans())
def test_however_an_upload_is_cut_the_object_is_the_whole(gs, data, cuts, known):
    def generation():
        return ask(gs, "GET", "/{}/cut")[0].headers.get("X-Goog-Generation")

    start, _ = ask(gs, "POST", f"{UPLOAD}resumable&name=cut")
    path = start.headers["Location"].partition(str(gs.port))[2]
    generation_before = generation()
    answer = None
    edges = {0, len(data)}
    edges.update(cut for cut in cuts if cut < len(data))
    for low, high in itertools.pairwise(sorted(edges)):
        if answer is not None:
            assert answer.status == 308
            assert ask(gs, "PUT", path, headers={"Content-Range": "bytes */*"})[0].status == 308
            assert generation() == generation_before, "a part was taken for the whole"
        total = len(data) if known or high == len(data) else "*"
        span = {"Content-Range": f"bytes {low}-{high - 1}/{total}"}
        answer, _ = ask(gs, "PUT", path, data[low:high], span)
    if answer is None:  # nothing to send: TensorFlow then sends an empty body without a range
        answer, _ = ask(gs, "PUT", path)
    assert answer.status == 200
    assert ask(gs, "GET", "/{}/cut")[1] == data


@pytest.mark.parametrize("head", ["Content-Length: 99\r\n", "Transfer-Encoding: chunked\r\n\r\n64"])
def test_what_a_dying_client_sent_is_no_object(gs, head):
    count = log(gs).count("ConnectionAbortedError")
    path = f"{UPLOAD}media&name=half".format(name(gs.url))
    with socket.create_connection(("127.0.0.1", gs.port)) as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n{50 * 'x'}".encode())
    assert wait_for(lambda: log(gs).count("ConnectionAbortedError") > count)
    assert not gfile.exists(f"{gs.url}/half")


@pytest.mark.parametrize(
    "target", ["googleapis.com.example.com:443", "evilgoogleapis.com:443", "www.googleapis.com:80"]
)
def test_other_addresses_are_refused(gs, target):
    assert ask(gs, "CONNECT", target)[0].status == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1234", 200),
        ("localhost", 200),
        ("storage.googleapis.com", 200),
        ("evil.example", 403),  # a page of the Web whose name leads to 127.0.0.1
        ("evil.example:80", 403),
        ("evilgoogleapis.com", 403),
        ("127.0.0.1.evil.example", 403),
        ("storage.googleapis.com.evil.example", 403),
        ("", 403),
    ],
)
def test_it_answers_under_its_own_names_alone(gs, host, status):
    answer, body = ask(gs, "GET", "/storage/v1/b/{}", headers={"Host": host})
    assert answer.status == status
    assert (name(gs.url).encode() in body) == (status == 200)


def test_its_certificate_is_for_storage_alone_and_must_be_known(gs):
    assert gs.folder.stat().st_mode & 0o077 == 0
    file = gs.folder / "certificate.pem"
    (certificate,) = x509.load_pem_x509_certificates(file.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["*.googleapis.com"]
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca
    for trusted in (file, None):
        context = ssl.create_default_context(cafile=trusted)
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # as from Python 3.13 on
        connection = http.client.HTTPSConnection("127.0.0.1", gs.port, context=context, timeout=10)
        connection.set_tunnel("oauth2.googleapis.com")
        if trusted:  # a tunnel to another service leads here, too
            assert ask(gs, "POST", "/token", b"token=x", None, connection)[0].status == 501
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                connection.request("GET", "/")


def test_it_listens_on_this_machine_alone_and_calls_nobody(gs):
    connections = psutil.Process(gs.process.pid).net_connections("inet")
    assert {connection.laddr.port for connection in connections} == {gs.port}
    listening = [c.laddr for c in connections if c.status == psutil.CONN_LISTEN]
    assert listening == [("127.0.0.1", gs.port)]


def test_a_token_that_a_client_sends_is_not_logged(gs):
    path = f"/storage/v1/b/{{}}/o?access_token={SECRET}&prefix=seen"
    ask(gs, "GET", path, headers={"Authorization": f"Bearer {SECRET}"})
    ask(gs, "POST", f"/token?refresh={SECRET}", b"code=" + SECRET.encode())
    assert "/token 501" in log(gs)
    assert SECRET not in log(gs)


# The storage's own process


def test_two_at_once_know_nothing_of_each_other_and_leave_all_as_it_was(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://mine:1")
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    environment = dict(os.environ)
    options = json.dumps(fsspec.config.conf)
    with pytest.raises(ZeroDivisionError), storage.embedded_gcs() as outer:
        write(f"{outer.url}/who", "outer")
        with storage.embedded_gcs() as inner:
            assert not gfile.exists(outer.url)
            assert gfile.exists(inner.url)
        assert fsspec.open(f"{outer.url}/who", "rt").open().read() == "outer"
        assert outer.environment.items() <= os.environ.items()
        raise ZeroDivisionError
    assert dict(os.environ) == environment
    assert json.dumps(fsspec.config.conf) == options
    for ended in (inner, outer):
        assert gone(ended.process.pid)
        assert not ended.folder.exists()


PARENT = """
import os, signal, sys, time
from helpers.tpu import storage
signal.signal(signal.SIGINT, lambda *_: None)
with storage.embedded_gcs() as running:
    os.killpg(0, signal.SIGINT)   # as a notebook's interrupt, which is not for the server
    time.sleep(0.2)
    if os.fork() == 0:   # has all pipes of its parent, beyond its end, as workers may
        print(running.process.pid, running.folder, flush=True)
    time.sleep(60)
"""


def test_it_outlives_an_interrupt_but_not_its_parent():
    with child(PARENT) as parent:
        server, folder = parent.stdout.readline().split()
        assert psutil.Process(int(server)).status() != psutil.STATUS_ZOMBIE
        parent.kill()
        parent.wait()
        assert gone(int(server))
        assert wait_for(lambda: not pathlib.Path(folder).exists())


def test_the_users_account_is_hidden_from_the_embedded_storage(monkeypatch, tmp_path):
    login = tmp_path / ".config/gcloud/application_default_credentials.json"
    login.parent.mkdir(parents=True)
    about = {"type": "authorized_user", "client_id": "a", "quota_project_id": "p"}
    login.write_text(json.dumps({**about, "client_secret": "s", "refresh_token": "mine"}))
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # google-auth would look for an account there, too
    monkeypatch.delenv("CLOUDSDK_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(login))
    assert google.auth.default()[0].refresh_token == "mine"
    with storage.embedded_gcs() as running:
        with pytest.raises(google.auth.exceptions.DefaultCredentialsError):
            google.auth.default()
        assert gfile.exists(running.url)
        assert "oauth2" not in log(running)  # where TensorFlow would send it
    assert google.auth.default()[0].refresh_token == "mine"
