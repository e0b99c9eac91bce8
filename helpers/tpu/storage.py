"""A bucket on this machine, without an account: a ``gs://`` for rehearsals."""

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from helpers.base.processes import served, variables_set
from helpers.tpu import gcs_server

START_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class EmbeddedStorage:
    """A running embedded storage; `embedded_gcs` makes it."""

    folder: pathlib.Path  # its certificate, and ``log.txt``: method, path and status of requests
    port: int  # where it listens, on 127.0.0.1 alone
    process: subprocess.Popen  # the server's
    url: str  # its one bucket, such as ``gs://course-3f9a12c0``

    @property
    def environment(self) -> dict[str, str]:
        """What a child process needs to see the same ``gs://``, best from its start."""
        address = f"http://127.0.0.1:{self.port}"
        no_credentials = self.folder / "no-credentials"
        no_credentials.mkdir(exist_ok=True)
        certificate = str(self.folder / gcs_server.CERTIFICATE)
        return {
            # TensorFlow, and whatever else uses libcurl
            "https_proxy": address,
            "HTTPS_PROXY": address,
            "no_proxy": "",
            "NO_PROXY": "",
            "CURL_CA_BUNDLE": certificate,
            "REQUESTS_CA_BUNDLE": certificate,
            "GCS_STAT_CACHE_MAX_AGE": "0",  # what another process wrote is seen at once
            "GCS_RETRY_CONFIG_INIT_DELAY_TIME_US": "100000",
            "GCS_RETRY_CONFIG_MAX_RETRIES": "3",
            # gcsfs: plain HTTP, so no proxy on the way
            "http_proxy": "",
            "HTTP_PROXY": "",
            "STORAGE_EMULATOR_HOST": address,
            "FSSPEC_GS": json.dumps({"token": "anon", "endpoint_url": address}),
            # all: no account of the user's goes to a server that is not Google's
            "NO_GCE_CHECK": "true",
            "GOOGLE_APPLICATION_CREDENTIALS": "",
            "CLOUDSDK_CONFIG": str(no_credentials),
            # TensorFlow's connection to a worker on this machine
            "no_grpc_proxy": "127.0.0.1,localhost",
        }


@contextlib.contextmanager
def embedded_gcs() -> Iterator[EmbeddedStorage]:
    """Start a ``gs://`` of this machine's own, for this process and those it starts.

    Inside, every ``gs://`` path leads to it: TensorFlow's, gcsfs's, and so that of pandas and
    datasets. Nothing leaves the machine, and no account is used. Other addresses can't be reached
    over https meanwhile. Processes of other users of this machine can reach it; it is for
    rehearsals. It ends with the block, and with this process, however that ends; its objects, which
    lie in memory, go with it. In this process TensorFlow remembers an object's size for 5 seconds.

    Raises `CourseError`: The process did not get ready.
    """
    import fsspec.config  # before the environment is set: it keeps what it reads on import

    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gcs-")))
        bucket = f"course-{secrets.token_hex(4)}"  # TensorFlow may remember what another one held
        command = [sys.executable, "-m", gcs_server.__name__, folder, os.getpid(), bucket]
        log = folder / "log.txt"
        process, port = stack.enter_context(served(command, os.environ, log, START_SECONDS))
        storage = EmbeddedStorage(folder, port, process, url=f"gs://{bucket}")
        environment = storage.environment
        stack.enter_context(variables_set(environment))
        # fsspec has read its own variables long ago.
        gcsfs_options = json.loads(environment["FSSPEC_GS"])
        options = {"gs": gcsfs_options, "gcs": gcsfs_options}
        stack.enter_context(variables_set(options, fsspec.config.conf))
        yield storage
