"""Runs the service on a port until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from gguftools.errors import EngineError, UsageError
from gguftools.service.app import application
from gguftools.service.connection import Connection
from gguftools.service.guard import is_loopback
from gguftools.service.service import Service

_HEADERS = [
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
]
# A closed terminal is an end too, where there is such a signal.
_SIGNALS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
_SEND_BUFFER_BYTES = 1 << 16  # what an unread reply may take of the system's memory


def serve(
    service: Service, *, host: str, port: int, api_key: str | None, ready: Callable[[str], None]
) -> None:
    """Blocks; after it the port is free and nothing uses the session any more."""
    listener = _bound(host, port)
    address = listener.getsockname()
    limits = service.limits
    protocol = type("LimitedConnection", (Connection,), {"limits": limits})
    config = uvicorn.Config(
        application(service, api_key=api_key, loopback=is_loopback(address[0])),
        loop="asyncio",
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        headers=_HEADERS,
        limit_concurrency=limits.n_connections,
        timeout_graceful_shutdown=limits.seconds_stop,
    )
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]
    server = _Server(config, service, lambda: ready(f"http://{shown}:{address[1]}"))
    try:
        asyncio.run(server.serve(sockets=[listener]))
    finally:
        listener.close()
        service.end()


class _Server(uvicorn.Server):
    """Ends what the service does before it waits for connections to end."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._ready = service, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's it does not raise the signal again once all is over."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self._end) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit  # a second signal does not wait for connections
        self.should_exit = True


def _bound(host: str, port: int) -> socket.socket:
    """A socket at the address, not listening yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as err:
        raise UsageError(f"no such address: {err.strerror or err}", where=f"--host {host}") from err
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        listener.bind(address)
        listener.listen()
    except OSError as err:
        listener.close()
        raise EngineError(
            f"cannot listen: {err.strerror or err}",
            where=f"{host}:{port}",
            hint="another --port, or --port 0 for a free one",
        ) from err
    return listener
