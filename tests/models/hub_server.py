"""A small Hub and web server on this machine: the routes that reading needs, and their tricks."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

SHA = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True, slots=True)
class Trick:
    """What happens to one request for a file, instead of a good answer."""

    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()  # these and no others
    body: bytes | None = None
    cut: int | None = None  # bytes of the body after which the connection is cut
    drip: float = 0.0  # seconds between pieces of 100 bytes
    endless: bool = False  # the body again and again, in chunks of unknown number
    silent: float = 0.0  # seconds before the first byte


@dataclass(slots=True)
class Hub:
    """What the server shows and what it was asked; `n_sent` counts bytes of file bodies."""

    folder: Path
    repo: str = "user/model"
    token: str = ""
    ranges: bool = True
    short: int = 0  # bytes of a body that are not sent
    status: int = 0  # answered to every request for a file
    redirect: bool = False  # files lie elsewhere, as large ones do on the Hub
    cdn: str = ""  # where they lie; empty for this server
    tricks: list[Trick] = field(default_factory=list)  # one for each request for a file, in turn
    listing: list[dict[str, Any]] = field(default_factory=list)  # what a search finds
    repos: dict[str, Path] = field(default_factory=dict)  # more repositories
    url: str = ""
    n_sent: int = 0
    asked: list[tuple[str, str]] = field(default_factory=list)  # path, Range
    tokens: list[str | None] = field(default_factory=list)  # Authorization of each request
    searched: list[dict[str, list[str]]] = field(default_factory=list)


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """The server, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _answer(self, hub)

        def do_HEAD(self) -> None:
            _answer(self, hub)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a client that has seen enough cuts its connection

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(handler: BaseHTTPRequestHandler, hub: Hub) -> None:
    wanted = handler.headers.get("Range", "")
    hub.asked.append((handler.path, wanted))
    hub.tokens.append(handler.headers.get("Authorization"))
    if hub.token and handler.headers.get("Authorization") != f"Bearer {hub.token}":
        _send(handler, 401, b"", {"X-Error-Code": "RepoNotFound"})
        return
    path = unquote(urlsplit(handler.path).path)
    if path.startswith("/api/models"):
        _answer_api(handler, hub, path)
        return
    if hub.redirect and "/resolve/" in path:
        place = hub.cdn + urlsplit(handler.path).path.replace("/resolve/", "/cdn/")
        _send(handler, 302, b"", {"Location": place})
        return
    file = _file(hub, path)
    if file is None:
        code = "RevisionNotFound" if "/revision/" in path else "RepoNotFound"
        _send(handler, 404, b"", {"X-Error-Code": code})
    elif handler.command == "HEAD":
        _send_head(handler, file)
    elif hub.tricks:
        _play(handler, hub, hub.tricks.pop(0), file)
    elif hub.status:
        _send(handler, hub.status, b"", {})
    else:
        _send_file(handler, hub, file, wanted)


def _answer_api(handler: BaseHTTPRequestHandler, hub: Hub, path: str) -> None:
    json_type = {"Content-Type": "application/json"}
    if path == "/api/models":
        hub.searched.append(parse_qs(urlsplit(handler.path).query))
        _send(handler, 200, json.dumps(hub.listing).encode(), json_type)
        return
    for repo, folder in {hub.repo: hub.folder, **hub.repos}.items():
        if path in (f"/api/models/{repo}", f"/api/models/{repo}/revision/main"):
            files = [{"rfilename": file.relative_to(folder).as_posix(), "size": file.stat().st_size}
                     for file in sorted(folder.rglob("*")) if file.is_file()]  # fmt: skip
            body = json.dumps({"id": repo, "sha": SHA, "siblings": files}).encode()
            _send(handler, 200, body, json_type)
            return
    code = "RevisionNotFound" if "/revision/" in path else "RepoNotFound"
    _send(handler, 404, b"", {"X-Error-Code": code})


def _file(hub: Hub, path: str) -> Path | None:
    """The file behind a path of the Hub, or of a plain web server under /web/."""
    for repo, folder in {hub.repo: hub.folder, **hub.repos}.items():
        root = rf"/(?:{repo}/(?:resolve|cdn)/(?:{SHA}|main)|web/files)"
        match = re.fullmatch(rf"{root}/([\w./-]+)", path)
        if match is not None and (folder / match[1]).is_file():
            return folder / match[1]
    return None


def _play(handler: BaseHTTPRequestHandler, hub: Hub, trick: Trick, file: Path) -> None:
    time.sleep(trick.silent)
    headers = dict(trick.headers)
    body = file.read_bytes() if trick.body is None else trick.body
    start, status = 0, trick.status
    match = re.fullmatch(r"bytes=([0-9]+)-([0-9]+)", handler.headers.get("Range", ""))
    if not status and match is not None and hub.ranges:
        start, end = int(match[1]), min(int(match[2]) + 1, len(body))
        headers = {"Content-Range": f"bytes {start}-{end - 1}/{len(body)}"} | headers
        body, status = body[start:end], 206
    if not trick.endless:
        headers = {"Content-Length": str(len(body))} | headers
    handler.send_response(status or 200)
    for key, value in headers.items():
        handler.send_header(key, value)
    handler.end_headers()
    body = body[: trick.cut]
    handler.close_connection = headers.get("Content-Length") != str(len(body))
    try:
        while True:
            step = 100 if trick.drip else 65536
            for at in range(0, len(body), step):
                hub.n_sent += len(body[at : at + step])
                handler.wfile.write(body[at : at + step])
                time.sleep(trick.drip)
            if not trick.endless:
                break
        if handler.close_connection:
            handler.connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def _send_head(handler: BaseHTTPRequestHandler, path: Path) -> None:
    """What a download asks first: which bytes, of which commit."""
    raw = path.read_bytes()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(raw)))
    handler.send_header("ETag", f'"{hashlib.sha256(raw).hexdigest()}"')
    handler.send_header("X-Repo-Commit", SHA)
    handler.end_headers()


def _send_file(handler: BaseHTTPRequestHandler, hub: Hub, path: Path, wanted: str) -> None:
    raw = path.read_bytes()
    match = re.fullmatch(r"bytes=([0-9]+)-([0-9]+)", wanted)
    if match is None or not hub.ranges:
        body, status, headers = raw, 200, {}
    elif int(match[1]) >= len(raw):
        body, status, headers = b"out of range", 416, {"Content-Range": f"bytes */{len(raw)}"}
    else:
        start, end = int(match[1]), min(int(match[2]) + 1, len(raw))
        body, status = raw[start:end], 206
        headers = {"Content-Range": f"bytes {start}-{end - 1}/{len(raw)}"}
    sent = body[: max(len(body) - hub.short, 0)]
    handler.send_response(status)
    for key, value in {**headers, "Content-Length": str(len(body))}.items():
        handler.send_header(key, value)
    handler.end_headers()
    try:
        for at in range(0, len(sent), 65536):
            hub.n_sent += len(sent[at : at + 65536])
            handler.wfile.write(sent[at : at + 65536])
        handler.close_connection = len(sent) < len(body)
    except OSError:
        handler.close_connection = True


def _send(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]
) -> None:
    handler.send_response(status)
    for key, value in {**headers, "Content-Length": str(len(body))}.items():
        handler.send_header(key, value)
    handler.end_headers()
    handler.wfile.write(body)
