"""Each thing that can be wrong with a bucket is told before a run, with its remedy."""

import http.server
import json
import pathlib
import re
import socket
import threading
import traceback

import pytest
from google.api_core import exceptions
from google.cloud import storage as google_storage

from helpers.base.errors import CourseError
from helpers.tpu import bucket
from helpers.tpu.bucket import CheckedBucket, check_bucket

pytestmark = pytest.mark.slow

GRANT = "gcloud storage buckets add-iam-policy-binding gs://"
SECRET = "ya29.THIS-IS-SECRET"


@pytest.fixture
def through_google(gs, monkeypatch):
    """The way to a real bucket: https, the account's own login; only the proxy answers."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    return gs


def told(url, *words, **options):
    """The error about a bucket; it holds each of the words."""
    with pytest.raises(CourseError) as caught:
        check_bucket(url, **options)
    for word in words:
        assert word in str(caught.value)
    return caught.value


def test_a_bucket_that_will_do(gs):
    url = gs.bucket(region="europe-west4")
    checked = check_bucket(f"{url}/run/1/", region="europe-west4-a")
    assert checked == CheckedBucket(f"{url}/run/1", "europe-west4", True)
    assert repr(checked) == f"{url}/run/1: readable, writable, in europe-west4"
    wide = check_bucket(gs.bucket(region="US"), region="us-central1", write=False)
    assert repr(wide).endswith(": readable, in us (many regions: every byte read is billed)")
    assert repr(check_bucket(url, write=False)) == f"{url}: readable"
    objects = google_storage.Client().list_blobs(url.removeprefix("gs://"))
    assert list(objects) == []


def test_the_same_check_through_https(through_google):
    url = through_google.bucket()
    assert check_bucket(url, region="us-central1").writable
    asked = f"storage.googleapis.com/storage/v1/b/{url.removeprefix('gs://')}"
    assert asked in through_google.log


@pytest.mark.parametrize(
    ("fault", "options", "words"),
    [
        ("missing", {"region": "us-central2-b"}, "buckets create {} --location=us-central2 "),
        ("missing", {}, "buckets create {} --location=REGION "),
        *(
            ("forbidden", options, "may not read {}|objects.list|binding {} --member|objectAdmin")
            for options in ({}, {"region": "us-central1"}, {"write": False})
        ),
        ("read-only", {}, "may not write to {}|storage.objects.create|binding {} |objectAdmin"),
        (
            "objects-only",
            {"region": "us-central1"},
            "may not ask where {} is|storage.buckets.get|legacyBucketReader",
        ),
    ],
)
def test_each_thing_that_is_wrong_with_a_bucket_is_told(gs, fault, options, words):
    url = "gs://no-such-bucket" if fault == "missing" else gs.bucket(fault=fault)
    told(url, *words.replace("{}", url).split("|"), **options)


def test_what_is_not_asked_for_may_be_refused(gs):
    url = gs.bucket(fault="read-only")
    assert check_bucket(url, write=False, region="us-central1").location == "us-central1"
    assert check_bucket(gs.bucket(fault="objects-only")).writable


def test_a_bucket_where_nothing_can_be_deleted_is_told(gs, monkeypatch):
    def refuse(*_, **__):
        raise exceptions.Forbidden("storage.objects.delete")

    monkeypatch.setattr(google_storage.Blob, "delete", refuse)
    told(gs.bucket(), "may not delete in gs://", "storage.objects.delete", "old checkpoints")


@pytest.mark.parametrize(
    ("location", "near", "far"),
    [
        ("us-central1", "us-central1", "us-central2-b"),
        ("US", "us-central1-b", "europe-west4-a"),
        ("us-south1", "us-south1-ai1b", "us-central1-ai1a"),
        ("EU", "europe-west4-a", "europe-west2-a"),
        ("ASIA", "asia-east1-c", "us-central1-b"),
        ("NAM4", "us-east1-d", "us-west4-a"),
    ],
)
def test_the_bucket_is_where_the_tpu_is_or_the_message_says_how_to_move(gs, location, near, far):
    url = gs.bucket(region=location)
    assert check_bucket(url, region=near, write=False).location == location.lower()
    region = far.rpartition("-")[0]
    create = f"create gs://NEW --location={region} "
    told(url, f"the TPU in {region}", create, f"'{url}/*' gs://NEW", region=far)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("data/train", "gcloud storage cp --recursive"),
        (pathlib.Path("data/train"), "another machine"),
        ("file:///data/train", "another machine"),
        (pathlib.Path("gs://bucket/x"), "not as a Path"),
        ("gcs://bucket/x", "Write gs://bucket"),
        ("s3://bucket/x", "no s3://"),
        ("ram://x", "no ram://"),
        ("", "not in a bucket"),
        ("gs://", "small letters"),
        ("gs://Bucket", "buckets list"),
        ("gs://a b/x", "3 to 63"),
    ],
)
def test_an_address_that_a_worker_can_not_read_is_told_without_a_request(monkeypatch, url, word):
    monkeypatch.setattr(bucket, "_check", None)
    told(url, word)


def test_storage_that_does_not_answer_is_told(monkeypatch):
    refusing = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    with refusing, socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        for port, seconds, why in (
            (refusing.server_port, 10, "It answered with status 501."),
            (9, 10, "No connection (ConnectionError)."),
            (silent.getsockname()[1], 0.3, "Why: No "),  # answer, or connection: which is first
        ):
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
            told("gs://bucket", "can't be reached", why, "curl", seconds=seconds)
        refusing.shutdown()


# Accounts


def key_file(kind):
    """What the file of an account holds that Google would not accept."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    if kind == "login":
        about = {"type": "authorized_user", "client_id": "a", "quota_project_id": "p"}
        return json.dumps({**about, "client_secret": SECRET, "refresh_token": SECRET})
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain).decode()
    about = {"type": "service_account", "client_email": "a@b", "private_key_id": SECRET}
    uri = "https://oauth2.googleapis.com/token"
    whole = json.dumps({**about, "private_key": private, "token_uri": uri})
    return whole if kind == "service account" else whole[:-20]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("none", "no Google account is known here"),
        ("login", "does not accept the account"),
        ("service account", "does not accept the account"),
        ("broken file", "account's file can't be used"),
        ("no such file", "account's file can't be used"),
    ],
)
def test_no_message_and_no_log_holds_a_credential(
    through_google, kind, expected, tmp_path, monkeypatch, capfd, caplog
):
    file, content = tmp_path / f"{SECRET}.json", ""
    if kind != "none":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    if kind not in ("none", "no such file"):
        content = key_file(kind)
        file.write_text(content)
    login = "gcloud auth application-default login"
    errors = [
        told(through_google.bucket(fault="forbidden"), expected, login),
        told(f"https://x/y?X-Goog-Signature={SECRET}", "is not a gs:// address"),
    ]
    assert "".join(capfd.readouterr()) + caplog.text == ""  # the message says it all
    shown = ["".join(traceback.format_exception(error)) for error in errors]
    shown = [text.replace(f"{SECRET}.json", "") for text in shown]
    shown += [repr(through_google), through_google.log]
    words = {SECRET, *(w for w in re.findall(r"[\w+/=]{40,}", content))}
    assert not [word for word in words for text in shown if word in text]
