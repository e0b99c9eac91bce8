"""Buckets: one on this machine, without an account, and checks of any before a run."""

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from typing import Literal

from helpers.base.environment import variables_set
from helpers.base.errors import CourseError
from helpers.base.limits import TooLate, within
from helpers.base.settings import ROOT, ImportedTooEarly
from helpers.rehearsal import gcs_server as server

START_SECONDS = 30.0
# Read as gcsfs is imported: else it asks Google, by gRPC, what kind of bucket it has before it.
_PLAIN = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"


class StorageDidNotStart(CourseError):
    """The embedded storage's process ended, or did not get ready in time."""


class StorageEnded(CourseError):
    """The embedded storage's process is gone."""


class BucketNotMade(CourseError):
    """The embedded storage refuses to make a bucket of that name."""


class EmbeddedStorage:
    """A running embedded storage; `embedded_gcs` makes it.

    Attributes:
        url: A bucket that exists, such as ``gs://course-3f9a``.
        port: Where it listens, on 127.0.0.1 alone.
        environment: What a child process needs to see the same ``gs://``, best from its start.
            ``https_proxy`` holds the address: who puts a relay before it changes that variable
            (and ``STORAGE_EMULATOR_HOST``, ``FSSPEC_GS``, for gcsfs). ``no_grpc_proxy`` keeps gRPC,
            which obeys ``https_proxy`` too, off the proxy for addresses of this machine.
        authority: The file with the certificate that a client must trust.
    """

    def __init__(self, folder: pathlib.Path, name: str | None) -> None:
        self._folder = folder
        self._process: subprocess.Popen | None = None
        self.port = 0
        self._start()
        self.authority = folder / server.AUTHORITY
        self.environment = self._variables()
        self.url = self.bucket(name)

    def __repr__(self) -> str:
        state = "running" if self.process.poll() is None else "ended"
        return f"EmbeddedStorage({self.url}, {state})"

    @property
    def process(self) -> subprocess.Popen:
        """The server's process."""
        return self._process

    @property
    def log(self) -> str:
        """One line for each request so far: time, method, path, status. Never a credential."""
        return (self._folder / "log.txt").read_text("utf-8")

    def bucket(
        self,
        name: str | None = None,
        *,
        region: str = "us-central1",
        fault: Literal["read-only", "objects-only", "forbidden"] | None = None,
    ) -> str:
        """Make another bucket.

        Args:
            name: Its name, a new one when not given.
            region: Where it pretends to be, a region such as ``europe-west4`` or ``US``.
            fault: What is answered with 403. ``"read-only"``: every change; ``"objects-only"``:
                questions about the bucket itself; ``"forbidden"``: everything.

        Returns:
            Its address, ``gs://…``.

        Raises:
            BucketNotMade: There is one of that name, or no bucket can have it.
            StorageEnded: The server is gone.
        """
        name = name or f"course-{secrets.token_hex(4)}"
        wish = json.dumps({"name": name, "location": region, "fault": fault}).encode()
        place = f"http://127.0.0.1:{self.port}/storage/v1/b"
        request = urllib.request.Request(place, wish, {"Content-Type": "application/json"})
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            direct.open(request, timeout=10).close()
        except urllib.error.HTTPError as error:
            raise BucketNotMade(
                f"The embedded storage did not make the bucket {name!r}.",
                json.load(error)["error"]["message"],
                "Give it another name: 3 to 63 small letters, digits, '-', '_' or '.'.",
            ) from None
        except OSError as error:
            raise StorageEnded(
                "The embedded storage does not answer.",
                "Its process has ended.",
                "Open embedded_gcs() again, or call restart() to get the objects back.",
            ) from error
        return f"gs://{name}"

    def kill(self) -> None:
        """End the server at once, as a crash would (SIGKILL)."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Start a killed server again, with the same port, certificate and objects.

        Raises:
            StorageDidNotStart: Another program has taken the port meanwhile.
        """
        self.kill()
        self._start()

    def _start(self) -> None:
        ready = self._folder / server.READY
        ready.unlink(missing_ok=True)
        arguments = [str(self._folder), str(self.port), str(os.getpid())]
        with (self._folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", server.__name__, *arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a notebook's interrupt goes to the kernel's whole group
            )
        end = time.monotonic() + START_SECONDS
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise StorageDidNotStart(
                    "The embedded storage did not start.",
                    self.log.strip().rpartition("\n")[2] or f"Not ready in {START_SECONDS:.0f} s.",
                    "Run the cell again; if it stays so, restart the kernel.",
                )
            time.sleep(0.01)
        self.port = json.loads(ready.read_bytes())["port"]

    def _variables(self) -> dict[str, str]:
        address = f"http://127.0.0.1:{self.port}"
        (self._folder / "no-credentials").mkdir(exist_ok=True)
        return {
            # TensorFlow, and whatever else uses libcurl
            "https_proxy": address,
            "HTTPS_PROXY": address,
            "no_proxy": "",
            "NO_PROXY": "",
            "CURL_CA_BUNDLE": str(self.authority),
            "REQUESTS_CA_BUNDLE": str(self.authority),
            "GCS_STAT_CACHE_MAX_AGE": "0",  # what another process wrote is seen at once
            "GCS_RETRY_CONFIG_INIT_DELAY_TIME_US": "100000",
            "GCS_RETRY_CONFIG_MAX_RETRIES": "3",
            # gcsfs, google-cloud-storage: plain HTTP, so no proxy on the way
            "http_proxy": "",
            "HTTP_PROXY": "",
            "STORAGE_EMULATOR_HOST": address,
            "FSSPEC_GS": json.dumps({"token": "anon", "endpoint_url": address}),
            _PLAIN: "false",
            # all: no account of the user's goes to a server that is not Google's
            "NO_GCE_CHECK": "true",
            "GOOGLE_APPLICATION_CREDENTIALS": "",
            "CLOUDSDK_CONFIG": str(self._folder / "no-credentials"),
            # TensorFlow's connection to a worker on this machine
            "no_grpc_proxy": "127.0.0.1,localhost",
        }


@contextlib.contextmanager
def embedded_gcs(name: str | None = None) -> Iterator[EmbeddedStorage]:
    """Start a ``gs://`` of this machine's own, for this process and those it starts.

    Inside, every ``gs://`` path leads to it: TensorFlow's, gcsfs's, and so that of pandas and
    datasets. Nothing leaves the machine, and no account is used. Other addresses can't be reached
    over https meanwhile. Processes of other users of this machine can reach it; it is for
    rehearsals.

    Args:
        name: The first bucket's name, such as ``course-data``; a new one when not given. TensorFlow
            remembers an object's size for 5 seconds: two storages one after the other in a process
            should not have buckets of the same name.

    Yields:
        The storage, with a bucket in it. It ends with the block, and with this process, however
        that ends; its objects go with it.

    Raises:
        StorageDidNotStart: The process did not get ready.
        BucketNotMade: No bucket can have that name.
        ImportedTooEarly: gcsfs was imported before with settings that make it ask Google.
    """
    import fsspec.config  # before the environment is set: it keeps what it reads on import

    gcsfs = sys.modules.get("gcsfs")
    if gcsfs is not None and gcsfs.GCSFileSystem is not gcsfs.core.GCSFileSystem:
        raise ImportedTooEarly(
            f"gcsfs is already imported, without {_PLAIN}=false.",
            "It would ask Google what kind of bucket it has before it, and wait for minutes.",
            "Restart the kernel and open embedded_gcs() before anything uses a gs:// path.",
        )
    folder = pathlib.Path(tempfile.mkdtemp(prefix="embedded-gcs-"))
    storage = None
    conf = {name: dict(values) for name, values in fsspec.config.conf.items()}
    try:
        storage = EmbeddedStorage(folder, name)
        with variables_set(storage.environment):
            for scheme in ("gs", "gcs"):
                fsspec.config.conf[scheme] = json.loads(storage.environment["FSSPEC_GS"])
            yield storage
    finally:
        fsspec.config.conf.clear()
        fsspec.config.conf.update(conf)
        if storage is not None:
            storage.kill()
        shutil.rmtree(folder, ignore_errors=True)


class WorkerCantRead(CourseError):
    """A path that a TPU in another machine can't reach: not in a bucket."""


class BucketNameInvalid(CourseError):
    """A ``gs://`` address that no bucket can have."""


class BucketMissing(CourseError):
    """There is no bucket of that name."""


class BucketForbidden(CourseError):
    """The account in use may not read the bucket."""


class BucketReadOnly(CourseError):
    """The account in use may read the bucket, but not write to it, or not delete in it."""


class RegionHidden(CourseError):
    """The account in use may not ask where the bucket is."""


class WrongRegion(CourseError):
    """The bucket is not where the TPU is."""


class NoCredentials(CourseError):
    """No Google account is known here, and the bucket is not public."""


class CredentialsRefused(CourseError):
    """An account is known here, but Google no longer accepts it."""


class StorageUnreachable(CourseError):
    """The storage did not answer, or not in time."""


@dataclasses.dataclass(frozen=True)
class CheckedBucket:
    """A bucket that passed `check_bucket`.

    Attributes:
        url: Its address, ``gs://…``, with the place in it that was given.
        location: Where it is, such as ``us-central1`` or ``us``; None when that was not asked.
        writable: Whether writing and deleting were tried; they worked.
    """

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
# Places that hold more than one region: asia1 by cloud.google.com/storage/docs/locations, nam4 and
# eur4 by docs.rs/cloud-storage 0.10 (both 2026-11); "eu" is the European Union, so it is without
# London and Zurich, west2 and west6 (geography, not a page).
_REGIONS = {
    "us": r"us-.*",
    "eu": r"europe-(?!west2$|west6$).*",
    "asia": r"asia-.*",
    "nam4": r"us-central1|us-east1",
    "eur4": r"europe-north1|europe-west4",
    "asia1": r"asia-northeast1|asia-northeast2",
}


def check_bucket(
    url: str, *, region: str | None = None, write: bool = True, seconds: float = 30.0
) -> CheckedBucket:
    """Find out before a run whether a bucket will do.

    Asks the storage with the account that is known here (the application default credentials of
    google-auth), which need not be the TPU's own.

    Args:
        url: A bucket, or a place in it: ``gs://bucket/folder``.
        region: Where the TPU is: a region or a zone, such as ``us-central1-b``. None: not compared.
        write: Whether the run will write: then an empty object is written there and deleted.
        seconds: When to give up.

    Returns:
        What was found.

    Raises:
        WorkerCantRead: Not a ``gs://`` address.
        BucketNameInvalid: No bucket can have that name.
        BucketMissing: There is none of that name.
        BucketForbidden: 403 on reading.
        NoCredentials: No account is known, and the bucket is not public.
        CredentialsRefused: The account's login is no longer accepted.
        RegionHidden: ``region`` is given, and the account may not ask where the bucket is.
        WrongRegion: The bucket is elsewhere.
        BucketReadOnly: 403 on writing or deleting.
        StorageUnreachable: No answer in time.
    """
    name, folder = _split(url)
    region = region and re.sub(r"-[a-z]$", "", region)
    try:
        return within(seconds, lambda: _check(name, folder, region, write, seconds))
    except TooLate as late:
        raise _unreachable(str(late)) from None


def _split(url: str) -> tuple[str, str]:
    """Take a ``gs://`` address apart; says what is wrong with any other."""
    shown = repr(str(url).split("?")[0])  # a signed address has its secret behind the question mark
    scheme, divided, rest = str(url).partition("://")
    if not divided or scheme == "file":
        mangled = re.match(r"gs:/*(?=[^/])", str(url))
        raise WorkerCantRead(
            f"{shown} is not in a bucket.",
            "pathlib makes one slash of two."
            if mangled
            else "A TPU Node is another machine: it has no file of yours, only what is in gs://.",
            "Keep gs:// addresses as text, not as a Path."
            if mangled
            else "Copy it: gcloud storage cp --recursive FOLDER gs://BUCKET/FOLDER, then give that "
            "address; on a TPU VM the local disk will do.",
        )
    if scheme != "gs":
        raise WorkerCantRead(
            f"{shown} is not a gs:// address.",
            "gcs:// is known to fsspec alone."
            if scheme == "gcs"
            else f"TensorFlow on a TPU reads gs://; it has no {scheme}:// there.",
            f"Write gs://{rest.partition('/')[0]}."
            if scheme == "gcs"
            else "Copy it: gcloud storage cp --recursive FROM gs://BUCKET/FOLDER.",
        )
    name, _, folder = rest.partition("/")
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", name):
        raise BucketNameInvalid(
            f"{shown} names no bucket.",
            "A bucket's name has 3 to 63 small letters, digits, '-', '_' or '.', and begins and "
            "ends with a letter or digit.",
            "Look the name up: gcloud storage buckets list.",
        )
    return name, folder.strip("/")


def _unreachable(why: str) -> StorageUnreachable:
    return StorageUnreachable(
        "The storage can't be reached.",
        why,
        "Check the network and the proxy (https_proxy): curl -sI https://storage.googleapis.com",
    )


def _check(
    name: str, folder: str, region: str | None, write: bool, seconds: float
) -> CheckedBucket:
    import google.auth.exceptions
    import requests
    from google.api_core import exceptions
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    url = f"gs://{name}"
    try:
        credentials = _credentials()
        client = storage.Client(project=None, credentials=credentials or AnonymousCredentials())
        options = {"retry": None, "timeout": seconds}
        bucket = client.bucket(name)
        with _explained(url, "list", credentials is not None, region):
            next(
                iter(client.list_blobs(bucket, prefix=folder or None, max_results=1, **options)), 0
            )
        location = None
        if region:
            with _explained(url, "locate", credentials is not None, region):
                bucket.reload(**options)
            location = bucket.location.lower()
            _compare(url, location, region)
        if write:
            probe = bucket.blob(f"{folder}/".lstrip("/") + f".write-check-{secrets.token_hex(4)}")
            with _explained(url, "create", credentials is not None, region):
                probe.upload_from_string(b"", if_generation_match=0, **options)
            with _explained(url, "delete", credentials is not None, region):
                probe.delete(**options)
    except google.auth.exceptions.RefreshError as error:
        raise CredentialsRefused(
            "Google does not accept the account known here.",
            "Its login has expired or was withdrawn.",
            _LOGIN,
        ) from error
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
            raise CredentialsRefused(
                "The account's file can't be used.",
                "GOOGLE_APPLICATION_CREDENTIALS names a file that is missing or no key.",
                f"Correct the variable, or unset it. {_LOGIN}",
            ) from error
        return None
    finally:
        log.setLevel(level)


@contextlib.contextmanager
def _explained(url: str, action: str, known: bool, region: str | None) -> Iterator[None]:
    """Turn the service's refusals into messages that say how to get on."""
    from google.api_core import exceptions

    grant = (
        f"gcloud storage buckets add-iam-policy-binding {url} "
        "--member=serviceAccount:ACCOUNT --role=roles/storage."
    )
    try:
        yield
    except exceptions.NotFound as error:
        raise BucketMissing(
            f"There is no bucket {url}.",
            "The name is wrong, or it was never made.",
            f"Make it where the TPU is: gcloud storage buckets create {url} "
            f"--location={region or 'REGION'} --uniform-bucket-level-access",
        ) from error
    except (exceptions.Forbidden, exceptions.Unauthorized) as error:
        if not known and "STORAGE_EMULATOR_HOST" not in os.environ:
            raise NoCredentials(
                f"{url} is not public, and no Google account is known here.",
                "The storage can't see who asks.",
                _LOGIN,
            ) from error
        if isinstance(error, exceptions.Unauthorized):
            raise CredentialsRefused(
                "Google does not accept the account known here.",
                "Its login has expired or was withdrawn.",
                _LOGIN,
            ) from error
        if action == "list":
            raise BucketForbidden(
                f"The account in use may not read {url} (403).",
                "It lacks the permission storage.objects.list.",
                f"The bucket's owner grants it: {grant}objectAdmin",
            ) from error
        if action == "locate":
            raise RegionHidden(
                f"The account in use may not ask where {url} is (403).",
                "It lacks storage.buckets.get, which is not part of objectAdmin.",
                f"Ask its owner, or be granted it: {grant}legacyBucketReader",
            ) from error
        raise BucketReadOnly(
            f"{url} can be read but not {'written to' if action == 'create' else 'deleted in'}"
            " (403).",
            f"The account in use lacks the permission storage.objects.{action}"
            + ("." if action == "create" else ", and old checkpoints must be deleted."),
            f"The bucket's owner grants it: {grant}objectAdmin",
        ) from error


def _compare(url: str, location: str, region: str) -> None:
    if not re.fullmatch(_REGIONS.get(location, re.escape(location)), region):
        raise WrongRegion(
            f"{url} is in {location}, the TPU in {region}.",
            "Every byte that is read crosses regions: it is slower, and it is billed.",
            f"Make one there and copy: gcloud storage buckets create gs://NEW "
            f"--location={region} --uniform-bucket-level-access && gcloud storage cp --recursive "
            f"'{url}/*' gs://NEW",
        )


@dataclasses.dataclass(frozen=True)
class Reach:
    """Whether storage answers from here, and who would ask.

    Attributes:
        reachable: Whether it answered, with whatever status.
        place: ``"Google Cloud Storage"`` or ``"the embedded storage"``.
        account: Where an account is found: ``"a key file"``, ``"a gcloud login"``, or
            ``"none found"`` (a virtual machine of Google's has its own, which is not looked for).
        why: What came in the way, one sentence; empty when reachable.
    """

    reachable: bool
    place: str
    account: str
    why: str

    def __repr__(self) -> str:
        state = "answers" if self.reachable else f"does not answer. {self.why}"
        return f"{self.place} {state} (account: {self.account})"


def reach(seconds: float = 3.0) -> Reach:
    """Ask whether storage answers from here. Uses no account, names no bucket, never raises.

    Args:
        seconds: When to give up.

    Returns:
        The answer; prints as one line.
    """
    embedded = os.environ.get("STORAGE_EMULATOR_HOST")
    address = f"{embedded or 'https://storage.googleapis.com'}/storage/v1/b"

    def ask() -> None:
        with contextlib.suppress(urllib.error.HTTPError):  # a refusal is an answer
            urllib.request.build_opener().open(address, timeout=seconds).close()

    why = ""
    try:
        within(seconds, ask)
    except TooLate as late:
        why = str(late)
    except Exception as error:  # whatever a broken proxy or certificate makes of it
        why = f"No connection ({type(getattr(error, 'reason', error)).__name__})."
    place = "the embedded storage" if embedded else "Google Cloud Storage"
    return Reach(not why, place, _account(), why)


def _account() -> str:
    if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return "a key file"
    home = os.environ.get("CLOUDSDK_CONFIG") or pathlib.Path.home() / ".config/gcloud"
    login = pathlib.Path(home) / "application_default_credentials.json"
    return "a gcloud login" if login.exists() else "none found"
