"""A storage server for this machine alone that speaks what ``gs://`` speaks, in its own process.

TensorFlow's file system for ``gs://`` knows one address, Google's, and takes no other; but it asks
a proxy when there is one. So this server is a proxy that answers itself: it opens the tunnel a
client asks for (CONNECT), shows a certificate of its own for ``*.googleapis.com``, and serves
storage from a private folder. It refuses what is not ``*.googleapis.com``, and it opens no
connection to anywhere. The same port serves plain HTTP to gcsfs and to google-cloud-storage, which
can be told an address.

It must be a process: while TensorFlow waits for an answer it may hold Python's global lock, and a
thread could then never give one.
"""

import datetime
import http.server
import json
import os
import pathlib
import shutil
import ssl
import sys
import threading
import time
from urllib.parse import parse_qsl, unquote, urlsplit

from helpers.rehearsal.gcs_api import Answer, Api, Request, refused
from helpers.rehearsal.gcs_objects import Store

SERVED = ".googleapis.com"
CERTIFICATE = "certificate.pem"
_KEY = "key.pem"
# The part of a request's query that a log may show; a token or a session's id is not among it.
_LOGGED = ("name", "prefix", "uploadType", "maxResults")


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_port = False  # a port that another program has taken is an error, not shared

    def __init__(self, port: int, api: Api, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.api, self.tls = api, tls

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
            self._reply(refused(403, "This proxy serves gs:// only."))
            return
        self.send_response(200, "Connection established")
        self.end_headers()
        self.request = self.server.tls.wrap_socket(self.connection, server_side=True)
        self.setup()  # from here on the request is the encrypted connection
        self._tunnel, self.close_connection = host, False

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # the server itself closes only what it accepted, without TLS

    def log_message(self, format: str, *args: object) -> None:
        pass  # `_reply` logs, without the query, which may hold a token

    def _serve(self) -> None:
        body, url = self._body(), urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        if self._tunnel not in ("", "www.googleapis.com", f"storage{SERVED}"):
            answer = refused(404, f"{self._tunnel} is not served here, only storage.")
        else:
            host = f"https://{self._tunnel}" if self._tunnel else f"http://{self.headers['Host']}"
            request = Request(self.command, host, url.path, query, self.headers, body)
            answer = self.server.api.answer(request)
        self._reply(answer, query)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _body(self) -> bytes:
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
        return line if line.endswith(b"\n") else self._exactly(1)  # which fails: no more comes

    def _reply(self, answer: Answer, query: dict[str, str] | None = None) -> None:
        body, kind = answer.body, "application/octet-stream"
        if isinstance(body, dict):
            body, kind = json.dumps(body).encode(), "application/json; charset=UTF-8"
        self.send_response(answer.status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **answer.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        path = unquote(urlsplit(self.path).path)
        shown = [f"{k}={v}" for k, v in (query or {}).items() if k in _LOGGED]
        _log(" ".join([self.command, self._tunnel + path, *shown, str(answer.status)]))


def _log(line: str) -> None:
    moment = datetime.datetime.now().strftime("%H:%M:%S.%f")[:-3]
    printable = "".join(c if c.isprintable() else "?" for c in line)
    sys.stderr.write(f"{moment} {printable}\n")
    sys.stderr.flush()


def _certify(folder: pathlib.Path) -> None:
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
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    (folder / _KEY).write_bytes(private)
    (folder / CERTIFICATE).write_bytes(certificate.public_bytes(pem))


def main() -> None:
    """Serve until the parent is gone (arguments: folder, port, the parent's process).

    Prints the port as soon as it listens. A parent that ends in order kills this process and
    removes the folder; after any other end, the folder is removed here.
    """
    folder, port, parent = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if not (folder / CERTIFICATE).exists():
        _certify(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / CERTIFICATE, folder / _KEY)
    server = _Server(port, Api(Store(folder / "buckets")), tls)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    while os.getppid() == parent:
        time.sleep(0.2)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
