"""A server that answers by script, byte by byte: for faults that no real one would show."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Self

Fields = dict[str, Any]
# What to send to a request with these fields, part by part; None cuts the connection with a reset.
Script = Callable[[Fields], Iterator[bytes | None]]

TIMINGS = {
    "cache_n": 3, "prompt_n": 4, "prompt_ms": 40.0, "predicted_n": 6, "predicted_ms": 60.0,
    "draft_n": 8, "draft_n_accepted": 3,
}  # fmt: skip
EVENTS: tuple[Fields, ...] = (
    {"content": "", "stop": False, "prompt_progress": {"total": 7, "processed": 7}},
    {"content": "one ", "tokens": [11], "stop": False},
    {"content": "two", "tokens": [12, 13], "stop": False, "timings": {"predicted_n": 3}},
    {"content": "", "tokens": [], "stop": True, "stop_type": "eos", "tokens_evaluated": 7,
     "timings": TIMINGS},
)  # fmt: skip


def head(status: str = "200 OK", kind: str = "application/json", more: str = "") -> bytes:
    """The head of an answer that ends with the connection."""
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}\r\n".encode()


def says(value: object, status: str = "200 OK") -> Script:
    """A JSON answer."""
    return sends(head(status) + json.dumps(value).encode())


def sends(*parts: bytes | None) -> Script:
    """These bytes."""
    return lambda fields: iter(parts)


def fails(status: str, message: str) -> Script:
    """An error as llama-server words it."""
    return says({"error": {"code": int(status[:3]), "message": message, "type": "x"}}, status)


def streams(*values: Fields, end: bool = True) -> Script:
    """Events of /completion."""
    parts: list[bytes | None] = [head(kind="text/event-stream")]
    parts += [f"data: {json.dumps(value)}\n\n".encode() for value in values]
    return sends(*parts, *(() if end else (None,)))


def forever(start: bytes, part: bytes, seconds: float = 0.0) -> Script:
    """`start`, then `part` without end."""

    def script(fields: Fields) -> Iterator[bytes]:
        yield start
        while True:
            time.sleep(seconds)
            yield part

    return script


NORMAL: dict[str, Script] = {
    "/health": says({"status": "ok"}),
    "/props": says({
        "build_info": "b11434-0a1b2c3", "model_path": "/models/target.gguf", "total_slots": 1,
        "default_generation_settings": {"n_ctx": 4096, "params": {}},
    }),
    "/slots": says([{
        "id": 0, "n_ctx": 4096, "speculative": True, "is_processing": False,
        "params": {"speculative.types": "draft-simple"},
    }]),
    "/metrics": fails("501 Not Implemented", "This server does not support metrics endpoint."),
    "/v1/models": says({"data": [{"id": "target"}]}),
    "/apply-template": says({"prompt": "<user>hello<reply>"}),
    "/tokenize": says({"tokens": [1, 2, 3]}),
    "/completion": streams(*EVENTS),
}  # fmt: skip


class FakeServer:
    """Answers each path by its script, one connection a request, until it is closed."""

    def __init__(self, scripts: Mapping[str, Script] = NORMAL) -> None:
        self.scripts = dict(scripts)
        self.seen: list[tuple[str, Fields, bytes]] = []  # path, fields, head
        self.n_cut = 0  # answers that the client cut
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._answer, args=(connection,)))
            self._threads[-1].start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):
            request = _request(connection)
            if request is None:
                return
            self.seen.append(request)
            path, fields, _ = request
            script = self.scripts.get(path, fails("404 Not Found", "File Not Found"))
            try:
                self._send(connection, script(fields))
            except OSError:
                self.n_cut += 1

    def _send(self, connection: socket.socket, parts: Iterator[bytes | None]) -> None:
        for part in parts:
            if self._closed.is_set():
                return
            if part is None:
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                return
            connection.sendall(part)


def _request(connection: socket.socket) -> tuple[str, Fields, bytes] | None:
    received = b""
    while b"\r\n\r\n" not in received:
        block = connection.recv(1 << 16)
        if not block:
            return None
        received += block
    start, _, body = received.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in start.split(b"\r\n")
         if line.lower().startswith(b"content-length")),
        0,
    )  # fmt: skip
    while len(body) < length:
        body += connection.recv(1 << 16)
    return start.split(b" ")[1].decode(), json.loads(body) if body else {}, start
