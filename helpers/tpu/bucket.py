"""Whether a bucket will do for a run, found out before the run starts."""

import dataclasses
import logging
import os
import re
import secrets
import warnings

from helpers.base.errors import CourseError
from helpers.tpu.facts import facts
from tpu_preflight.processes import TooLate, within


@dataclasses.dataclass(frozen=True)
class CheckedBucket:
    """A bucket that passed `check_bucket`; ``location`` is None if that was not asked."""

    url: str
    location: str | None
    writable: bool

    def __repr__(self) -> str:
        where = f", in {self.location}" if self.location else ""
        if self.location in ("us", "eu", "asia"):
            where += " (many regions: every byte read is billed)"  # the locations page, 2026-11
        return f"{self.url}: readable{', writable' if self.writable else ''}{where}"


_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_LOGIN = (
    "Run `gcloud auth application-default login`; in Colab "
    "`from google.colab import auth; auth.authenticate_user()`; on a TPU VM give its service "
    "account access to the bucket."
)
_FACTS = facts("buckets.toml")


def check_bucket(
    url: str, *, region: str | None = None, write: bool = True, seconds: float = 30.0
) -> CheckedBucket:
    """Find out before a run whether a bucket will do.

    Asks the storage with the account that is known here (the application default credentials of
    google-auth), which need not be the TPU's own.

    Args:
        url: A bucket, or a folder in it: ``gs://bucket/folder``.
        region: Where the TPU is: a region or a zone, such as ``us-central1-b``. None: not compared.
        write: Whether the run will write. If so, an empty object is written there and deleted.
        seconds: The time limit.

    Raises:
        CourseError: The address names no bucket, the bucket is missing or in another region than
            the TPU, the account is unknown, refused, or lacks a permission, or the storage did not
            answer in time.
    """
    name, folder = _split(str(url))
    region = region and re.sub(r"(?<=\d)-[a-z][a-z0-9]*$", "", region)
    try:
        return within(seconds, lambda: _check(name, folder, region, write, seconds))
    except TooLate as late:
        raise _unreachable(str(late)) from None


def _split(url: str) -> tuple[str, str]:
    """Split a ``gs://`` address into bucket and folder; say what is wrong with any other."""
    shown = repr(url.split("?")[0])  # a signed address has its secret behind the question mark
    scheme, divided, rest = url.partition("://")
    name, _, folder = rest.partition("/")
    if not divided or scheme == "file":
        why = "A TPU Node is another machine: it has no file of yours, only what is in gs://."
        fix = (
            "Copy it: gcloud storage cp --recursive FOLDER gs://BUCKET/FOLDER, then give that "
            "address; on a TPU VM the local disk will do."
        )
        if url.startswith("gs:/"):
            why = "pathlib makes one slash of two."
            fix = "Keep gs:// addresses as text, not as a Path."
        raise CourseError(f"{shown} is not in a bucket.", why, fix)
    if scheme != "gs":
        why = f"TensorFlow on a TPU reads gs://; it has no {scheme}:// there."
        fix = "Copy it: gcloud storage cp --recursive FROM gs://BUCKET/FOLDER."
        if scheme == "gcs":
            why, fix = "Only fsspec knows gcs://.", f"Write gs://{name}."
        raise CourseError(f"{shown} is not a gs:// address.", why, fix)
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", name):
        raise CourseError(
            f"{shown} names no bucket.",
            "A bucket's name has 3 to 63 small letters, digits, '-', '_' or '.', and begins and "
            "ends with a letter or digit.",
            "Look the name up: gcloud storage buckets list.",
        )
    return name, folder.strip("/")


def _check(
    name: str, folder: str, region: str | None, write: bool, seconds: float
) -> CheckedBucket:
    import google.auth.exceptions
    import requests
    from google.api_core import exceptions
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    url, location, known, request = f"gs://{name}", None, False, "list"
    options = {"retry": None, "timeout": seconds}
    try:
        credentials = _credentials()
        known = credentials is not None
        client = storage.Client(project=None, credentials=credentials or AnonymousCredentials())
        bucket = client.bucket(name)
        probe = bucket.blob(f"{folder}/".lstrip("/") + f".write-check-{secrets.token_hex(4)}")
        next(iter(client.list_blobs(bucket, prefix=folder or None, max_results=1, **options)), None)
        if region:
            request = "locate"
            bucket.reload(**options)
            location = bucket.location.lower()
            _compare(url, location, region)
        if write:
            request = "create"
            probe.upload_from_string(b"", if_generation_match=0, **options)
            request = "delete"
            probe.delete(**options)
    except exceptions.NotFound as error:
        raise CourseError(
            f"There is no bucket {url}.",
            "The name is wrong, or it was never made.",
            f"Make it where the TPU is: gcloud storage buckets create {url} "
            f"--location={region or 'REGION'} --uniform-bucket-level-access",
        ) from error
    except (exceptions.Forbidden, exceptions.Unauthorized) as error:
        if not known and "STORAGE_EMULATOR_HOST" not in os.environ:
            raise CourseError(
                f"{url} is not public, and no Google account is known here.",
                "The storage can't see who asks.",
                _LOGIN,
            ) from error
        if isinstance(error, exceptions.Unauthorized):
            raise _refused() from error
        act, why, role = _FACTS["forbidden"][request]
        raise CourseError(
            f"The account in use may not {act.format(url=url)} (403).",
            why,
            f"The bucket's owner grants it: gcloud storage buckets add-iam-policy-binding {url} "
            f"--member=serviceAccount:ACCOUNT --role=roles/storage.{role}",
        ) from error
    except google.auth.exceptions.RefreshError as error:
        raise _refused() from error
    except exceptions.GoogleAPICallError as error:
        raise _unreachable(f"It answered with status {error.code}.") from error
    except (requests.RequestException, google.auth.exceptions.TransportError) as error:
        raise _unreachable(f"No connection ({type(error).__name__}).") from error
    return CheckedBucket(f"{url}/{folder}".rstrip("/"), location, write)


def _credentials() -> object | None:
    """The account known here, or None."""
    import google.auth

    if "STORAGE_EMULATOR_HOST" in os.environ:
        return None
    log = logging.getLogger("google.auth._default")
    level = log.level
    log.setLevel(logging.ERROR)  # it warns of what is told here by an error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an account without a project of its own will do
            return google.auth.default(scopes=[_SCOPE])[0]
    except google.auth.exceptions.DefaultCredentialsError as error:
        if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
            raise CourseError(
                "The account's file can't be used.",
                "GOOGLE_APPLICATION_CREDENTIALS names a file that is missing or no key.",
                f"Correct the variable, or unset it. {_LOGIN}",
            ) from error
        return None
    finally:
        log.setLevel(level)


def _compare(url: str, location: str, region: str) -> None:
    if not re.fullmatch(_FACTS["regions"].get(location, re.escape(location)), region):
        raise CourseError(
            f"{url} is in {location}, the TPU in {region}.",
            "Every byte that is read crosses regions: it is slower, and it is billed.",
            f"Make one there and copy: gcloud storage buckets create gs://NEW "
            f"--location={region} --uniform-bucket-level-access && gcloud storage cp --recursive "
            f"'{url}/*' gs://NEW",
        )


def _refused() -> CourseError:
    return CourseError(
        "Google does not accept the account known here.",
        "Its login has expired or was withdrawn.",
        _LOGIN,
    )


def _unreachable(why: str) -> CourseError:
    return CourseError(
        "The storage can't be reached.",
        why,
        "Check the network and the proxy (https_proxy): curl -sI https://storage.googleapis.com",
    )
