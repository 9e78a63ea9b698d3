"""The in-process service in a process of its own: `python -m tests.models.service JSON`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SECONDS_MAX = 60.0
MODEL = "tiny"
TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
ENDLESS = {"prompt": "abc", "max_tokens": 1 << 20, "stream": True}
SHORT = {"prompt": "abc", "max_tokens": 3}
# A reply that fills the context takes minutes here: what comes sooner did not wait for it.
SLOW: dict[str, Any] = {"seconds_decode": 0.1, "settings": {"n_ctx": 4096}}


@dataclass(frozen=True, slots=True)
class Service:
    """A running service; what it says goes to the file `log`."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def events(self) -> list[Any]:
        """The chunks of a stream, without its end mark."""
        lines = [line[6:] for line in self.raw.decode().split("\n\n") if line]
        return [json.loads(line) for line in lines if line != "[DONE]"]

    @property
    def text(self) -> str:
        """What was completed, whole or streamed."""
        if self.raw.startswith(b"data:"):
            return "".join(c["choices"][0]["text"] for c in self.events if c["choices"])
        return str(self.json["choices"][0]["text"])


@contextmanager
def service(target: Path, log: Path, **options: Any) -> Iterator[Service]:
    """Serve `target`; the options are those of `_main`."""
    wanted = json.dumps({"target": str(target), **options}, default=str)
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.models.service", wanted],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=Path(__file__).parents[2],
            env=os.environ | {"OMP_WAIT_POLICY": "passive"},
        )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert url, log.read_text()
        yield Service(url, process, log)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(
    service: Service,
    path: str,
    body: object = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request: a POST of `body` (JSON, or bytes as they are) where there is one, else a GET."""
    raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    given = {} if raw is None else {"Content-Type": "application/json"}
    connection = HTTPConnection("127.0.0.1", service.port, timeout=SECONDS_MAX)
    try:
        connection.request(
            "GET" if raw is None else "POST", path, raw, {**given, **(headers or {})}
        )
        answer = connection.getresponse()
        headers_back = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(answer.status, headers_back, answer.read())
    finally:
        connection.close()


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def n_waiting(running: Service) -> int:
    return int(ask(running, "/health").json["waiting"])


@contextmanager
def stream(running: Service, body: object, receive_buffer: int = 0) -> Iterator[socket.socket]:
    """A connection whose reply has begun, and of which nothing more is read."""
    raw = json.dumps(body).encode()
    head = f"POST {TEXT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with closing(socket.socket()) as sock:
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(SECONDS_MAX)
        sock.connect(("127.0.0.1", running.port))
        sock.sendall(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
        assert sock.recv(15) == b"HTTP/1.1 200 OK"
        yield sock


def rest_of(sock: socket.socket) -> bytes:
    """What comes until the service closes the connection."""
    received = b""
    try:
        while block := sock.recv(1 << 16):
            received += block
    except ConnectionError:
        pass
    return received


@contextmanager
def clients(n: int) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(n) as pool:
        yield pool


def asked(pool: ThreadPoolExecutor, running: Service, key: str = "a") -> Future[Answer]:
    return pool.submit(ask, running, TEXT, SHORT, headers={"Authorization": f"Bearer {key}"})


def _main(
    target: str,
    *,
    settings: dict[str, Any] | None = None,
    temp: float = 0.0,
    limits: dict[str, Any] | None = None,
    fail_at: int = 0,
    seconds_decode: float = 0.0,
    **options: Any,
) -> None:
    """Serve until a signal; the target's decode number `fail_at` fails, each takes so long."""
    from gguftools.service import serve_session
    from gguftools.service.limits import Limits
    from gguftools.speculative.plan import Settings
    from gguftools.speculative.sampling import Chain
    from gguftools.speculative.session import open_session

    given: dict[str, Any] = {k: Path(v) if k == "draft" else v for k, v in (settings or {}).items()}
    chosen: dict[str, Any] = {"drafter": "none", "n_ctx": 1024, "n_threads": 1, "seed": 1, **given}
    with open_session(Settings(Path(target), chain=Chain(temp=temp), **chosen)) as session:
        if fail_at or seconds_decode:
            _hamper(session, fail_at, seconds_decode)
        serve_session(
            session,
            **{"model_name": MODEL, "port": 0, "queue_max": 64, **options},
            ready=lambda url: print(url, flush=True),
            limits=Limits(**(limits or {})),
        )
    print("closed", flush=True)


def _hamper(session: Any, fail_at: int, seconds: float) -> None:
    """A large model's slowness, and llama_decode's failure where memory is short."""
    from gguftools.errors import EngineError

    decode, calls = session.target._decode, count(1)

    def hampered(*args: Any) -> None:
        time.sleep(seconds)
        if next(calls) == fail_at:
            raise EngineError("llama_decode returned -3: no memory", where="/secret/path")
        decode(*args)

    session.target._decode = hampered


if __name__ == "__main__":
    _main(**json.loads(sys.argv[1]))
