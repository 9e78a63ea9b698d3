"""A small Hub on this machine: the two routes that reading a checkpoint needs, and its tricks."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SHA = "0123456789abcdef0123456789abcdef01234567"


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
    url: str = ""
    n_sent: int = 0
    asked: list[tuple[str, str]] = field(default_factory=list)  # path, Range


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """The server, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, hub)

        def do_HEAD(self) -> None:
            _answer(self, hub)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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
    if hub.token and handler.headers.get("Authorization") != f"Bearer {hub.token}":
        _send(handler, 401, b"", {"X-Error-Code": "RepoNotFound"})
        return
    path = handler.path.partition("?")[0]
    if path in (f"/api/models/{hub.repo}", f"/api/models/{hub.repo}/revision/main"):
        files = [{"rfilename": file.name, "size": file.stat().st_size}
                 for file in sorted(hub.folder.iterdir())]  # fmt: skip
        body = json.dumps({"id": hub.repo, "sha": SHA, "siblings": files}).encode()
        _send(handler, 200, body, {"Content-Type": "application/json"})
        return
    if hub.redirect and "/resolve/" in path:
        _send(handler, 302, b"", {"Location": path.replace("/resolve/", "/cdn/")})
        return
    match = re.fullmatch(rf"/{hub.repo}/(?:resolve|cdn)/{SHA}/([\w.-]+)", path)
    if match is None or not (hub.folder / match[1]).is_file():
        code = "RevisionNotFound" if "/revision/" in path else "RepoNotFound"
        _send(handler, 404, b"", {"X-Error-Code": code})
    elif hub.status:
        _send(handler, hub.status, b"", {})
    else:
        _send_file(handler, hub, hub.folder / match[1], wanted)


def _send_file(handler: BaseHTTPRequestHandler, hub: Hub, path: Path, wanted: str) -> None:
    raw = path.read_bytes()
    match = re.fullmatch(r"bytes=([0-9]+)-([0-9]+)", wanted)
    if match is None or not hub.ranges:
        body, status, headers = raw, 200, {}
    else:
        start, end = int(match[1]), min(int(match[2]) + 1, len(raw))
        body, status = raw[start:end], 206
        headers = {"Content-Range": f"bytes {start}-{end - 1}/{len(raw)}"}
    sent = body[: len(body) - hub.short]
    handler.send_response(status)
    for key, value in {**headers, "Content-Length": str(len(body))}.items():
        handler.send_header(key, value)
    handler.end_headers()
    try:
        for at in range(0, len(sent), 65536):
            hub.n_sent += handler.wfile.write(sent[at : at + 65536])
    except OSError:
        pass
    handler.close_connection = True


def _send(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]
) -> None:
    handler.send_response(status)
    for key, value in {**headers, "Content-Length": str(len(body))}.items():
        handler.send_header(key, value)
    handler.end_headers()
    handler.wfile.write(body)
