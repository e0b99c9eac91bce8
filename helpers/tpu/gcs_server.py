"""A storage server for this machine alone that speaks what ``gs://`` speaks, in its own process.

TensorFlow's file system for ``gs://`` knows one address, Google's, but asks a proxy when there is
one. So this server is a proxy that answers itself: it opens the tunnel a client asks for (CONNECT),
shows a certificate of its own for ``*.googleapis.com``, refuses all else, and serves storage from
memory. The same port serves plain HTTP to gcsfs, which can be told an address. It must be a
process: TensorFlow may hold Python's global lock while it waits for an answer.

Reference: Cloud Storage JSON API v1 (https://cloud.google.com/storage/docs/json_api, 2026-11), and
the file system's source, ``tsl/platform/cloud/gcs_file_system.cc`` of TensorFlow 2.20.
"""

import datetime
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
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

SERVED = ".googleapis.com"
# The names under which a client may ask. A page of the Web can lead its own name to 127.0.0.1, and
# a browser then asks this server under that name.
HOSTS = re.compile(r"(127\.0\.0\.1|localhost|[\w-]+(\.[\w-]+)*\.googleapis\.com)(:\d+)?")
CERTIFICATE = "certificate.pem"

Resource = dict[str, Any]  # a bucket or an object as the JSON API describes it
Answer = tuple[int, bytes | Resource, dict[str, str]]  # status, body (a dict as JSON), headers

# A multipart upload begins with its boundary: the resource as JSON, then the data, byte for byte
# (the standard library's e-mail parser changes ends of lines). The last boundary ends the data.
MULTIPART = re.compile(
    rb"(?P<mark>--\S+)(?P<eol>\r?\n).*?(?P=eol){2}(?P<resource>.*?)(?P=eol)(?P=mark)(?P=eol)"
    rb".*?(?P=eol){2}(?P<data>.*)(?P=eol)(?P=mark)--\s*",
    re.DOTALL,
)


class Refusal(Exception):
    """An answer other than success: the HTTP status, and what the service says about it."""


class _Handler(http.server.BaseHTTPRequestHandler):
    """A connection, the request that it brings just now, and what all of them share."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # 40 ms for each request otherwise
    tls: ssl.SSLContext
    lock = threading.Lock()  # one request is answered at a time
    buckets: ClassVar[dict[str, dict[str, tuple[Resource, bytes]]]]
    # Resumable uploads by session: the object's name, and what came so far.
    uploads: ClassVar[dict[str, tuple[str, bytearray]]] = {}
    _tunnel = ""

    def do_CONNECT(self) -> None:
        """Open a tunnel that ends here."""
        host, _, port = self.path.rpartition(":")
        if not host.endswith(SERVED) or port != "443":
            self.send_error(403, "This proxy serves gs:// only.")
            return
        self.send_response(200, "Connection established")
        self.end_headers()
        # Inside the tunnel the client speaks to Google, as it believes: the same handler answers.
        self.request = self.tls.wrap_socket(self.connection, server_side=True)
        self.setup()  # from here on the request is the encrypted connection
        self._tunnel = host
        self.close_connection = False

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # the server itself closes only what it accepted, without TLS

    def log_request(self, code: object = "-", size: object = "-") -> None:
        path = self._tunnel + self.path.partition("?")[0]  # a token may stand behind it
        self.log_message("%s %s %s", self.command, path, int(code))

    def _serve(self) -> None:
        """Carry a request out, or refuse it as the service would."""
        self.body = self._read_body()
        self.url = urlsplit(self.path)
        self.query = dict(parse_qsl(self.url.query, keep_blank_values=True))
        try:
            if not HOSTS.fullmatch(self.headers.get("Host", "")):
                raise Refusal(403, "This storage is for this machine alone.")
            with self.lock:
                status, body, headers = self._answer()
        except Refusal as refusal:
            status, message = refusal.args
            body = {"error": {"code": status, "message": message}}
            headers = {}
        content_type = "application/octet-stream"
        if isinstance(body, dict):
            content_type = "application/json; charset=UTF-8"
            body = json.dumps(body).encode()
        self.send_response(status)
        headers = {"Content-Type": content_type, "Content-Length": str(len(body)), **headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def _answer(self) -> Answer:
        # An object's name is one part of the path: its own slashes are escaped.
        path = [unquote(part) for part in self.url.path.split("/")[1:]]
        match [self.command, *path]:
            case "GET", "storage", "v1", "b", bucket:
                self._objects(bucket)
                return 200, {"name": bucket}, {}
            case "GET", "storage", "v1", "b", bucket, "o":
                return 200, self._list(bucket), {}
            case "POST" | "PUT", "upload", "storage", "v1", "b", bucket, "o":
                return self._upload(bucket)
            case "GET", "storage", "v1", "b", bucket, "o", name:
                return 200, self._find(bucket, name)[0], {}
            case "GET", "download", "storage", "v1", "b", bucket, "o", name:
                return self._read(bucket, name)
            case "DELETE", "storage", "v1", "b", bucket, "o", name:
                self._find(bucket, name)
                del self.buckets[bucket][name]
                return 204, b"", {}
            case "POST", "storage", "v1", "b", bucket, "o", name, "rewriteTo", "b", to, "o", new:
                _, data = self._find(bucket, name)
                _, resource, _ = self._put(to, new, data)
                return 200, {"done": True, "resource": resource}, {}
            case "GET", bucket, *parts if parts:  # the XML API: TensorFlow reads objects so
                return self._read(bucket, "/".join(parts))
        raise Refusal(501, f"{self.command} {self.url.path} is not served here.")

    def _read_body(self) -> bytes:
        """Read the request's body; a part of one is never taken for the whole."""
        # TensorFlow's requests name a length and are chunked: the chunks are right.
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self._exactly(int(self.headers.get("Content-Length") or 0))
        parts = []
        while True:
            size_line = self.rfile.readline().split(b";")[0]
            size = int(size_line or b"-1", 16)
            part = self._exactly(size)
            self._exactly(2)  # the end of the line
            if size == 0:
                return b"".join(parts)
            parts.append(part)

    def _exactly(self, size: int) -> bytes:
        """Read so many bytes; a negative number stands for a client that went away."""
        data = b""
        if size > 0:
            data = self.rfile.read(size)
        if len(data) != size:
            raise ConnectionAbortedError("the client went away within its request")
        return data

    def _objects(self, bucket: str) -> dict[str, tuple[Resource, bytes]]:
        if bucket not in self.buckets:
            raise Refusal(404, "The specified bucket does not exist.")
        return self.buckets[bucket]

    def _find(self, bucket: str, name: str) -> tuple[Resource, bytes]:
        if name not in self._objects(bucket):
            raise Refusal(404, f"No such object: {bucket}/{name}")
        return self.buckets[bucket][name]

    def _put(self, bucket: str, name: str, data: bytes) -> Answer:
        """Keep an object, and describe it."""
        # The generation grows with each write: by it a client sees that an object was replaced.
        milliseconds = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        resource = {
            "bucket": bucket,
            "name": name,
            "size": str(len(data)),
            "updated": milliseconds.replace("+00:00", "Z"),
            "generation": str(time.time_ns()),
        }
        self._objects(bucket)[name] = resource, data
        return 200, resource, {}

    def _list(self, bucket: str) -> Resource:
        """List all that begins with a prefix; what has the delimiter after it, as a prefix once."""
        prefix = self.query.get("prefix", "")
        delimiter = self.query.get("delimiter", "")
        # All in one answer; the service would give a thousand, and a token for the next ones.
        items = []
        prefixes = set()
        for name, (resource, _) in sorted(self._objects(bucket).items()):
            if not name.startswith(prefix):
                continue
            position = name.find(delimiter, len(prefix)) if delimiter else -1
            if position < 0:
                items.append(resource)
            else:
                prefixes.add(name[: position + len(delimiter)])
        return {"items": items, "prefixes": sorted(prefixes)}

    def _read(self, bucket: str, name: str) -> Answer:
        resource, data = self._find(bucket, name)
        headers = {"X-Goog-Generation": resource["generation"]}
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if span is None:
            return 200, data, headers
        start = int(span[1])
        # HTTP's range includes its end, Python's does not.
        end = int(span[2] or len(data)) + 1
        part = data[start:end]
        if not part:
            return 416, b"", {"Content-Range": f"bytes */{len(data)}"}
        headers["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(data)}"
        return 206, part, headers

    def _upload(self, bucket: str) -> Answer:
        """Take an object, the start of a resumable upload, or a part of one."""
        if "upload_id" in self.query:
            return self._continue(bucket, self.query["upload_id"])
        data = self.body
        resource = {}
        kind = self.query.get("uploadType")
        if kind == "resumable":
            resource = json.loads(data or b"{}")
        elif kind == "multipart":
            parts = MULTIPART.fullmatch(data)
            if parts is None:
                raise Refusal(400, "Malformed multipart body.")
            resource = json.loads(parts["resource"])
            data = parts["data"]
        name = self.query.get("name") or resource.get("name", "")
        if not name:
            raise Refusal(400, "Required object name.")
        # Generation 0 stands for no object: the client asks that none is replaced.
        if self.query.get("ifGenerationMatch") == "0" and name in self._objects(bucket):
            raise Refusal(412, "At least one of the pre-conditions you specified did not hold.")
        if kind == "resumable":
            return self._begin(bucket, name)
        return self._put(bucket, name, data)

    def _begin(self, bucket: str, name: str) -> Answer:
        """Begin a resumable upload; a missing bucket is refused at once."""
        self._objects(bucket)
        session = secrets.token_urlsafe(24)
        self.uploads[session] = name, bytearray()
        scheme = "https" if self._tunnel else "http"
        address = f"{scheme}://{self.headers['Host']}{self.url.path}"
        return 200, b"", {"Location": f"{address}?uploadType=resumable&upload_id={session}"}

    def _continue(self, bucket: str, session: str) -> Answer:
        """Take the next part of a resumable upload, or say how far it is."""
        if session not in self.uploads:
            raise Refusal(404, "No such upload session.")
        name, data = self.uploads[session]
        size = len(self.body)
        # Without a range the body is the whole object.
        default_range = f"bytes 0-{size - 1}/{size}" if size else "bytes */0"
        content_range = self.headers.get("Content-Range", default_range)
        span = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", content_range)
        if span is None or int(span[1] or 0) > len(data):
            raise Refusal(400, "The part does not follow what came before.")
        start, total = span.groups()
        if start is not None:
            data[int(start) :] = self.body
        if total == str(len(data)):
            return self._put(bucket, name, bytes(data))
        # 308 asks for more, and the range says how far it is; without one it has nothing yet.
        if not data:
            return 308, b"", {}
        return 308, b"", {"Range": f"bytes=0-{len(data) - 1}"}


def _certify(folder: pathlib.Path) -> ssl.SSLContext:
    """Make a key and a certificate for ``*.googleapis.com`` that can certify no other."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "embedded storage of a course")])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(f"*{SERVED}")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private_key = key.private_bytes(
        encoding=serialization.Encoding.PEM,
        format=serialization.PrivateFormat.PKCS8,
        encryption_algorithm=serialization.NoEncryption(),
    )
    (folder / "key.pem").write_bytes(private_key)
    (folder / CERTIFICATE).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / CERTIFICATE, folder / "key.pem")
    return tls


def main() -> None:
    """Print the port, and serve until the parent is gone.

    Arguments: a folder for the certificate, the parent's process, the name of the one bucket.
    """
    folder = pathlib.Path(sys.argv[1])
    parent = int(sys.argv[2])
    _Handler.tls = _certify(folder)
    _Handler.buckets = {sys.argv[3]: {}}
    # A pipeline opens many files at once; Python's own queue holds five connections.
    http.server.ThreadingHTTPServer.request_queue_size = 128
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)  # noqa: T201
    # Looked up again and again: a kernel that is killed tells nobody.
    while os.getppid() == parent:
        time.sleep(0.2)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
