"""Buckets: one on this machine, without an account, and checks of any before a run."""

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Literal

from helpers import embedded_gcs as server
from helpers.errors import CourseError
from helpers.runtime import ROOT, ImportedTooEarly

START_SECONDS = 30.0
# Read as gcsfs is imported: else it asks Google, by gRPC, what kind of bucket it has before it.
_PLAIN = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"


class StorageDidNotStart(CourseError):
    """The embedded storage's process ended, or did not get ready in time."""


class StorageEnded(CourseError):
    """The embedded storage's process is gone."""


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

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen | None = None
        self.port = 0
        self._start()
        self.authority = folder / server.AUTHORITY
        self.environment = self._variables()
        self.url = self.bucket()

    def __repr__(self) -> str:
        state = "running" if self.process.poll() is None else "ended"
        return f"EmbeddedStorage({self.url}, 127.0.0.1:{self.port}, {state})"

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
        fault: Literal["read-only", "forbidden"] | None = None,
    ) -> str:
        """Make another bucket.

        Args:
            name: Its name, a new one when not given.
            region: Where it pretends to be, a region such as ``europe-west4`` or ``US``.
            fault: ``"read-only"``: nothing can be written; ``"forbidden"``: every request is
                answered with 403.

        Returns:
            Its address, ``gs://…``.

        Raises:
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
            raise ValueError(json.load(error)["error"]["message"]) from None
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
            "GCS_RETRY_CONFIG_MAX_RETRIES": "5",
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
def embedded_gcs() -> Iterator[EmbeddedStorage]:
    """Start a ``gs://`` of this machine's own, for this process and those it starts.

    Inside, every ``gs://`` path leads to it: TensorFlow's, gcsfs's, and so that of pandas and
    datasets. Nothing leaves the machine, and no account is used. Other addresses can't be reached
    over https meanwhile. Processes of other users of this machine can reach it; it is for
    rehearsals.

    Yields:
        The storage, with a bucket in it. It ends with the block, and with this process, however
        that ends; its objects go with it.

    Raises:
        StorageDidNotStart: The process did not get ready.
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
    before, conf = {}, {name: dict(values) for name, values in fsspec.config.conf.items()}
    try:
        storage = EmbeddedStorage(folder)
        before = {name: os.environ.get(name) for name in storage.environment}
        os.environ.update(storage.environment)
        for scheme in ("gs", "gcs"):
            fsspec.config.conf[scheme] = json.loads(storage.environment["FSSPEC_GS"])
        yield storage
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        fsspec.config.conf.clear()
        fsspec.config.conf.update(conf)
        if storage is not None:
            storage.kill()
        shutil.rmtree(folder, ignore_errors=True)
