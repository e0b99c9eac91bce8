"""Each thing that can be wrong with a bucket is told before a run, with its remedy."""

import contextlib
import http.server
import json
import threading
import traceback

import gcsfs
import pytest

from helpers.base.errors import CourseError
from helpers.tpu.bucket import check_bucket

pytestmark = pytest.mark.slow

SECRET = "ya29.THIS-IS-SECRET"


def told(url, *words):
    """The error about a bucket; it holds each of the words."""
    with pytest.raises(CourseError) as caught:
        check_bucket(url)
    assert not [word for word in words if word not in str(caught.value)]
    return caught.value


@contextlib.contextmanager
def storage_that(monkeypatch, answers):
    """A storage that answers each method with a status, and a dict as JSON or bytes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            status, body = answers.get(self.command, (200, {}))
            body = json.dumps(body).encode() if isinstance(body, dict) else body
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
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


def test_a_bucket_that_will_do_and_is_left_empty(gs):
    check_bucket(f"{gs.url}/run/1/")
    assert gcsfs.GCSFileSystem().find(gs.url) == []


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
    refusal = {"error": {"code": status, "message": "The account lacks it."}}
    with storage_that(monkeypatch, {method: (status, refusal)}):
        told("gs://b-1/run", *words)
        if method != "GET":
            check_bucket("gs://b-1/run", write=False)


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
    error = told(gs.url, "does not accept the account", "application-default login")
    shown = [
        "".join(traceback.format_exception(error)),
        repr(gs),
        (gs.folder / "log.txt").read_text(),
    ]
    assert not [text for text in shown if SECRET in text]
