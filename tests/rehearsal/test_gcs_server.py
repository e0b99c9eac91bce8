"""The embedded storage's server keeps the service's rules, and nothing leaves the machine."""

import http.client
import itertools
import json
import socket
import ssl

import psutil
import pytest
import tensorflow as tf
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st
from terminal import wait_for

from helpers.rehearsal.gcs_api import PAGE
from helpers.rehearsal.gcs_objects import Store

pytestmark = pytest.mark.slow

gfile = tf.io.gfile
SECRET = "ya29.THIS-IS-SECRET"


def ask(gs, method, path, body=None, headers=None, connection=None):
    """Send a request; ``{}`` in the path is the first bucket's name."""
    connection = connection or http.client.HTTPConnection("127.0.0.1", gs.port, timeout=10)
    connection.request(method, path.format(gs.url.removeprefix("gs://")), body, headers or {})
    answer = connection.getresponse()
    return answer, answer.read()


UPLOAD = "/upload/storage/v1/b/{}/o?uploadType="


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path)
    made.make("bucket", "us", None)
    return made


# Objects


def test_more_names_than_a_page_are_all_listed(gs):
    connection = http.client.HTTPConnection("127.0.0.1", gs.port, timeout=10)
    wanted = [f"{number:04}" for number in range(PAGE + 5)]
    for each in wanted:
        assert ask(gs, "POST", f"{UPLOAD}media&name=many/{each}", b"x", None, connection)[1]
    assert sorted(gfile.listdir(f"{gs.url}/many")) == wanted
    assert len(gfile.glob(f"{gs.url}/many/*4")) == 101


def session(gs, name):
    """Begin a resumable upload; where its parts go."""
    start, _ = ask(gs, "POST", f"{UPLOAD}resumable&name={name}")
    return start.headers["Location"].partition(str(gs.port))[2]


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=30), st.lists(st.integers(0, 30), max_size=4), st.booleans())
def test_however_an_upload_is_cut_the_object_is_the_whole(gs, data, cuts, known):
    def generation():
        return ask(gs, "GET", "/{}/cut")[0].headers.get("X-Goog-Generation")

    path, before, answer = session(gs, "cut"), generation(), None
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for low, high in itertools.pairwise(edges):
        if answer is not None:
            assert answer.status == 308
            assert ask(gs, "PUT", path, headers={"Content-Range": "bytes */*"})[0].status == 308
            assert generation() == before, "a part was taken for the whole"
        total = len(data) if known or high == len(data) else "*"
        span = {"Content-Range": f"bytes {low}-{high - 1}/{total}"}
        answer, _ = ask(gs, "PUT", path, data[low:high], span)
    if answer is None:  # nothing to send: TensorFlow then sends an empty body without a range
        answer, _ = ask(gs, "PUT", path)
    assert answer.status == 200
    assert ask(gs, "GET", "/{}/cut")[1] == data
    # A client that missed the last answer asks how far it is, and is told that it is done.
    poll = {"Content-Range": f"bytes */{len(data)}"}
    assert ask(gs, "PUT", path, headers=poll)[0].status == 200


@pytest.mark.parametrize("span", ["bytes 3-5/9", "bytes 0-9/10", "lines 1"])
def test_a_part_that_does_not_fit_is_refused(gs, span):
    path = session(gs, "never")
    assert ask(gs, "PUT", path, b"abc", {"Content-Range": span})[0].status == 400
    assert ask(gs, "DELETE", path)[0].status == 499
    assert ask(gs, "PUT", path, b"abc")[0].status == 404
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
    path = f"{UPLOAD}media&name=half".format(gs.url.removeprefix("gs://"))
    with socket.create_connection(("127.0.0.1", gs.port)) as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode() + head)
    assert wait_for(lambda: "ConnectionAbortedError" in "".join(gs.log.splitlines()[lines:]))
    assert not gfile.exists(f"{gs.url}/half")


def test_a_reader_keeps_what_it_opened(store):
    store.put("bucket", "x", b"old", {})
    _, data = store.open("bucket", "x")
    store.put("bucket", "x", b"newer", {})
    with data:
        assert data.read() == b"old"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/storage/v1/b/no-such-bucket", None, 404),
        ("PUT", "/{}/object", b"", 501),
        ("PATCH", "/storage/v1/b/{}/o/x", b"{}", 501),
        ("PATCH", "/storage/v1/b/{}", b"{}", 501),
        ("POST", f"{UPLOAD}media&name=", b"", 400),
        ("POST", f"{UPLOAD}media&name=" + "a" * 1025, b"", 400),
        ("POST", f"{UPLOAD}multipart", b"none", 400),
        ("POST", f"{UPLOAD}resumable&name=a", b"no json", 400),
        ("DELETE", "/storage/v1/b/{}/o/none", None, 404),
    ],
)
def test_a_request_that_can_not_be_carried_out_is_answered(gs, method, path, body, status):
    answer, data = ask(gs, method, path, body)
    assert (answer.status, json.loads(data)["error"]["code"]) == (status, status)


# Nothing leaves the machine


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


def tunnel(gs, host, trusted):
    """A connection as TensorFlow makes it: through the proxy, with TLS."""
    context = ssl.create_default_context(cafile=trusted)
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as from Python 3.13 on
    connection = http.client.HTTPSConnection("127.0.0.1", gs.port, context=context, timeout=10)
    connection.set_tunnel(host)
    return connection


def test_its_certificate_is_for_storage_alone_and_must_be_known(gs):
    assert gs.certificate.parent.stat().st_mode & 0o077 == 0
    (certificate,) = x509.load_pem_x509_certificates(gs.certificate.read_bytes())
    extensions = {type(e.value): e.value for e in certificate.extensions}
    names = extensions[x509.SubjectAlternativeName].get_values_for_type(x509.DNSName)
    assert names == ["*.googleapis.com"]
    assert extensions[x509.BasicConstraints].ca is False
    other_service = tunnel(gs, "oauth2.googleapis.com", gs.certificate)
    assert ask(gs, "POST", "/token", b"refresh_token=x", None, other_service)[0].status == 404
    with pytest.raises(ssl.SSLCertVerificationError):
        tunnel(gs, "storage.googleapis.com", None).request("GET", "/")


def test_it_listens_on_this_machine_alone_and_calls_nobody(gs):
    connections = psutil.Process(gs.process.pid).net_connections("inet")
    listening = [c.laddr for c in connections if c.status == psutil.CONN_LISTEN]
    assert listening == [("127.0.0.1", gs.port)]
    assert all(c.laddr.port == gs.port for c in connections)


def test_a_token_that_a_client_sends_is_not_logged(gs):
    path = f"/storage/v1/b/{{}}/o?access_token={SECRET}&prefix=seen"
    ask(gs, "GET", path, headers={"Authorization": f"Bearer {SECRET}"})
    ask(gs, "POST", f"/token?refresh={SECRET}", b"code=" + SECRET.encode())
    assert "prefix=seen 200" in gs.log
    assert SECRET not in gs.log
