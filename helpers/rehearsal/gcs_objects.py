"""Buckets and objects in a folder: what the embedded storage keeps.

An object is one file: a line of JSON that describes it, then the data. The file gets its name in
one step (``os.replace``) when all of it is there, so after a crash every object is whole or absent.
"""

import dataclasses
import datetime
import hashlib
import json
import pathlib
import re
import threading
import time
from base64 import b64encode
from typing import Any, BinaryIO

import google_crc32c

Resource = dict[str, Any]  # a bucket or an object as the JSON API describes it
_BUCKET = "bucket.json"


class Refusal(Exception):
    """An answer other than success: the HTTP status, and what the service says about it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclasses.dataclass(frozen=True)
class Object:
    """A whole object: its description, and where its data starts in its file."""

    resource: Resource
    file: pathlib.Path
    offset: int


class Store:
    """The buckets and objects in a folder; safe for threads.

    Every method raises `Refusal` with the service's own status: 404 for what is not there, 409 for
    a bucket that exists, 412 for an object of another generation, 403 for what a fault forbids.

    Args:
        folder: Holds what an earlier process left there. Each bucket is a folder in it.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        self._buckets: dict[str, Resource] = {}
        self._objects: dict[str, dict[str, Object]] = {}
        self._generation = 0
        folder.mkdir(exist_ok=True)
        for about in folder.glob(f"*/{_BUCKET}"):
            bucket = about.parent.name
            self._buckets[bucket], self._objects[bucket] = json.loads(about.read_bytes()), {}
            for file in about.parent.glob("object-*"):
                with file.open("rb") as lines:
                    resource = json.loads(lines.readline())
                    self._objects[bucket][resource["name"]] = Object(resource, file, lines.tell())
                self._generation = max(self._generation, int(resource["generation"]))

    def make(self, name: str, location: str, fault: str | None) -> Resource:
        """Make a bucket and describe it; `EmbeddedStorage.bucket` says what a fault is."""
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", name):
            raise Refusal(400, f"Invalid bucket name: '{name}'")
        resource = {"name": name, "location": location.upper(), "fault": fault}
        with self._lock:
            if name in self._buckets:
                raise Refusal(409, "Your previous request to create the named bucket succeeded.")
            (self._folder / name).mkdir(exist_ok=True)
            _write(self._folder / name / _BUCKET, json.dumps(resource).encode())
            self._buckets[name], self._objects[name] = resource, {}
        return resource

    def bucket(self, name: str, permission: str) -> Resource:
        """Describe a bucket to a client that needs a permission (``storage.objects.list``)."""
        if name not in self._buckets:
            raise Refusal(404, "The specified bucket does not exist.")
        refused = {
            None: False,
            "forbidden": True,
            "objects-only": permission.startswith("storage.buckets."),
            "read-only": not permission.endswith((".get", ".list")),
        }
        if refused[self._buckets[name]["fault"]]:
            denied = f"Permission '{permission}' denied on resource (or it may not exist)."
            who = f"Anonymous caller does not have {permission} access to the Google Cloud Storage "
            raise Refusal(403, f"{who}bucket. {denied}")
        return self._buckets[name]

    def find(self, bucket: str, name: str) -> Object:
        """Look an object up."""
        found = self._objects[bucket].get(name)
        if found is None:
            raise Refusal(404, f"No such object: {bucket}/{name}")
        return found

    def open(self, bucket: str, name: str) -> tuple[Object, BinaryIO]:
        """Open an object's data; it stays readable when the object is replaced meanwhile."""
        with self._lock:
            found = self.find(bucket, name)
            data = found.file.open("rb")
        data.seek(found.offset)
        return found, data

    def check(self, bucket: str, name: str, generation: str | None) -> None:
        """Compare an object's generation with the one a client expects (``"0"``: no object)."""
        there = self._objects[bucket].get(name)
        if generation not in (None, there.resource["generation"] if there else "0"):
            raise Refusal(412, "At least one of the pre-conditions you specified did not hold.")

    def put(
        self, bucket: str, name: str, data: bytes, about: Resource, generation: str | None = None
    ) -> Resource:
        """Write an object, whole, and describe it.

        The ``contentType`` and ``metadata`` of the client's own description (``about``) are kept.
        ``generation`` is what the object's generation must be now (see `check`).
        """
        if not name or len(name.encode()) > 1024 or set(name) & set("\r\n"):
            raise Refusal(400, "Invalid object name")
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        resource = {
            "kind": "storage#object",
            "bucket": bucket,
            "name": name,
            "size": str(len(data)),
            "updated": now,
            "timeCreated": now,
            "md5Hash": b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode(),
            "crc32c": b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode(),
            "contentType": about.get("contentType") or "application/octet-stream",
            "metadata": about.get("metadata") or {},
        }
        # Hashed: a name may be longer than a file's, and hold any character.
        file = self._folder / bucket / f"object-{hashlib.sha256(name.encode()).hexdigest()}"
        with self._lock:
            self.check(bucket, name, generation)
            self._generation = max(self._generation + 1, time.time_ns() // 1000)
            resource["generation"] = resource["etag"] = str(self._generation)
            line = json.dumps(resource).encode() + b"\n"
            _write(file, line, data)
            self._objects[bucket][name] = Object(resource, file, len(line))
        return resource

    def delete(self, bucket: str, name: str, generation: str | None = None) -> None:
        """Remove an object of this generation (see `check`)."""
        with self._lock:
            found = self.find(bucket, name)
            self.check(bucket, name, generation)
            found.file.unlink()
            del self._objects[bucket][name]

    def listing(
        self, bucket: str, prefix: str, delimiter: str, after: str, size: int
    ) -> tuple[list[Resource], list[str], str | None]:
        """Give a page of at most ``size`` entries after an entry: objects, beginnings, the last.

        Names that have the delimiter after the prefix are given once, as that beginning. The last
        entry is None where no more are to come.
        """
        objects = dict(self._objects[bucket])
        entries: dict[str, Object | None] = {}
        for name in sorted(name for name in objects if name.startswith(prefix)):
            cut = name.find(delimiter, len(prefix)) if delimiter else -1
            entry = name if cut < 0 else name[: cut + len(delimiter)]
            if entry > after:
                entries.setdefault(entry, objects[name] if cut < 0 else None)
        page = list(entries)[:size]
        found = [entries[entry].resource for entry in page if entries[entry]]
        beginnings = [entry for entry in page if entries[entry] is None]
        return found, beginnings, page[-1] if len(entries) > len(page) else None


def _write(file: pathlib.Path, *parts: bytes) -> None:
    unnamed = file.with_name(f".{file.name}")
    with unnamed.open("wb") as output:
        output.writelines(parts)
    unnamed.replace(file)
