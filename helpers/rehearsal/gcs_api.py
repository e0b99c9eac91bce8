"""Cloud Storage's API, as far as TensorFlow, gcsfs and Google's own library for Python use it.

Reference: Cloud Storage JSON API v1, and the file system's source,
``tsl/platform/cloud/gcs_file_system.cc`` of TensorFlow 2.20.
"""

import base64
import dataclasses
import email
import json
import os
import re
import secrets
import threading
from collections.abc import Mapping
from urllib.parse import unquote

from helpers.rehearsal.gcs_objects import Refusal, Resource, Store

PAGE = 1000  # names in one answer to a listing, as in the real service


@dataclasses.dataclass(frozen=True)
class Request:
    """A whole request: ``address`` is scheme and host, ``path`` is still quoted."""

    method: str
    address: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Resource:
        """The body as JSON; an empty one is an empty object."""
        return _json(self.body or b"{}")


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a request is answered with: a dict as JSON, bytes as they are."""

    status: int
    body: bytes | Resource = b""
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class _Upload:
    """A resumable upload: what came so far, and the object's description once it is whole."""

    bucket: str
    name: str
    about: Resource
    generation: str | None
    data: bytearray = dataclasses.field(default_factory=bytearray)
    result: Resource | None = None
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


class Api:
    """Answers requests from a store; safe for threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._uploads: dict[str, _Upload] = {}

    def answer(self, request: Request) -> Answer:
        """Carry a request out, or refuse it as the service would."""
        try:
            for methods, path, permission, method in _ROUTES:
                match = re.fullmatch(path, request.path)
                if match and request.method in methods:
                    parts = {name: unquote(part) for name, part in match.groupdict().items()}
                    if permission:
                        self._store.bucket(parts["bucket"], permission)
                    return method(self, request, **parts)
            raise Refusal(501, f"{request.method} {request.path} is not served here.")
        except Refusal as refusal:
            return refused(refusal.status, refusal.message)

    def _make(self, request: Request) -> Answer:
        wish = {"name": "", "location": "US", "fault": None} | request.json()
        return Answer(200, self._store.make(wish["name"], wish["location"], wish["fault"]))

    def _describe_bucket(self, _: Request, bucket: str) -> Answer:
        return Answer(200, self._store.bucket(bucket, "storage.buckets.get"))

    def _list(self, request: Request, bucket: str) -> Answer:
        query = request.query
        objects, prefixes, last = self._store.listing(
            bucket,
            query.get("prefix", ""),
            query.get("delimiter", ""),
            base64.urlsafe_b64decode(query.get("pageToken", "")).decode(),
            min(int(query.get("maxResults") or PAGE), PAGE),
        )
        more = {}
        if last is not None:
            more["nextPageToken"] = base64.urlsafe_b64encode(last.encode()).decode()
        return Answer(200, {"items": objects, "prefixes": prefixes, **more})

    def _describe(self, _: Request, bucket: str, name: str) -> Answer:
        return Answer(200, self._store.find(bucket, name).resource)

    def _read(self, request: Request, bucket: str, name: str) -> Answer:
        found, file = self._store.open(bucket, name)
        about, size = found.resource, int(found.resource["size"])
        headers = {
            "Content-Type": about["contentType"],
            "X-Goog-Generation": about["generation"],
            "X-Goog-Hash": f"crc32c={about['crc32c']},md5={about['md5Hash']}",
        }
        first, last, status = 0, size - 1, 200
        span = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", ""))
        with file:
            if span and any(span.groups()):
                status = 206
                if span[1]:
                    first, last = int(span[1]), min(int(span[2] or last), last)
                else:
                    first = max(size - int(span[2]), 0)
                if first >= size:
                    return Answer(416, headers={"Content-Range": f"bytes */{size}"})
                headers["Content-Range"] = f"bytes {first}-{last}/{size}"
            file.seek(first, os.SEEK_CUR)
            return Answer(status, file.read(last - first + 1), headers)

    def _delete(self, request: Request, bucket: str, name: str) -> Answer:
        self._store.delete(bucket, name, request.query.get("ifGenerationMatch"))
        return Answer(204)

    def _copy(self, request: Request, bucket: str, name: str, target: str, new: str) -> Answer:
        self._store.bucket(target, "storage.objects.create")
        found, file = self._store.open(bucket, name)
        with file:
            data = file.read()
        about, generation = found.resource | request.json(), request.query.get("ifGenerationMatch")
        made = self._store.put(target, new, data, about, generation)
        done = {"done": True, "objectSize": made["size"], "totalBytesRewritten": made["size"]}
        return Answer(200, {**done, "resource": made})

    def _move(self, request: Request, bucket: str, name: str, new: str) -> Answer:
        moved = self._copy(request, bucket, name, bucket, new).body["resource"]
        self._store.delete(bucket, name)
        return Answer(200, moved)

    def _upload(self, request: Request, bucket: str) -> Answer:
        query, data = request.query, request.body
        kind, generation = query.get("uploadType"), query.get("ifGenerationMatch")
        if "upload_id" in query:
            return self._continue(request, query["upload_id"])
        about = {"contentType": request.headers.get("Content-Type", "")}
        if kind == "resumable":
            about = request.json()
        elif kind == "multipart":
            about, data = _two_parts(about["contentType"], data)
        name = query.get("name") or about.get("name", "")
        if kind == "resumable":
            self._store.check(bucket, name, generation)
            session = secrets.token_urlsafe(24)
            self._uploads[session] = _Upload(bucket, name, about, generation)
            place = f"{request.address}{request.path}?uploadType=resumable&upload_id={session}"
            return Answer(200, headers={"Location": place})
        return Answer(200, self._store.put(bucket, name, data, about, generation))

    def _continue(self, request: Request, session: str) -> Answer:
        """Take the next part of a resumable upload, or say how far it is."""
        upload, body = self._uploads.get(session), request.body
        if upload is None:
            raise Refusal(404, "No such upload session.")
        if request.method == "DELETE":
            del self._uploads[session]
            return Answer(499)
        whole = f"bytes 0-{len(body) - 1}/{len(body)}" if body else "bytes */0"
        given = request.headers.get("Content-Range", whole)
        span = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", given)
        if span is None:
            raise Refusal(400, "Invalid Content-Range.")
        with upload.lock:
            if upload.result is None and span[1] is not None:
                first, last = int(span[1]), int(span[2])
                if first > len(upload.data) or last - first + 1 != len(body):
                    raise Refusal(400, "The part does not follow what came before.")
                upload.data[first:] = body
            if upload.result is None and span[3] == str(len(upload.data)):
                data, upload.data = bytes(upload.data), bytearray()
                upload.result = self._store.put(
                    upload.bucket, upload.name, data, upload.about, upload.generation
                )
            if upload.result is not None:
                return Answer(200, upload.result)
            so_far = {"Range": f"bytes=0-{len(upload.data) - 1}"} if upload.data else {}
            return Answer(308, headers=so_far)


_BUCKET = "/storage/v1/b/(?P<bucket>[^/]+)"
_OBJECT = _BUCKET + "/o/(?P<name>[^/]+)"
# Methods, path, the permission that a client needs, and what answers.
_ROUTES = (
    (("POST",), "/storage/v1/b", None, Api._make),
    (("GET",), _BUCKET, "storage.buckets.get", Api._describe_bucket),
    (("GET",), f"{_BUCKET}/o", "storage.objects.list", Api._list),
    (("POST", "PUT", "DELETE"), f"/upload{_BUCKET}/o", "storage.objects.create", Api._upload),
    (("GET",), _OBJECT, "storage.objects.get", Api._describe),
    (("GET",), f"/download{_OBJECT}", "storage.objects.get", Api._read),
    (("DELETE",), _OBJECT, "storage.objects.delete", Api._delete),
    (
        ("POST",),
        f"{_OBJECT}/rewriteTo/b/(?P<target>[^/]+)/o/(?P<new>[^/]+)",
        "storage.objects.get",
        Api._copy,
    ),
    (("POST",), f"{_OBJECT}/moveTo/o/(?P<new>[^/]+)", "storage.objects.delete", Api._move),
    # Of the XML API, reading alone: TensorFlow reads objects so.
    (("GET",), "/(?P<bucket>[^/]+)/(?P<name>.+)", "storage.objects.get", Api._read),
)


def refused(status: int, message: str) -> Answer:
    """Make an answer other than success, as the service writes it."""
    error = {"code": status, "message": message}
    return Answer(status, {"error": {**error, "errors": [error]}})


def _json(text: bytes) -> Resource:
    try:
        return json.loads(text)
    except ValueError:
        raise Refusal(400, "Parse Error") from None


def _two_parts(content_type: str, body: bytes) -> tuple[Resource, bytes]:
    """Split a multipart upload: the resource as JSON, then the data, byte for byte."""
    # By hand: the e-mail parser of the standard library changes ends of lines in the data. Which
    # end of line the client uses is seen at its first boundary; the last boundary ends the data.
    boundary = re.search(r"boundary=\"?([^\";]+)", content_type)
    mark = re.escape(b"--" + boundary[1].encode()) if boundary else b"none"
    parts = re.fullmatch(
        rb"%b(?P<eol>\r?\n).*?(?P=eol){2}(.*?)(?P=eol)%b(?P=eol)(.*?)(?P=eol){2}(.*)(?P=eol)%b--\s*"
        % (mark, mark, mark),
        body,
        re.DOTALL,
    )
    if parts is None:
        raise Refusal(400, "Malformed multipart body.")
    _, about, head, data = parts.groups()
    return {"contentType": email.message_from_bytes(head).get("Content-Type"), **_json(about)}, data
