"""A storage server for this machine alone that speaks what ``gs://`` speaks, in its own process.

TensorFlow's file system for ``gs://`` knows one address, Google's, and takes no other; but it asks
a proxy when there is one. So this server is a proxy that answers itself: it opens the tunnel a
client asks for (CONNECT), shows a certificate of its own for ``*.googleapis.com``, and serves the
JSON API and the media requests from a private folder. What is not ``*.googleapis.com`` it refuses,
and it opens no connection to anywhere. The same port serves plain HTTP to gcsfs and to
google-cloud-storage, which can be told an address.

It must be a process: while TensorFlow waits for an answer it may hold Python's global lock, and a
thread could then never give one.

An object is one file: a line of JSON, then the data. It gets its name in one step (``os.replace``)
when all of it is there, so after a crash every object is whole or absent.

Reference: Cloud Storage JSON API v1, and the file system's source,
``tsl/platform/cloud/gcs_file_system.cc`` of TensorFlow 2.20.
"""

import base64
import contextlib
import dataclasses
import datetime
import email.parser
import hashlib
import http.server
import json
import os
import pathlib
import re
import secrets
import shutil
import ssl
import sys
import threading
import time
import typing
from urllib.parse import parse_qs, quote, unquote, urlsplit

import google_crc32c

SERVED = ".googleapis.com"
PAGE = 1000  # names in one answer to a listing, as in the real service
READY = "ready.json"  # written last: who finds it can connect
AUTHORITY = "authority.pem"
_LEAF = "server.pem"
_BUCKET = "bucket.json"
# The part of a request's query that a log may show; a token or a session's id is not among it.
_LOGGED = ("name", "prefix", "uploadType", "maxResults")
_API = re.compile(
    r"/(?:(?P<kind>upload|download)/)?storage/v1/b"
    r"(?:/(?P<bucket>[^/]+)(?P<objects>/o(?:/(?P<name>[^/]+)"
    r"(?:/(?P<verb>rewriteTo|copyTo|moveTo)(?:/b/(?P<to_bucket>[^/]+))?/o/(?P<to_name>[^/]+)"
    r"|/(?P<compose>compose))?)?)?)?/?"
)


class Refusal(Exception):
    """An answer other than success.

    Args:
        status: The HTTP status.
        message: What the service says about it.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A bucket and what is wrong with it.

    Attributes:
        name: Its name, without ``gs://``.
        location: A region such as ``US-CENTRAL1`` or a multi-region such as ``US``.
        fault: None; ``"read-only"``: nothing may be written; ``"objects-only"``: the bucket's own
            description may not be read; ``"forbidden"``: nothing at all.
    """

    name: str
    location: str
    fault: str | None

    def resource(self) -> dict[str, typing.Any]:
        """The bucket as the JSON API shows it."""
        multiple = self.location in ("US", "EU", "ASIA")
        return {
            "kind": "storage#bucket",
            "id": self.name,
            "name": self.name,
            "location": self.location,
            "locationType": "multi-region" if multiple else "region",
            "storageClass": "STANDARD",
        }


@dataclasses.dataclass(frozen=True)
class Object:
    """A whole object: what is known about it, and where its data starts in its file."""

    bucket: str
    name: str
    generation: int
    size: int
    updated: str
    md5: str
    crc32c: str
    content_type: str
    metadata: dict[str, str] | None
    file: pathlib.Path
    offset: int

    def resource(self) -> dict[str, typing.Any]:
        """The object as the JSON API shows it."""
        place = f"/storage/v1/b/{self.bucket}/o/{quote(self.name, safe='')}"
        shown = {
            "kind": "storage#object",
            "id": f"{self.bucket}/{self.name}/{self.generation}",
            "selfLink": f"https://www.googleapis.com{place}",
            "mediaLink": f"https://storage.googleapis.com/download{place}?alt=media",
            "bucket": self.bucket,
            "name": self.name,
            "size": str(self.size),
            "generation": str(self.generation),
            "metageneration": "1",
            "updated": self.updated,
            "timeCreated": self.updated,
            "md5Hash": self.md5,
            "crc32c": self.crc32c,
            "contentType": self.content_type,
            "storageClass": "STANDARD",
            "etag": str(self.generation),
        }
        return shown | ({"metadata": self.metadata} if self.metadata else {})


class Store:
    """Buckets and objects in a folder. Safe for threads; whole or absent after a crash."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Read what an earlier process left.

        Args:
            folder: One folder per bucket is made in it.
        """
        self._folder = folder
        self._lock = threading.RLock()
        self._buckets: dict[str, Bucket] = {}
        self._objects: dict[str, dict[str, Object]] = {}
        self._last = 0
        folder.mkdir(exist_ok=True)
        for about in sorted(folder.glob(f"*/{_BUCKET}")):
            self._load(about)

    def _load(self, about: pathlib.Path) -> None:
        bucket = Bucket(**json.loads(about.read_bytes()))
        self._buckets[bucket.name] = bucket
        objects = self._objects[bucket.name] = {}
        for file in about.parent.glob(".*"):
            file.unlink()  # begun and never finished
        numbered = (file for file in about.parent.iterdir() if file.name != _BUCKET)
        for file in sorted(numbered, key=lambda file: int(file.name)):
            with file.open("rb") as lines:
                head = json.loads(lines.readline())
                known = Object(**head, file=file, offset=lines.tell())
            if known.name in objects:
                objects[known.name].file.unlink()
            objects[known.name] = known
            self._last = max(self._last, known.generation)

    def make(self, name: str, location: str, fault: str | None) -> Bucket:
        """Make a bucket.

        Raises:
            Refusal: 409, there is one of that name; 400, no bucket can have that name.
        """
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", name):
            raise Refusal(400, f"Invalid bucket name: '{name}'")
        with self._lock:
            if name in self._buckets:
                raise Refusal(409, "Your previous request to create the named bucket succeeded.")
            bucket = Bucket(name, location.upper(), fault)
            home = self._folder / name
            home.mkdir(exist_ok=True)
            unnamed = home / ".bucket"
            unnamed.write_text(json.dumps(dataclasses.asdict(bucket)))
            unnamed.replace(home / _BUCKET)
            self._buckets[name], self._objects[name] = bucket, {}
            return bucket

    def drop(self, name: str) -> None:
        """Remove an empty bucket.

        Raises:
            Refusal: 409, it holds objects.
        """
        with self._lock:
            if self._objects[name]:
                raise Refusal(409, "The bucket you tried to delete is not empty.")
            del self._objects[name], self._buckets[name]
            shutil.rmtree(self._folder / name)

    def buckets(self) -> list[Bucket]:
        """All buckets, by name."""
        with self._lock:
            return sorted(self._buckets.values(), key=lambda bucket: bucket.name)

    def bucket(self, name: str, permission: str) -> Bucket:
        """Give a bucket to a client that has no account.

        Args:
            name: The bucket's name.
            permission: What the client needs, such as ``storage.objects.list``.

        Raises:
            Refusal: 404, there is none; 403, its fault forbids this.
        """
        with self._lock:
            bucket = self._buckets.get(name)
        if bucket is None:
            raise Refusal(404, "The specified bucket does not exist.")
        action = permission.rpartition(".")[2]
        refused = {
            None: False,
            "forbidden": True,
            "objects-only": permission.startswith("storage.buckets."),
            "read-only": action not in ("get", "list"),
        }
        if refused[bucket.fault]:
            raise Refusal(
                403,
                f"Anonymous caller does not have {permission} access to the Google Cloud Storage "
                f"bucket. Permission '{permission}' denied on resource (or it may not exist).",
            )
        return bucket

    def find(self, bucket: str, name: str) -> Object:
        """Look an object up.

        Raises:
            Refusal: 404, there is none.
        """
        with self._lock:
            if name not in self._objects[bucket]:
                raise Refusal(404, f"No such object: {bucket}/{name}")
            return self._objects[bucket][name]

    def open(self, bucket: str, name: str) -> tuple[Object, typing.BinaryIO]:
        """Open an object's data; stays readable when the object is replaced meanwhile.

        Raises:
            Refusal: 404, there is none.
        """
        with self._lock:
            found = self.find(bucket, name)
            data = found.file.open("rb")
        data.seek(found.offset)
        return found, data

    def read(self, bucket: str, name: str) -> bytes:
        """The whole data of an object.

        Raises:
            Refusal: 404, there is none.
        """
        with self.open(bucket, name)[1] as data:
            return data.read()

    def check(self, bucket: str, name: str, generation: str | None) -> None:
        """Compare an object's generation with the one a client expects (``"0"``: no object).

        Raises:
            Refusal: 412, they differ.
        """
        with self._lock:
            there = self._objects[bucket].get(name)
        if generation is not None and int(generation) != (there.generation if there else 0):
            raise Refusal(412, "At least one of the pre-conditions you specified did not hold.")

    def put(
        self,
        bucket: str,
        name: str,
        data: bytes,
        *,
        about: dict[str, typing.Any] | None = None,
        generation: str | None = None,
    ) -> Object:
        """Write an object, whole.

        Args:
            bucket: An existing bucket.
            name: The object's name.
            data: All of its data.
            about: The client's resource: ``contentType`` and ``metadata`` are kept.
            generation: What the object's generation must be now (see `check`).

        Raises:
            Refusal: 412, the generation is another; 400, no object can have that name.
        """
        if not name or len(name.encode()) > 1024 or set(name) & set("\r\n"):
            raise Refusal(400, "Invalid object name")
        about = about or {}
        now = datetime.datetime.now(datetime.UTC)
        head = {
            "bucket": bucket,
            "name": name,
            "size": len(data),
            "updated": now.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
            "md5": _base64(hashlib.md5(data, usedforsecurity=False).digest()),
            "crc32c": _base64(google_crc32c.value(data).to_bytes(4, "big")),
            "content_type": about.get("contentType") or "application/octet-stream",
            "metadata": about.get("metadata"),
        }
        with self._lock:
            self._last = head["generation"] = max(self._last + 1, time.time_ns() // 1000)
        line = json.dumps(head).encode() + b"\n"
        file = self._folder / bucket / str(head["generation"])
        unnamed = file.with_name(f".{file.name}")
        unnamed.write_bytes(line + data)
        with self._lock:
            try:
                self.check(bucket, name, generation)
            except Refusal:
                unnamed.unlink()
                raise
            unnamed.replace(file)
            old = self._objects[bucket].get(name)
            self._objects[bucket][name] = new = Object(**head, file=file, offset=len(line))
            if old is not None:
                old.file.unlink()
        return new

    def delete(self, bucket: str, name: str, generation: str | None = None) -> None:
        """Remove an object.

        Raises:
            Refusal: 404, there is none; 412, the generation is another (see `check`).
        """
        with self._lock:
            self.find(bucket, name)
            self.check(bucket, name, generation)
            self._objects[bucket].pop(name).file.unlink()

    def listing(
        self, bucket: str, prefix: str, delimiter: str, after: str, size: int
    ) -> tuple[list[Object], list[str], str | None]:
        """One page of a bucket's names.

        Args:
            bucket: An existing bucket.
            prefix: What the names begin with.
            delimiter: Names that have it after the prefix are given once, as that beginning;
                empty: none are.
            after: The last entry of the page before, empty for the first page.
            size: The most entries, objects and beginnings together.

        Returns:
            The objects, the beginnings, and the last entry where more are to come.
        """
        with self._lock:
            objects = dict(self._objects[bucket])
        entries: dict[str, Object | None] = {}
        for name in sorted(name for name in objects if name.startswith(prefix)):
            cut = name.find(delimiter, len(prefix)) if delimiter else -1
            entry = name if cut < 0 else name[: cut + len(delimiter)]
            if entry > after:
                entries.setdefault(entry, objects[name] if cut < 0 else None)
        page = list(entries)[:size]
        return (
            [found for entry in page if (found := entries[entry])],
            [entry for entry in page if entries[entry] is None],
            page[-1] if len(entries) > len(page) else None,
        )


@dataclasses.dataclass
class _Upload:
    """A resumable upload: what came so far, and the object once all of it is there."""

    bucket: str
    name: str
    about: dict[str, typing.Any]
    generation: str | None
    data: bytearray = dataclasses.field(default_factory=bytearray)
    result: Object | None = None
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_port = False  # a port that another program has taken is an error, not shared

    def __init__(self, port: int, store: Store, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.store, self.tls = store, tls
        self.uploads: dict[str, _Upload] = {}

    def handle_error(self, request: object, address: object) -> None:
        error = sys.exc_info()[1]
        # A client that goes away, or that doesn't know our certificate, is no fault of the server.
        if isinstance(error, (ConnectionError, ssl.SSLError, TimeoutError)):
            _log(f"connection ended: {type(error).__name__}")
        else:
            super().handle_error(request, address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # 40 ms for each request otherwise
    server: _Server
    _tunnel = ""

    def do_CONNECT(self) -> None:
        """Open a tunnel that ends here."""
        host, _, port = self.path.rpartition(":")
        if not host.endswith(SERVED) or port != "443":
            self.close_connection = True
            self._reply(403, {"error": {"code": 403, "message": "This proxy serves gs:// only."}})
            return
        self.send_response(200, "Connection established")
        self.end_headers()
        self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb")
        self._tunnel, self.close_connection = host, False

    def flush_headers(self) -> None:
        super().flush_headers()
        self.wfile.flush()

    def finish(self) -> None:
        with contextlib.suppress(OSError):  # the client was faster
            super().finish()
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        pass  # `_reply` logs, without the query, which may hold a token

    def _answer(self) -> None:
        self._url = urlsplit(self.path)
        query = parse_qs(self._url.query, keep_blank_values=True)
        self._query = {name: values[0] for name, values in query.items()}
        try:
            self._body = self._whole_body()
            self._route()
        except Refusal as refusal:
            error = {"code": refusal.status, "message": refusal.message}
            self._reply(refusal.status, {"error": {**error, "errors": [error]}})

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def _whole_body(self) -> bytes:
        """Read the request's body; a part of one is never taken for the whole."""
        # TensorFlow's requests name a length and are chunked: the chunks are right.
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self._exactly(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self._line().split(b";")[0], 16):
            parts.append(self._exactly(size))
            self._line()
        while self._line().strip():
            pass  # trailers
        return b"".join(parts)

    def _exactly(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionAbortedError("the client went away within its request")
        return data

    def _line(self) -> bytes:
        line = self.rfile.readline()
        if not line.endswith(b"\n"):
            raise ConnectionAbortedError("the client went away within its request")
        return line

    def _json(self) -> dict[str, typing.Any]:
        try:
            return json.loads(self._body or b"{}")
        except ValueError:
            raise Refusal(400, "Parse Error") from None

    def _reply(
        self, status: int, body: bytes | dict[str, typing.Any] = b"", **headers: str
    ) -> None:
        if isinstance(body, dict):
            body, kind = json.dumps(body).encode(), "application/json; charset=UTF-8"
        else:
            kind = "application/octet-stream"
        self.send_response(status)
        for name, value in {"Content_Type": kind, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()
        path = unquote(urlsplit(self.path).path)
        shown = {k: v for k, v in getattr(self, "_query", {}).items() if k in _LOGGED}
        words = [self.command, self._tunnel + path, *(f"{k}={v}" for k, v in shown.items())]
        _log(" ".join([*words, str(status)]))

    def _route(self) -> None:
        """Find what is asked for, and answer."""
        if self._tunnel and self._tunnel not in ("www.googleapis.com", f"storage{SERVED}"):
            raise Refusal(404, f"{self._tunnel} is not served here, only storage.")
        match = _API.fullmatch(self._url.path)
        if match is None:  # the XML API: /bucket/object
            bucket, _, name = self._url.path.lstrip("/").partition("/")
            bucket, name = unquote(bucket), unquote(name)
            if not name or self.command not in ("GET", "HEAD"):
                raise Refusal(501, "Of the XML API, only reading an object is served.")
            self.server.store.bucket(bucket, "storage.objects.get")
            self._media(bucket, name)
            return
        part = {k: unquote(v) if v else None for k, v in match.groupdict().items()}
        if not part["bucket"]:
            self._all_buckets()
        elif part["kind"] == "upload":
            self.server.store.bucket(part["bucket"], "storage.objects.create")
            self._upload(part["bucket"])
        elif not part["objects"]:
            self._bucket(part["bucket"])
        elif not part["name"]:
            self.server.store.bucket(part["bucket"], "storage.objects.list")
            self._listing(part["bucket"])
        else:
            self._object(part)

    def _all_buckets(self) -> None:
        if self.command == "POST":
            wish = self._json()
            bucket = self.server.store.make(
                wish.get("name", ""), wish.get("location", "US"), wish.get("fault")
            )
            self._reply(200, bucket.resource())
            return
        items = [bucket.resource() for bucket in self.server.store.buckets()]
        self._reply(200, {"kind": "storage#buckets", "items": items})

    def _bucket(self, name: str) -> None:
        action = {"GET": "get", "DELETE": "delete"}.get(self.command, "update")
        bucket = self.server.store.bucket(name, f"storage.buckets.{action}")
        if self.command == "DELETE":
            self.server.store.drop(name)
            self._reply(204)
        elif self.command == "GET":
            self._reply(200, bucket.resource())
        else:
            raise Refusal(501, "A bucket's settings can't be changed here.")

    def _listing(self, bucket: str) -> None:
        token = self._query.get("pageToken", "")
        objects, prefixes, last = self.server.store.listing(
            bucket,
            self._query.get("prefix", ""),
            self._query.get("delimiter", ""),
            base64.urlsafe_b64decode(token).decode(),
            min(int(self._query.get("maxResults") or PAGE), PAGE),
        )
        page: dict[str, typing.Any] = {"kind": "storage#objects"}
        if objects:
            page["items"] = [found.resource() for found in objects]
        if prefixes:
            page["prefixes"] = prefixes
        if last is not None:
            page["nextPageToken"] = base64.urlsafe_b64encode(last.encode()).decode()
        self._reply(200, page)

    def _object(self, part: dict[str, str | None]) -> None:
        store, bucket, name = self.server.store, part["bucket"], part["name"]
        generation = self._query.get("ifGenerationMatch")
        if part["verb"] == "moveTo" or self.command == "DELETE":
            action = "delete"
        else:
            action = "create" if part["compose"] else "get"
        store.bucket(bucket, f"storage.objects.{action}")
        if part["compose"]:
            wish = self._json()
            sources = [source["name"] for source in wish.get("sourceObjects", [])]
            data = b"".join(store.read(bucket, source) for source in sources)
            about = wish.get("destination")
            made = store.put(bucket, name, data, about=about, generation=generation)
            self._reply(200, made.resource())
        elif part["verb"]:
            self._copy(part, generation)
        elif self.command == "DELETE":
            store.delete(bucket, name, generation)
            self._reply(204)
        elif self.command not in ("GET", "HEAD"):
            raise Refusal(501, "An object's settings can't be changed here.")
        elif part["kind"] == "download" or self._query.get("alt") == "media":
            self._media(bucket, name)
        else:
            self._reply(200, store.find(bucket, name).resource())

    def _copy(self, part: dict[str, str | None], generation: str | None) -> None:
        store, bucket, name = self.server.store, part["bucket"], part["name"]
        target = part["to_bucket"] or bucket
        store.bucket(target, "storage.objects.create")
        about = store.find(bucket, name).resource() | self._json()
        made = store.put(
            target, part["to_name"], store.read(bucket, name), about=about, generation=generation
        )
        if part["verb"] == "moveTo":
            store.delete(bucket, name)
        resource = made.resource()
        if part["verb"] == "rewriteTo":
            resource = {
                "kind": "storage#rewriteResponse",
                "done": True,
                "objectSize": resource["size"],
                "totalBytesRewritten": resource["size"],
                "resource": resource,
            }
        self._reply(200, resource)

    def _media(self, bucket: str, name: str) -> None:
        found, file = self.server.store.open(bucket, name)
        about = {
            "Content_Type": found.content_type,
            "X_Goog_Generation": str(found.generation),
            "X_Goog_Hash": f"crc32c={found.crc32c},md5={found.md5}",
        }
        with file:
            span = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if span is None or span[0] == "bytes=-":
                first, last, status = 0, found.size - 1, 200
            else:
                status = 206
                if span[1]:
                    first = int(span[1])
                    last = min(int(span[2] or found.size - 1), found.size - 1)
                else:
                    first, last = max(found.size - int(span[2]), 0), found.size - 1
                if first >= found.size:
                    self._reply(416, Content_Range=f"bytes */{found.size}")
                    return
                about["Content_Range"] = f"bytes {first}-{last}/{found.size}"
            if self.command == "HEAD":
                self._reply(status, Content_Length=str(last - first + 1), **about)
                return
            file.seek(found.offset + first)
            data = file.read(last - first + 1)
        self._reply(status, data, **about)

    def _upload(self, bucket: str) -> None:
        store, query = self.server.store, self._query
        generation = query.get("ifGenerationMatch")
        if "upload_id" in query:
            self._continue(query["upload_id"])
        elif query.get("uploadType") == "resumable":
            about = self._json()
            name = query.get("name") or about.get("name", "")
            store.check(bucket, name, generation)
            number = secrets.token_urlsafe(24)
            self.server.uploads[number] = _Upload(bucket, name, about, generation)
            scheme = "https" if self._tunnel else "http"
            host = self._tunnel or self.headers["Host"]
            place = f"{scheme}://{host}{self._url.path}"
            self._reply(200, Location=f"{place}?uploadType=resumable&upload_id={number}")
        elif query.get("uploadType") == "multipart":
            about, data = _two_parts(self.headers.get("Content-Type", ""), self._body)
            name = query.get("name") or about.get("name", "")
            made = store.put(bucket, name, data, about=about, generation=generation)
            self._reply(200, made.resource())
        else:
            about = {"contentType": self.headers.get("Content-Type")}
            name = query.get("name", "")
            made = store.put(bucket, name, self._body, about=about, generation=generation)
            self._reply(200, made.resource())

    def _continue(self, number: str) -> None:
        """Take the next part of a resumable upload, or say how far it is."""
        upload = self.server.uploads.get(number)
        if upload is None:
            raise Refusal(404, "No such upload session.")
        if self.command == "DELETE":
            del self.server.uploads[number]
            self._reply(499)
            return
        whole = f"bytes 0-{len(self._body) - 1}/{len(self._body)}" if self._body else "bytes */0"
        span = re.fullmatch(
            r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", self.headers.get("Content-Range", whole)
        )
        if span is None:
            raise Refusal(400, "Invalid Content-Range.")
        with upload.lock:
            if upload.result is None and span[1] is not None:
                first, last = int(span[1]), int(span[2])
                if first > len(upload.data) or last - first + 1 != len(self._body):
                    raise Refusal(400, "The part does not follow what came before.")
                upload.data[first:] = self._body
            if upload.result is None and span[3] != "*" and len(upload.data) == int(span[3]):
                upload.result = self.server.store.put(
                    upload.bucket,
                    upload.name,
                    bytes(upload.data),
                    about=upload.about,
                    generation=upload.generation,
                )
                upload.data.clear()
            if upload.result is not None:
                self._reply(200, upload.result.resource())
            elif upload.data:
                self._reply(308, Range=f"bytes=0-{len(upload.data) - 1}")
            else:
                self._reply(308)


def _two_parts(content_type: str, body: bytes) -> tuple[dict[str, typing.Any], bytes]:
    """Split a multipart upload: the resource as JSON, then the data, byte for byte."""
    named = re.search(r"boundary=(\"?)([^\";]+)\1", content_type)
    if named is None:
        raise Refusal(400, "Missing boundary.")
    # By hand: the e-mail parser of the standard library changes ends of lines in the data. Which
    # end of line the client uses is seen at its first boundary; the last boundary ends the data.
    mark = re.escape(b"--" + named[2].encode())
    parts = re.fullmatch(
        rb"\s*%b[ \t]*(?P<eol>\r?\n)(.*?)(?P=eol)%b[ \t]*(?P=eol)(.*)(?P=eol)%b--\s*"
        % (mark, mark, mark),
        body,
        re.DOTALL,
    )
    texts = parts.groups()[1:] if parts else (b"",)
    heads = [re.match(rb"(.*?\r?\n)??\r?\n", text, re.DOTALL) for text in texts]
    if None in heads:
        raise Refusal(400, "Malformed multipart body.")
    about, data = (text[head.end() :] for text, head in zip(texts, heads, strict=True))
    try:
        resource = json.loads(about)
    except ValueError:
        raise Refusal(400, "Parse Error") from None
    head = email.parser.BytesHeaderParser().parsebytes(heads[1][0])
    return {"contentType": head.get("Content-Type"), **resource}, data


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _log(line: str) -> None:
    moment = datetime.datetime.now().strftime("%H:%M:%S.%f")[:-3]
    printable = "".join(c if c.isprintable() else "?" for c in line)
    sys.stderr.write(f"{moment} {printable}\n")
    sys.stderr.flush()


def _certify(folder: pathlib.Path) -> None:
    """Make an authority that can certify ``*.googleapis.com`` alone, and let it do so once.

    The authority's key is forgotten at once: nobody can make a second certificate with it.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    authority_key, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def certificate(subject: str, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("embedded storage of a course"))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + datetime.timedelta(days=30))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(identifier, critical=False)
        )

    def usage(**granted: bool) -> x509.KeyUsage:
        every = ("digital_signature", "content_commitment", "key_encipherment", "key_agreement")
        every += (
            "data_encipherment",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        )
        return x509.KeyUsage(**(dict.fromkeys(every, False) | granted))

    only = x509.NameConstraints([x509.DNSName(SERVED.lstrip("."))], excluded_subtrees=None)
    authority = (
        certificate("embedded storage of a course", authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(key_cert_sign=True), critical=True)
        .add_extension(only, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    leaf = (
        certificate("gs", key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(digital_signature=True), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("*" + SERVED)]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / _LEAF).write_bytes(private + leaf.public_bytes(pem))
    (folder / AUTHORITY).write_bytes(authority.public_bytes(pem))


def _leave_with(parent: int, folder: pathlib.Path) -> None:
    """End this process, and remove the folder, when the parent is gone (SIGKILL, too)."""

    def end() -> None:
        if os.getppid() != parent:  # else the parent is alive, and removes the folder itself
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    def watch() -> None:
        # A process that the parent forked may hold our input open beyond the parent's end.
        while os.getppid() == parent:
            time.sleep(0.5)
        end()

    threading.Thread(target=watch, daemon=True).start()
    sys.stdin.buffer.read()
    time.sleep(0.05)  # the parent's end is seen here a moment before the system says so
    end()


def main() -> None:
    """Serve until the parent is gone (arguments: folder, port, the parent's process)."""
    folder, port, parent = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if not (folder / AUTHORITY).exists():
        _certify(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / _LEAF)
    server = _Server(port, Store(folder / "buckets"), tls)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    unnamed = folder / f".{READY}"
    unnamed.write_text(json.dumps({"port": server.server_port, "process": os.getpid()}))
    unnamed.replace(folder / READY)
    _leave_with(parent, folder)


if __name__ == "__main__":
    main()
