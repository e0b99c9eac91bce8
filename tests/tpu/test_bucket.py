"""Each thing that can be wrong with a bucket is told before a run, with its remedy."""

import contextlib
import http.server
import json
import threading
import traceback

import pytest

from helpers.base.errors import CourseError
from helpers.tpu.bucket import check_bucket

pytestmark = pytest.mark.slow

SECRET = "ya29.THIS-IS-SECRET"


def told(url, *words, **options):
    """The error about a bucket; it holds each of the words."""
    with pytest.raises(CourseError) as caught:
        check_bucket(url, **options)
    for word in words:
        assert word in str(caught.value)
    return caught.value


@contextlib.contextmanager
def storage_that(monkeypatch, answers):
    """A storage that answers each method with a status, and a dict as JSON or bytes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            status, body = answers.get(self.command, (200, {}))
            kind = "application/json" if isinstance(body, dict) else "text/html"
            body = json.dumps(body).encode() if isinstance(body, dict) else body
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        yield
        server.shutdown()


def refusal(status, message):
    return status, {"error": {"code": status, "message": message}}


def test_a_bucket_that_will_do_and_is_left_empty(gs):
    url = gs.bucket()
    assert check_bucket(f"{url}/run/1/") == f"{url}/run/1: readable, writable"
    assert check_bucket(url, write=False) == f"{url}: readable"
    assert "DELETE" in gs.log and "write-check" in gs.log
    import gcsfs

    assert gcsfs.GCSFileSystem().find(url) == []


def test_a_bucket_that_is_missing_is_told_how_to_make(gs):
    told("gs://no-such-bucket", "answers 404", "buckets create gs://no-such-bucket")


@pytest.mark.parametrize(
    ("method", "status", "words"),
    [
        ("GET", 403, ["answers 403", "lacks it", "add-iam-policy-binding gs://b-1", "login"]),
        ("POST", 403, ["answers 403", "add-iam-policy-binding gs://b-1"]),
        ("DELETE", 403, ["answers 403"]),
        ("GET", 401, ["answers 401", "gcloud auth application-default login"]),
        ("GET", 503, ["answers 503", "curl"]),
    ],
)
def test_what_the_storage_refuses_is_told(monkeypatch, method, status, words):
    with storage_that(monkeypatch, {method: refusal(status, "The account lacks it.")}):
        told("gs://b-1/run", *words)
        if method != "GET":
            assert check_bucket("gs://b-1/run", write=False) == "gs://b-1/run: readable"


@pytest.mark.parametrize(
    ("location", "near", "far"),
    [
        ("US-CENTRAL1", "us-central1", "us-central2-b"),
        ("US", "us-central1-b", "europe-west4-a"),
        ("US-SOUTH1", "us-south1-ai1b", "us-central1-ai1a"),
        ("EU", "europe-west4-a", "us-west4-a"),
        ("ASIA", "asia-east1-c", "us-central1-b"),
    ],
)
def test_the_bucket_is_where_the_tpu_is_or_the_message_says_how_to_move(
    monkeypatch, location, near, far
):
    with storage_that(monkeypatch, {"GET": (200, {"location": location})}):
        assert check_bucket("gs://b-1", region=near).endswith(f"in {location.lower()}")
        region = far.rpartition("-")[0]
        told("gs://b-1", f"the TPU in {region}", f"create gs://NEW --location={region}", region=far)


@pytest.mark.parametrize(
    "url",
    [
        *("data/train", "file:///data/train", "gs:/bucket/x", "gcs://bucket/x", "s3://bucket/x"),
        *("", "gs://", "gs://Bucket", "gs://a b/x", f"https://x/y?X-Goog-Signature={SECRET}"),
    ],
)
def test_an_address_that_a_worker_can_not_read_is_told_without_a_request(url):
    error = told(url, "is no bucket's address", "Write gs://BUCKET/FOLDER")
    assert SECRET not in str(error)


@pytest.mark.parametrize("answer", [(502, b"<html>Bad gateway</html>"), None])
def test_storage_that_can_not_be_understood_or_reached_is_told(monkeypatch, answer):
    with storage_that(monkeypatch, {"GET": answer}):
        if answer is None:
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
        told("gs://b-1", "can't be reached", "curl")


def test_an_account_that_google_refuses_is_told_without_its_secret(gs, monkeypatch, tmp_path):
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")  # the way to a real bucket, but for the proxy
    login = tmp_path / "login.json"
    about = {"type": "authorized_user", "client_id": "a", "quota_project_id": "p"}
    login.write_text(json.dumps({**about, "client_secret": SECRET, "refresh_token": SECRET}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(login))
    error = told(gs.bucket(), "does not accept the account", "application-default login")
    shown = ["".join(traceback.format_exception(error)), gs.log, repr(gs)]
    assert not [text for text in shown if SECRET in text]
