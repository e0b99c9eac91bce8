"""Whether a bucket will do for a run, found out before the run starts."""

import os
import re
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


def check_bucket(url: str, *, region: str | None = None, write: bool = True) -> str:
    """Find out before a run whether a bucket will do; say what it is good for.

    Asks the storage with the account that is known here (the application default credentials of
    google-auth), which need not be the TPU's own.

    Args:
        url: A bucket, or a folder in it: ``gs://bucket/folder``.
        region: Where the TPU is: a region or a zone, such as ``us-central1-b``. None: not compared.
        write: Whether the run will write. If so, an empty object is written there and deleted.

    Raises:
        CourseError: The address names no bucket, the bucket is missing or in another region than
            the TPU, the account is unknown, refused, or lacks a permission, or the storage did not
            answer in time.
    """
    match = re.fullmatch(r"gs://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(/.*)?", str(url))
    if not match:
        raise CourseError(
            # A signed address has its secret behind the question mark.
            f"{str(url).partition('?')[0]!r} is no bucket's address.",
            "A TPU in another machine reads gs:// alone; a Path makes gs:/ of it.",
            "Write gs://BUCKET/FOLDER, as text; gcloud storage cp --recursive copies data there.",
        )
    name, folder = match[1], (match[2] or "").strip("/")
    bucket, session = f"storage/v1/b/{name}", _session()
    _ask(session, name, "GET", f"{bucket}/o?maxResults=1&prefix={quote(folder)}")
    if write:
        probe = quote(f"{folder}/.write-check-{secrets.token_hex(4)}".lstrip("/"), safe="")
        _ask(session, name, "POST", f"upload/{bucket}/o?uploadType=media&name={probe}")
        _ask(session, name, "DELETE", f"{bucket}/o/{probe}")
    said = f"gs://{name}/{folder}".rstrip("/") + f": readable{', writable' if write else ''}"
    if not region:
        return said
    location = _ask(session, name, "GET", bucket)["location"].lower()
    region = re.sub(r"(?<=\d)-[a-z][a-z0-9]*$", "", region)
    # Of several regions: "us", "eu" and "asia", or two that are close, such as "nam4".
    if ("-" in location and location != region) or (
        location in ("us", "eu", "asia") and not region.startswith(location)
    ):
        raise CourseError(
            f"gs://{name} is in {location}, the TPU in {region}.",
            "Every byte that is read crosses regions: it is slower, and it is billed.",
            f"Make one there, gcloud storage buckets create gs://NEW --location={region}, and "
            f"copy: gcloud storage cp --recursive 'gs://{name}/*' gs://NEW",
        )
    return f"{said}, in {location}"


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


def _ask(session: "requests.Session", bucket: str, method: str, path: str) -> dict[str, str]:
    """Ask the storage about a bucket; give the JSON of its answer."""
    from google.auth.exceptions import GoogleAuthError

    base = os.environ.get("STORAGE_EMULATOR_HOST") or "https://storage.googleapis.com"
    what = f"gs://{bucket} can't be reached."
    try:
        answer = session.request(method, f"{base}/{path}", timeout=SECONDS)
        content = answer.json() if answer.content else {}
    except GoogleAuthError as error:
        raise CourseError(what, "Google does not accept the account known here.", LOGIN) from error
    except OSError as error:  # requests' own errors are OSErrors
        why = f"{type(error).__name__}: no answer that could be understood."
        raise CourseError(what, why, NETWORK) from error
    if not answer.ok:
        what = f"gs://{bucket} will not do: the storage answers {answer.status_code}."
        fix = FIXES.get(answer.status_code, NETWORK).format(bucket=bucket)
        raise CourseError(what, content["error"]["message"], fix)
    return content
