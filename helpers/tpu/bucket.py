"""Whether a bucket will do for a run, found out before the run starts."""

import os
import secrets
import warnings
from typing import TYPE_CHECKING
from urllib.parse import quote

from helpers.base.errors import CourseError

if TYPE_CHECKING:
    import requests

SECONDS = 30.0  # the time limit of each question
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
LOGIN = (
    "Run `gcloud auth application-default login`; in Colab "
    "`from google.colab import auth; auth.authenticate_user()`; on a TPU VM give its service "
    "account access: gcloud storage buckets add-iam-policy-binding gs://{bucket} "
    "--member=serviceAccount:ACCOUNT --role=roles/storage.objectAdmin"
)
FIXES = {
    401: LOGIN,
    403: LOGIN,  # the storage says so of an unknown account, too
    404: "Make it where the TPU is: gcloud storage buckets create gs://{bucket} --location=REGION",
}
NETWORK = "Check the network and the proxy: curl -sI https://storage.googleapis.com"


def check_bucket(url: str, *, write: bool = True) -> None:
    """Find out before a run whether a folder in a bucket, ``gs://bucket/folder``, will do.

    Asks the storage with the account that is known here (the application default credentials of
    google-auth), which need not be the TPU's own. If the run will ``write``, an empty object is
    written there and deleted.

    Raises:
        CourseError: The bucket is missing, the account is unknown, refused, or lacks a permission,
            or the storage did not answer in time.
    """
    name, _, folder = url.removeprefix("gs://").rstrip("/").partition("/")
    session, objects = _session(), f"storage/v1/b/{quote(name)}/o"
    _ask(session, name, "GET", f"{objects}?maxResults=1&prefix={quote(folder)}")
    if write:
        probe = quote(f"{folder}/.write-check-{secrets.token_hex(4)}".lstrip("/"), safe="")
        _ask(session, name, "POST", f"upload/{objects}?uploadType=media&name={probe}")
        _ask(session, name, "DELETE", f"{objects}/{probe}")


def _session() -> "requests.Session":
    """Open a session as the account known here; without one if there is none."""
    import google.auth
    import requests
    from google.auth.transport.requests import AuthorizedSession

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an account without a project of its own will do
        try:
            return AuthorizedSession(google.auth.default(scopes=[SCOPE])[0])
        except google.auth.exceptions.DefaultCredentialsError:
            return requests.Session()


def _ask(session: "requests.Session", bucket: str, method: str, path: str) -> None:
    """Ask the storage about a bucket."""
    from google.auth.exceptions import GoogleAuthError

    base = os.environ.get("STORAGE_EMULATOR_HOST") or "https://storage.googleapis.com"
    what, fix = f"gs://{bucket} can't be reached.", NETWORK
    try:
        answer = session.request(method, f"{base}/{path}", timeout=SECONDS)
        if answer.ok:
            return
        why = answer.json()["error"]["message"]
        what = f"gs://{bucket} will not do: the storage answers {answer.status_code}."
        fix = FIXES.get(answer.status_code, NETWORK)
    except GoogleAuthError:
        why, fix = "Google does not accept the account known here.", LOGIN
    except OSError as error:  # requests' own errors, those of JSON too, are OSErrors
        why = f"{type(error).__name__}: no answer that could be understood."
    raise CourseError(what, why, fix.format(bucket=bucket))
