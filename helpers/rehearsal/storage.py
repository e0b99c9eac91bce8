"""A bucket on this machine, without an account: a ``gs://`` for rehearsals."""

import contextlib
import http.client
import json
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Literal

from helpers.base.errors import CourseError
from helpers.base.processes import variables_set
from helpers.base.settings import CODE, ImportedTooEarly
from helpers.rehearsal import gcs_server
from tpu_preflight.processes import TooLate, within

START_SECONDS = 30.0
# Read as gcsfs is imported: else it asks Google, by gRPC, what kind of bucket it has before it.
_PLAIN = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"


class EmbeddedStorage:
    """A running embedded storage; `embedded_gcs` makes it.

    Attributes:
        url: A bucket that exists, such as ``gs://course-3f9a``.
        port: Where it listens, on 127.0.0.1 alone.
        process: The server's process.
        environment: What a child process needs to see the same ``gs://``, best from its start.
            ``https_proxy`` holds the address: who puts a relay before it changes that variable
            (and ``STORAGE_EMULATOR_HOST``, ``FSSPEC_GS``, for gcsfs). ``no_grpc_proxy`` keeps gRPC,
            which obeys ``https_proxy`` too, off the proxy for addresses of this machine.
        certificate: The file with the certificate that a client must trust.
    """

    url: str
    process: subprocess.Popen

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self.port = 0
        self._start()
        self.certificate = folder / gcs_server.CERTIFICATE
        self.environment = self._variables()

    def __repr__(self) -> str:
        state = "running" if self.process.poll() is None else "ended"
        return f"EmbeddedStorage({self.url}, {state})"

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
        """Make another bucket, with a new name when none is given; give its address, ``gs://…``.

        Args:
            name: Its name.
            region: Where it pretends to be, a region such as ``europe-west4`` or ``US``.
            fault: What is answered with 403. ``"read-only"``: every change; ``"objects-only"``:
                questions about the bucket itself; ``"forbidden"``: everything.

        Raises:
            CourseError: There is one of that name, no bucket can have it, or the server is gone.
        """
        name = name or f"course-{secrets.token_hex(4)}"
        wish = json.dumps({"name": name, "location": region, "fault": fault})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            with contextlib.closing(connection):
                connection.request("POST", "/storage/v1/b", wish)
                answer = json.load(connection.getresponse())
        except OSError as error:
            raise CourseError(
                "The embedded storage does not answer.",
                "Its process has ended.",
                "Open embedded_gcs() again, or call restart() to get the objects back.",
            ) from error
        if "error" in answer:
            raise CourseError(
                f"The embedded storage did not make the bucket {name!r}.",
                answer["error"]["message"],
                "Give it another name: 3 to 63 small letters, digits, '-', '_' or '.'.",
            )
        return f"gs://{name}"

    def kill(self) -> None:
        """End the server at once, as a crash would (SIGKILL)."""
        with self.process:
            self.process.kill()

    def restart(self) -> None:
        """Start a killed server again, with the same port, certificate and objects.

        Raises:
            CourseError: Another program has taken the port meanwhile.
        """
        self.kill()
        self._start()

    def _start(self) -> None:
        arguments = [str(self._folder), str(self.port), str(os.getpid())]
        with (self._folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", gcs_server.__name__, *arguments],
                cwd=CODE,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # a notebook's interrupt goes to the kernel's whole group
            )
        try:
            port = within(START_SECONDS, self.process.stdout.readline)
        except TooLate:
            port = b""
        if not port:
            self.kill()
            raise CourseError(
                "The embedded storage did not start.",
                self.log.strip().rpartition("\n")[2] or f"Not ready in {START_SECONDS:.0f} s.",
                "Run the cell again; if it stays so, restart the kernel.",
            )
        self.port = int(port)

    def _variables(self) -> dict[str, str]:
        address = f"http://127.0.0.1:{self.port}"
        (self._folder / "no-credentials").mkdir(exist_ok=True)
        return {
            # TensorFlow, and whatever else uses libcurl
            "https_proxy": address,
            "HTTPS_PROXY": address,
            "no_proxy": "",
            "NO_PROXY": "",
            "CURL_CA_BUNDLE": str(self.certificate),
            "REQUESTS_CA_BUNDLE": str(self.certificate),
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
    rehearsals. It ends with the block, and with this process, however that ends; its objects go
    with it.

    It holds a bucket ``name``, such as ``course-data``; a new one when not given. TensorFlow
    remembers an object's size for 5 seconds: two storages one after the other in a process should
    not have buckets of the same name.

    Raises:
        CourseError: The process did not get ready, or no bucket can have that name.
        ImportedTooEarly: gcsfs was imported before, with settings that make it ask Google.
    """
    import fsspec.config  # before the environment is set: it keeps what it reads on import

    gcsfs = sys.modules.get("gcsfs")
    if gcsfs is not None and gcsfs.GCSFileSystem is not gcsfs.core.GCSFileSystem:
        raise ImportedTooEarly(
            f"gcsfs is already imported, without {_PLAIN}=false.",
            "It would ask Google what kind of bucket it has before it, and wait for minutes.",
            "Restart the kernel and open embedded_gcs() before anything uses a gs:// path.",
        )
    conf, before = fsspec.config.conf, dict(fsspec.config.conf)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="embedded-gcs-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        storage = EmbeddedStorage(folder)
        stack.callback(storage.kill)
        storage.url = storage.bucket(name)
        stack.enter_context(variables_set(storage.environment))
        stack.callback(conf.update, before)
        stack.callback(conf.clear)
        conf |= dict.fromkeys(("gs", "gcs"), json.loads(storage.environment["FSSPEC_GS"]))
        yield storage
